"""Pure: the workflow for GitHub Actions that `mz init --ci` writes: every recording is replayed, for nothing.

It asks for no secret and no key, may read the repository's contents and nothing else but for the one right that showing
alerts needs, and names actions by their major version.
"""

from __future__ import annotations

import json

from mz_engine.starter import Detected

WORKFLOW = ".github/workflows/mz.yml"
REPORTS = "mz-reports"
"""Where the workflow leaves its reports."""

_WORKFLOW = """\
# Plays the recordings of this repository's agents through today's pipeline: prompts, rules, gates and parsers are real,
# only the answers are recorded. It calls no model, needs no key and costs nothing.
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
    # What the gates run has to be here as well: add what else this project's tests need.
    - name: Install mz
      run: python -m pip install --disable-pip-version-check mz-engine=={version}
{setup}
    # Ubuntu lets programs make no network namespace; with one, whoever tries to reach the network is found out.
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
    # Replays have no network: what the set-up of a worktree would download is put into caches before.
    - name: Fill the caches of the set-up
      run: |
{commands}
"""


def workflow(detected: Detected, version: str) -> str:
    """Text of the workflow, for this version of `mz`."""
    lines = "\n".join(f"        {command}" for command in detected.setup)
    setup = _SETUP.format(commands=lines) if detected.setup else ""
    base = json.dumps(detected.base or "main", ensure_ascii=False)
    return _WORKFLOW.format(base=base, version=version, setup=setup, reports=REPORTS)
