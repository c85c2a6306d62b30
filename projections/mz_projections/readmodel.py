"""Facts: what a read model is: a table whose rows a pure function makes of the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
from mz_events.catalog.base import Event
from mz_events.envelope import Recorded

R = TypeVar("R", bound=msgspec.Struct)
Key = tuple[str, ...]


class ReadModel(msgspec.Struct, Generic[R], frozen=True):
    """The table is read off the row: a column for each field, of text, of integers, or of JSON for the rest."""

    name: str
    row: type[R]
    """A frozen Struct that takes its fields by position."""
    key: tuple[str, ...]
    """The text fields that tell one row from another."""
    types: tuple[type[Event], ...]
    """The events that matter; no others are read."""
    evolve: Callable[[Callable[[Key], R | None], Recorded[Event]], R | None]
    """The row that an event makes or changes, given a way to find what the row is now; None: no row."""
