"""Tests and files that pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.tree import ROOT

TEST = re.compile(r"\btest_\w+\.py\b")
MADE = re.compile(r"<!-- file: (test_\w+\.py) -->")
"""A file that a page makes."""
TEST_IN_FOLDER = re.compile(r"(?:tests/)?\b(\w+/test_\w+\.py)\b")
FOLDER = re.compile(r"`(tests/\w+/)`")
MODULE = re.compile(r"`((?:\w+/)+\w+\.(?:py|toml|yaml))\b(?:(?:`: `|: )(\w+)(?=`))?")
"""A file in a folder (`file.py` alone may be in any), and a name that it defines."""
PLACEHOLDER = re.compile("[A-Z]{4}")
PACKAGES = ("", "engine/mz_engine", "recordings/mz_recordings", "projections/mz_projections", "events/mz_events",
            "qa/mz_qa", "cli/mz_cli", "tests", "tools")  # fmt: skip
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *(ROOT / "docs").glob("*.md")]


def test_every_test_that_a_page_names_exists() -> None:
    names = {file.name for file in (ROOT / "tests").rglob("test_*.py")}
    for path in PAGES:
        text = path.read_text("utf-8")
        assert not set(TEST.findall(text)) - names - set(MADE.findall(text)), path
        assert not [name for name in TEST_IN_FOLDER.findall(text) if name.partition("/")[0] != "tests"
                    and not (ROOT / "tests" / name).is_file()], path  # fmt: skip
        assert all((ROOT / folder).is_dir() for folder in FOLDER.findall(text)), path


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/capabilities.md"])
def test_pages_about_guarantees_name_tests(page: str) -> None:
    assert len(set(TEST.findall((ROOT / page).read_text("utf-8")))) > 40


@pytest.mark.parametrize(
    "path", [ROOT / "ARCHITECTURE.md", *ROOT.glob("*/README.md")], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_module_and_name_that_a_page_of_the_code_gives_exists(path: Path) -> None:
    for name, defined in MODULE.findall(path.read_text("utf-8")):
        files = [folder / name for folder in folders_of(path) if (folder / name).is_file()]
        assert files or PLACEHOLDER.search(name), name
        if defined:
            definition = re.compile(rf"^ *(?:(?:async )?def |class )?{defined}\b", re.MULTILINE)
            assert any(definition.search(file.read_text("utf-8")) for file in files), f"{name}: {defined}"


def folders_of(path: Path) -> list[Path]:
    """Folders that paths on a page may be relative to."""
    own = [] if path.parent == ROOT else [path.parent, *path.parent.glob("mz_*")]
    return [*own, *(ROOT / package for package in PACKAGES)]


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / Path(target)).exists(), f"{page}: {target}"
