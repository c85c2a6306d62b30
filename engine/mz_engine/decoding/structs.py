"""Errors, in plain language, for values that cannot be converted to a Struct.

`msgspec.convert` stops at the first error and names neither the key of a mapping nor the valid keys, so all errors are
found, with their key paths, before it is called.

A Struct class may have `SHORT_FORM`, the key that a text instead of a mapping stands for. `Meta(extra={"parse": ...,
"hint": ...})` names the parser of a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from mz_engine.decoding.quantity import Quantity

KeyPath = tuple[str | int, ...]
"""Keys and list positions (from 0) from the root of a document to a value."""

VALUE_CHARACTERS_MAX = 60
EXPLAIN_HINT = "see `mz help MZ2006` for valid values"


class DecodeError(msgspec.Struct, frozen=True, kw_only=True):
    key_path: KeyPath
    """Key path of the value; of the key itself if it is unknown."""
    code: str
    message: str
    hint: str = ""


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return a hint with the most similar candidate, or else with all of them; empty if there are none."""
    names = list(candidates)
    return similar_name_hint(word, names) or (f"known here: {', '.join(names)}" if names else "")


def similar_name_hint(word: str, candidates: Iterable[str]) -> str:
    """Return a hint with the most similar candidate; empty if none is similar."""
    names = list(candidates)
    near = get_close_matches(word, names, n=1) or get_close_matches(word.lower(), names, n=1)
    return f"did you mean `{near[0]}`?" if near else ""


