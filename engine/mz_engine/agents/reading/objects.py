"""Base class of readers of JSON lines and JSON documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from mz_engine.agents.reading.json_lines import Json, decode_object
from mz_engine.agents.reading.records import ReaderState, TranscriptRecord, UndecodableLine

NOT_OBJECT = "no JSON object"


class ObjectReader:
    """A `records.Reader` for formats whose every line, or whole file, is a JSON object. Anything else is an undecodable
    line. The fields of the state that every format may have are attributes; subclasses add their own."""

    unit: Literal["line", "file"] = "line"

    def __init__(self, state: ReaderState) -> None:
        self._session, self._version, self._model = state.session, state.version, state.model
        self._cwd, self._subagent, self._requests = state.cwd, state.subagent, state.requests

    def state(self) -> ReaderState:
        return ReaderState(
            session=self._session, version=self._version, model=self._model, cwd=self._cwd, subagent=self._subagent,
            requests=self._requests,
        )  # fmt: skip

    def read(self, data: bytes) -> Iterator[TranscriptRecord]:
        value = decode_object(data)
        return iter((UndecodableLine(reason=NOT_OBJECT),)) if value is None else self.read_object(value)

    def read_object(self, value: Json, /) -> Iterator[TranscriptRecord]:
        """Yield the records of one object."""
        raise NotImplementedError
