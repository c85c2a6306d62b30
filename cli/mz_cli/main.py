"""Adapter: the `mz` command. A command's module is imported when the command is used, and not before.

Whatever goes wrong ends here, in `main`: a message, a hint and an exit code, never a bare traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from mz_cli.help import HELP_WIDTH, did_you_mean, write_examples, write_following

COMMANDS: dict[str, str] = {
    "demo": "Watch a whole run, with recorded agents, for nothing.",
    "init": "Write mz.yaml and a starter backlog.",
    "run": "Deliver the backlog, feature by feature.",
    "resume": "Go on with a run, with an answer where it waits for one.",
    "status": "Show a run, what it took, and what waits for you.",
    "show": "Show one feature: its phases, attempts and results.",
    "log": "Print what happened, one line an event.",
    "cancel": "Give up features, or all that is left of a run.",
}
"""Name and summary, in the order of `mz --help`. The module is `mz_cli.commands.<name>`, its command too."""

EXAMPLES = (
    ("mz demo", "see it work, with nothing installed and nothing to pay"),
    ("mz init && mz run", "deliver this repository's backlog"),
    ("mz status", "how far it is, and what waits for you"),
)


class LazyGroup(click.Group):
    """Knows its commands by name; imports one when it is run or its help is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found = getattr(import_module(f"mz_cli.commands.{cmd_name}"), cmd_name)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"there is no command {args[0][:80]!r}{did_you_mean(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        write_examples(formatter, EXAMPLES)
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        click.Command.format_options(self, ctx, formatter)
        write_following(formatter, "`mz demo` shows a whole run in a minute; `mz COMMAND --help` explains a command.")


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH},
    invoke_without_command=True,
)
@click.version_option(package_name="mz-engine", prog_name="mz", message="%(prog)s %(version)s")
@click.pass_context
def mz(ctx: click.Context) -> None:
    """Take a backlog, drive coding agents through a pipeline in isolated worktrees, check all they hand over.

    Everything that happens is an event; whatever you can see is folded from events.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: runs the command and ends the process with its exit code."""
    from mz_cli.failures import guarded

    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(guarded(lambda: run(words), words))


def run(words: Sequence[str]) -> object:
    """Runs the command line; returns what the command returns. Everything that click and the command raise goes
    through: click's own `main` would end the process itself when the reader of stdout has gone."""
    with mz.make_context("mz", list(words)) as context:
        return mz.invoke(context)
