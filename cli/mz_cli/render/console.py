"""Output to stdout (results) and stderr (everything else); colours are decided per stream."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from mz_cli.render.cells import wrap
from mz_cli.render.styled import Line, escaped, harmless, plain
from mz_cli.render.text import clean

WIDTH = 80


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


def terminal_width(stream: TextIO) -> int:
    """Return the columns of the stream's terminal; 80 if unknown."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    except (OSError, ValueError):
        return WIDTH


def put(stream: TextIO, text: str) -> None:
    """Write and flush the text, so that a full disk is noticed here and not when the process ends."""
    stream.write(text)
    stream.flush()


def put_lines(stream: TextIO, lines: Iterable[Line]) -> None:
    """Write lines, styled if the stream allows it."""
    look = escaped if may_escape(stream, os.environ) else plain
    put(stream, "".join(f"{look(harmless(line))}\n" for line in lines))


def put_whole(stream: TextIO, data: bytes) -> None:
    """Write the content of a file unchanged; a terminal gets it without escapes."""
    stream.flush()
    if is_terminal(stream) or not isinstance(stream, io.TextIOWrapper):
        put(stream, clean(data.decode("utf-8", "replace")))
    else:
        stream.buffer.write(data)
        stream.flush()


def answer(text: str) -> None:
    """Write a line to stdout, without escapes."""
    put(sys.stdout, clean(text) + "\n")


def note(text: str) -> None:
    """Write a line to stderr, without escapes."""
    print(clean(text), file=sys.stderr, flush=True)


def remark(text: str) -> None:
    """Write a sentence to stderr, wrapped to the width of a terminal."""
    lines = wrap(clean(text), terminal_width(sys.stderr)) if is_terminal(sys.stderr) else [text]
    for each in lines:
        note(each)
