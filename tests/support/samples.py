"""A sample of any event type, every field filled in, always the same one."""

from __future__ import annotations

import types
from enum import Enum
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from mz_events.catalog.base import Event
from mz_events.codec import ALL_EVENTS

S = TypeVar("S", bound=msgspec.Struct)

TEXTS = {"Digest": "5e" * 32, "Commit": "c0" * 20, "Path": "src/app.py", "FeatureId": "feat-001", "RunId": "r1"}


def sample(kind: type[S]) -> S:
    """An event of this type, or a fact within one, whose fields all hold something, optional ones too."""
    hints = get_type_hints(kind)
    return kind(**{name: _value(hints[name], name) for name in kind.__struct_fields__})


def samples() -> tuple[Event, ...]:
    """One sample of every event type."""
    return tuple(sample(kind) for kind in ALL_EVENTS)


def _value(hint: Any, name: str) -> object:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _value(next(argument for argument in arguments if argument is not type(None)), name)
    if origin is Literal:
        return arguments[0]
    if origin is tuple:
        return (_value(arguments[0], name),)
    if origin is dict:
        return {name: _value(arguments[1], name)}
    if hasattr(hint, "__supertype__"):
        return TEXTS.get(hint.__name__, name)
    if issubclass(hint, Enum):
        return next(iter(hint))
    if issubclass(hint, msgspec.Struct):
        return sample(hint)
    return {str: name, int: len(name), bool: True}[hint]
