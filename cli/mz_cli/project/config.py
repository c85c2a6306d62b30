"""Commands `mz config show` and `mz config validate`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from mz_engine.config.schema import list_settings
from mz_engine.errors.diagnostics import Diagnostic, format_diagnostic
from mz_engine.model.config import FILE_NAME
from mz_engine.pipelines.lint import summarise_warnings
from mz_engine.run.plan import load_sources
from mz_engine.run.settings import LoadedConfig, load_config
from mz_engine.secrets import environment_secrets
from mz_events.redaction.redactor import Secrets

from mz_cli.app.context import find_root
from mz_cli.app.help import command_family, format_options
from mz_cli.terminal.json import Shape
from mz_cli.terminal.table import Table, columns, print_output

NO_FILE = f"no {FILE_NAME}: all settings have their defaults"


class SettingShape(Shape, frozen=True, kw_only=True):
    name: str
    """Key in mz.yaml, such as `budget.run`."""
    value: Any
    """Value as in mz.yaml: text, number, list, mapping; null: none."""
    origin: str
    """`default`, `mz.yaml:14:7`, or the name of a variable."""
    description: str


class ConfigShape(Shape, frozen=True, kw_only=True):
    """`mz config show --json`: the settings in effect."""

    repository: str
    file: str | None
    """Null: no mz.yaml."""
    settings: tuple[SettingShape, ...]


class ConfigValidShape(Shape, frozen=True, kw_only=True):
    """`mz config validate --json` if everything is valid; errors go to stderr (`mz.error/1`)."""

    repository: str
    file: str | None
    pipeline: str
    features: int | None
    """Number of features in the backlog; null: no backlog yet."""
    warnings: tuple[str, ...]


@command_family(
    "config",
    examples=(
        ("mz config show --show-origin", "every setting and the origin of its value"),
        ("mz config validate", "all errors, with their lines"),
    ),
    next_command="`mz schema config` prints the schema for editors; docs/configuration.md explains each setting.",
)
def config() -> None:
    """Show and check the settings.

    Settings come from mz.yaml at the root of the repository and from environment variables: budget.run is
    MZ_BUDGET_RUN. A command-line option overrides a variable, a variable the file, and the file the default.
    """


@config.command(
    "show",
    examples=(
        ("mz config show", "the effective settings"),
        (
            "mz config show --json | jq -r '.settings[] | select(.origin != \"default\") | .name'",
            "non-default settings",
        ),
    ),
    next_command="`mz config validate` checks the pipeline and the backlog too.",
)
@click.option(
    "--show-origin", "origin", is_flag=True,
    help="Show the origin of each value: default, mz.yaml:LINE or a variable.",
)  # fmt: skip
@format_options("Print one object with the schema mz.config-show/1.")
def show(origin: bool, as_json: bool) -> None:
    """Print the effective value of every setting.

    Secrets in command lines are masked.
    """
    root = find_root(Path.cwd())
    loaded = load_config(root, os.environ, {})
    shapes = setting_shapes(loaded, os.environ)
    shown = ConfigShape(repository=str(root), file=FILE_NAME if loaded.file_exists else None, settings=shapes)
    names = ("setting", "~value", "origin") if origin else ("setting", "~value")
    rows = tuple((shape.name, value_text(shape.value) or "-", shape.origin)[: len(names)] for shape in shapes)
    table = Table(columns=columns(*names), rows=rows)
    print_output(as_json, "config-show", shown, table, unique_texts(loaded.warnings))


@config.command(
    "validate",
    examples=(("mz config validate", "before a run, and in CI"),),
    next_command="`mz doctor` checks that the programs named in the settings are installed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.config-validate/1.")
def validate(as_json: bool) -> None:
    """Check mz.yaml, the variables, the pipeline and the backlog.

    Reports all errors at once, with file, line and column, and exits with 10. `mz doctor` checks the agent, its
    login, the programs of commands and the remote.
    """
    root = find_root(Path.cwd())
    loaded = load_config(root, os.environ, {})
    sources = load_sources(root, os.environ, loaded, needs_backlog=False)
    pipeline, features = sources.pipeline.pipeline, None if sources.items is None else len(sources.items)
    warnings = summarise_warnings(sources.warnings, sources.pipeline, loaded.config)
    file, texts = FILE_NAME if loaded.file_exists else None, tuple(map(format_diagnostic, warnings))
    shape = ConfigValidShape(repository=str(root), file=file, pipeline=pipeline, features=features, warnings=texts)
    agents = ", then ".join(dict.fromkeys((loaded.config.agent, *loaded.config.failover)))
    backlog = loaded.config.backlog
    lines = (
        f"{FILE_NAME} is valid" if loaded.file_exists else NO_FILE,
        f"pipeline {pipeline} is valid",
        f"supported: {agents}; `mz doctor` checks the installation",
        f"no {backlog} yet" if features is None else f"{backlog} is valid; features: {features}",
    )
    print_output(as_json, "config-validate", shape, lines, unique_texts(warnings))


def setting_shapes(loaded: LoadedConfig, environment: Mapping[str, str]) -> tuple[SettingShape, ...]:
    """Return the settings in the order of the schema; each command is its own setting."""
    descriptions = {setting.name: setting.description for setting in list_settings()}
    secrets = Secrets(environment_secrets(environment))
    return tuple(
        SettingShape(
            name=name,
            value=mask_secrets(value, secrets),
            origin=loaded.origins[name],
            description=descriptions.get(name) or descriptions[name.partition(".")[0]],
        )
        for name, value in loaded.values.items()
    )


def mask_secrets(value: object, secrets: Secrets) -> object:
    """Return the value with secrets in its texts masked."""
    match value:
        case str():
            return secrets.redact(value)
        case list() | tuple():
            return [mask_secrets(item, secrets) for item in value]
        case dict():
            return {key: mask_secrets(item, secrets) for key, item in value.items()}
    return value


def value_text(value: object) -> str:
    """Return the value as in a YAML file, without quotes; empty for none."""
    match value:
        case None | str():
            return value or ""
        case list():
            return ", ".join(map(value_text, value))
        case dict():
            texts = {key: value_text(element) for key, element in value.items()}
            return "; ".join(f"{key}: {text}" for key, text in texts.items() if text)
    return json.dumps(value)


def unique_texts(warnings: Iterable[Diagnostic]) -> Iterable[str]:
    return dict.fromkeys(map(format_diagnostic, warnings))
