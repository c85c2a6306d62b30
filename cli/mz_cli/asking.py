"""Questions to a person on a terminal, each with a proposed answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import cast, get_args

import click
from msgspec.structs import replace
from mz_engine.pipelines.definition import Autonomy
from mz_engine.starter import InitChoices, Strategy

from mz_cli.render.console import is_terminal, print_note
from mz_cli.render.text import single_line

AskFunction = Callable[[str, str], str]
"""Question and proposed answer -> answer."""
AUTONOMY = "How often are you asked? supervised: after planning too; checkpoint: at gates; full_auto: never"
STRATEGY = "Open pull requests? none: nothing leaves this machine; draft; ready"


def may_ask(environment: Mapping[str, str]) -> bool:
    """Return True if a person can answer: stdin and stderr are terminals, and `CI` is not set."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr) and not environment.get("CI")


def ask_choices(proposed: InitChoices, agents: Sequence[str], forge: bool, ask: AskFunction | None = None) -> InitChoices:
    """Return the choices as changed by the person. The agent is asked for only if there are several, the strategy only
    with a remote and `gh` (`forge`).

    Raises click.Abort at the end of input."""
    ask = ask or ask_line
    if len(agents) > 1:
        proposed = replace(proposed, agent=_ask_until_valid(ask, f"Which agent? {', '.join(agents)}", agents, proposed.agent))
    nothing = "" if proposed.test else " (empty: not at all)"
    test = ask(f"How is this project tested? A command line{nothing}", proposed.test).strip()
    autonomy = cast(Autonomy, _ask_until_valid(ask, AUTONOMY, get_args(Autonomy), proposed.autonomy))
    proposed = replace(proposed, test=test, autonomy=autonomy)
    if forge:
        strategy = cast(Strategy, _ask_until_valid(ask, STRATEGY, get_args(Strategy), proposed.strategy))
        proposed = replace(proposed, strategy=strategy)
    return proposed


def ask_line(question: str, default: str) -> str:
    """Ask on stderr, and return one line of stdin, or the default if it is empty. Raises click.Abort at the end of
    input."""
    shown = f" [{single_line(default)}]" if default else ""
    sys.stderr.write(f"{question}{shown}: ")
    sys.stderr.flush()
    reply = sys.stdin.readline()
    if not reply:
        raise click.Abort
    return reply.strip() or default


def _ask_until_valid(ask: AskFunction, question: str, options: Sequence[str], proposed: str) -> str:
    """Ask until the answer is one of the options."""
    while (reply := ask(question, proposed)) not in options:
        print_note(f"{single_line(reply)[:80]!r} is not one of: {', '.join(options)}")
    return reply
