"""Adapter: how every command introduces itself: what it does, examples, options, and the command to try next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

HELP_WIDTH = 96
"""Help is wrapped at the terminal's width, and never wider than this."""


KINDS = {
    "run": "runs",
    "runs": "runs",
    "left": "runs",
    "right": "runs",
    "feature": "features",
    "features": "features",
    "phase": "phases",
    "pipeline": "pipelines",
    "code": "codes",
    "agent": "agents",
    "topic": "topics",
}
"""What a parameter is called -> what a shell suggests for it (`mz_cli.completing.SOURCES`)."""


class Suggested(click.types.StringParamType):
    """Text of a kind that a shell can suggest."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        from mz_cli.completing import suggest

        return [CompletionItem(word) for word in suggest(self.kind, incomplete, ctx.params)]


def suggesting(page: click.Command) -> None:
    """Every parameter that is called like something known gets suggestions; no command has to ask for them."""
    for each in page.params:
        if (each.name or "") in KINDS and each.type is click.STRING:
            each.type = Suggested(KINDS[each.name or ""])


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


class Section(Page, click.Group):
    """A command that is a family of commands, each with a page of its own. Alone it prints its help."""

    def page(
        self, name: str, *, examples: Sequence[tuple[str, str]], following: str, **attributes: Any
    ) -> Callable[[Callable[..., Any]], Page]:
        """Decorator: as `command`, for a command of this family."""

        def decorate(function: Callable[..., Any]) -> Page:
            page = command(name, examples=examples, following=following, **attributes)(function)
            self.add_command(page)
            return page

        return decorate

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        refuse_unknown(ctx, args, self.commands)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)
        write_following(formatter, self.following)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary_of(page)) for name, page in self.commands.items()])


def summary_of(page: click.Command) -> str:
    """The first line of a command's help."""
    return (page.help or "").partition("\n")[0]


def refuse_unknown(ctx: click.Context, args: Sequence[str], known: Iterable[str]) -> None:
    """Raises UsageError when the first word is none of the commands."""
    if args and args[0] not in known and not args[0].startswith("-"):
        raise click.UsageError(f"there is no command {args[0][:80]!r}{did_you_mean(args[0], known)}", ctx)


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
        suggesting(page)
        return page

    return decorate


def section(
    name: str, *, examples: Sequence[tuple[str, str]], following: str, **attributes: Any
) -> Callable[[Callable[..., Any]], Section]:
    """Decorator: a family of commands; the function only carries its docstring. Its commands are added with `page`."""

    def decorate(function: Callable[..., Any]) -> Section:
        def help_alone(**given: Any) -> None:
            context = click.get_current_context()
            if context.invoked_subcommand is None:
                click.echo(context.get_help())
            function(**given)

        help_alone.__doc__ = function.__doc__
        family = click.group(name, cls=Section, invoke_without_command=True, **attributes)(help_alone)
        family.examples, family.following = tuple(examples), following
        return family

    return decorate


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean ...?`, or nothing where no known word is near."""
    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""
