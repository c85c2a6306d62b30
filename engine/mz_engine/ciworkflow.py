"""The GitHub Actions workflow that `mz init --ci` writes: it replays every recording, offline and free.

It needs no secret, may only read the repository's contents and write code scanning alerts, and pins actions to their
major version.
"""

from __future__ import annotations

import json

from mz_engine.starter import DetectedProject

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
        mz replay -n 2 --github --junit {reports}/junit.xml --sarif {reports}/mz.sarif --html {reports}/mz.html

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
