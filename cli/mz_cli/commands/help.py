"""Command `mz help`."""

from __future__ import annotations

import click

from mz_cli.help import command, did_you_mean
from mz_cli.main import COMMANDS, mz
from mz_cli.render.console import answer
from mz_cli.topics import TOPICS


@command(
    "help",
    examples=(
        ("mz help", "the commands"),
        ("mz help exit-codes", "a topic about several commands"),
        ("mz help pipelines new", "the same as `mz pipelines new --help`"),
    ),
    following="`mz explain CODE` explains an error or an exit code.",
)
@click.argument("topic", nargs=-1)
@click.pass_context
def help_(context: click.Context, topic: tuple[str, ...]) -> None:
    """Explain a topic or a command.

    Topics: exit-codes, environment, formatting.
    """
    if len(topic) == 1 and topic[0] in TOPICS:
        answer(TOPICS[topic[0]][1]())
        return
    page: click.Command = mz
    asked = context.find_root()
    for word in topic:
        found = page.get_command(asked, word) if isinstance(page, click.Group) else None
        if found is None:
            known = (*TOPICS, *COMMANDS) if page is mz else tuple(getattr(page, "commands", ()))
            raise click.UsageError(f"no topic or command {word[:80]!r}{did_you_mean(word, known)}", context)
        page, asked = found, click.Context(found, info_name=word, parent=asked)
    answer(page.get_help(asked))
