"""The `mz` command. A command's module is imported only when the command is used.

`main` turns every error into a message, a hint and an exit code, never a bare traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click
from click.shell_completion import CompletionItem
from mz_engine.version import VERSION

from mz_cli.app.command_table import COMMANDS, COMPLETION_VARIABLE, FIRST, MODULES, SHORT_FORMS
from mz_cli.app.help import HELP_WIDTH, CommandFamily, write_commands


class LazyGroup(CommandFamily):
    """Group that imports a command only to run it or to print its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(MODULES[cmd_name])
        command = getattr(module, f"{cmd_name}_" if cmd_name in ("help", "import") else cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, [*SHORT_FORMS.get(args[0], args[:1]), *args[1:]])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Suggest command names without importing the commands."""
        items = [CompletionItem(name, help=about) for name, about in COMMANDS.items() if name.startswith(incomplete)]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_commands(formatter, FIRST)


COLOR_MODES = ("auto", "always", "never")


def choose_color(mode: str | None) -> None:
    """Set the environment variables that override all others, as `--color` says."""
    if mode is not None:
        for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
            os.environ.pop(name, None)
    if mode in ("always", "never"):
        os.environ["FORCE_COLOR" if mode == "always" else "NO_COLOR"] = "1"


def move_color_option_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with `--color WHEN` moved to the front, where it is declared."""
    remaining, color_option = list(arguments), list[str]()
    end = remaining.index("--") if "--" in remaining else len(remaining)
    for index in reversed(range(end)):
        if remaining[index] == "--color" or remaining[index].startswith("--color="):
            length = 2 if remaining[index] == "--color" else 1
            color_option = remaining[index : index + length]
            del remaining[index : index + length]
    return [*color_option, *remaining]


@click.group(
    cls=LazyGroup,
    examples=(
        ("mz demo", "see it work, without any agent, offline and free"),
        ("mz init && mz run", "deliver this repository's backlog"),
        ("mz status", "show progress and open questions"),
    ),
    next_command="`mz help all` lists all commands; `mz COMMAND --help` explains one, `mz help TOPIC` a topic: "
    "exit-codes, environment, selectors, formatting.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH},
    invoke_without_command=True,
)
@click.version_option(VERSION, prog_name="mz", message="%(prog)s %(version)s")
@click.option(
    "--color",
    type=click.Choice(COLOR_MODES),
    expose_value=False,
    callback=lambda _, __, when: choose_color(when),
    help="When to write escape sequences; also accepted after a command. [default: auto]",
)
@click.pass_context
def mz(ctx: click.Context) -> None:
    """Deliver a backlog: drive coding agents through a pipeline in isolated worktrees, and check all their results.

    Everything that happens is an event; all output is computed from events.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
"""Standard streams and their modes, by descriptor."""


def open_closed_streams() -> None:
    """Open /dev/null for each closed stream, and for its descriptor: a database or pipe opened under that number would
    receive terminal output."""
    for number, (name, mode) in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, and end the process with its exit code."""
    open_closed_streams()
    if instruction := os.environ.get(COMPLETION_VARIABLE):
        from mz_cli.app.completion import print_completions

        sys.exit(print_completions(mz, instruction))
    from mz_cli.app.failures import run_guarded

    command_line = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run_guarded(lambda: run_command(command_line), command_line))


def run_command(arguments: Sequence[str]) -> object:
    """Run the command line; return the command's result. All exceptions propagate: click's own `main` would end the
    process itself if stdout is closed."""
    with mz.make_context("mz", move_color_option_first(arguments)) as context:
        return mz.invoke(context)
