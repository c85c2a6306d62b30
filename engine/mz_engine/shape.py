"""Errors, in plain language, for values that cannot be converted to a Struct.

`msgspec.convert` decides, but it stops at the first error and names neither the key of a mapping nor the valid keys.
These functions find all errors with their key paths once it has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

import msgspec
from msgspec import inspect
from msgspec.structs import replace

Route = tuple[str | int, ...]
"""Keys and list positions (from 0) from the root of a document to a value."""

SHOWN_MAX = 60
EXPLAINED = "see `mz explain MZ2006` for valid values"


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    route: Route
    """Key path of the value; of the key itself if it is unknown."""
    code: str
    message: str
    hint: str = ""


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return a hint with the most similar candidate, or else with all of them; empty if there are none."""
    names = list(candidates)
    return nearest(word, names) or (f"known here: {', '.join(names)}" if names else "")


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return a hint with the most similar candidate; empty if none is similar."""
    names = list(candidates)
    near = get_close_matches(word, names, n=1) or get_close_matches(word.lower(), names, n=1)
    return f"did you mean `{near[0]}`?" if near else ""


def describe(route: Route) -> str:
    """Return a key path as text, `phases[2].timeout.total`; empty for the root. Positions count from 0."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in route)
    return text.removeprefix(".")


def without_empty(value: object, kind: inspect.Type) -> object:
    """Return the value without optional keys that have no value, such as `commands:` with all lines commented out."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field for field in kind.fields}
        return {
            key: without_empty(item, fields[key].type) if key in fields else item
            for key, item in value.items()
            if item is not None or key not in fields or fields[key].required
        }
    if isinstance(kind, inspect.VarTupleType | inspect.ListType) and isinstance(value, list):
        return [without_empty(item, kind.item_type) for item in value]
    return value


def mismatches(value: object, kind: inspect.Type, route: Route = ()) -> Iterator[Mismatch]:
    """Return all errors of a value (dict, list, str, int, float, bool, None) for a type, in the value's order."""
    match kind:
        case inspect.Metadata():
            description = str((kind.extra_json_schema or {}).get("description", ""))
            for error in mismatches(value, kind.type, route):
                needs_meaning = error.hint == EXPLAINED and error.route == route and description
                meaning = f"its meaning: {description[:1].lower()}{description[1:-1]}"
                yield replace(error, hint=meaning) if needs_meaning else error
        case inspect.StructType() if isinstance(value, dict):
            yield from _in_struct(value, kind, route)
        case inspect.DictType() if isinstance(value, dict):
            for key, item in value.items():
                yield from mismatches(item, kind.value_type, (*route, key))
        case inspect.VarTupleType() | inspect.ListType() if isinstance(value, list):
            for position, item in enumerate(value):
                yield from mismatches(item, kind.item_type, (*route, position))
        case inspect.UnionType():
            yield from _in_union(value, kind, route)
        case inspect.LiteralType() if isinstance(value, str):
            if value not in kind.values:
                choices = [str(choice) for choice in kind.values]
                message = f"{_shown(value)} is not one of {', '.join(choices)}"
                yield _wrong(route, message, nearest(value, choices) or "write one of them")
        case _:
            if not _fits(value, kind):
                yield _unfit(value, kind, route)


def _in_struct(value: dict[str, object], kind: inspect.StructType, route: Route) -> Iterator[Mismatch]:
    fields = {field.encode_name: field for field in kind.fields}
    for key, item in value.items():
        if key in fields:
            yield from mismatches(item, fields[key].type, (*route, key))
        else:
            hint = did_you_mean(key, (name for name in fields if name not in value))
            parent = f" in `{describe(route)}`" if route else ""
            yield Mismatch(route=(*route, key), code="MZ2005", message=f"unknown key `{key[:80]}`{parent}", hint=hint)
    for name, field in fields.items():
        if field.required and name not in value:
            message = f"`{describe(route)}` has no key `{name}`" if route else f"the key `{name}` is missing"
            yield Mismatch(route=route, code="MZ2007", message=message, hint=f"add `{name}:`; it has no default")


def _in_union(value: object, kind: inspect.UnionType, route: Route) -> Iterator[Mismatch]:
    """Return the errors for the member that the value resembles; none if any member accepts it."""
    errors = [list(mismatches(value, member, route)) for member in kind.types]
    if not all(errors):
        return
    similar = [of_member for of_member, member in zip(errors, kind.types, strict=True) if _same_family(value, member)]
    if similar:
        yield from similar[0]
    else:
        yield _unfit(value, kind, route)


def _unfit(value: object, kind: inspect.Type, route: Route) -> Mismatch:
    return _wrong(route, f"expected {_wanted(kind)}, got {_shown(value)}", _advice(value, _wanted(kind)))


def _advice(value: object, wanted: str) -> str:
    """Return a hint that shows how to write the same value, where that is clear."""
    if wanted.startswith("text") and isinstance(value, bool | int | float):
        return f'put quotes around it: "{_shown(value)}"'
    if wanted.startswith("a whole number") and isinstance(value, str) and value.strip().isascii() and value.isdigit():
        return f"write it without quotes: {value.strip()[:20]}"
    if wanted == "true or false" and isinstance(value, str):
        return "write true or false, without quotes"
    if wanted == "a list" and isinstance(value, str):
        return f"write it as a list: [{value[:SHOWN_MAX]}]"
    return EXPLAINED


def _same_family(value: object, kind: inspect.Type) -> bool:
    match value:
        case dict():
            return isinstance(kind, inspect.StructType | inspect.DictType)
        case list():
            return isinstance(kind, inspect.VarTupleType | inspect.ListType)
        case str():
            return isinstance(kind, inspect.LiteralType)
    return False


def _fits(value: object, kind: inspect.Type) -> bool:
    match kind:
        case inspect.AnyType():
            return True
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.NoneType():
            return value is None
        case inspect.IntType():
            return type(value) is int and _within(value, kind)
        case inspect.FloatType():
            return isinstance(value, int | float) and type(value) is not bool and _within(value, kind)
    return False


def _within(value: float, kind: inspect.IntType | inspect.FloatType) -> bool:
    return (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)


def _wanted(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            return _wanted(kind.type)
        case inspect.UnionType():
            *most, last = [_wanted(member) for member in kind.types]
            return f"{', '.join(most)} or {last}"
        case inspect.IntType() | inspect.FloatType():
            number = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
            minimum = f" of at least {kind.ge}" if kind.ge is not None else ""
            return f"{number}{minimum}" + (f" and at most {kind.le}" if kind.le is not None else "")
        case inspect.LiteralType():
            return "one of " + ", ".join(str(choice) for choice in kind.values)
        case inspect.StructType() | inspect.DictType():
            return "a mapping"
        case inspect.VarTupleType() | inspect.ListType():
            return "a list"
    names: dict[type[inspect.Type], str] = {
        inspect.StrType: "text",
        inspect.BoolType: "true or false",
        inspect.NoneType: "nothing",
    }
    return names.get(type(kind), type(kind).__name__)


def _shown(value: object) -> str:
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
            return repr(value if len(value) <= SHOWN_MAX else value[:SHOWN_MAX] + "...")
    return str(value)


def _wrong(route: Route, problem: str, hint: str = "") -> Mismatch:
    prefix = f"`{describe(route)}`: " if route else ""
    return Mismatch(route=route, code="MZ2006", message=prefix + problem, hint=hint)
