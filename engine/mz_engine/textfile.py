"""Adapter: reads a file that a person wrote; what is not bounded, readable UTF-8 text is an error with a place."""

from __future__ import annotations

from pathlib import Path

from mz_engine.errors import MzError, Place

BYTES_MAX = 1_000_000


def read_text(path: Path, name: str, bytes_max: int = BYTES_MAX) -> str:
    """The text of a regular file, without a byte order mark; `name` is what messages call it. Raises MzError MZ2001
    (cannot be read), MZ2002 (not UTF-8, or a NUL) or MZ2008 (more than `bytes_max` bytes)."""
    try:
        if path.exists() and not path.is_file():
            raise MzError("MZ2001", "it is not a file", hint="put a text file in its place", place=Place(name))
        with open(path, "rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        hint = "see that it is there and that you may read it"
        raise MzError("MZ2001", f"it cannot be read: {why}", hint=hint, place=Place(name)) from error
    return decode_text(data, name, bytes_max)


def decode_text(data: bytes, name: str, bytes_max: int = BYTES_MAX) -> str:
    """The same for bytes that are already there; raises MzError MZ2002 or MZ2008."""
    if len(data) > bytes_max:
        hint = "make it smaller, or see whether it is the file that you mean"
        raise MzError("MZ2008", f"it has more than {bytes_max:,} bytes", hint=hint, place=Place(name))
    at = data.find(b"\0")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise MzError("MZ2002", f"{name} is UTF-16, not UTF-8", hint="save it as UTF-8", place=Place(name, 1, 1))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = error.start if at < 0 else min(at, error.start)
        raise _not_text(data, at, name) from error
    if at >= 0:
        raise _not_text(data, at, name)
    return text


def _not_text(data: bytes, at: int, name: str) -> MzError:
    line = data.count(b"\n", 0, at) + 1
    before = data[data.rfind(b"\n", 0, at) + 1 : at]
    place = Place(name, line, len(before.decode("utf-8", "replace")) + 1)
    return MzError("MZ2002", f"byte 0x{data[at]:02x} is not UTF-8 text", hint="save the file as UTF-8", place=place)
