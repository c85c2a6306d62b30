"""Adapter: where words go. Answers go to stdout, all else to stderr; each stream has its own say on colours."""

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
    """Whether escape sequences may be written: NO_COLOR forbids, FORCE_COLOR and CLICOLOR_FORCE ask for them, a dumb
    terminal has none, and otherwise a terminal gets them and nothing else does."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") != "0" or environment.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return environment.get("TERM", "dumb") not in ("dumb", "unknown") and is_terminal(stream)


def terminal_width(stream: TextIO) -> int:
    """Columns of the terminal behind the stream; 80 where it does not say."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    except (OSError, ValueError):
        return WIDTH


def put(stream: TextIO, text: str) -> None:
    """Writes an answer, and at once: a full disk is noticed here and not when the process ends."""
    stream.write(text)
    stream.flush()


def put_lines(stream: TextIO, lines: Iterable[Line]) -> None:
    """Writes lines, with their looks where they are wanted."""
    look = escaped if may_escape(stream, os.environ) else plain
    put(stream, "".join(f"{look(harmless(line))}\n" for line in lines))


def put_whole(stream: TextIO, data: bytes) -> None:
    """Writes what is in a file: byte by byte, but a terminal gets harmless text."""
    stream.flush()
    if is_terminal(stream) or not isinstance(stream, io.TextIOWrapper):
        put(stream, clean(data.decode("utf-8", "replace")))
    else:
        stream.buffer.write(data)
        stream.flush()


def answer(text: str) -> None:
    """Writes a line to stdout, made harmless."""
    put(sys.stdout, clean(text) + "\n")


def note(text: str) -> None:
    """Writes a line to stderr, made harmless."""
    print(clean(text), file=sys.stderr, flush=True)


def remark(text: str) -> None:
    """Writes a sentence to stderr: a terminal gets it in lines of its width, all else in one."""
    lines = wrap(clean(text), terminal_width(sys.stderr)) if is_terminal(sys.stderr) else [text]
    for each in lines:
        note(each)
