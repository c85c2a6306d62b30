"""Pure: what format a file is of, by its content. Names of files say nothing.

The first line that can only be of one format decides. Text that is not JSON is shown to the formats that are text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mz_recordings.transcripts.facts import Format
from mz_recordings.transcripts.mend import first

HEAD_BYTES = 64 * 1024
LINES_MAX = 1000
BYTES_MAX = 16 * 1024 * 1024
"""How far into a file its first telling line is looked for."""

_objects = msgspec.json.Decoder(dict[str, object])
_lists = msgspec.json.Decoder(list[object])


class Undetected(Exception):
    """Says what was seen, as the end of a sentence that begins with the file."""


class OtherAgents(Undetected):
    """It is a transcript, of another agent than the one that was asked for."""


class Seen(msgspec.Struct, kw_only=True):
    """What was looked at in vain."""

    lines: int = 0
    objects: int = 0
    """Lines that are JSON objects."""
    first: str = ""
    """The keys of the first of them, or the beginning of the first line."""
    bytes: int = 0
    """Of what has no line with anything in it."""


def of_line(data: bytes, formats: Iterable[Format]) -> tuple[Format, ...]:
    """The formats that a line (or a whole document) can only be of; more than one is a fault of theirs."""
    known = tuple(formats)
    fitting = (tuple(form for form in known if form.fits(each)) for each in decoded(data))
    return next((found for found in fitting if found), ())


def of_head(head: bytes, formats: Iterable[Format]) -> tuple[Format, ...]:
    """The formats that are text, and that a file which begins so can only be of."""
    return tuple(each for each in formats if each.fits_text is not None and each.fits_text(head))


def decoded(data: bytes) -> list[dict[str, object]]:
    """A JSON object, or those in a JSON array; of a damaged line the one that it begins with. Empty for anything
    else."""
    try:
        if data.lstrip()[:1] == b"[":
            return [each for each in _lists.decode(data) if isinstance(each, dict)]
        return [_objects.decode(data)]
    except (msgspec.DecodeError, RecursionError, ValueError):
        found = first(data)
        return [] if found is None else [found]


def limited(formats: Sequence[Format], agent: str | None) -> tuple[Format, ...]:
    """Those of one agent. Raises Undetected for an agent that no format is of."""
    found = tuple(each for each in formats if agent in (None, each.agent))
    if not found:
        known = ", ".join(sorted({each.agent for each in formats}))
        raise Undetected(f"no format of {agent!r} is known; known: {known}")
    return found


def one(found: Sequence[Format]) -> Format:
    """The only one. Raises Undetected where several fit."""
    if len(found) > 1:
        raise Undetected(f"could be {' or '.join(each.name for each in found)}")
    return found[0]


def nothing(seen: Seen, formats: Iterable[Format]) -> Undetected:
    """The error for a file in which no format was found."""
    known = ", ".join(each.name for each in formats)
    if not seen.lines:
        return Undetected("holds nothing but blanks and zero bytes" if seen.bytes else "is empty")
    if not seen.objects and seen.first.startswith("["):
        return Undetected(f"is a JSON array without an object of a format that is known; known: {known}")
    if not seen.objects:
        return Undetected(f"is no JSON, nor text of a known kind; it begins with {seen.first!r}; known: {known}")
    return Undetected(f"is JSON of no format that is known; its first object has {seen.first}; known: {known}")
