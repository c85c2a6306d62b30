"""Command `mz completion`."""

from __future__ import annotations

import sys

import click

from mz_cli.app.completion import SHELLS, completion_script
from mz_cli.app.help import command
from mz_cli.terminal.console import write_text


@command(
    "completion",
    examples=(
        ("mz completion bash >> ~/.bashrc", "for every new bash"),
        ('eval "$(mz completion zsh)"', "for this zsh, or as a line of ~/.zshrc after compinit"),
        ("mz completion fish > ~/.config/fish/completions/mz.fish", "for every new fish"),
    ),
    next_command="`mz show <TAB>` suggests the features of the newest run.",
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a shell completion script.

    Completes commands, options, runs, features, pipelines and error codes. Completion never writes anything, and
    suggests nothing after an error. bash needs version 4.4 or newer.
    """
    write_text(sys.stdout, completion_script(shell))
