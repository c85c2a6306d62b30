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
from mz_engine.errors.codes import MEANINGS
from mz_engine.errors.exits import Exit
from mz_recordings.findings.grouping import FindingGroup
from mz_recordings.findings.model import KIND_PROPERTIES, Finding, FindingKind, Risk

from mz_cli.reports.findings import call_name, group_fix, places
from mz_cli.reports.model import Report, Suite, finding_groups

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS: Mapping[Risk, str] = {"high": "error", "medium": "warning", "low": "note"}
ROOT = "%SRCROOT%"
FINGERPRINT = "mzFinding/v1"
FALLBACK_FILE = "mz.yaml"
"""File shown for findings without one: GitHub rejects results without a location."""
LOCATIONS_MAX = 100
"""Maximum of locations of a result."""
RULES: tuple[FindingKind, ...] = tuple(KIND_PROPERTIES)


def sarif(report: Report) -> str:
    """Return the SARIF file of a sanitised report."""
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(report)]}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _run(report: Report) -> dict[str, Any]:
    identity_counts: Counter[str] = Counter()
    suites = {suite.label: suite for suite in report.suites}
    return {
        "tool": {"driver": {"name": "mz", "semanticVersion": report.version, "rules": [_rule(kind) for kind in RULES]}},
        "automationDetails": {"id": f"{report.title.replace(' ', '/')}/"},
        "invocations": [
            {"executionSuccessful": True, "exitCode": report.exit, "exitCodeDescription": MEANINGS[Exit(report.exit)]}
        ],
        "originalUriBaseIds": {ROOT: {"description": {"text": "The root of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(group, suites, identity_counts) for group in finding_groups(report)],
    }


def _rule(kind: FindingKind) -> dict[str, Any]:
    kind_info = KIND_PROPERTIES[kind]
    meaning = kind_info.meaning[:1].upper() + kind_info.meaning[1:] + "."
    exit_text = f"Commands that report it end with exit code {int(kind_info.exit)}: {MEANINGS[kind_info.exit]}"
    return {
        "id": kind,
        "name": kind.capitalize(),
        "shortDescription": {"text": meaning},
        "fullDescription": {"text": f"{meaning} {exit_text}"},
        "help": {
            "text": f"{meaning} {exit_text} Each finding ends with the command that fixes it.",
            "markdown": f"{meaning} {exit_text}\n\nEach finding ends with the command that fixes it; "
            "`mz help exit-codes` explains the exit codes.",
        },
        "defaultConfiguration": {"level": LEVELS[kind_info.risk]},
        "properties": {"tags": ["recordings"], "risk": kind_info.risk},
    }


def _result(group: FindingGroup, suites: Mapping[str, Suite], identity_counts: Counter[str]) -> dict[str, Any]:
    label, finding = group.occurrences[0]
    identity = fingerprint(group)
    identity_counts[identity] += 1
    return {
        "ruleId": group.kind,
        "ruleIndex": RULES.index(group.kind),
        "level": LEVELS[group.risk],
        "message": {"text": _message(group)},
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


def _message(group: FindingGroup) -> str:
    fix = f"fix: {group_fix(group)}" if group.first.fix else ""
    locations = f"in {'; '.join(places(group))}"
    return "\n".join(part for part in (f"{group.message}.", locations, *group.detail, fix) if part)


def _location(suite: Suite, finding: Finding) -> dict[str, Any]:
    path = finding.file or suite.path or FALLBACK_FILE
    physical = {
        "artifactLocation": {"uri": quote(path), "uriBaseId": ROOT},
        "region": {"startLine": max(finding.line or 1, 1)},
    }
    name = f"{suite.label}/{call_name(finding)}".rstrip("/")
    return {"physicalLocation": physical, "logicalLocations": [{"fullyQualifiedName": name, "kind": "member"}]}
