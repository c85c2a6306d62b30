"""Repair of lines that are nearly JSON: programs crash while they write, cut text in the middle of a character, pad
files with zero bytes, or write at the same time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import msgspec

from mz_engine.agents.reading.records import Format

BYTES_MAX = 1024 * 1024
"""Longer lines are not searched for further objects."""
ATTEMPTS_MAX = 32
LONE_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)


class RepairedLine(msgspec.Struct, frozen=True):
    lines: tuple[bytes, ...]
    """Valid JSON objects."""
    is_incomplete: bool
    """True if a part of the line could not be repaired."""


def repair_line(data: bytes, form: Format) -> RepairedLine:
    """Repair a line that does not decode. Objects inside a damaged line count only if they match the format."""
    text = data.replace(b"\0", b"").decode("utf-8", "replace")
    objects_found, is_incomplete = _find_objects(text, len(data) <= BYTES_MAX)
    matching = [value for value in objects_found if not is_incomplete or form.matches(value)]
    return RepairedLine(tuple(line for value in matching if (line := _encoded(value))), is_incomplete or not matching)


def leading_object(data: bytes) -> dict[str, object] | None:
    """Return the object at the beginning of a line, whatever follows it."""
    text = data.replace(b"\0", b"").decode("utf-8", "replace").lstrip()
    if len(data) > BYTES_MAX or not text.startswith("{"):
        return None
    with contextlib.suppress(ValueError, RecursionError):
        value, _ = _decoder().raw_decode(text)
        return value if isinstance(value, dict) else None
    return None


def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(strict=False, parse_constant=lambda _: None)


def _find_objects(text: str, search: bool) -> tuple[list[dict[str, object]], bool]:
    decoder = _decoder()
    values: list[dict[str, object]] = []
    at, attempts, is_incomplete = _next_brace(text, 0), 0, False
    while 0 <= at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
            if isinstance(value, dict):
                values.append(value)
        except (ValueError, RecursionError):
            is_incomplete, attempts, end = True, attempts + 1, at + 1
            if attempts > ATTEMPTS_MAX or not search:
                break
        is_incomplete = is_incomplete or (bool(text[end:].strip()) and _next_brace(text, end) < 0)
        at = _next_brace(text, end)
    return values, is_incomplete or not values


def _next_brace(text: str, start: int) -> int:
    return text.find("{", start)


def _encoded(value: dict[str, object]) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).translate(LONE_SURROGATES).encode()
    except (ValueError, RecursionError):
        return b""


def array_elements(data: bytes) -> Iterator[bytes]:
    """Yield the elements of a JSON array as they are written; nothing if the data is not an array."""
    try:
        yield from map(bytes, _arrays.decode(data))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return


_arrays = msgspec.json.Decoder(list[msgspec.Raw])
