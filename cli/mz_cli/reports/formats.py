"""Reports as files: JUnit XML, SARIF 2.1.0 and HTML, of a sanitised report.

JUnit: the format that pytest, Jenkins and GitLab share (`junit-10.xsd` of Jenkins' xUnit plugin). A test suite per
suite, a test case per case, at most one failure or error per case.

SARIF (OASIS): findings become alerts on their source lines. Findings of one cause are one result. The fingerprint that
identifies a result is made of stable names only: texts, diffs and line numbers may change. Paths are relative to
`%SRCROOT%`.

HTML: a single file without any external resource. The page's Content-Security-Policy allows only its own style sheet
and script, by digest, so that text from agents can neither load nor run anything.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as Xml

import msgspec
from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup
from mz_engine.errors.codes import MEANINGS
from mz_engine.errors.diagnostics import Exit
from mz_recordings.findings.model import KIND_PROPERTIES, Finding, FindingGroup, FindingKind, Risk, risk_of

from mz_cli.reports.findings import (
    Report,
    Suite,
    call_name,
    file_position,
    finding_groups,
    findings_by_case,
    fix_command,
    group_fix,
    kind_totals,
    places,
)
from mz_cli.terminal.text import count_noun, format_elapsed, single_line

ERRORS = (Exit.BUG, Exit.INVALID, Exit.NOT_COMPARABLE)
"""Exit codes reported as errors instead of failures, because nothing was compared."""
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS: Mapping[Risk, str] = {"high": "error", "medium": "warning", "low": "note"}
ROOT = "%SRCROOT%"
FINGERPRINT = "mzFinding/v1"
FALLBACK_FILE = "mz.yaml"
"""File shown for findings without one: GitHub rejects results without a location."""
LOCATIONS_MAX = 100
"""Maximum of locations of a result."""
RULES: tuple[FindingKind, ...] = tuple(KIND_PROPERTIES)
FEW_GROUPS, OPEN_GROUPS = 12, 3
"""With at most `FEW_GROUPS` groups, `OPEN_GROUPS` are expanded at first, otherwise one."""


# JUnit ----------------------------------------------------------------------------------------------------------------
def junit(report: Report) -> str:
    """Return the XML file of a sanitised report."""
    elements = [_suite(suite) for suite in report.suites]
    root = Xml.Element("testsuites", name=report.title, time=f"{sum(suite.seconds for suite in report.suites):.3f}")
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in elements)))
    root.extend(elements)
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def _suite(suite: Suite) -> Xml.Element:
    cases = [_case(suite, name, findings) for name, findings in findings_by_case(suite).items()]
    failures, errors = (sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error"))
    counts = {"tests": len(cases), "failures": failures, "errors": errors, "skipped": 0}
    element = Xml.Element("testsuite", {"name": suite.label} | {name: str(count) for name, count in counts.items()})
    element.set("time", f"{suite.seconds:.3f}")
    if suite.properties:
        properties = Xml.SubElement(element, "properties")
        for property_name, value in suite.properties:
            Xml.SubElement(properties, "property", name=property_name, value=value)
    element.extend(cases)
    return element


def _case(suite: Suite, name: str, findings: Sequence[Finding]) -> Xml.Element:
    element = Xml.Element("testcase", name=name, classname=suite.label)
    text = "\n\n".join("\n".join(_lines(suite, finding)) for finding in findings)
    failing = [finding for finding in findings if finding.fails]
    if failing:
        broken = any(KIND_PROPERTIES[finding.kind].exit in ERRORS for finding in failing)
        kinds = dict.fromkeys(finding.kind for finding in failing)
        message = "; ".join(dict.fromkeys(single_line(finding.message) for finding in failing))
        tag = Xml.SubElement(element, "error" if broken else "failure", type=", ".join(kinds), message=message)
        tag.text = text
    elif findings:
        Xml.SubElement(element, "system-out").text = text
    return element


def _lines(suite: Suite, finding: Finding) -> Iterator[str]:
    """Yield a complete finding: kind and message, location, cause, diff and fix."""
    yield f"{finding.kind} ({risk_of(finding)} risk): {finding.message}"
    if finding.file:
        yield file_position(finding)
    if finding.cause:
        yield f"cause: {finding.cause}"
    yield from finding.detail
    if finding.fix:
        yield f"fix: {fix_command(finding.fix, (suite.label,))}"


# SARIF ----------------------------------------------------------------------------------------------------------------
def sarif(report: Report) -> str:
    """Return the SARIF file of a sanitised report."""
    identity_counts: Counter[str] = Counter()
    suites = {suite.label: suite for suite in report.suites}
    run = {
        "tool": {"driver": {"name": "mz", "semanticVersion": report.version, "rules": [_rule(kind) for kind in RULES]}},
        "automationDetails": {"id": f"{report.title.replace(' ', '/')}/"},
        "invocations": [
            {"executionSuccessful": True, "exitCode": report.exit, "exitCodeDescription": MEANINGS[Exit(report.exit)]}
        ],
        "originalUriBaseIds": {ROOT: {"description": {"text": "The root of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(group, suites, identity_counts) for group in finding_groups(report)],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


RULE_HELP = "Each finding ends with the command that fixes it. `mz help exit-codes` explains the exit codes."


def _rule(kind: FindingKind) -> dict[str, Any]:
    kind_info = KIND_PROPERTIES[kind]
    meaning = kind_info.meaning[:1].upper() + kind_info.meaning[1:] + "."
    exit_text = f"Commands that report it end with exit code {int(kind_info.exit)}: {MEANINGS[kind_info.exit]}"
    return {
        "id": kind,
        "name": kind.capitalize(),
        "shortDescription": {"text": meaning},
        "fullDescription": {"text": f"{meaning} {exit_text}"},
        "help": {"text": f"{meaning} {exit_text} {RULE_HELP}"},
        "defaultConfiguration": {"level": LEVELS[kind_info.risk]},
        "properties": {"tags": ["recordings"], "risk": kind_info.risk},
    }


def _result(group: FindingGroup, suites: Mapping[str, Suite], identity_counts: Counter[str]) -> dict[str, Any]:
    label, finding = group.occurrences[0]
    identity = fingerprint(group)
    identity_counts[identity] += 1
    fix = f"fix: {group_fix(group)}" if finding.fix else ""
    message = "\n".join(filter(None, [f"{group.message}.", f"in {'; '.join(places(group))}", *group.detail, fix]))
    return {
        "ruleId": group.kind,
        "ruleIndex": RULES.index(group.kind),
        "level": LEVELS[group.risk],
        "message": {"text": message},
        "locations": [_location(suites[label], finding)],
        "occurrenceCount": len(group.occurrences),
        "partialFingerprints": {FINGERPRINT: f"{identity}:{identity_counts[identity]}"},
        "properties": {
            "places": [f"{name}/{call_name(item)}".rstrip("/") for name, item in group.occurrences[:LOCATIONS_MAX]],
            "causes": list(group.causes),
        },
    }  # fmt: skip


def fingerprint(group: FindingGroup) -> str:
    """Return a digest of the group's causes, or of its first location: stable while texts and line numbers change."""
    label, first = group.occurrences[0]
    parts = group.causes or (label, first.feature, first.call)
    return hashlib.sha256("\0".join((group.kind, *parts)).encode()).hexdigest()[:32]


