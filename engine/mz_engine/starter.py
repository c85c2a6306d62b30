"""Pure: the first `mz.yaml` and backlog of a repository, as `mz init` writes them."""

from __future__ import annotations

import json

import msgspec

from mz_engine.configform import SCHEMA_PATH


class Detected(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a repository that mz has not worked in yet."""

    base: str | None = None
    """The branch that is checked out; None when there is none."""
    commands: dict[str, str] = {}
    """Command lines by name, `test` first; empty when nothing was recognised."""
    setup: tuple[str, ...] = ()
    """Commands that a fresh worktree needs before the others work."""


_CONFIG = """\
# yaml-language-server: $schema={schema}
# $schema: {schema}
#
# Settings of mz for this repository; docs/configuration.md of mz explains each.
# A flag wins over a variable (MZ_AGENT=...), which wins over this file.

agent: claude-code
pipeline: monozukuri
{base}backlog: features.md

# How often a person is asked: supervised (after planning too), checkpoint (at gates), full_auto (never).
autonomy: checkpoint
parallel_max: 2

# What is run on the agents' work, by name. A gate whose command is not here is left out.
{commands}
# A fresh worktree has neither dependencies nor build results.
workspace:
  setup: {setup}
  keep: [node_modules, .venv]

# none: nothing leaves this machine; draft or ready: branches are pushed and pull requests opened.
pull_requests:
  strategy: none

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


def starter_config(detected: Detected) -> str:
    """Text of an `mz.yaml` that its own schema accepts."""
    commands = "".join(f"  {name}: {_quoted(command)}\n" for name, command in detected.commands.items())
    return _CONFIG.format(
        schema=SCHEMA_PATH,
        base=f"base: {_quoted(detected.base)}\n" if detected.base else "",
        commands=f"commands:\n{commands}" if commands else _NO_COMMANDS,
        setup=f"[{', '.join(_quoted(each) for each in detected.setup)}]",
    )


def starter_backlog() -> str:
    """Text of a `features.md` that parses, with one example feature."""
    return _BACKLOG


def _quoted(text: str) -> str:
    """A JSON string is a YAML string."""
    return json.dumps(text, ensure_ascii=False)
