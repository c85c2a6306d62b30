"""The flags that say how a run is shown while it works."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from mz_cli.app.command_table import COMMANDS
from mz_cli.app.help import display_mode, view_options
from mz_cli.main import mz


@click.command()
@view_options
def watched() -> None:
    click.echo(display_mode())


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), "live"),
        (("--no-progress",), "lines"),
        (("--quiet",), "quiet"),
        (("-q",), "quiet"),
        (("--quiet", "--no-progress"), "quiet"),
        (("--no-progress", "--quiet"), "quiet"),
    ],
)
def test_what_flags_allow(args: tuple[str, ...], text: str) -> None:
    assert CliRunner().invoke(watched, args).output == f"{text}\n"


def test_outside_of_a_command_a_picture_may_be_shown() -> None:
    assert display_mode() == "live"


@pytest.mark.parametrize("name", ["run", "resume", "demo", "status"])
def test_every_command_that_shows_a_run_takes_them(name: str) -> None:
    assert name in COMMANDS
    command = mz.get_command(click.Context(mz), name)
    assert command is not None
    assert {"no_progress", "quiet"} <= {parameter.name for parameter in command.params}
