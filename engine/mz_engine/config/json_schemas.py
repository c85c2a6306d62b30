"""JSON Schemas (draft 7, which editors read) of pipelines, and of the lines of `mz log --json`."""

from __future__ import annotations

from typing import Any

import msgspec
from mz_events.catalog.base import Event
from mz_events.codec import ALL_EVENTS, type_of

from mz_engine.config.schema import JSON_SCHEMA_DRAFT, json_schema
from mz_engine.model.pipeline import Pipeline

TEXT, NUMBER = {"type": "string"}, {"type": "integer", "minimum": 1}
VERSION_LINE = {
    "description": "The first line.",
    "type": "object",
    "required": ["type", "schema"],
    "properties": {"type": {"const": "version"}, "schema": {"const": "mz.log/1"}},
}


def pipeline_schema() -> dict[str, Any]:
    """Return the schema of `pipelines/NAME.yaml`."""
    return json_schema(Pipeline, "a pipeline of mz")


def events_schema() -> dict[str, Any]:
    """Return the schema of one line of `mz log --json`: the version line, or an event of any type."""
    schemas, definitions = msgspec.json.schema_components(ALL_EVENTS, ref_template="#/definitions/{name}")
    names = [schema["$ref"].rpartition("/")[2] for schema in schemas]
    for name in names:
        definitions[name] = _without_tag(definitions[name])
    lines = [_line_schema(kind, schema) for kind, schema in zip(ALL_EVENTS, schemas, strict=True)]
    return {
        "$schema": JSON_SCHEMA_DRAFT,
        "title": "a line of mz log --json",
        "anyOf": [VERSION_LINE, *lines],
        "definitions": definitions,
    }


def _without_tag(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove the type from an event's schema: a line has it next to the event."""
    properties = {name: value for name, value in schema["properties"].items() if name != "type"}
    required = [name for name in schema.get("required", ()) if name != "type"]
    return {**schema, "properties": properties, "required": required}


def _line_schema(kind: type[Event], event: dict[str, Any]) -> dict[str, Any]:
    properties = {
        "type": {"const": type_of(kind)},
        "role": {"enum": ["intent", "outcome", "external", "derived"]},
        "event_ref": {"type": "string", "pattern": "@[0-9]+$", "description": "`stream@version`."},
        "stream": TEXT,
        "version": NUMBER,
        "position": NUMBER,
        "recorded_at": TEXT,
        "observed_at": TEXT,
        "causation": {"type": ["string", "null"], "description": "Reference of the event that caused it."},
        "event": event,
    }
    return {"type": "object", "properties": properties, "required": list(properties)}
