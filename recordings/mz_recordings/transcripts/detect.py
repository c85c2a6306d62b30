"""Detection of a file's format, by its content; file names do not count.

The first line that can only be of one format decides. Text that is not JSON is matched against the text formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mz_recordings.transcripts.facts import Format
from mz_recordings.transcripts.mend import first

HEAD_BYTES = 64 * 1024
LINES_MAX = 1000
BYTES_MAX = 16 * 1024 * 1024
"""Limit of the search for the first conclusive line."""

_objects = msgspec.json.Decoder(dict[str, object])
_lists = msgspec.json.Decoder(list[object])


class Undetected(Exception):
    """The file has no known format. The message completes a sentence that begins with the file's name."""


class OtherAgents(Undetected):
    """The file is a transcript of another agent than the requested one."""


class Seen(msgspec.Struct, kw_only=True):
    """Input that detection saw before it failed."""

    lines: int = 0
    objects: int = 0
    """Number of lines that are JSON objects."""
    first: str = ""
    """Keys of the first object, or the beginning of the first line."""
    bytes: int = 0
    """Size of a file that has only blank lines."""


def of_line(data: bytes, formats: Iterable[Format]) -> tuple[Format, ...]:
    """Return the formats that a line (or a whole document) can only be of. More than one is a bug in the formats."""
    known = tuple(formats)
    fitting = (tuple(form for form in known if form.fits(each)) for each in decoded(data))
    return next((found for found in fitting if found), ())


def of_head(head: bytes, formats: Iterable[Format]) -> tuple[Format, ...]:
    """Return the text formats that match the beginning of a file."""
    return tuple(each for each in formats if each.fits_text is not None and each.fits_text(head))


def decoded(data: bytes) -> list[dict[str, object]]:
    """Return a JSON object, or the objects of a JSON array; for a damaged line, the object that it begins with. Empty
    for anything else."""
    try:
        if data.lstrip()[:1] == b"[":
            return [each for each in _lists.decode(data) if isinstance(each, dict)]
        return [_objects.decode(data)]
    except (msgspec.DecodeError, RecursionError, ValueError):
        found = first(data)
        return [] if found is None else [found]


def limited(formats: Sequence[Format], agent: str | None) -> tuple[Format, ...]:
    """Return the formats of one agent. Raises Undetected for an unknown agent."""
    found = tuple(each for each in formats if agent in (None, each.agent))
    if not found:
        known = ", ".join(sorted({each.agent for each in formats}))
        raise Undetected(f"no format of agent {agent!r} is known; known agents: {known}")
    return found


def one(found: Sequence[Format]) -> Format:
    """Return the only format. Raises Undetected if there are several."""
    if len(found) > 1:
        raise Undetected(f"is ambiguous: {' or '.join(each.name for each in found)}")
    return found[0]


def nothing(seen: Seen, formats: Iterable[Format]) -> Undetected:
    """Return the error for a file of no known format."""
    known = ", ".join(each.name for each in formats)
    if not seen.lines:
        return Undetected("contains only blanks and zero bytes" if seen.bytes else "is empty")
    if not seen.objects and seen.first.startswith("["):
        return Undetected(f"is a JSON array without an object of a known format; known formats: {known}")
    if not seen.objects:
        return Undetected(
            f"is neither JSON nor text of a known format; it begins with {seen.first!r}; known formats: {known}"
        )
    return Undetected(f"is JSON of an unknown format; its first object has {seen.first}; known formats: {known}")
