"""Texts that a person gives to a command: as an argument, on stdin, or in an editor."""

from __future__ import annotations

import sys

import click

from mz_cli.render.console import is_terminal
from mz_cli.render.text import strip_escapes

CHARACTERS_MAX = 20_000
SCISSORS = "# ---- >8 ---- write your answer above; this line and everything below are ignored ----"


def read_text_option(text: str | None, noun: str) -> str | None:
    """Return the text of an option; `-` reads stdin, None stays None. Raises UsageError for blank and for too long
    text."""
    if text is None:
        return None
    if text == "-":
        text = sys.stdin.buffer.read(CHARACTERS_MAX * 4 + 1).decode("utf-8", "replace")
    if not strip_escapes(text).strip():
        raise click.UsageError(f"{noun} is empty", click.get_current_context())
    if len(text) > CHARACTERS_MAX:
        raise click.UsageError(
            f"{noun} has more than {CHARACTERS_MAX:,} characters; put it into a file of the repository and name that",
            click.get_current_context(),
        )
    return text


def edit_text(question: str) -> str:
    """Open an editor that shows the question, and return the text. Raises UsageError without a terminal, and for no
    text."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        hint = "give the answer as TEXT, or - to read it from stdin"
        raise click.UsageError(f"there is no terminal for an editor: {hint}", click.get_current_context())
    text = click.edit(f"\n\n{SCISSORS}\n\n{strip_escapes(question)}\n", extension=".md")
    answer = read_text_option((text or "").partition(SCISSORS)[0], "the answer")
    assert answer is not None
    return answer
