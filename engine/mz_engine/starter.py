"""Pure: the first `mz.yaml` and backlog of a repository, as `mz init` writes them."""

from __future__ import annotations

import json
from typing import Literal

import msgspec

from mz_engine.config import Config, PullRequests, WorkspaceSettings
from mz_engine.configform import SCHEMA_PATH
from mz_engine.pipelines.definition import Autonomy

Strategy = Literal["none", "draft", "ready"]


class Detected(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a repository that mz has not worked in yet."""

    stacks: tuple[str, ...] = ()
    """Such as `python` and `node`."""
    base: str | None = None
    """The remote's default branch where it is here too, else the one that is checked out; None when there is none."""
    has_commit: bool = False
    remote: str | None = None
    """`origin`, or else the first one; None when there is none."""
    commands: dict[str, str] = {}
    """Command lines by name, `test` first; empty when nothing was recognised."""
    setup: tuple[str, ...] = ()
    """Commands that a fresh worktree needs before the others work."""
    keep: tuple[str, ...] = ()
    """Ignored directories that are dear to make again."""


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What a person decides, or leaves as it is."""

    agent: str = Config().agent
    autonomy: Autonomy = Config().autonomy
    strategy: Strategy = PullRequests().strategy
    test: str = ""
    """Command line; empty: none."""


_CONFIG = """\
# yaml-language-server: $schema={schema}
# $schema: {schema}
#
# Settings of mz for this repository; `mz config show --origin` prints all of them.
# A flag wins over a variable (MZ_AGENT=...), which wins over this file.

agent: {agent}
pipeline: monozukuri
{base}backlog: features.md

# How often a person is asked: supervised (after planning too), checkpoint (at gates), full_auto (never).
autonomy: {autonomy}
parallel_max: 2

# What is run on the agents' work, by name. A gate whose command is not here is left out.
{commands}
# A fresh worktree has neither dependencies nor build results.
workspace:
  setup: {setup}
  keep: {keep}

# none: nothing leaves this machine; draft or ready: branches are pushed and pull requests opened.
pull_requests:
  strategy: {strategy}
{remote}
# US dollars. Without a line there is no limit.
budget:
  feature: "5.00"
  run: "20.00"
"""

_NO_COMMANDS = """\
# mz found no way to test this project. Without `test` it takes the agents' word that their work is good.
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


def starter_config(detected: Detected, choices: Choices) -> str:
    """Text of an `mz.yaml` that its own schema accepts."""
    named = {**detected.commands, "test": choices.test}
    ordered = {name: named[name] for name in ("test", *detected.commands) if named[name]}
    commands = "".join(f"  {name}: {_quoted(command)}\n" for name, command in ordered.items())
    elsewhere = detected.remote is not None and detected.remote != PullRequests().remote
    return _CONFIG.format(
        schema=SCHEMA_PATH,
        agent=choices.agent,
        autonomy=choices.autonomy,
        strategy=choices.strategy,
        base=f"base: {_quoted(detected.base)}\n" if detected.base else "",
        commands=f"commands:\n{commands}" if commands else _NO_COMMANDS,
        setup=_list(detected.setup),
        keep=_list(detected.keep or WorkspaceSettings().keep),
        remote=f"  remote: {_quoted(detected.remote or '')}\n" if elsewhere else "",
    )


def starter_backlog() -> str:
    """Text of a `features.md` that parses, with one example feature."""
    return _BACKLOG


def _list(texts: tuple[str, ...]) -> str:
    return f"[{', '.join(_quoted(each) for each in texts)}]"


def _quoted(text: str) -> str:
    """A JSON string is a YAML string."""
    return json.dumps(text, ensure_ascii=False)
