"""What is taken from artifacts beside their rules: titles, bodies, mentions."""

from __future__ import annotations

import pytest
from mz_engine.artifacts.load import load_rules
from mz_engine.artifacts.markdown import read_markdown, total_words
from mz_engine.artifacts.parse import parse_artifact, title_and_body
from mz_engine.artifacts.validate import is_mentioned


@pytest.mark.parametrize(
    ("text", "title", "body"),
    [
        ("# Show one  month\n\n## Summary\nText.\n", "Show one  month", "## Summary\nText.\n"),
        ("intro\n\nA title\n=======\nText.\n", "A title", "intro\n\nText.\n"),
        ("```\n# no title\n```\n## Summary\n", "", "```\n# no title\n```\n## Summary\n"),
        ("# Of *two* lines \\\n", "Of *two* lines \\", "\n"),
        ("", "", ""),
    ],
)
def test_title_and_body(text: str, title: str, body: str) -> None:
    assert title_and_body(text) == (" ".join(title.split()), body)


@pytest.mark.parametrize(
    "text",
    [
        "FR-002",
        "(`FR-002`)",
        "FR-001 to FR-003",
        "FR-001..003",
        "FR-001 – FR-002",
        "FR-001-FR-010",
        "FR-001 through 002",
    ],
)
def test_a_name_is_mentioned_alone_or_in_a_range(text: str) -> None:
    assert is_mentioned(f"see {text}.", "FR-002")


@pytest.mark.parametrize(
    "text", ["FR-0020", "NFR-002", "FR-002-b", "FR-003 to FR-009", "AC-001 to FR-003", "FR-001 and FR-003"]
)
def test_what_is_no_mention(text: str) -> None:
    assert not is_mentioned(f"see {text}.", "FR-002")


def test_a_range_without_end_is_cut() -> None:
    assert not is_mentioned("FR-1 to FR-9999", "FR-9000")


def test_words_of_tables_and_code_count_and_rulers_do_not() -> None:
    text = (
        "# not counted\nneither\n## Nor this\n| a | b |\n|---|---|\n| c | - |\n\n```\nd e\n```\n<!-- no\nno -->\n* f\n"
    )
    assert total_words(read_markdown(text)) == 6


def test_without_headings_every_word_counts() -> None:
    assert total_words(read_markdown("one two\nthree\n")) == 3


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ('{"severity": " major "}', {"severity": "MAJOR"}),
        ('{"severity": "huge"}', {}),
        ('{"severity": 7}', {}),
        ('{"severity": ["MAJOR"]}', {}),
        ('{"cause": " spec "}', {"cause": "spec"}),
        ('{"cause": "no name"}', {}),
        ('{"cause": null}', {}),
    ],
)
def test_a_field_is_taken_if_it_is_one_of_its_values_or_a_name(text: str, fields: dict[str, str]) -> None:
    assert parse_artifact(load_rules()["verdict"], text).fields == fields
