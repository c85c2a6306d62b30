"""The page of commands says what the commands say."""

from __future__ import annotations

from pathlib import Path

from mz_cli.app.command_table import COMMANDS

from tools.docs.commands import command_pages, markdown_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"


def test_the_page_is_what_the_commands_print() -> None:
    assert PAGE.read_text() == markdown_page(), "write it anew: python -m tools.docs.commands docs/commands.md"


def test_every_command_has_its_heading() -> None:
    headings = [line for line in markdown_page().splitlines() if line.startswith("## ")]
    assert headings == ["## mz", *(f"## mz {name}" for name in COMMANDS)]
    below = [line for line in markdown_page().splitlines() if line.startswith("### ")]
    assert below == [f"### {title}" for title, _ in command_pages() if len(title.split()) > 2]
    assert "### mz pipelines lint" in below


def test_lines_are_not_longer_than_the_page() -> None:
    assert max(len(line) for line in markdown_page().splitlines()) <= 120
