"""Commands `mz config show` and `mz config validate`."""

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

NO_FILE = f"no {FILE_NAME}: all settings have their defaults"


@section(
    "config",
    examples=(
        ("mz config show --origin", "every setting and the origin of its value"),
        ("mz config validate", "all errors, with their lines"),
    ),
    following="`mz schema config` prints the schema for editors; docs/configuration.md explains each setting.",
)
def config() -> None:
    """Show and check the settings.

    Settings come from mz.yaml at the root of the repository and from environment variables: budget.run is
    MZ_BUDGET_RUN. A command-line option overrides a variable, a variable the file, and the file the default.
    """


@config.page(
    "show",
    examples=(
        ("mz config show", "the effective settings"),
        (
            "mz config show --json | jq -r '.settings[] | select(.origin != \"default\") | .name'",
            "non-default settings",
        ),
    ),
    following="`mz config validate` checks the pipeline and the backlog too.",
)
@click.option("--origin", is_flag=True, help="Show the origin of each value: default, mz.yaml:LINE or a variable.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.config-show/1.")
def show(origin: bool, as_json: bool) -> None:
    """Print the effective value of every setting.

    Secrets in command lines are masked.
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
    examples=(("mz config validate", "before a run, and in CI"),),
    following="`mz doctor` checks that the programs named in the settings are installed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.config-validate/1.")
def validate(as_json: bool) -> None:
    """Check mz.yaml, the variables, the pipeline and the backlog.

    Reports all errors at once, with file, line and column, and exits with 10. `mz doctor` checks the agent, its
    login, the programs of commands and the remote.
    """
    root = find_home(Path.cwd())
    loaded = load_config(root, os.environ, {})
    errors: list[Diagnostic] = list(wrong_names(root, loaded, os.environ))
    warnings, features, pipeline = list(loaded.warnings), None, loaded.config.pipeline
    try:
        definition, lint = load_named(loaded, root)
        lint = (*lint, *foreseen(definition, loaded.config, os.environ))
        pipeline, warnings = definition.pipeline, [*warnings, *in_short(lint, definition, loaded.config.commands)]
    except MzError as error:
        errors += error.diagnostics
    try:
        if os.path.lexists(root / loaded.config.backlog) or loaded.origins["backlog"] != "default":
            features = len(read_backlog(root, loaded.config.backlog))
    except MzError as error:
        errors += error.diagnostics
    if errors:
        raise MzError.of((*errors, *warnings))
    if as_json:
        file, texts = FILE_NAME if loaded.found else None, tuple(map(format_diagnostic, warnings))
        shape = ValidShape(repository=str(root), file=file, pipeline=pipeline, features=features, warnings=texts)
        show_document("config-validate", shape)
        return
    answer(f"{FILE_NAME} is valid" if loaded.found else NO_FILE)
    answer(f"pipeline {pipeline} is valid")
    agents = tuple(dict.fromkeys((loaded.config.agent, *loaded.config.failover)))
    supported, check = f"agent {agents[0]}: supported", "that it is installed"
    if agents[1:]:
        supported, check = f"agents {', then '.join(agents)}: supported", "that they are installed"
    answer(f"{supported}; run `mz doctor` to check {check}")
    backlog = loaded.config.backlog
    answer(f"no {backlog} yet" if features is None else f"{backlog} is valid; features: {features}")
    warn(warnings)


def wrong_names(root: Path, loaded: Loaded, environment: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Yield errors for agents unknown to mz and a base unknown to git."""
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
            message, _, hint = str(error).partition("; ")
            if error.code == "no-base":
                yield from loaded.blamed("base", MzError("MZ2013", f"`base`: {message}", hint=hint)).diagnostics


def setting_shapes(loaded: Loaded, environment: Mapping[str, str]) -> tuple[SettingShape, ...]:
    """Return the settings in the order of the schema; each command is its own setting."""
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
    """Return the value with secrets in its texts masked."""
    match value:
        case str():
            return secrets.redact(value)
        case list() | tuple():
            return [masked(each, secrets) for each in value]
        case dict():
            return {key: masked(each, secrets) for key, each in value.items()}
    return value


def said(value: object) -> str:
    """Return the value as in mz.yaml, without quotes."""
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
    for text in dict.fromkeys(map(format_diagnostic, warnings)):
        note(text)