def format_key_path(key_path: KeyPath) -> str:
    """Return a key path as text, `phases[2].timeout.total`; empty for the root. Positions count from 0."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key_path)
    return text.removeprefix(".")


def decode_value(value: object, kind: inspect.Type) -> tuple[object, list[DecodeError]]:
    """Return the value as `msgspec.convert` accepts it, and all its errors, in the value's order.

    An optional key without a value (such as `commands:` with all lines commented out) is left out, short forms are
    written out, texts parsed. Values with errors stay as they are.
    """
    errors: list[DecodeError] = []
    return _decode(value, kind, (), errors), errors


def _decode(value: object, kind: inspect.Type, key_path: KeyPath, errors: list[DecodeError]) -> object:
    match kind:
        case inspect.Metadata():
            return _decode_annotated(value, kind, key_path, errors)
        case inspect.CustomType() if issubclass(kind.cls, Quantity) and _is_valid(value, kind):
            _parse(value, kind.cls.parse, key_path, errors, kind.cls.CODE, kind.cls.HINT)
        case inspect.StructType() if isinstance(value, str) and hasattr(kind.cls, "SHORT_FORM"):
            return _decode_struct({kind.cls.SHORT_FORM: value}, kind, key_path, errors)
        case inspect.StructType() if isinstance(value, dict):
            return _decode_struct(value, kind, key_path, errors)
        case inspect.DictType() if isinstance(value, dict):
            return {
                _decode(key, kind.key_type, (*key_path, key), errors): _decode(
                    item, kind.value_type, (*key_path, key), errors
                )
                for key, item in value.items()
            }
        case inspect.VarTupleType() if isinstance(value, list):
            return [_decode(item, kind.item_type, (*key_path, index), errors) for index, item in enumerate(value)]
        case inspect.TupleType() if isinstance(value, list) and len(value) == len(kind.item_types):
            items = enumerate(zip(value, kind.item_types, strict=True))
            return [_decode(item, item_type, (*key_path, index), errors) for index, (item, item_type) in items]
        case inspect.UnionType():
            return _decode_union(value, kind, key_path, errors)
        case inspect.LiteralType() if isinstance(value, str):
            if value not in kind.values:
                choices = [str(choice) for choice in kind.values]
                message = f"{_value_text(value)} is not one of {', '.join(choices)}"
                hint = similar_name_hint(value, choices) or "write one of them"
                errors.append(_wrong_value(key_path, message, hint))
        case _:
            if not _is_valid(value, kind):
                errors.append(_type_error(value, kind, key_path))
    return value


def _decode_annotated(value: object, kind: inspect.Metadata, key_path: KeyPath, errors: list[DecodeError]) -> object:
    own_errors: list[DecodeError] = []
    decoded = _decode(value, kind.type, key_path, own_errors)
    description = str((kind.extra_json_schema or {}).get("description", ""))
    meaning = f"its meaning: {description[:1].lower()}{description[1:-1]}"
    for error in own_errors:
        needs_meaning = error.hint == EXPLAIN_HINT and error.key_path == key_path and description
        errors.append(replace(error, hint=meaning) if needs_meaning else error)
    extra = kind.extra or {}
    if "parse" in extra and isinstance(value, str) and not own_errors:
        return _parse(value, extra["parse"], key_path, errors, "MZ2013", extra["hint"])
    return decoded


def _parse(
    value: object, parse: Callable[[Any], object], key_path: KeyPath, errors: list[DecodeError], code: str, hint: str
) -> object:
    try:
        return parse(value)
    except ValueError as error:
        errors.append(replace(_wrong_value(key_path, str(error), hint), code=code))
        return value


def _decode_struct(
    value: dict[str, object], kind: inspect.StructType, key_path: KeyPath, errors: list[DecodeError]
) -> dict[str, object]:
    fields, decoded = {field.encode_name: field for field in kind.fields}, dict[str, object]()
    for key, item in value.items():
        if key in fields:
            if item is not None or fields[key].required:
                decoded[key] = _decode(item, fields[key].type, (*key_path, key), errors)
            continue
        replaced = getattr(kind.cls, "REPLACED", {}).get(key)
        hint = replaced or did_you_mean(key, (name for name in fields if name not in value))
        parent = f" in `{format_key_path(key_path)}`" if key_path else ""
        message = f"unknown key `{key[:80]}`{parent}"
        errors.append(DecodeError(key_path=(*key_path, key), code="MZ2005", message=message, hint=hint))
        decoded[key] = item
    for name, field in fields.items():
        if field.required and name not in value:
            message = (
                f"`{format_key_path(key_path)}` has no key `{name}`" if key_path else f"the key `{name}` is missing"
            )
            hint = f"add `{name}:`; it has no default"
            errors.append(DecodeError(key_path=key_path, code="MZ2007", message=message, hint=hint))
    return decoded


def _decode_union(value: object, kind: inspect.UnionType, key_path: KeyPath, errors: list[DecodeError]) -> object:
    """Decode as the member that the value's tag names, or else as the first that accepts the value; if none does,
    report the errors of the one that it resembles."""
    tagged = {str(m.tag): m for m in kind.types if isinstance(m, inspect.StructType) and m.tag_field}
    if tagged and isinstance(value, dict):
        field = next(iter(tagged.values())).tag_field or ""
        tag = str(value.get(field))
        if tag in tagged:
            untagged = {key: item for key, item in value.items() if key != field}
            return {field: tag, **_decode_struct(untagged, tagged[tag], key_path, errors)}
        problem = f"`{field}` is {_value_text(value.get(field))}, not one of {', '.join(tagged)}"
        errors.append(_wrong_value(key_path, problem, similar_name_hint(tag, tagged) or "write one of them"))
        return value
    similar: list[DecodeError] = []
    for member in kind.types:
        own_errors: list[DecodeError] = []
        decoded = _decode(value, member, key_path, own_errors)
        if not own_errors:
            return decoded
        if not similar and _is_same_family(value, member):
            similar = own_errors
    errors += similar or [_type_error(value, kind, key_path)]
    return value


def _type_error(value: object, kind: inspect.Type, key_path: KeyPath) -> DecodeError:
    expected = _type_name(kind)
    message = f"expected {expected}, got {_value_text(value)}"
    return _wrong_value(key_path, message, _rewrite_hint(value, expected))


def _rewrite_hint(value: object, expected: str) -> str:
    """Return a hint that shows how to write the same value, where that is clear."""
    if expected.startswith("text") and isinstance(value, bool | int | float):
        return f'put quotes around it: "{_value_text(value)}"'
    if expected.startswith("a whole number") and isinstance(value, str) and value.strip().isascii() and value.isdigit():
        return f"write it without quotes: {value.strip()[:20]}"
    if expected == "true or false" and isinstance(value, str):
        return "write true or false, without quotes"
    if expected == "a list" and isinstance(value, str):
        return f"write it as a list: [{value[:VALUE_CHARACTERS_MAX]}]"
    return EXPLAIN_HINT


def _is_same_family(value: object, kind: inspect.Type) -> bool:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.CustomType):
        return _is_valid(value, kind)
    match value:
        case dict():
            return isinstance(kind, inspect.StructType | inspect.DictType)
        case list():
            return isinstance(kind, inspect.VarTupleType)
        case str():
            return isinstance(kind, inspect.LiteralType | inspect.StrType)
    return False


def _is_valid(value: object, kind: inspect.Type) -> bool:
    match kind:
        case inspect.CustomType() if issubclass(kind.cls, Quantity):
            return isinstance(value, kind.cls.WRITTEN_TYPES) and type(value) is not bool
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.NoneType():
            return value is None
        case inspect.IntType():
            return type(value) is int and _is_in_bounds(value, kind)
        case inspect.FloatType():
            return isinstance(value, int | float) and type(value) is not bool and _is_in_bounds(value, kind)
    return False


def _is_in_bounds(value: float, kind: inspect.IntType | inspect.FloatType) -> bool:
    return (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)


def _type_name(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            return _type_name(kind.type)
        case inspect.UnionType():
            *most, last = [_type_name(member) for member in kind.types]
            return f"{', '.join(most)} or {last}"
        case inspect.IntType() | inspect.FloatType():
            number = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
            minimum = f" of at least {kind.ge}" if kind.ge is not None else ""
            return f"{number}{minimum}" + (f" and at most {kind.le}" if kind.le is not None else "")
        case inspect.LiteralType():
            return "one of " + ", ".join(str(choice) for choice in kind.values)
        case inspect.CustomType() if issubclass(kind.cls, Quantity):
            return kind.cls.EXPECTED
        case inspect.StructType() | inspect.DictType():
            return "text or a mapping" if hasattr(getattr(kind, "cls", None), "SHORT_FORM") else "a mapping"
        case inspect.VarTupleType():
            return "a list"
        case inspect.TupleType():
            return f"a list of {len(kind.item_types)}"
    names: dict[type[inspect.Type], str] = {
        inspect.StrType: "text",
        inspect.BoolType: "true or false",
        inspect.NoneType: "nothing",
    }
    return names.get(type(kind), type(kind).__name__)


def _value_text(value: object) -> str:
    match value:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value if len(value) <= VALUE_CHARACTERS_MAX else value[:VALUE_CHARACTERS_MAX] + "...")
    return str(value)


def _wrong_value(key_path: KeyPath, problem: str, hint: str = "") -> DecodeError:
    prefix = f"`{format_key_path(key_path)}`: " if key_path else ""
    return DecodeError(key_path=key_path, code="MZ2006", message=prefix + problem, hint=hint)
