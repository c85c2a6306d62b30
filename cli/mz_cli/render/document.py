"""Output of `--json`: one object that names its schema. Unknown values are null, never zero."""

from __future__ import annotations

import re
import sys

import msgspec
from mz_engine.errors import readable

from mz_cli.render.console import put

RAW = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that JSON strings may contain and that a terminal would act on."""


def document(command: str, body: msgspec.Struct) -> str:
    """Return `{"schema": "mz.<command>/1", ...}`, indented, without a final line end."""
    plain = {"schema": f"mz.{command}/1", **msgspec.to_builtins(body)}
    return harmless(msgspec.json.format(encoded(plain), indent=2).decode())


def json_line(plain: object) -> str:
    """Return a line of JSON Lines, without line end."""
    return harmless(encoded(plain).decode())


def encoded(plain: object) -> bytes:
    """Encode the value as JSON; bytes in file names that are not text are replaced."""
    try:
        return msgspec.json.encode(plain)
    except UnicodeEncodeError:
        return msgspec.json.encode(_readable(msgspec.to_builtins(plain)))


def _readable(value: object) -> object:
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {_readable(name): _readable(each) for name, each in value.items()}
    return [_readable(each) for each in value] if isinstance(value, list | tuple) else value


def show_document(command: str, body: msgspec.Struct) -> None:
    put(sys.stdout, document(command, body) + "\n")


def harmless(json: str) -> str:
    """Return the same JSON value with characters that could act on a terminal as escapes."""
    return RAW.sub(lambda found: f"\\u{ord(found.group()):04x}", json)
