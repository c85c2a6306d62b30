"""Adapter: where words go. Answers go to stdout, all else to stderr; each stream has its own say on colours."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from mz_cli.render.text import clean

if TYPE_CHECKING:
    from rich.console import Console


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


def console(stream: TextIO) -> Console:
    """A rich console over the stream that never adds colours or escapes where they are not wanted."""
    from rich.console import Console

    if may_escape(stream, os.environ):
        return Console(file=stream, highlight=False, emoji=False, markup=False)
    return Console(
        file=stream, no_color=True, highlight=False, color_system=None, emoji=False, markup=False, force_terminal=False
    )


class Unwritten(Exception):
    """The answer does not fit where it should go: a full disk, mostly."""


def put(stream: TextIO, text: str) -> None:
    """Writes an answer, and at once. Raises Unwritten, and BrokenPipeError when nobody reads any more."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritten(f"the answer could not be written: {error.strerror or error}") from error


def answer(text: str) -> None:
    """Writes a line to stdout, made harmless."""
    put(sys.stdout, clean(text) + "\n")


def note(text: str) -> None:
    """Writes a line to stderr, made harmless."""
    print(clean(text), file=sys.stderr, flush=True)
