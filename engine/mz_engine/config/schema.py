"""Names of all settings, their checks across several keys, and JSON Schemas (draft 7, which editors read) of settings,
pipelines and the lines of `mz log --json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect
from mz_events.catalog.base import Event
from mz_events.codec import ALL_EVENTS, type_of

from mz_engine.config.agent_checks import description_errors
from mz_engine.decoding.quantity import encode_quantity, quantity_schema
from mz_engine.decoding.structs import DecodeError, format_key_path
from mz_engine.model.config import PriceRow, Settings
from mz_engine.model.pipeline import Pipeline

JSON_SCHEMA_DRAFT = "http://json-schema.org/draft-07/schema#"
TEXT, NUMBER = {"type": "string"}, {"type": "integer", "minimum": 1}
VERSION_LINE = {
    "description": "The first line.",
    "type": "object",
    "required": ["type", "schema"],
    "properties": {"type": {"const": "version"}, "schema": {"const": "mz.log/1"}},
}


def check_settings(settings: Settings) -> Iterator[DecodeError]:
    """Yield errors of agent descriptions and prices that the types of single keys do not show."""
    for name, description in settings.agents.items():
        for inner_path, fault in description_errors(description):
            key_path = ("agents", name, *inner_path)
            message, hint = f"`{format_key_path(key_path)}`: {fault}", "see `mz help MZ2013` for valid values"
            yield DecodeError(key_path=key_path, code="MZ2013", message=message, hint=hint)
    yield from check_prices(settings.prices)


def check_prices(rows: tuple[PriceRow, ...]) -> Iterator[DecodeError]:
    """Yield an error for each model that has two prices from the same day. Key paths begin with `prices`."""
    first_rows: dict[tuple[str, str | None], int] = {}
    for index, row in enumerate(rows):
        first = first_rows.setdefault((row.model.lower(), row.since), index)
        if first != index:
            since = f" from {row.since}" if row.since else ""
            duplicate, original = format_key_path(("prices", index)), format_key_path(("prices", first))
            message = f"`{duplicate}`: {row.model}{since} already has prices in `{original}`"
            yield DecodeError(
                key_path=("prices", index, "model"), code="MZ2013", message=message, hint="remove one of the two"
            )


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 7, which editors read) of `mz.yaml`."""
    return json_schema(Settings, "mz.yaml")


def schema_text() -> bytes:
    """Return the JSON Schema of `mz.yaml` as the content of a file."""
    return msgspec.json.format(msgspec.json.encode(config_schema()), indent=2) + b"\n"


def json_schema(kind: type[object], title: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of a Struct, self-contained, as plain values."""
    (reference,), definitions = msgspec.json.schema_components(
        [kind], ref_template="#/definitions/{name}", schema_hook=quantity_schema
    )
    for struct in _structs(inspect.type_info(kind)):
        name = struct.cls.__name__
        for field in struct.fields:
            if field.default_factory is not msgspec.NODEFAULT:
                default = msgspec.to_builtins(field.default_factory(), enc_hook=encode_quantity)
                definitions[name]["properties"][field.encode_name]["default"] = default
        if short_form := getattr(struct.cls, "SHORT_FORM", None):
            definitions[name] = {"anyOf": [definitions[name]["properties"][short_form], definitions[name]]}
    root = definitions.pop(reference["$ref"].rpartition("/")[2])
    schema = {"$schema": JSON_SCHEMA_DRAFT, **root, "title": title, "definitions": definitions}
    return dict(msgspec.to_builtins(schema))


def _structs(kind: inspect.Type) -> Iterator[inspect.StructType]:
    """Yield all Structs within a type, outermost first."""
    match kind:
        case inspect.StructType():
            yield kind
            for field in kind.fields:
                yield from _structs(field.type)
        case inspect.Metadata():
            yield from _structs(kind.type)
        case inspect.VarTupleType():
            yield from _structs(kind.item_type)
        case inspect.DictType():
            yield from _structs(kind.value_type)
        case inspect.UnionType():
            for member in kind.types:
                yield from _structs(member)


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


class SettingInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the file, as docs, origins and variables call it."""

    name: str
    """Dotted, such as `budget.run`."""
    description: str
    type: inspect.Type
    scalar: bool
    """Can come from a variable or a flag."""

    @property
    def variable(self) -> str:
        return "MZ_" + self.name.replace(".", "_").upper()


def list_settings(kind: type[object] = Settings, prefix: str = "") -> tuple[SettingInfo, ...]:
    """Return all settings in their order. Sections are expanded; `commands` is one setting."""
    struct = inspect.type_info(kind)
    assert isinstance(struct, inspect.StructType)
    infos: list[SettingInfo] = []
    for field in struct.fields:
        name, field_type = prefix + field.encode_name, field.type
        description = ""
        while isinstance(field_type, inspect.Metadata):
            description = description or str((field_type.extra_json_schema or {}).get("description", ""))
            field_type = field_type.type
        if isinstance(field_type, inspect.StructType):
            infos.extend(list_settings(field_type.cls, f"{name}."))
        else:
            scalar = not isinstance(field_type, inspect.VarTupleType | inspect.DictType)
            infos.append(SettingInfo(name=name, description=description, type=field.type, scalar=scalar))
    return tuple(infos)
