"""Documentation page of all commands, from their `--help`. `python -m tools.docs.commands FILE` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
from mz_cli.app.command_table import COMMANDS
from mz_cli.app.help import HELP_WIDTH, CommandFamily
from mz_cli.main import mz

HEAD = """# Commands

Output of `mz --help` and `mz COMMAND --help`; `python -m tools.docs.commands docs/commands.md` writes this page.

The result of a command goes to stdout, everything else to stderr. A pipe gets tab-separated lines that are never cut;
`mz run`, `demo`, `resume` and `fork` print a table there too. `--json` prints one object that names its schema
(`mz log`: JSON Lines). With `NO_COLOR` no escape sequence is written.
[errors.md](errors.md) lists error codes and exit codes.
"""


def markdown_page() -> str:
    """Return the page as Markdown."""
    return HEAD + "".join(
        f"\n{heading(title)}\n\n```text\n{_help_text(title, page)}\n```\n" for title, page in command_pages()
    )


def heading(title: str) -> str:
    """Return a heading of level 2 for a command, of level 3 for a subcommand."""
    return f"{'###' if len(title.split()) > 2 else '##'} {title}"


def command_pages() -> Iterator[tuple[str, click.Command]]:
    """Yield `mz`, then every command followed by its subcommands, each with its command line."""
    yield "mz", mz
    for name in COMMANDS:
        command = mz.get_command(click.Context(mz), name)
        assert command is not None
        yield f"mz {name}", command
        if isinstance(command, CommandFamily):
            yield from ((f"mz {name} {subcommand}", page) for subcommand, page in command.commands.items())


def _help_text(title: str, page: click.Command) -> str:
    context = click.Context(page, info_name=title, terminal_width=HELP_WIDTH, help_option_names=["-h", "--help"])
    return page.get_help(context).rstrip()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown_page(), encoding="utf-8")
