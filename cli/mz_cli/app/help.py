"""Help pages of commands: summary, examples, options, and the next command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Literal

import click
from click.shell_completion import CompletionItem

from mz_cli.app.command_table import COMMANDS, SECTIONS
from mz_cli.terminal.console import FORMAT_KEY, FORMATS

HELP_WIDTH = 96
"""Help is wrapped at the terminal's width, and never wider than this."""


SUGGESTION_KINDS = {
    "run": "runs",
    "runs": "runs",
    "left": "selectors",
    "right": "selectors",
    "selector": "selectors",
    "selectors": "selectors",
    "targets": "selectors",
    "source": "selectors",
    "feature": "features",
    "features": "features",
    "phase": "phases",
    "pipeline": "pipelines",
    "code": "codes",
    "agent": "agents",
    "topic": "topics",
}
"""Parameter name -> kind of suggestions for shell completion (`mz_cli.app.completion.SOURCES`)."""
WITH_FILES = ("targets",)
"""Parameters that may be paths too."""


class SuggestedText(click.types.StringParamType):
    """Text parameter with shell suggestions."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        from mz_cli.app.completion import suggestions

        files = [CompletionItem(incomplete, type="file")] if param.name in WITH_FILES else []
        return [*files, *map(CompletionItem, suggestions(self.kind, incomplete, ctx.params))]


def option_names(ctx: click.Context) -> list[str]:
    """Return the options of the command that help shows, by their longest names."""
    options = [parameter for parameter in ctx.command.get_params(ctx) if isinstance(parameter, click.Option)]
    return [max(option.opts + option.secondary_opts, key=len) for option in options if not option.hidden]


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def message_option(name: str, help_text: str, **attributes: Any) -> Decorator:
    """Return the option `-m/--message`, the reason or note of an action, as the parameter `name`."""
    return click.option("-m", "--message", name, metavar="TEXT", help=help_text, **attributes)


def jobs_option(help_text: str, jobs_max: int | None = None) -> Decorator:
    """Return the option `-j/--jobs`, as the parameter `jobs`; None if absent."""
    return click.option("-j", "--jobs", metavar="N", type=click.IntRange(1, jobs_max), help=help_text)


def parsed_by(parse: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, Any], object]:
    """Return a callback that parses an option, each of its values if it is repeatable; a ValueError is a wrong use."""

    def parsed(context: click.Context, parameter: click.Parameter, value: str | tuple[str, ...] | None) -> object:
        try:
            if isinstance(value, tuple):
                return tuple(map(parse, value))
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from None

    return parsed


def format_options(json_text: str, default: str | None = None) -> Decorator:
    """Return `--format` and `--json` for a command that prints tables, as the parameter `as_json`. `json_text`: help
    of `--json`, which is short for `--format json`. `default`: the format also in a pipe; None: tsv in a pipe."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def with_format(*positional: Any, as_json: bool, output_format: str | None, **values: Any) -> Any:
            context = click.get_current_context()
            if as_json and output_format not in (None, "json"):
                raise click.UsageError(f"--json cannot be combined with --format {output_format}")
            context.meta[FORMAT_KEY] = output_format or default
            return function(*positional, as_json=as_json or output_format == "json", **values)

        formatted = click.option(
            "--format", "output_format", metavar="FORMAT", type=click.Choice(FORMATS),
            help=f"table, tsv or json. [default: {default or 'table; tsv in a pipe'}]",
        )(with_format)  # fmt: skip
        return click.option("--json", "as_json", is_flag=True, help=json_text)(formatted)

    return decorate


DisplayMode = Literal["live", "lines", "quiet"]
"""Most detailed display of a working run that the user wants."""
VIEW_FLAGS = {
    "--quiet -q": "Show only warnings while it works.",
    "--no-progress": "Show one line per change instead of a live view; as does MZ_NO_PROGRESS=1.",
}


def view_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: add `--no-progress` and `--quiet`, without a parameter; `display_mode` returns the result."""

    def remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        context.meta[f"mz.{parameter.name}"] = value

    for flags, text in VIEW_FLAGS.items():
        option = click.option(*flags.split(), is_flag=True, expose_value=False, callback=remember, help=text)
        function = option(function)
    return function


def display_mode() -> DisplayMode:
    """Return the display mode that the flags of the running command allow; by default a live view."""
    context = click.get_current_context(silent=True)
    chosen = context.meta if context else {}
    return "quiet" if chosen.get("mz.quiet") else "lines" if chosen.get("mz.no_progress") else "live"


class CommandPage(click.Command):
    """A command whose help shows examples before options and ends with the next command.

    `examples` are command lines and their purposes; `next_command` is what to try next, and why. Every text parameter
    with a name in `SUGGESTION_KINDS` gets suggestions.
    """

    def __init__(
        self, *arguments: Any, examples: Sequence[tuple[str, str]], next_command: str, **attributes: Any
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.examples, self.next_command = examples, next_command
        for parameter in self.params:
            if (parameter.name or "") in SUGGESTION_KINDS and parameter.type is click.STRING:
                parameter.type = SuggestedText(SUGGESTION_KINDS[parameter.name or ""])

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            for line, purpose in self.examples:  # Never wrapped, so that each can be copied.
                indent = " " * formatter.current_indent
                formatter.write(f"{indent}# {purpose}\n{indent}{line}\n")
        self.format_options(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(f"Next: {self.next_command}")


class CommandFamily(CommandPage, click.Group):
    """A command with subcommands, each with a help page of its own. Without a subcommand it prints its help."""

    command_class = CommandPage

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            raise click.UsageError(f"there is no command {args[0][:80]!r}{did_you_mean(args[0], names)}", ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, (page.help or "").partition("\n")[0]) for name, page in self.commands.items()])


def write_commands(formatter: click.HelpFormatter, names: Iterable[str] = COMMANDS) -> None:
    """Write the named commands with their summaries, group by group."""
    width = max(map(len, COMMANDS))
    for title, group in SECTIONS.items():
        rows = [(f"{name:<{width}}", COMMANDS[name]) for name in group if name in names]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def command(name: str, **attributes: Any) -> Callable[[Callable[..., Any]], CommandPage]:
    """Decorator for a command: the function's docstring is its help, the first line its summary in `mz --help`."""
    return click.command(name, cls=CommandPage, **attributes)


def command_family(name: str, **attributes: Any) -> Callable[[Callable[..., Any]], CommandFamily]:
    """Decorator for a family of commands: the function provides the docstring; subcommands are added with `command`."""
    return click.group(name, cls=CommandFamily, **attributes)


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return `; did you mean ...?`, or nothing without a similar candidate."""
    from difflib import get_close_matches

    matches = get_close_matches(word, list(candidates), n=1)
    return f"; did you mean `{matches[0]}`?" if matches else ""
