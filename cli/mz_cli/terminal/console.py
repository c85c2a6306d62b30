"""Output to stdout (results) and stderr (everything else); colours are decided per stream."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from mz_cli.terminal.text import Line, ansi_text, plain_text, sanitised, strip_escapes, wrap

DEFAULT_SIZE = 80, 24
FORMATS = ("table", "tsv", "json")
FORMAT_KEY = "mz.format"
"""Key of the format chosen on the command line, in the metadata of click's context."""


def is_terminal(stream: TextIO) -> bool:
    return not stream.closed and stream.isatty()


def may_escape(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return True if escape sequences may be written.

    NO_COLOR forbids them, FORCE_COLOR and CLICOLOR_FORCE enforce them; otherwise only terminals that are not dumb get
    them."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") != "0" or environment.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return environment.get("TERM", "dumb") not in ("dumb", "unknown") and is_terminal(stream)


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Return columns and lines of the stream's terminal; 80 and 24 if unknown."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return DEFAULT_SIZE
    return columns or DEFAULT_SIZE[0], lines or DEFAULT_SIZE[1]


def terminal_width(stream: TextIO) -> int:
    return terminal_size(stream)[0]


def write_text(stream: TextIO, text: str) -> None:
    """Write and flush the text, so that a full disk is noticed here and not when the process ends."""
    stream.write(text)
    stream.flush()


def write_lines(stream: TextIO, lines: Iterable[Line]) -> None:
    """Write lines, styled if the stream allows it."""
    render = ansi_text if may_escape(stream, os.environ) else plain_text
    write_text(stream, "".join(f"{render(sanitised(line))}\n" for line in lines))


def write_file_bytes(stream: TextIO, data: bytes) -> None:
    """Write the content of a file unchanged; a terminal gets it without escapes."""
    stream.flush()
    if is_terminal(stream) or not isinstance(stream, io.TextIOWrapper):
        write_text(stream, strip_escapes(data.decode("utf-8", "replace")))
    else:
        stream.buffer.write(data)
        stream.flush()


def print_line(*texts: str) -> None:
    """Write lines to stdout, without escapes."""
    write_text(sys.stdout, "".join(f"{strip_escapes(text)}\n" for text in texts))


def print_note(*texts: str) -> None:
    """Write lines to stderr, without escapes."""
    write_text(sys.stderr, "".join(f"{strip_escapes(text)}\n" for text in texts))


def print_wrapped(text: str) -> None:
    """Write a sentence to stderr, wrapped to the width of a terminal."""
    lines = wrap(strip_escapes(text), terminal_width(sys.stderr)) if is_terminal(sys.stderr) else [text]
    print_note("\n".join(lines))
