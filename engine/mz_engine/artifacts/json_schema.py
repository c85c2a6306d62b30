"""JSON Schema (draft 7) of a JSON artifact, from the rule set that the validator uses.

A schema covers fields, types and lengths. The rules check more (references, coverage, cycles, fields of some items
only) and accept more, such as `30 min` for 30."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mz_events.names import NAME, PATH_BYTES_MAX

from mz_engine.artifacts.parse import form_rule
from mz_engine.artifacts.validate import fill_slots
from mz_engine.config.schema import JSON_SCHEMA_DRAFT
from mz_engine.model.config import Limits
from mz_engine.model.rules import FieldRule, RuleSet

NAME_SCHEMA = {"type": "string", "pattern": f"^{NAME.pattern.removesuffix(chr(92) + 'Z')}$"}


def artifact_schema(rules: RuleSet, limits: Limits) -> dict[str, Any]:
    """Return the schema of the artifact. Raises KeyError for a Markdown rule set."""
    root = form_rule(rules).root
    fields = [rule for rule in rules.rules if isinstance(rule, FieldRule)]
    item = _object_schema([rule for rule in fields if "." not in rule.field and not rule.when.field], None, limits)
    header = {"$schema": JSON_SCHEMA_DRAFT, "title": f"the artifact {rules.name}"}
    if root == "list":
        return {**header, "type": "array", "minItems": form_rule(rules).min, "items": item}
    if root == "object":
        return {**header, **item}
    return {**header, "type": "object", "minProperties": 1, "additionalProperties": item}


def _object_schema(fields: Sequence[FieldRule], within: str | None, limits: Limits) -> dict[str, Any]:
    """Return the schema of one object; a field may have any of its names."""
    own_fields = [field for field in fields if field.within == within]
    properties = {
        name: _field_schema(field, fields, limits) for field in own_fields for name in (field.field, *field.aliases)
    }
    required = [field for field in own_fields if not field.optional]
    aliased = [field for field in required if field.aliases]
    alternatives = [{"anyOf": [{"required": [name]} for name in (field.field, *field.aliases)]} for field in aliased]
    return {
        "type": "object",
        "required": [field.field for field in required if not field.aliases],
        **({"allOf": alternatives} if alternatives else {}),
        "properties": properties,
    }


def _field_schema(field: FieldRule, fields: Sequence[FieldRule], limits: Limits) -> dict[str, Any]:
    description = {"description": " ".join(fill_slots(field.requirement, field, limits).split())}
    minimum, maximum = limits.resolve(field.min), None if field.max is None else limits.resolve(field.max)
    match field.type:
        case "text":
            return {**description, "type": "string", **_bounds("Length", minimum, maximum)}
        case "name":
            return {**description, **NAME_SCHEMA}
        case "choice":
            return {**description, "enum": list(field.values)}
        case "number":
            return {**description, "type": "number", "minimum": minimum} | (
                {} if maximum is None else {"maximum": maximum}
            )
    return {
        **description,
        "type": "array",
        "items": _member_schema(field, fields, limits),
        **_bounds("Items", minimum, maximum),
    }


def _member_schema(field: FieldRule, fields: Sequence[FieldRule], limits: Limits) -> dict[str, Any]:
    match field.type:
        case "objects":
            return _object_schema(fields, field.field, limits)
        case "names":
            return NAME_SCHEMA
        case "entries":
            text = {"type": "string", "minLength": 1}
            properties = {"id": NAME_SCHEMA, "text": text}
            return {"anyOf": [text, {"type": "object", "properties": properties, "required": list(properties)}]}
        case "paths":
            return {"type": "string", "minLength": 1, "maxLength": PATH_BYTES_MAX}
    return {"type": "string", "minLength": 1}


def _bounds(keyword: str, minimum: int, maximum: int | None) -> dict[str, int]:
    lower = {f"min{keyword}": minimum} if minimum else {}
    return lower if maximum is None else {**lower, f"max{keyword}": maximum}
