"""Definition of a read model: a table whose rows are computed from the log by a pure function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import msgspec
from mz_events.catalog.base import Event
from mz_events.store import Recorded

R = TypeVar("R", bound=msgspec.Struct)
Key = tuple[str | int, ...]


class ReadModel(msgspec.Struct, Generic[R], frozen=True):
    """Columns are derived from the row's fields: text, integers, or JSON for all other types."""

    name: str
    row: type[R]
    """A frozen Struct with positional fields."""
    key: tuple[str, ...]
    """The fields that identify a row: text, or integers."""
    types: tuple[type[Event], ...]
    """The events that it reads; no others are passed to `evolve`."""
    evolve: Callable[[Callable[[Key], R | None], Recorded[Event]], Iterable[R]]
    """Return the rows that an event creates or changes. The first argument finds the current row by key."""
    index: str = ""
    """Another field that rows are often selected by."""

    def fold(self, events: Iterable[Recorded[Event]]) -> tuple[R, ...]:
        """Return the rows of these events, of any number of streams, each in its order."""
        rows: dict[Key, R] = {}
        for recorded in events:
            if isinstance(recorded.event, self.types):
                rows |= {tuple(getattr(row, name) for name in self.key): row for row in self.evolve(rows.get, recorded)}
        return tuple(rows.values())
