"""Command `mz schema`."""

from __future__ import annotations

import sys

import click
import msgspec
from mz_engine.artifacts.json_schema import artifact_schema
from mz_engine.artifacts.load import load_rules
from mz_engine.config.schema import config_schema, events_schema, pipeline_schema
from mz_engine.model.config import Limits

from mz_cli.app.help import command
from mz_cli.terminal.console import write_text

SCHEMAS = {"config": config_schema, "pipeline": pipeline_schema, "events": events_schema}
ARTIFACTS = (
    "tasks", "commit_summary", "verdict", "block",
    "criteria", "services", "graph", "work", "owasp", "compatibility", "lessons", "proposals",
)  # fmt: skip
"""Built-in rule sets of JSON and YAML artifacts; a test checks that the list is complete."""


@command(
    "schema",
    examples=(
        ("mz schema config", "of mz.yaml; `mz init` writes it to the path in mz.yaml's first lines"),
        ("mz schema pipeline > .mz/schema/pipeline.json", "of pipelines/NAME.yaml"),
        ("mz schema events", "of a line of `mz log --json`"),
        ("mz schema tasks", "of an artifact; agents find it in .mz/schemas of their worktree"),
    ),
    next_command="`mz config validate` checks the files.",
)
@click.argument("name", type=click.Choice([*SCHEMAS, *ARTIFACTS]))
def schema(name: str) -> None:
    """Print a JSON Schema, for editors and for programs.

    Draft 7. Put `# yaml-language-server: $schema=PATH` (for JetBrains `# $schema: PATH`) on the first lines of a YAML
    file, with the path from that file to the schema.
    """
    json_schema = SCHEMAS[name]() if name in SCHEMAS else artifact_schema(load_rules()[name], Limits())
    text = msgspec.json.format(msgspec.json.encode(json_schema), indent=2)
    write_text(sys.stdout, text.decode() + "\n")
