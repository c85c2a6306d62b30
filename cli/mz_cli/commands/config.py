"""Adapter: `mz config`: which settings are in effect, where each comes from, and whether they are valid."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click
from mz_engine.adapters.git_repository import branch_commit
from mz_engine.adapters.known_secrets import secret_values
from mz_engine.backlog.file import read_backlog
from mz_engine.configfile import Loaded, load_config
from mz_engine.configform import FILE_NAME
from mz_engine.configure import settings
from mz_engine.errors import Diagnostic, MzError, format_diagnostic
from mz_engine.pipelines.lint import in_short
from mz_engine.planning import foreseen, load_named
from mz_engine.ports import RepositoryUnusable
from mz_engine.preflight import known_agent
from mz_events.redact import Secrets

from mz_cli.context import find_home
from mz_cli.help import section
from mz_cli.render.cells import width
from mz_cli.render.console import answer, is_terminal, note
from mz_cli.render.document import show_document
from mz_cli.render.draw import show as show_table
from mz_cli.render.table import Table, columns
from mz_cli.render.text import line
from mz_cli.shapes.project import ConfigShape, SettingShape, ValidShape

NO_FILE = f"there is no {FILE_NAME}: all is as by default"


@section(
    "config",
    examples=(
        ("mz config show --origin", "every setting, and where its value comes from"),
        ("mz config validate", "everything that is wrong, with its line"),
    ),
    following="`mz schema config` prints what editors check it with; docs/configuration.md explains each setting.",
)
def config() -> None:
    """Show and check the settings.

    They come from mz.yaml at the root of the repository, and from variables: budget.run is MZ_BUDGET_RUN. A flag of
    a command wins over a variable, the variable over the file, the file over the default.
    """


@config.page(
    "show",
    examples=(
        ("mz config show", "what is in effect"),
        ("mz config show --json | jq -r '.settings[] | select(.origin != \"default\") | .name'", "what was set"),
    ),
    following="`mz config validate` checks the pipeline and the backlog too.",
)
@click.option("--origin", is_flag=True, help="Say of each where it comes from: default, mz.yaml:LINE or a variable.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.config-show/1.")
def show(origin: bool, as_json: bool) -> None:
    """Print every setting as it is in effect.

    Secrets that stand in a command line are masked.
    """
    root = find_home(Path.cwd())
    loaded = load_config(root, os.environ, {})
    shapes = setting_shapes(loaded, os.environ)
    if as_json:
        file = FILE_NAME if loaded.found else None
        show_document("config-show", ConfigShape(repository=str(root), file=file, settings=shapes))
    elif is_terminal(sys.stdout):
        room = max(width(each.name) for each in shapes)
        for each in shapes:
            answer(f"{each.name:<{room}}  {line(said(each.value))}{f'  ({each.origin})' if origin else ''}")
        warn(loaded.warnings)
    else:
        heads = columns("setting", "value", *(("origin",) if origin else ()))
        rows = tuple((each.name, said(each.value), *((each.origin,) if origin else ())) for each in shapes)
        show_table(Table(columns=heads, rows=rows, empty=""))
        warn(loaded.warnings)


@config.page(
    "validate",
    examples=(("mz config validate", "before a run, and in a build"),),
    following="`mz doctor` looks whether the programs that the settings name are there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.config-validate/1.")
def validate(as_json: bool) -> None:
    """Check mz.yaml, the variables, the pipeline and the backlog.

    Says all that is wrong at once, with file, line and column, and then exits with 10. Whether the agent, its login,
    the programs of commands and the remote are there, `mz doctor` says.
    """
    root = find_home(Path.cwd())
    loaded = load_config(root, os.environ, {})
    wrong: list[Diagnostic] = list(wrong_names(root, loaded, os.environ))
    warnings, features, pipeline = list(loaded.warnings), None, loaded.config.pipeline
    try:
        found, lint = load_named(loaded, root)
        lint = (*lint, *foreseen(found, loaded.config, os.environ))
        pipeline, warnings = found.pipeline, [*warnings, *in_short(lint, found, loaded.config.commands)]
    except MzError as error:
        wrong += error.diagnostics
    try:
        if os.path.lexists(root / loaded.config.backlog) or loaded.origins["backlog"] != "default":
            features = len(read_backlog(root, loaded.config.backlog))
    except MzError as error:
        wrong += error.diagnostics
    if wrong:
        raise MzError.of((*wrong, *warnings))
    if as_json:
        file, said_of = FILE_NAME if loaded.found else None, tuple(format_diagnostic(each) for each in warnings)
        shape = ValidShape(repository=str(root), file=file, pipeline=pipeline, features=features, warnings=said_of)
        show_document("config-validate", shape)
        return
    answer(f"{FILE_NAME} is valid" if loaded.found else NO_FILE)
    answer(f"pipeline {pipeline} is valid")
    agents = tuple(dict.fromkeys((loaded.config.agent, *loaded.config.failover)))
    known, here = f"agent {agents[0]} is known", "it and all else is here"
    if agents[1:]:
        known, here = f"agents {', then '.join(agents)} are known", "they and all else are here"
    answer(f"{known}; `mz doctor` says whether {here}")
    backlog = loaded.config.backlog
    answer(f"there is no {backlog} yet" if features is None else f"{backlog} is valid; features in it: {features}")
    warn(warnings)


def wrong_names(root: Path, loaded: Loaded, environment: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Agents that mz does not know, and a base that git does not."""
    names = [("agent", loaded.config.agent), *(("failover", name) for name in loaded.config.failover)]
    for key, name in names:
        try:
            known_agent(name, loaded.config.agents)
        except MzError as error:
            yield from loaded.blamed(key, MzError("MZ2013", f"`{key}`: {error.message}", hint=error.hint)).diagnostics
    if loaded.config.base is not None:
        try:
            branch_commit(root, loaded.config.base, environment)
        except RepositoryUnusable as error:
            said, _, hint = str(error).partition("; ")
            if error.code == "no-base":
                yield from loaded.blamed("base", MzError("MZ2013", f"`base`: {said}", hint=hint)).diagnostics


def setting_shapes(loaded: Loaded, environment: Mapping[str, str]) -> tuple[SettingShape, ...]:
    """In the order of the file's form; a command is a setting of its own."""
    about = {each.name: each.description for each in settings()}
    secrets = Secrets(secret_values(environment))
    return tuple(
        SettingShape(
            name=name,
            value=masked(value, secrets),
            origin=loaded.origins[name],
            description=about.get(name) or about[name.partition(".")[0]],
        )
        for name, value in loaded.values.items()
    )


def masked(value: object, secrets: Secrets) -> object:
    """The same without secrets in its texts."""
    match value:
        case str():
            return secrets.redact(value)
        case list() | tuple():
            return [masked(each, secrets) for each in value]
        case dict():
            return {key: masked(each, secrets) for key, each in value.items()}
    return value


def said(value: object) -> str:
    """As a person would write it in the file, but for quotes."""
    match value:
        case None:
            return "-"
        case str():
            return value
        case list():
            return ", ".join(said(each) for each in value) or "-"
        case dict():
            return ", ".join(f"{key}: {said(each)}" for key, each in value.items()) or "-"
    return json.dumps(value)


def warn(warnings: Iterable[Diagnostic]) -> None:
    for each in dict.fromkeys(format_diagnostic(each) for each in warnings):
        note(each)
