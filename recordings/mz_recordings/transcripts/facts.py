"""Facts: what can be seen in a file that an agent wrote: a stream of one call, or the log of a session.

A *reader* knows one format. It is fed line by line (or a whole file, where the format is one document), in any pieces
and at any time, and says what it saw; what it must remember in between is its `Carry`, which is plain data, so that a
file that grows is read on where it was left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
from mz_events.catalog.call import Usage


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the session became known; an empty field says nothing new."""

    session: str = ""
    version: str = ""
    """Of the agent's program."""
    cwd: str = ""
    parent: str = ""
    """Session that this one was branched from, or whose sub-agent it is."""
    part: str = ""
    """Name of the sub-agent whose file this is."""
    model: str = ""
    at_us: int | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A person (or a program) gave the agent a prompt."""

    at_us: int | None = None


class Requested(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request to a model. The same `id` may be seen again, in this file or in others: the one with the most tokens
    counts, once."""

    id: str
    """Unique among all requests of all sessions of the agent, and the same wherever the request is told of."""
    usage: Usage
    at_us: int | None = None
    reported_nanousd: int | None = None
    """Where the file tells money per request."""


class Used(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool was called."""

    tool: str
    id: str = ""
    failed: bool = False


class Said(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The agent's words in the main conversation."""

    text: str
    continues: bool = False
    """A further piece of the words before it."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A terminal event. Several may follow one another; the last one counts."""

    status: Literal["success", "error"]
    text: str | None = None
    """The final text, where the event repeats it."""
    reported_nanousd: int | None = None
    cumulative: bool = True
    """Money and usage include those of the ends before it in this file."""
    usage: tuple[Usage, ...] = ()
    """Sums that the event tells; they count where the requests before it do not add up to them."""
    lifetimes: bool = True
    """The sums tell how long cache writes live; else all of them are written as those of five minutes."""
    detail: str = ""


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a type that the reader does not know; it is counted, and nothing else is made of it."""

    type: str


class Bad(msgspec.Struct, frozen=True, kw_only=True):
    """A line that cannot be decoded."""

    why: str


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the file that whoever uses its numbers must know; told once or often, it counts once."""

    code: str
    """One of `notes.NOTES`; or `tells:` and a field of Usage that the format may leave out and this file has."""


TELLS = "tells:"


class Billed(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent counts for the whole session up to here, in a log that goes on. The last one counts."""

    reported_nanousd: int | None = None
    usage: tuple[Usage, ...] = ()
    """By model; it may hold requests that no line of the file tells."""


Sighting: TypeAlias = Opened | Asked | Requested | Used | Said | Ended | Unknown | Bad | Remark | Billed


class Carry(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader remembers from one line to the next."""

    session: str = ""
    version: str = ""
    model: str = ""
    cwd: str = ""
    part: str = ""
    total: tuple[Usage, ...] = ()
    """Of formats whose counts go on: the last sums seen, by model."""
    requests: int = 0
    """Requests seen so far, for ids in formats that have none."""
    open: tuple[str, ...] = ()
    """Ids of messages of which the end was not told so far: note `output-open`."""
    names: tuple[tuple[str, str], ...] = ()
    """What a later line refers to by an id, and its name: sub-agents by the call that began them."""


class Reader(Protocol):
    """One format. Total over any bytes: what it cannot read is `Bad` or `Unknown`, never an exception."""

    format: str
    """Such as claude-stream, claude-session, codex-stream, codex-rollout, gemini-stream, gemini-session."""
    agent: str
    unit: Literal["line", "file"]
    """What `read` takes: a line without its end, or a whole file."""

    def read(self, data: bytes) -> Iterator[Sighting]: ...

    def carry(self) -> Carry: ...


@runtime_checkable
class BlockReader(Protocol):
    """A reader that can also take many lines at once, which costs less."""

    def read_lines(self, data: bytes, number: int) -> list[Sighting] | None:
        """What so many lines show, in order; each begins with `{` and ends with `}`. None, and nothing is
        remembered of them: they must be read one by one."""
        ...


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A format in the list of those that are detected by content (`detect.py`)."""

    name: str
    agent: str
    unit: Literal["line", "file"]
    fits: Callable[[dict[str, object]], bool]
    """Whether a decoded line (or document) can only be of this format."""
    reader: Callable[[Carry], Reader]
    fits_text: Callable[[bytes], bool] | None = None
    """Of formats that are no JSON: whether the first bytes of a file (up to `detect.HEAD_BYTES`) can only be of it."""
    untold: tuple[str, ...] = ()
    """Fields of Usage that the format has no place for: unknown, not zero."""
    log: bool = False
    """The log of a session, which can go on at any time, so that a missing terminal event says nothing."""
