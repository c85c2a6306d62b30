"""JSON Schema (draft 7) of a JSON artifact, from the rule set that the validator uses.

A schema covers fields, types and lengths. The rules check more (references, coverage, cycles) and accept more, such as
`30 min` for 30."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mz_events.names import NAME, PATH_BYTES_MAX

from mz_engine.artifacts.jsontext import json_rule
from mz_engine.artifacts.rule import Field, RuleSet
from mz_engine.artifacts.subject import resolve
from mz_engine.artifacts.validate import fill
from mz_engine.config import Limits

DRAFT = "http://json-schema.org/draft-07/schema#"
NAME_SCHEMA = {"type": "string", "pattern": f"^{NAME.pattern.removesuffix(chr(92) + 'Z')}$"}


def artifact_schema(rules: RuleSet, limits: Limits) -> dict[str, Any]:
    """Return the schema of the artifact. Raises KeyError for a Markdown rule set."""
    listed = json_rule(rules).root == "list"
    item = _object([rule for rule in rules.rules if isinstance(rule, Field)], None, limits)
    about = {"$schema": DRAFT, "title": f"the artifact {rules.name}"}
    return {**about, "type": "array", "minItems": 1, "items": item} if listed else {**about, **item}


def _object(fields: Sequence[Field], within: str | None, limits: Limits) -> dict[str, Any]:
    """Return the schema of one object; a field may have any of its names."""
    own = [field for field in fields if field.within == within]
    named = {name: _field(field, fields, limits) for field in own for name in (field.field, *field.aliases)}
    needed = [field for field in own if not field.optional]
    aliased = [field for field in needed if field.aliases]
    alternatives = [{"anyOf": [{"required": [name]} for name in (field.field, *field.aliases)]} for field in aliased]
    return {
        "type": "object",
        "required": [field.field for field in needed if not field.aliases],
        **({"allOf": alternatives} if alternatives else {}),
        "properties": named,
    }


def _field(field: Field, fields: Sequence[Field], limits: Limits) -> dict[str, Any]:
    said = {"description": " ".join(fill(field.requirement, field, limits).split())}
    least, most = resolve(field.min, limits), None if field.max is None else resolve(field.max, limits)
    match field.type:
        case "text":
            return {**said, "type": "string", **_bounds("Length", least, most)}
        case "name":
            return {**said, **NAME_SCHEMA}
        case "choice":
            return {**said, "enum": list(field.values)}
        case "number":
            return {**said, "type": "number", "minimum": least} | ({} if most is None else {"maximum": most})
    return {**said, "type": "array", "items": _member(field, fields, limits), **_bounds("Items", least, most)}


def _member(field: Field, fields: Sequence[Field], limits: Limits) -> dict[str, Any]:
    match field.type:
        case "objects":
            return _object(fields, field.field, limits)
        case "names":
            return NAME_SCHEMA
        case "paths":
            return {"type": "string", "minLength": 1, "maxLength": PATH_BYTES_MAX}
    return {"type": "string", "minLength": 1}


def _bounds(what: str, least: int, most: int | None) -> dict[str, int]:
    lower = {f"min{what}": least} if least else {}
    return lower if most is None else {**lower, f"max{what}": most}
