"""Base class of readers of JSON lines and JSON documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from mz_engine.agents.jsonline import Json, decode

from mz_recordings.transcripts.facts import Bad, Carry, Sighting

NOT_OBJECT = "no JSON object"


class ObjectReader:
    """A `facts.Reader` for formats whose every line, or whole file, is a JSON object. Anything else is an undecodable
    line. The reader state stays as it was passed in, unless a subclass overrides `state`."""

    unit: Literal["line", "file"] = "line"

    def __init__(self, carry: Carry) -> None:
        self._carry = carry

    def carry(self) -> Carry:
        return self._carry

    def read(self, data: bytes) -> Iterator[Sighting]:
        found = decode(data)
        return iter((Bad(why=NOT_OBJECT),)) if found is None else self.see(found)

    def see(self, found: Json, /) -> Iterator[Sighting]:
        """Yield the records of one object."""
        raise NotImplementedError
