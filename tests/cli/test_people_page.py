"""`docs/people.md` says what the commands say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from mz_cli.main import mz
from mz_cli.people.questions import KIND_TEXTS
from mz_events.catalog.feature import QuestionKind

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "people.md").read_text("utf-8")
COMMANDS = [
    line.partition(" < ")[0]
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


@pytest.mark.parametrize("line", [*COMMANDS, "mz resume login --answer approve"])
def test_commands_are_understood(line: str) -> None:
    args = shlex.split(line)[1:]
    assert line in PAGE
    group: click.Command = mz
    context = click.Context(mz)
    while isinstance(group, click.Group):
        _, command, args = group.resolve_command(context, args)
        assert command is not None
        group = command
    group.make_context(line, list(args))


@pytest.mark.parametrize("ask", QuestionKind)
def test_every_question_is_explained(ask: QuestionKind) -> None:
    (summary,) = re.findall(rf"^\| `{ask.value}` \| (.*) \|$", PAGE, flags=re.MULTILINE)
    assert summary.startswith(KIND_TEXTS[ask])
