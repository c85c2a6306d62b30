"""Annotations and step summaries for GitHub Actions: what the runner reads, and what it must not."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec.structs import replace
from mz_cli.reports.findings import Report, Suite, replace_invisible, sanitise
from mz_cli.reports.github import ANNOTATIONS_MAX, BYTES_MAX, annotation_lines, summary, workflow_command
from mz_cli.reports.github import FAILED as FAILED_MARK
from mz_cli.reports.github import PASSED as PASSED_MARK
from mz_recordings.findings.model import Finding
from syrupy.assertion import SnapshotAssertion

from tests.cli.test_reports import ANY, Read, holding, relieved
from tests.support.reports import FAILED, NOTES, PASSED

LINE = re.compile(r"::(?P<name>[\w-]+)(?: (?P<properties>[^:]*))?::(?P<data>[^\r\n]*)")
"""How the runner takes a command apart."""


def recorded(line: str) -> tuple[str, dict[str, str], str]:
    """Name, properties and data of a command, as the runner understands them."""
    match = LINE.fullmatch(line)
    assert match is not None, line
    pairs = (item.partition("=") for item in (match["properties"] or "").split(",") if item)
    properties = {key: unescaped(value, {"%3A": ":", "%2C": ","}) for key, _, value in pairs}
    return match["name"], properties, unescaped(match["data"], {})


def unescaped(text: str, more: dict[str, str]) -> str:
    for code, character in {"%0D": "\r", "%0A": "\n", **more, "%25": "%"}.items():
        text = text.replace(code, character)
    return text


def many(number: int, kind: str = "TRACE") -> Report:
    findings = tuple(
        msgspec.convert({"kind": kind, "message": f"number {at}", "feature": f"f{at}", "detail": ["-x" * 300]}, Finding)
        for at in range(number)
    )
    return replace(FAILED, suites=(replace(NOTES, findings=findings),))


def told_only(report: Report) -> Report:
    """The same where the command fails for nothing."""
    suites = (
        replace(suite, findings=tuple(replace(finding, fails=False) for finding in suite.findings))
        for suite in report.suites
    )
    return replace(report, exit=0, suites=tuple(suites))


# annotations ----------------------------------------------------------------------------------------------------------
def test_annotations(snapshot: SnapshotAssertion) -> None:
    assert "\n".join(annotation_lines(relieved(FAILED))) == snapshot
    assert list(annotation_lines(PASSED)) == []


def test_what_is_grave_comes_first_and_one_cause_once() -> None:
    calls = [recorded(line) for line in annotation_lines(relieved(FAILED))]
    assert [(name, properties["title"].split(":")[0]) for name, properties, _ in calls] == [
        ("error", "UNREADABLE"), ("error", "TRACE"), ("error", "PROMPT"), ("error", "UNUSED"),
    ]  # fmt: skip
    prompt = calls[2]
    assert (prompt[1]["file"], prompt[1]["line"]) == ("pipelines/templates/write.md.j2", "14")
    assert "+Be brief: 100%, `at` most." in prompt[2].splitlines()


def test_what_is_told_and_fails_nothing_is_a_warning_and_the_step_passed() -> None:
    """Of high risk too: what fails is the command's to say."""
    report = told_only(many(2))
    assert [recorded(line)[0] for line in annotation_lines(report)] == ["warning", "warning"]
    text = summary(report)
    assert PASSED_MARK in text
    assert FAILED_MARK not in text
    assert "1 of 1 passed, 2 findings of 2 causes. " in text
    assert "(high risk, does not fail)" in text


def test_the_table_of_kinds_has_the_risk_that_was_found() -> None:
    low, high = (replace(many(1).suites[0].findings[0], risk=risk) for risk in ("low", "high"))
    for findings, risk in (((low,), "low"), ((low, high), "high")):
        report = replace(FAILED, suites=(replace(NOTES, findings=findings),))
        assert f"| TRACE | {len(findings)} | {risk} |" in summary(report)


def test_ten_of_a_kind_are_shown_and_the_last_sums_up_the_rest() -> None:
    assert len(list(annotation_lines(many(ANNOTATIONS_MAX)))) == ANNOTATIONS_MAX
    *shown, last = (recorded(line) for line in annotation_lines(many(25)))
    assert len(shown) == ANNOTATIONS_MAX - 1
    assert last[1]["title"] == "mz replay: 16 more findings"


@given(ANY)
def test_any_text_is_one_command(text: str) -> None:
    for line in annotation_lines(holding(text)):
        name, properties, data = recorded(line)
        assert name == "error"
        assert set(properties) <= {"file", "line", "title"}
        assert f"\n+{replace_invisible(text)}\n" in f"\n{data}\n"


@given(st.text(), st.text())
def test_a_command_is_understood_as_it_was_meant(text: str, title: str) -> None:
    _, properties, data = recorded(
        workflow_command("error", text.replace("\x85", "").replace("\u2028", ""), title=title)
    )
    assert data == text.replace("\x85", "").replace("\u2028", "")
    assert properties.get("title", "") == title


# the summary ----------------------------------------------------------------------------------------------------------
def rendered(text: str) -> str:
    """As a renderer of GitHub's Markdown makes HTML of it, before anything is taken out."""
    return str(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))


class Texts(HTMLParser):
    """What people read, fence by fence and cell by cell."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.together = ""
        self.feed(text)
        self.close()

    def handle_data(self, data: str) -> None:
        self.together += data


def test_summary(snapshot: SnapshotAssertion) -> None:
    assert summary(relieved(FAILED)) == snapshot(name="failed")
    assert summary(PASSED) == snapshot(name="passed")


@given(ANY)
def test_any_text_is_only_read(text: str) -> None:
    shown = replace_invisible(text)
    page = rendered(summary(holding(text)))
    read = Read(page)
    plain = {"h2", "p", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "b", "pre", "code", "em"}
    assert set(read.tags) <= plain
    assert {name for name, _ in read.attributes} <= {"class", "style"}
    together = Texts(page).together
    assert f"+{shown}\n" in together
    assert " ".join(shown.split()) in " ".join(together.split())


def test_markdown_and_html_in_a_text_are_text() -> None:
    bad = "# x\n| a | b |\n```\n</details><img src=x onerror=alert(1)> [l](https://e.org) @all #1 **b** _e_ &lt; \\`"
    page = rendered(summary(holding(bad)))
    assert "<img" not in page
    assert "<a " not in page
    assert page.count("<h2>") == 1
    assert page.count("<table>") == 2
    assert page.count("<details>") == page.count("</details>") == 1


@pytest.mark.slow
def test_a_summary_fits_and_says_what_is_left_out() -> None:
    text = summary(many(5000))
    assert len(text.encode()) <= BYTES_MAX
    match = re.search(r"_([\d,]+) more findings: the reports have all of them\._", text)
    assert match is not None
    assert int(match[1].replace(",", "")) + text.count("<details>") == 5000
    assert text.count("<details>") == text.count("</details>") > 1000


def test_a_summary_knows_how_much_room_is_left() -> None:
    for room in (0, 100, 2_000, 20_000):
        assert len(summary(many(100), room).encode()) <= room
    suites = tuple(Suite(name=f"s{at}", path="ü" * 900) for at in range(5000))
    assert len(summary(replace(PASSED, suites=suites), 5_000).encode()) <= 5_000


def test_a_secret_in_a_finding_is_in_no_report() -> None:
    report = sanitise(holding("token sk-secret"), lambda text: text.replace("sk-secret", "<KEY>"), lambda text: text)
    assert "sk-secret" not in summary(report) + "".join(annotation_lines(report))
