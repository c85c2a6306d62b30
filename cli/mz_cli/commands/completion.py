"""Command `mz completion`."""

from __future__ import annotations

import sys

import click

from mz_cli.completing import SHELLS, script
from mz_cli.help import command
from mz_cli.render.console import put


@command(
    "completion",
    examples=(
        ("mz completion bash >> ~/.bashrc", "for every new bash"),
        ('eval "$(mz completion zsh)"', "for this zsh, or as a line of ~/.zshrc after compinit"),
        ("mz completion fish > ~/.config/fish/completions/mz.fish", "for every new fish"),
    ),
    following="`mz show <TAB>` suggests the features of the newest run.",
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a shell completion script.

    Completes commands, options, runs, features, pipelines and error codes. Completion never writes anything, and
    suggests nothing after an error. bash needs version 4.4 or newer.
    """
    put(sys.stdout, script(shell))
