"""Effects that write JSON Schemas of an agent's outputs into its worktree, in a folder that captures skip."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from mz_events.names import Path

from mz_engine.artifacts.schema import artifact_schema
from mz_engine.effects.steps import StepContext, Steps, call_port
from mz_engine.pins import Pins
from mz_engine.pipelines.definition import PhaseOutput

SCHEMA_FOLDER = ".mz/schemas"


def schema_path(output: PhaseOutput, pins: Pins) -> str:
    """Return the path of the artifact's schema in a worktree; empty if the artifact is not JSON."""
    return f"{SCHEMA_FOLDER}/{output.rules}.json" if pins.rules[output.rules].form == "json" else ""


def write_schemas(context: StepContext, outputs: tuple[PhaseOutput, ...]) -> Steps[None]:
    """Write the schemas into the worktree before a call."""
    files = schema_files(outputs, context.pins)
    if files:
        yield from call_port("workspace.provide", lambda ports: ports.workspace.provide(context.worktree, files))


def schema_files(outputs: tuple[PhaseOutput, ...], pins: Pins) -> Mapping[Path, bytes]:
    """Return the schema files by path in the worktree."""
    rules, limits = pins.rules, pins.config.limits
    return {
        Path(path): msgspec.json.format(msgspec.json.encode(artifact_schema(rules[output.rules], limits)), indent=2)
        + b"\n"
        for output in outputs
        if (path := schema_path(output, pins))
    }
