"""Detection of a file's format, by its content; file names do not count.

The first line that can only be of one format decides. Text that is not JSON is matched against the text formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mz_engine.agents.catalog import AGENTS
from mz_engine.agents.reading.records import Format
from mz_engine.agents.reading.repair import leading_object

FORMATS: tuple[Format, ...] = tuple(form for agent in AGENTS.values() for form in agent.formats)
"""The order does not matter: a line matches at most one of them."""


HEAD_BYTES = 64 * 1024
LINES_MAX = 1000
BYTES_MAX = 16 * 1024 * 1024
"""Limit of the search for the first conclusive line."""

_objects = msgspec.json.Decoder(dict[str, object])
_lists = msgspec.json.Decoder(list[object])


class Undetected(Exception):
    """The file has no known format. The message completes a sentence that begins with the file's name."""


class OtherAgentsFormat(Undetected):
    """The file is a transcript of another agent than the requested one."""


class InspectedInput(msgspec.Struct, kw_only=True):
    """Input that detection saw before it failed."""

    lines: int = 0
    objects: int = 0
    """Number of lines that are JSON objects."""
    beginning: str = ""
    """Keys of the first object, or the beginning of the first line."""
    size_bytes: int = 0
    """Size of a file that has only blank lines."""


def formats_of_line(data: bytes, formats: Iterable[Format]) -> tuple[Format, ...]:
    """Return the formats that a line (or a whole document) can only be of. More than one is a bug in the formats."""
    candidates = tuple(formats)
    matching_by_object = (tuple(form for form in candidates if form.matches(value)) for value in decode_objects(data))
    return next((matching for matching in matching_by_object if matching), ())


def formats_of_text(head: bytes, formats: Iterable[Format]) -> tuple[Format, ...]:
    """Return the text formats that match the beginning of a file."""
    return tuple(form for form in formats if form.matches_text is not None and form.matches_text(head))


def decode_objects(data: bytes) -> list[dict[str, object]]:
    """Return a JSON object, or the objects of a JSON array; for a damaged line, the object that it begins with. Empty
    for anything else."""
    try:
        if data.lstrip()[:1] == b"[":
            return [element for element in _lists.decode(data) if isinstance(element, dict)]
        return [_objects.decode(data)]
    except (msgspec.DecodeError, RecursionError, ValueError):
        leading = leading_object(data)
        return [] if leading is None else [leading]


def formats_of_agent(formats: Sequence[Format], agent: str | None) -> tuple[Format, ...]:
    """Return the formats of one agent. Raises Undetected for an unknown agent."""
    matching = tuple(form for form in formats if agent in (None, form.agent))
    if not matching:
        agents = ", ".join(sorted({form.agent for form in formats}))
        raise Undetected(f"no format of agent {agent!r} is known; known agents: {agents}")
    return matching


def only_format(matching: Sequence[Format]) -> Format:
    """Return the only format. Raises Undetected if there are several."""
    if len(matching) > 1:
        raise Undetected(f"is ambiguous: {' or '.join(form.name for form in matching)}")
    return matching[0]


def undetected_error(inspected: InspectedInput, formats: Iterable[Format]) -> Undetected:
    """Return the error for a file of no known format."""
    names = ", ".join(form.name for form in formats)
    if not inspected.lines:
        return Undetected("contains only blanks and zero bytes" if inspected.size_bytes else "is empty")
    if not inspected.objects and inspected.beginning.startswith("["):
        return Undetected(f"is a JSON array without an object of a known format; known formats: {names}")
    if not inspected.objects:
        return Undetected(
            "is neither JSON nor text of a known format; it begins with "
            f"{inspected.beginning!r}; known formats: {names}"
        )
    return Undetected(
        f"is JSON of an unknown format; its first object has {inspected.beginning}; known formats: {names}"
    )
