"""The first `mz.yaml` and backlog of a repository, as `mz init` writes them, and the workflow of `mz init --ci`.

The workflow replays every recording, offline and free. It needs no secret, may only read the repository's contents and
write code scanning alerts, and pins actions to their major version. The texts are in `starter/`.
"""

from __future__ import annotations

import json
from functools import partial
from importlib.resources import files
from shlex import quote
from typing import Literal

import msgspec
from msgspec.structs import asdict

from mz_engine.model.config import SCHEMA_PATH, Config, PullRequests, WorkspaceSettings
from mz_engine.model.pipeline import Autonomy

Strategy = Literal["none", "draft", "ready"]
WORKFLOW_PATH = ".github/workflows/mz.yml"
REPORTS_FOLDER = "mz-reports"
"""Folder of the workflow's reports."""


class DetectedProject(msgspec.Struct, frozen=True, kw_only=True):
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


def starter_config(detected: DetectedProject, choices: InitChoices) -> str:
    """Return the text of an `mz.yaml` that its schema accepts."""
    commands = {"test": choices.test, **{name: line for name, line in detected.commands.items() if name != "test"}}
    values = {
        **asdict(choices),
        **asdict(detected),
        "commands": [(name, line) for name, line in commands.items() if line],
        "keep": detected.keep or WorkspaceSettings().keep_ignored,
        "remote": detected.remote if detected.remote != PullRequests().remote else None,
    }
    return _render("mz.yaml.j2", schema=SCHEMA_PATH, **values)


def starter_backlog() -> str:
    """Return the text of a valid `features.md` with one example feature."""
    return _render("features.md")


def workflow_text(
    requirement: str,
    programs: tuple[str, ...] = (),
    setup: tuple[str, ...] = (),
    base: str | None = None,
    library: str = Config().recordings,
) -> str:
    """Return the text of the workflow. `requirement`: what pip installs as `mz`; `programs`: commands that install the
    programs of the project's commands; `library`: folder of the cassettes."""
    values = {"requirement": requirement, "programs": programs, "setup": setup, "library": library}
    return _render("workflow.yml.j2", base=base or "main", **values, reports=REPORTS_FOLDER)


def _render(name: str, **values: object) -> str:
    """Render a text of `starter/`. Its marks are `<% %>` and `<< >>`, since a workflow has `{{ }}` of its own."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters["quoted"] = partial(json.dumps, ensure_ascii=False)  # Every JSON string is a YAML string.
    environment.filters["shell"] = quote
    text = (files("mz_engine.setup") / "starter" / name).read_text("utf-8")
    return environment.from_string(text).render(values)
