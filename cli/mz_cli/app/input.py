"""Texts and choices that a person gives to a command: by argument, on stdin, in an editor, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import cast, get_args

import click
from msgspec.structs import replace
from mz_engine.model.pipeline import Autonomy
from mz_engine.setup.templates import InitChoices, Strategy

from mz_cli.terminal.console import is_terminal, print_note, write_text
from mz_cli.terminal.text import single_line, strip_escapes

AUTONOMY = "How often are you asked? supervised: after planning too; checkpoint: at gates; full_auto: never"
STRATEGY = "Open pull requests? none: nothing leaves this machine; draft; ready"


def may_ask(environment: Mapping[str, str]) -> bool:
    """Return True if a person can answer: stdin and stderr are terminals, and `CI` is not set."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr) and not environment.get("CI")


def ask_choices(proposed: InitChoices, agents: Sequence[str], forge: bool) -> InitChoices:
    """Return the choices as changed by the person. The agent is asked for only if there are several, the strategy only
    with a remote and `gh` (`forge`).

    Raises click.Abort at the end of input."""
    if len(agents) > 1:
        agent = _ask_until_valid(f"Which agent? {', '.join(agents)}", agents, proposed.agent)
        proposed = replace(proposed, agent=agent)
    nothing = "" if proposed.test else " (empty: not at all)"
    test = ask_line(f"How is this project tested? A command line{nothing}", proposed.test).strip()
    autonomy = cast(Autonomy, _ask_until_valid(AUTONOMY, get_args(Autonomy), proposed.autonomy))
    proposed = replace(proposed, test=test, autonomy=autonomy)
    if forge:
        strategy = cast(Strategy, _ask_until_valid(STRATEGY, get_args(Strategy), proposed.strategy))
        proposed = replace(proposed, strategy=strategy)
    return proposed


def ask_line(question: str, default: str) -> str:
    """Ask on stderr, and return one line of stdin, or the default if it is empty. Raises click.Abort at the end of
    input."""
    shown = f" [{single_line(default)}]" if default else ""
    write_text(sys.stderr, f"{question}{shown}: ")
    reply = sys.stdin.readline()
    if not reply:
        raise click.Abort
    return reply.strip() or default


def is_confirmed(question: str) -> bool:
    return ask_line(f"{question} [y/N]", "").lower() in ("y", "yes")


def _ask_until_valid(question: str, options: Sequence[str], proposed: str) -> str:
    while (reply := ask_line(question, proposed)) not in options:
        print_note(f"{single_line(reply)[:80]!r} is not one of: {', '.join(options)}")
    return reply


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
        raise click.UsageError(f"{noun} is empty")
    if len(text) > CHARACTERS_MAX:
        raise click.UsageError(
            f"{noun} has more than {CHARACTERS_MAX:,} characters; put it into a file of the repository and name that"
        )
    return text


def edit_text(question: str) -> str:
    """Open an editor that shows the question, and return the text. Raises UsageError without a terminal, and for no
    text."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        hint = "give the answer as TEXT, or - to read it from stdin"
        raise click.UsageError(f"there is no terminal for an editor: {hint}")
    text = click.edit(f"\n\n{SCISSORS}\n\n{strip_escapes(question)}\n", extension=".md")
    answer = read_text_option((text or "").partition(SCISSORS)[0], "the answer")
    assert answer is not None
    return answer
