"""Reads files that people write: UTF-8 text of limited size, or an error with its location."""

from __future__ import annotations

from pathlib import Path

from mz_engine.errors.diagnostics import MzError, SourceLocation

BYTES_MAX = 1_000_000


def read_text(path: Path, name: str, bytes_max: int = BYTES_MAX) -> str:
    """Return the text of a regular file without a byte order mark; messages call it `name`.

    Raises MzError MZ2001 (cannot be read), MZ2002 (not UTF-8, or a NUL) or MZ2008 (more than `bytes_max` bytes).
    """
    try:
        if path.exists() and not path.is_file():
            hint = "put a text file in its place"
            raise MzError("MZ2001", "it is not a file", hint=hint, location=SourceLocation(name))
        with open(path, "rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        cause = (error.strerror or type(error).__name__).lower()
        hint = "check that it exists and that you may read it"
        raise MzError("MZ2001", f"it cannot be read: {cause}", hint=hint, location=SourceLocation(name)) from error
    return decode_text(data, name, bytes_max)


def decode_text(data: bytes, name: str, bytes_max: int = BYTES_MAX) -> str:
    """Decode bytes as `read_text` does; raises MzError MZ2002 or MZ2008."""
    if len(data) > bytes_max:
        hint = "make it smaller, or check that it is the right file"
        raise MzError("MZ2008", f"it has more than {bytes_max:,} bytes", hint=hint, location=SourceLocation(name))
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        location = SourceLocation(name, 1, 1)
        raise MzError("MZ2002", f"{name} is UTF-16, not UTF-8", hint="save it as UTF-8", location=location)
    text, offset = "", data.find(b"\0")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        offset = error.start if offset < 0 else min(offset, error.start)
    if offset >= 0:
        before = data[data.rfind(b"\n", 0, offset) + 1 : offset].decode("utf-8", "replace")
        location = SourceLocation(name, data.count(b"\n", 0, offset) + 1, len(before) + 1)
        message = f"byte 0x{data[offset]:02x} is not UTF-8 text"
        raise MzError("MZ2002", message, hint="save the file as UTF-8", location=location)
    return text
