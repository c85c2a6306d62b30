"""Adapter: how every command introduces itself: what it does, examples, options, and the command to try next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import click

HELP_WIDTH = 96
"""Help is wrapped at the terminal's width, and never wider than this."""


class Page(click.Command):
    """A command whose help shows examples before options and ends with the next command."""

    examples: tuple[tuple[str, str], ...] = ()
    """Command line and what it is for."""
    following: str = ""
    """The command that people try next, and why."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)
        self.format_options(ctx, formatter)
        write_following(formatter, self.following)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[tuple[str, str]]) -> None:
    """Each example alone on its line, never wrapped: people copy it."""
    if not examples:
        return
    with formatter.section("Examples"):
        for line, purpose in examples:
            formatter.write(f"{' ' * formatter.current_indent}# {purpose}\n")
            formatter.write(f"{' ' * formatter.current_indent}{line}\n")


def write_following(formatter: click.HelpFormatter, following: str) -> None:
    if following:
        formatter.write_paragraph()
        formatter.write_text(f"Next: {following}")


def command(
    name: str, *, examples: Sequence[tuple[str, str]], following: str, **attributes: Any
) -> Callable[[Callable[..., Any]], Page]:
    """Decorator: the function's docstring is the help, its first line the summary in `mz --help`."""

    def decorate(function: Callable[..., Any]) -> Page:
        page = click.command(name, cls=Page, **attributes)(function)
        page.examples, page.following = tuple(examples), following
        return page

    return decorate


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean ...?`, or nothing where no known word is near."""
    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""
