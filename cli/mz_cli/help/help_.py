"""Command `mz help`."""

from __future__ import annotations

import re

import click

from mz_cli.app.command_table import COMMANDS
from mz_cli.app.help import command, did_you_mean, format_options
from mz_cli.app.topics import TOPICS
from mz_cli.help.explain import explain
from mz_cli.main import mz
from mz_cli.terminal.console import print_line

CODE = re.compile(r"\W*(?:error|exit)?\W*(?:MZ)?[0-9]+\W*", re.IGNORECASE)
"""Error code or exit code, as messages print it."""


@command(
    "help",
    examples=(
        ("mz help all", "all commands"),
        ("mz help exit-codes", "a topic about several commands"),
        ("mz help MZ2005", "the cause of an error, and how to fix it"),
        ("mz help 21", "the meaning of an exit code"),
        ("mz help codes", "all codes"),
        ("mz help pipelines new", "the same as `mz pipelines new --help`"),
    ),
    next_command="`mz doctor` checks what is missing.",
)
@click.argument("topic", nargs=-1)
@format_options("For codes, print one object: mz.explain/1, or mz.explain-all/1.")
@click.pass_context
def help_(context: click.Context, topic: tuple[str, ...], as_json: bool) -> None:
    """Explain a topic, a command, an error code or an exit code.

    Topics: all (commands), codes, exit-codes, environment, formatting. A code is MZ and four digits, or the number of
    an exit code.
    """
    first, *others = topic or ("",)
    if first == "codes" and len(others) < 2:
        explain(others[0] if others else None, as_json)
        return
    if CODE.fullmatch(first) and not others:
        explain(first, as_json)
        return
    if as_json:
        raise click.UsageError("only codes have JSON: `mz help CODE --json`, or `mz help codes --json`", context)
    if len(topic) == 1 and topic[0] in TOPICS:
        print_line(TOPICS[topic[0]][1]())
        return
    command_page: click.Command = mz
    parent = context.find_root()
    for word in topic:
        subcommand = command_page.get_command(parent, word) if isinstance(command_page, click.Group) else None
        if subcommand is None:
            names = (
                (*TOPICS, "codes", *COMMANDS) if command_page is mz else tuple(getattr(command_page, "commands", ()))
            )
            raise click.UsageError(f"no topic or command {word[:80]!r}{did_you_mean(word, names)}", context)
        command_page, parent = subcommand, click.Context(subcommand, info_name=word, parent=parent)
    print_line(command_page.get_help(parent))
