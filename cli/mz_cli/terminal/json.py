"""JSON documents that `--json` prints: one object that names its schema.

Adding a field keeps the schema's number; any other change raises it. Money is a decimal string of USD; times are
ISO 8601 in UTC; null means unknown or none. A document may contain any domain Struct, written as `field_rule` says.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec
from mz_engine.errors.diagnostics import replace_surrogates

from mz_cli.terminal.console import write_text
from mz_cli.terminal.text import exact_usd, iso_time

UNSAFE_CHARACTERS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that JSON strings may contain and that a terminal would act on."""


def json_document(command: str, body: msgspec.Struct) -> str:
    """Return `{"schema": "mz.<command>/1", ...}`, indented, without a final line end."""
    plain = {"schema": f"mz.{command}/1", **msgspec.to_builtins(plain_value(body))}
    return escape_unsafe(msgspec.json.format(encode_json(plain), indent=2).decode())


class FieldRule(NamedTuple):
    """How a Struct's field is written."""

    key: str
    convert: Callable[[Any], object] | None
    """Conversion to the written type or null; None: nested values are converted by their own rules."""
    written_type: type = str


def field_rule(field: msgspec.structs.FieldInfo) -> FieldRule:
    """Return the rule of a field: `x_nanousd` is the amount `x_usd`, `duration_us` is `duration_ms`, `x_us` or
    `x_at_us` the time `x_at`, or the name that the field gives it; a text with the default "" is null while empty."""
    name = field.encode_name
    if name == "duration_us":
        return FieldRule("duration_ms", lambda us: None if us is None else us // 1000, int)
    if name.endswith("nanousd"):
        return FieldRule(f"{name.removesuffix('nanousd')}usd", exact_usd)
    if name.endswith("_us"):
        return FieldRule(f"{name.removesuffix('_us').removesuffix('_at')}_at", iso_time)
    if field.name.endswith("_us"):
        return FieldRule(name, iso_time)
    return FieldRule(name, (lambda text: text or None) if field.default == "" else None)


@cache
def _rules(kind: type[msgspec.Struct]) -> tuple[tuple[str, FieldRule], ...]:
    return tuple((field.name, field_rule(field)) for field in msgspec.structs.fields(kind))


def plain_value(value: Any) -> Any:
    """Return the value with a dictionary for each Struct."""
    match value:
        case msgspec.Struct():
            fields = ((rule, getattr(value, name)) for name, rule in _rules(type(value)))
            return {rule.key: rule.convert(field) if rule.convert else plain_value(field) for rule, field in fields}
        case dict():
            return {key: plain_value(element) for key, element in value.items()}
        case list() | tuple():
            return [plain_value(element) for element in value]
    return value


def json_line(plain: object) -> str:
    """Return a line of JSON Lines, without line end."""
    return escape_unsafe(encode_json(plain).decode())


def encode_json(plain: object) -> bytes:
    """Encode the value as JSON; bytes in file names that are not text are replaced."""
    try:
        return msgspec.json.encode(plain)
    except UnicodeEncodeError:
        return replace_surrogates(json.dumps(msgspec.to_builtins(plain), ensure_ascii=False)).encode()


def print_document(command: str, body: msgspec.Struct) -> None:
    write_text(sys.stdout, json_document(command, body) + "\n")


def escape_unsafe(text: str) -> str:
    """Return the same JSON value with characters that could act on a terminal as escapes."""
    return UNSAFE_CHARACTERS.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of every `--json` object."""


S = TypeVar("S", bound=msgspec.Struct)
MISSING = object()


def shape_of(shape: type[S], *sources: object, **values: object) -> S:
    """Return the JSON form of domain objects: `values`, and the attributes of the same name of the first source that
    has them; what a source that is None would have is None, and so is an empty text where the field is optional.

    Raises AttributeError for a field that the sources lack."""
    for name, optional in _fields(shape):
        if name not in values:
            value = _attribute(sources, name)
            values[name] = None if optional and value == "" else value
    return shape(**values)


@cache
def _fields(shape: type[msgspec.Struct]) -> tuple[tuple[str, bool], ...]:
    """Return the names of the fields, and whether they may be None."""
    return tuple((field.name, type(None) in get_args(field.type)) for field in msgspec.structs.fields(shape))


def _attribute(sources: tuple[object, ...], name: str) -> Any:
    for source in sources:
        value = getattr(source, name, MISSING)
        if value is not MISSING:
            return value.value if isinstance(value, Enum) else value
    if None in sources:
        return None
    raise AttributeError(f"{', '.join(type(source).__name__ for source in sources)}: no {name}")


class Tests(Shape, frozen=True, kw_only=True):
    passed: int
    failed: int


class Tokens(Shape, frozen=True, kw_only=True):
    input: int | None
    output: int | None
