"""Effects that write JSON Schemas of an agent's outputs into its worktree, in a folder that captures skip."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from mz_events.names import Path

from mz_engine.artifacts.schema import artifact_schema
from mz_engine.effects.steps import Scene, Steps, do
from mz_engine.pins import Pins
from mz_engine.pipelines.definition import Output

FOLDER = ".mz/schemas"


def schema_path(output: Output, pins: Pins) -> str:
    """Return the path of the artifact's schema in a worktree; empty if the artifact is not JSON."""
    return f"{FOLDER}/{output.rules}.json" if pins.rules[output.rules].form == "json" else ""


def provide_schemas(scene: Scene, outputs: tuple[Output, ...]) -> Steps[None]:
    """Write the schemas into the worktree before a call."""
    files = schemas_of(outputs, scene.pins)
    if files:
        yield from do("workspace.provide", lambda ports: ports.workspace.provide(scene.place, files))


def schemas_of(outputs: tuple[Output, ...], pins: Pins) -> Mapping[Path, bytes]:
    """Return the schema files by path in the worktree."""
    rules, limits = pins.rules, pins.config.limits
    return {
        Path(path): msgspec.json.format(msgspec.json.encode(artifact_schema(rules[output.rules], limits)), indent=2)
        + b"\n"
        for output in outputs
        if (path := schema_path(output, pins))
    }
