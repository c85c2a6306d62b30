"""Repair of lines that are nearly JSON: programs crash while they write, cut text in the middle of a character, pad
files with zero bytes, or write at the same time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import msgspec

from mz_recordings.transcripts.facts import Format

BYTES_MAX = 1024 * 1024
"""Longer lines are not searched for further objects."""
ATTEMPTS_MAX = 32
LONE_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)


class Mended(msgspec.Struct, frozen=True):
    lines: tuple[bytes, ...]
    """Valid JSON objects."""
    lost: bool
    """True if a part of the line could not be repaired."""


def mend(data: bytes, form: Format) -> Mended:
    """Repair a line that does not decode. Objects inside a damaged line count only if they match the format."""
    text = data.replace(b"\0", b"").decode("utf-8", "replace")
    found, lost = _objects(text, len(data) <= BYTES_MAX)
    kept = [each for each in found if not lost or form.fits(each)]
    return Mended(tuple(line for each in kept if (line := _encoded(each))), lost or not kept)


def first(data: bytes) -> dict[str, object] | None:
    """Return the object at the beginning of a line, whatever follows it."""
    text = data.replace(b"\0", b"").decode("utf-8", "replace").lstrip()
    if len(data) > BYTES_MAX or not text.startswith("{"):
        return None
    with contextlib.suppress(ValueError, RecursionError):
        found, _ = _decoder().raw_decode(text)
        return found if isinstance(found, dict) else None
    return None


def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(strict=False, parse_constant=lambda _: None)


def _objects(text: str, search: bool) -> tuple[list[dict[str, object]], bool]:
    decoder = _decoder()
    found: list[dict[str, object]] = []
    at, attempts, lost = _begin(text, 0), 0, False
    while 0 <= at < len(text):
        try:
            each, end = decoder.raw_decode(text, at)
            if isinstance(each, dict):
                found.append(each)
        except (ValueError, RecursionError):
            lost, attempts, end = True, attempts + 1, at + 1
            if attempts > ATTEMPTS_MAX or not search:
                break
        lost = lost or (bool(text[end:].strip()) and _begin(text, end) < 0)
        at = _begin(text, end)
    return found, lost or not found


def _begin(text: str, start: int) -> int:
    return text.find("{", start)


def _encoded(value: dict[str, object]) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).translate(LONE_SURROGATES).encode()
    except (ValueError, RecursionError):
        return b""


def objects(data: bytes) -> Iterator[bytes]:
    """Yield the elements of a JSON array as they are written; nothing if the data is not an array."""
    try:
        yield from map(bytes, _arrays.decode(data))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return


_arrays = msgspec.json.Decoder(list[msgspec.Raw])