def _location(suite: Suite, finding: Finding) -> dict[str, Any]:
    path = finding.file or suite.path or FALLBACK_FILE
    physical = {
        "artifactLocation": {"uri": quote(path), "uriBaseId": ROOT},
        "region": {"startLine": max(finding.line or 1, 1)},
    }
    name = f"{suite.label}/{call_name(finding)}".rstrip("/")
    return {"physicalLocation": physical, "logicalLocations": [{"fullyQualifiedName": name, "kind": "member"}]}


# HTML -----------------------------------------------------------------------------------------------------------------
def html(report: Report) -> str:
    """Return the HTML file of a sanitised report."""
    folder = resources.files("mz_cli.reports") / "page"
    template, style, script = ((folder / name).read_text("utf-8") for name in ("page.html.j2", "page.css", "page.js"))
    environment = ImmutableSandboxedEnvironment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {
        "calls": calls_by_suite, "diff_line": diff_line, "file_position": file_position, "fix": group_fix,
        "places": count_noun, "search_text": search_text, "single_line": single_line,
        "time": lambda seconds: f"{seconds:.1f} s" if seconds < 100 else format_elapsed(seconds),
    }  # fmt: skip
    groups = finding_groups(report)
    return environment.from_string(template).render(
        report=report,
        passed=report.exit == Exit.OK,
        meaning=MEANINGS[Exit(report.exit)],
        meanings={kind: properties.meaning for kind, properties in KIND_PROPERTIES.items()},
        kinds=kind_totals(groups),
        groups=groups,
        open_groups=OPEN_GROUPS if len(groups) <= FEW_GROUPS else 1,
        anchors={suite.label: f"suite-{number}" for number, suite in enumerate(report.suites, 1)},
        checks={suite.label: passed_and_all(suite) for suite in report.suites},
        style=Markup(style),
        script=Markup(script),
        policy=content_security_policy(style, script),
    )


def calls_by_suite(group: FindingGroup) -> dict[str, list[str]]:
    calls: dict[str, list[str]] = {}
    for label, finding in group.occurrences:
        calls.setdefault(label, []).extend(filter(None, [call_name(finding)]))
    return calls


def search_text(group: FindingGroup) -> str:
    """Return the text that the filter searches, in lower case."""
    calls = calls_by_suite(group)
    names = (name for named in calls.values() for name in named)
    return " ".join((group.kind, group.message, file_position(group.first), *group.causes, *calls, *names)).lower()


def diff_line(line: str) -> tuple[str, str]:
    """Return element and class of a line of a diff."""
    looks = {"+": ("ins", "new"), "-": ("del", "old")}
    return ("span", "hunk") if line.startswith("@@") else looks.get(line[:1], ("span", "same"))


def passed_and_all(suite: Suite) -> tuple[int, int]:
    """Return the number of cases that passed, and of all."""
    cases = findings_by_case(suite).values()
    return sum(not any(finding.fails for finding in findings) for findings in cases), len(cases)


def content_security_policy(style: str, script: str) -> str:
    style_digest, script_digest = (
        b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)
    )
    allowed = f"style-src 'sha256-{style_digest}'; script-src 'sha256-{script_digest}'"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


FORMATS: Mapping[str, Callable[[Report], str]] = {"junit": junit, "sarif": sarif, "html": html}
