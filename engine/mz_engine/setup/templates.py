"""The first `mz.yaml` and backlog of a repository, as `mz init` writes them.

The GitHub Actions workflow that `mz init --ci` writes: it replays every recording, offline and free.

It needs no secret, may only read the repository's contents and write code scanning alerts, and pins actions to their
major version.
"""

from __future__ import annotations

import json
from typing import Literal

import msgspec

from mz_engine.model.config import SCHEMA_PATH, Config, PullRequests, WorkspaceSettings
from mz_engine.model.pipeline import Autonomy

Strategy = Literal["none", "draft", "ready"]


class DetectedProject(msgspec.Struct, frozen=True, kw_only=True):
    """Detected properties of a repository."""

    stacks: tuple[str, ...] = ()
    """Names such as `python` and `node`."""
    base: str | None = None
    """The remote's default branch if it exists here too, else the one that is checked out; None if there is none."""
    has_commit: bool = False
    remote: str | None = None
    """`origin`, or else the first one; None if there is none."""
    commands: dict[str, str] = {}
    """Command lines by name, `test` first; empty if none was detected."""
    setup: tuple[str, ...] = ()
    """Commands that a new worktree needs before the others work."""
    keep: tuple[str, ...] = ()
    """Ignored directories that are slow to rebuild."""


class InitChoices(msgspec.Struct, frozen=True, kw_only=True):
    """Choices of the user in `mz init`, with defaults."""

    agent: str = Config().agent
    autonomy: Autonomy = Config().autonomy
    strategy: Strategy = PullRequests().strategy
    test: str = ""
    """Command line; empty: none."""


_CONFIG = """\
# yaml-language-server: $schema={schema}
# $schema: {schema}
#
# Settings of mz for this repository; `mz config show --show-origin` prints all of them.
# A flag wins over a variable (MZ_AGENT=...), which wins over this file.

agent: {agent}
pipeline: monozukuri
{base}backlog: features.md

# How often a person is asked: supervised (after planning too), checkpoint (at gates), full_auto (never).
autonomy: {autonomy}
parallel_max: 2

# Commands that check the agents' work, by name. A gate without its command is skipped.
{commands}
# A new worktree has neither dependencies nor build results.
workspace:
  setup: {setup}
  keep_ignored: {keep}

# none: nothing leaves this machine; draft or ready: mz pushes branches and opens pull requests.
pull_requests:
  strategy: {strategy}
{remote}
# US dollars. Without a line there is no limit.
budget:
  feature: "5.00"
  run: "20.00"
"""

_NO_COMMANDS = """\
# mz found no way to test this project. Without a `test` command the agents' work is not tested.
# commands:
#   test: make test
"""

_BACKLOG = """\
# Features

<!--
A feature is a heading of level 2, `[STATUS] id: title`, and all the text up to the next one. STATUS is FEAT, WIP, DONE
or BLOCKED; only FEAT is worked on. Lines such as these say more about it:

- priority: high
- labels: api, small
- depends on: another-id
-->

## [FEAT] first-feature: Say in one line what is to be different

- priority: medium

Say who needs it and why, what has to work afterwards, how one can see that it does, and what is not part of it.
"""


def starter_config(detected: DetectedProject, choices: InitChoices) -> str:
    """Return the text of an `mz.yaml` that its schema accepts."""
    lines = {**detected.commands, "test": choices.test}
    ordered = {name: lines[name] for name in ("test", *detected.commands) if lines[name]}
    commands = "".join(f"  {name}: {_quoted(command)}\n" for name, command in ordered.items())
    has_other_remote = detected.remote is not None and detected.remote != PullRequests().remote
    return _CONFIG.format(
        schema=SCHEMA_PATH,
        agent=choices.agent,
        autonomy=choices.autonomy,
        strategy=choices.strategy,
        base=f"base: {_quoted(detected.base)}\n" if detected.base else "",
        commands=f"commands:\n{commands}" if commands else _NO_COMMANDS,
        setup=_yaml_list(detected.setup),
        keep=_yaml_list(detected.keep or WorkspaceSettings().keep_ignored),
        remote=f"  remote: {_quoted(detected.remote or '')}\n" if has_other_remote else "",
    )


def starter_backlog() -> str:
    """Return the text of a valid `features.md` with one example feature."""
    return _BACKLOG


def _yaml_list(texts: tuple[str, ...]) -> str:
    return f"[{', '.join(_quoted(text) for text in texts)}]"


def _quoted(text: str) -> str:
    """Quote a text for YAML; every JSON string is a YAML string."""
    return json.dumps(text, ensure_ascii=False)


WORKFLOW_PATH = ".github/workflows/mz.yml"
REPORTS_FOLDER = "mz-reports"
"""Folder of the workflow's reports."""

_WORKFLOW = """\
# Replays the recordings of this repository's agents through the current pipeline: prompts, rules, gates and parsers are
# real, only the replies are recorded. Calls no model, needs no key and costs nothing.
# Written by `mz init --ci`, which never changes it again: it is yours.
name: mz

on:
  pull_request:
  push:
    branches: [{base}]
  workflow_dispatch:

permissions:
  contents: read

concurrency:
  group: mz-${{{{ github.ref }}}}
  cancel-in-progress: true

jobs:
  replay:
    runs-on: ubuntu-latest
    timeout-minutes: 30
    permissions:
      contents: read
      security-events: write  # for the alerts of the last step alone
    steps:
    - uses: actions/checkout@v6
      with:
        persist-credentials: false

    - uses: actions/setup-python@v6
      with:
        python-version: "3.12"

    # Until mz-engine is on PyPI: name a wheel, a checkout or a git URL here instead.
    # The gates run this project's commands: also install what its tests need.
    - name: Install mz
      run: python -m pip install --disable-pip-version-check mz-engine=={version}
{setup}
    # Ubuntu forbids network namespaces; with one, mz detects any program that tries to reach the network.
    - name: Allow network namespaces
      run: sudo sysctl --quiet --write kernel.apparmor_restrict_unprivileged_userns=0 || true

    - name: Replay
      run: |
        mkdir -p {reports}
        mz replay -j 2 --github --junit {reports}/junit.xml --sarif {reports}/mz.sarif --html {reports}/mz.html

    - name: Keep the reports
      if: ${{{{ !cancelled() && hashFiles('{reports}/*') != '' }}}}
      uses: actions/upload-artifact@v6
      with:
        name: {reports}
        path: {reports}/

    # Public repositories have alerts. In a private one that has code scanning, set the variable MZ_ALERTS to true.
    # A pull request from a fork may not write them.
    - name: Show alerts on the lines they are about
      if: >-
        ${{{{ !cancelled() && hashFiles('{reports}/mz.sarif') != ''
        && (github.event.repository.visibility == 'public' || vars.MZ_ALERTS == 'true')
        && (github.event_name != 'pull_request'
        || github.event.pull_request.head.repo.full_name == github.repository) }}}}
      uses: github/codeql-action/upload-sarif@v4
      with:
        sarif_file: {reports}/mz.sarif
        category: mz
"""

_SETUP = """
    # Replays have no network, so downloads of the worktree set-up are cached first.
    - name: Fill the caches of the set-up
      run: |
{commands}
"""


def workflow_text(detected: DetectedProject, version: str) -> str:
    """Return the text of the workflow, for this version of `mz`."""
    lines = "\n".join(f"        {command}" for command in detected.setup)
    setup = _SETUP.format(commands=lines) if detected.setup else ""
    base = json.dumps(detected.base or "main", ensure_ascii=False)
    return _WORKFLOW.format(base=base, version=version, setup=setup, reports=REPORTS_FOLDER)
