"""Command `mz help`."""

from __future__ import annotations

import click

from mz_cli.app.command_table import COMMANDS
from mz_cli.app.help import command, did_you_mean
from mz_cli.app.topics import TOPICS
from mz_cli.main import mz
from mz_cli.terminal.console import print_line


@command(
    "help",
    examples=(
        ("mz help all", "all commands"),
        ("mz help exit-codes", "a topic about several commands"),
        ("mz help pipelines new", "the same as `mz pipelines new --help`"),
    ),
    next_command="`mz explain CODE` explains an error or an exit code.",
)
@click.argument("topic", nargs=-1)
@click.pass_context
def help_(context: click.Context, topic: tuple[str, ...]) -> None:
    """Explain a topic or a command.

    Topics: all (commands), exit-codes, environment, formatting.
    """
    if len(topic) == 1 and topic[0] in TOPICS:
        print_line(TOPICS[topic[0]][1]())
        return
    command_page: click.Command = mz
    parent = context.find_root()
    for word in topic:
        subcommand = command_page.get_command(parent, word) if isinstance(command_page, click.Group) else None
        if subcommand is None:
            names = (*TOPICS, *COMMANDS) if command_page is mz else tuple(getattr(command_page, "commands", ()))
            raise click.UsageError(f"no topic or command {word[:80]!r}{did_you_mean(word, names)}", context)
        command_page, parent = subcommand, click.Context(subcommand, info_name=word, parent=parent)
    print_line(command_page.get_help(parent))
