"""Adapter: what the pages claim to be tested names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.tree import ROOT

NAMED = re.compile(r"\btest_\w+\.py\b")
FOLDERS = re.compile(r"`(tests/\w+/)`")


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/capabilities.md"])
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    named = set(NAMED.findall(text))
    assert len(named) > 10
    assert named <= there, named - there
    assert all((ROOT / folder).is_dir() for folder in FOLDERS.findall(text))


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / Path(target)).exists(), f"{page}: {target}"
