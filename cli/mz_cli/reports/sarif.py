"""Reports as SARIF 2.1.0 (OASIS), so that findings become alerts on their source lines.

Findings of one cause are one result. The fingerprint that identifies a result is made of stable names only: texts,
diffs and line numbers may change. Paths are relative to `%SRCROOT%`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from mz_engine.exits import MEANINGS, Exit
from mz_recordings.findings import KINDS, Finding, FindingKind, Risk
from mz_recordings.grouping import Group

from mz_cli.reports.facts import Report, Suite
from mz_cli.reports.groups import groups_of, mend_of, places_of

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS: Mapping[Risk, str] = {"high": "error", "medium": "warning", "low": "note"}
ROOT = "%SRCROOT%"
FINGERPRINT = "mzFinding/v1"
ELSEWHERE = "mz.yaml"
"""File shown for findings without one: GitHub rejects results without a location."""
PLACES_MAX, PLACES_NAMED = 100, 6
"""Maximum of locations of a result: as data, and in its message."""
RULES: tuple[FindingKind, ...] = tuple(KINDS)


def sarif(report: Report) -> str:
    """Return the SARIF file of a sanitised report."""
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(report)]}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _run(report: Report) -> dict[str, Any]:
    seen: Counter[str] = Counter()
    suites = {suite.label: suite for suite in report.suites}
    return {
        "tool": {
            "driver": {
                "name": "mz",
                "semanticVersion": report.version,
                "rules": [_rule(kind) for kind in RULES],
            }
        },
        "automationDetails": {"id": f"{report.title.replace(' ', '/')}/"},
        "invocations": [
            {
                "executionSuccessful": True,
                "exitCode": report.exit,
                "exitCodeDescription": MEANINGS[Exit(report.exit)],
            }
        ],
        "originalUriBaseIds": {ROOT: {"description": {"text": "The root of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, suites, seen) for each in groups_of(report)],
    }


def _rule(kind: FindingKind) -> dict[str, Any]:
    facts = KINDS[kind]
    meaning = facts.meaning[:1].upper() + facts.meaning[1:] + "."
    ends = f"Commands that report it end with exit code {int(facts.exit)}: {MEANINGS[facts.exit]}"
    return {
        "id": kind,
        "name": kind.capitalize(),
        "shortDescription": {"text": meaning},
        "fullDescription": {"text": f"{meaning} {ends}"},
        "help": {
            "text": f"{meaning} {ends} Each finding ends with the command that fixes it.",
            "markdown": f"{meaning} {ends}\n\nEach finding ends with the command that fixes it; "
            "`mz help exit-codes` explains the exit codes.",
        },
        "defaultConfiguration": {"level": LEVELS[facts.risk]},
        "properties": {"tags": ["recordings"], "risk": facts.risk},
    }


def _result(each: Group, suites: Mapping[str, Suite], seen: Counter[str]) -> dict[str, Any]:
    label, finding = each.places[0]
    identity = fingerprint(each)
    seen[identity] += 1
    return {
        "ruleId": each.kind,
        "ruleIndex": RULES.index(each.kind),
        "level": LEVELS[each.risk],
        "message": {"text": _message(each)},
        "locations": [_location(suites[label], finding)],
        "occurrenceCount": len(each.places),
        "partialFingerprints": {FINGERPRINT: f"{identity}:{seen[identity]}"},
        "properties": {
            "places": ["/".join(part for part in (name, located.feature, located.call) if part)
                       for name, located in each.places[:PLACES_MAX]],
            "causes": list(each.causes),
        },
    }  # fmt: skip


def fingerprint(each: Group) -> str:
    """Return a digest of the group's causes, or of its first location: stable while texts and line numbers change."""
    label, first = each.places[0]
    parts = each.causes or (label, first.feature, first.call)
    return hashlib.sha256("\0".join((each.kind, *parts)).encode()).hexdigest()[:32]


def _message(each: Group) -> str:
    mend = f"fix: {mend_of(each, PLACES_NAMED)}" if each.places[0][1].mend else ""
    where = f"in {places_of(each, PLACES_NAMED)}"
    return "\n".join(part for part in (f"{each.what}.", where, *each.detail, mend) if part)


def _location(suite: Suite, finding: Finding) -> dict[str, Any]:
    path = finding.file or suite.path or ELSEWHERE
    physical = {
        "artifactLocation": {"uri": quote(path), "uriBaseId": ROOT},
        "region": {"startLine": max(finding.line or 1, 1)},
    }
    name = "/".join(part for part in (suite.label, finding.feature, finding.call) if part)
    return {"physicalLocation": physical, "logicalLocations": [{"fullyQualifiedName": name, "kind": "member"}]}
