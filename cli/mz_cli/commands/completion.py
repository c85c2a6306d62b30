"""Adapter: `mz completion`."""

from __future__ import annotations

import sys

import click

from mz_cli.completing import SHELLS, script
from mz_cli.help import command
from mz_cli.render.console import put


@command(
    "completion",
    examples=(
        ("mz completion bash >> ~/.bashrc", "in every bash that begins from now on"),
        ('eval "$(mz completion zsh)"', "in this zsh, or as a line of ~/.zshrc after compinit"),
        ("mz completion fish > ~/.config/fish/completions/mz.fish", "in every fish that begins from now on"),
    ),
    following="`mz show <TAB>` suggests the features of the newest run.",
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes a shell complete the words of mz.

    Commands and options, and besides runs, features, pipelines and error codes. Looking them up changes nothing, and
    where something is in the way there are no suggestions. bash needs version 4.4 or newer.
    """
    put(sys.stdout, script(shell))
