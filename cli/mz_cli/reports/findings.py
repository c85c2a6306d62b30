"""Findings for people: their exit code, places and fix, as terminal lines and as the texts that all reports share; and
the input of every report: suites with their findings, and the exit code.

A report is sanitised: no secrets, no local paths, no control characters. Invisible characters are replaced by a visible
form and never dropped, so that two names that differ only in a control character still differ.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec
from msgspec.structs import replace
from mz_engine.errors.diagnostics import Exit, most_severe
from mz_recordings.findings.model import (
    KIND_PROPERTIES,
    RISKS,
    Finding,
    FindingGroup,
    FindingKind,
    ReplayResult,
    Risk,
    group_findings,
    risk_of,
)

from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.text import Line, Span

PLACES_MAX = 12
"""Listed places of a group, and cassettes in its fix command."""
DETAIL_MAX = 40
DIFF_STYLES = {"-": "red", "+": "green", "!": "yellow"}
RISK_STYLES: dict[Risk, str] = {"low": "dim", "medium": "bold yellow", "high": "bold red"}
CHARACTERS_MAX = 2_000
"""Maximum line length; a prompt may be one line of megabytes."""
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\u3164\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters, direction marks, invisible letters, and characters that XML cannot contain."""
CONSTANT_FIELDS = ("kind", "risk", "version")
"""Fields with names that `mz` has given."""
_SEPARATOR = "\0"
"""Separator of texts that are sanitised together; `replace_invisible` has already replaced it in the texts."""


class RecordingDifference(Shape, frozen=True, kw_only=True):
    """A difference from the recording."""

    kind: str
    """A kind of drift (PROMPT, CONFIG, STREAM, TRACE, ARTIFACT, FILES, COST, DECISION, EXPIRED, UNUSED), or MISSING,
    COPIED, NETWORK, SECRET, PIPELINE, UNREADABLE."""
    risk: str
    """low, medium or high."""
    message: str
    feature: str | None
    call: str | None
    """The recording, such as `code.a2`."""
    detail: tuple[str, ...]
    """Diff lines: `-` recorded, `+` current or new."""


class ReplayFinding(RecordingDifference, frozen=True, kw_only=True):
    """One difference from the recording, or defect of it."""

    exit: int
    """Exit code for this finding; 0: it does not fail the command."""
    cause: str | None
    """For a drift: the template or setting."""
    fix: str
    """Command that repairs it."""
    file: str | None
    """File concerned, relative to the repository: a template, a rule set, mz.yaml, a file of the cassette."""
    line: int | None
    """Line in that file, from 1; null: unknown."""


def with_failing(results: Iterable[ReplayResult], fails: Callable[[Finding], bool]) -> tuple[ReplayResult, ...]:
    """Return the results, where only the findings that `fails` selects make the command fail."""
    return tuple(
        replace(result, findings=tuple(replace(finding, fails=fails(finding)) for finding in result.findings))
        for result in results
    )


def results_exit(results: Iterable[ReplayResult], bisect: bool = False) -> Exit:
    """Return the exit code that the failing findings cause."""
    findings = (finding for result in results for finding in result.findings if finding.fails)
    return most_severe((KIND_PROPERTIES[finding.kind].exit for finding in findings), bisect)


def call_name(finding: Finding) -> str:
    """Return `alpha/write.a2`, `alpha`, or an empty text for a finding that concerns the whole suite."""
    return "/".join(filter(None, (finding.feature, finding.call)))


def file_position(finding: Finding) -> str:
    return f"{finding.file}:{finding.line}" if finding.file and finding.line else finding.file


def places(group: FindingGroup) -> list[str]:
    """Return `recordings/a: alpha/write, alpha/sign` for each cassette, and the number of omitted places; findings of
    no cassette are in their files."""
    names_by_path: dict[str, dict[str, None]] = {}
    for path, finding in group.occurrences[:PLACES_MAX]:
        name = call_name(finding) if path else " ".join(filter(None, (file_position(finding), call_name(finding))))
        names_by_path.setdefault(path, {})[name] = None
    listed = [": ".join(filter(None, (path, ", ".join(filter(None, names))))) for path, names in names_by_path.items()]
    omitted = len(group.occurrences) - PLACES_MAX
    return [*filter(None, listed), *([f"and {omitted:,} more"] if omitted > 0 else [])]


def fix_command(fix: str, cassettes: Iterable[str]) -> str:
    """Return the command with the paths of the cassettes."""
    return fix.replace("{cassette}", " ".join(quote(path) for path in cassettes))


def group_fix(group: FindingGroup) -> str:
    """Return the command for the first cassettes; empty if there is none."""
    omitted = len(group.cassettes) - PLACES_MAX
    command = fix_command(group.first.fix, group.cassettes[:PLACES_MAX])
    return f"{command}  # and {omitted} more cassettes" if command and omitted > 0 else command


def group_lines(group: FindingGroup) -> Iterator[Line]:
    """Yield the lines of a group: kind and message, places, differences, fix and exit code."""
    yield Span(group.kind, RISK_STYLES[group.risk]), Span(f"  {group.message}")
    for location in places(group):
        yield (Span(f"  {location}", "dim"),)
    for line in group.detail[:DETAIL_MAX]:
        yield (Span(f"  {line}", DIFF_STYLES.get(line[:1], "")),)
    if len(group.detail) > DETAIL_MAX:
        yield (Span(f"  and {len(group.detail) - DETAIL_MAX} more lines; --json has all", "dim"),)
    exit_text = f"  (exit {int(KIND_PROPERTIES[group.kind].exit) if group.fails else 0})"
    fix = (Span("  fix: ", "bold"), Span(group_fix(group))) if group.first.fix else ()
    yield (*fix, Span(exit_text, "dim"))


def finding_lines(finding: Finding) -> Iterator[Line]:
    """Yield the lines of a finding of no cassette."""
    group = FindingGroup(kind=finding.kind, message=finding.message, causes=(), occurrences=(("", finding),))
    return group_lines(group)


def finding_shapes(findings: Iterable[Finding], path: str) -> tuple[ReplayFinding, ...]:
    """Return the JSON form of findings. `path`: their cassette."""
    return tuple(
        shape_of(
            ReplayFinding,
            finding,
            risk=risk_of(finding),
            exit=int(KIND_PROPERTIES[finding.kind].exit) if finding.fails else 0,
            fix=fix_command(finding.fix, (path,)),
        )
        for finding in findings
    )


# reports --------------------------------------------------------------------------------------------------------------
class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """One checked unit: a cassette, or a layer of `mz check`."""

    name: str
    path: str = ""
    """Path relative to the project; empty: not a file."""
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    """Further properties: name and value."""
    cases: tuple[str, ...] = ()
    """Checked cases, such as `alpha/write.a2` and `alpha`. A finding belongs to the case of its call, otherwise to
    that of its feature."""

    @property
    def label(self) -> str:
        """Return the path, or the name of a suite without one."""
        return self.path or self.name

    @property
    def fails(self) -> bool:
        """Return True if a finding makes the command fail."""
        return any(finding.fails for finding in self.findings)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All suites of one command."""

    title: str
    """Command, such as `mz replay`."""
    suites: tuple[Suite, ...]
    exit: int
    version: str
    """Version of `mz`."""

    @property
    def findings_count(self) -> int:
        return sum(len(suite.findings) for suite in self.suites)


def findings_by_case(suite: Suite) -> dict[str, list[Finding]]:
    """Return the suite's cases in order, then those that findings add; at least one. A finding that concerns the whole
    suite has a case named by its kind."""
    cases: dict[str, list[Finding]] = {case: [] for case in suite.cases}
    for finding in suite.findings:
        cases.setdefault(call_name(finding) or finding.kind, []).append(finding)
    return cases or {suite.name: []}


def finding_groups(report: Report) -> tuple[FindingGroup, ...]:
    """Return the findings grouped by kind and cause."""
    return group_findings((suite.label, finding) for suite in report.suites for finding in suite.findings)


def kind_totals(groups: Iterable[FindingGroup]) -> tuple[tuple[FindingKind, Risk, int], ...]:
    """Return each kind with its highest risk and its number of findings, in the order of reports."""
    totals: dict[FindingKind, tuple[Risk, int]] = {}
    for group in groups:
        risk, count = totals.get(group.kind, (group.risk, 0))
        totals[group.kind] = max(risk, group.risk, key=RISKS.index), count + len(group.occurrences)
    return tuple((kind, risk, count) for kind, (risk, count) in totals.items())


def replay_suites(results: Iterable[ReplayResult], root: Path) -> tuple[Suite, ...]:
    """Return a suite per cassette, with a case per recording and per feature trace. Its path is relative to the
    project, or the name of a cassette elsewhere."""
    root = root.resolve()
    paths = ((result, Path(os.path.realpath(result.path))) for result in results)
    return tuple(
        Suite(
            name=result.name,
            path=path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name,
            seconds=result.duration_ms / 1000,
            findings=result.findings,
            properties=tuple(_properties(result)),
            cases=(*result.calls, *result.trace_digests),
        )
        for result, path in paths
    )


def _properties(result: ReplayResult) -> Iterator[tuple[str, str]]:
    if result.provenance:
        yield "provenance", result.provenance
    yield "recordings", str(result.recordings)
    yield "calls replayed", str(result.calls_replayed)
    if result.accepted_replies:
        yield "replies accepted for changed prompts", str(result.accepted_replies)
    yield "network", "cut off" if result.offline else "not cut off"
    for feature, digest in result.trace_digests.items():
        yield f"log digest of {feature}", digest
    if result.overridden_settings:
        yield "settings from the cassette instead of mz.yaml", ", ".join(result.overridden_settings)
    for update in result.changes:
        yield "updated", update


# sanitising -----------------------------------------------------------------------------------------------------------
def replace_invisible(text: str) -> str:
    """Return the text with invisible characters as `⟨U+0000⟩`; tabs and newlines stay."""
    return _HIDDEN.sub(lambda match: f"\u27e8U+{ord(match[0]):04X}\u27e9", text.replace("\r\n", "\n"))


def limit_lines(text: str) -> str:
    """Return the text with long lines cut; each cut line tells how many characters are missing."""
    return "\n".join(
        line if len(line) <= CHARACTERS_MAX
        else f"{line[:CHARACTERS_MAX]}\u2026 ({len(line) - CHARACTERS_MAX:,} characters more)"
        for line in text.split("\n")
    )  # fmt: skip


def strip_local_paths(text: str, root: str, home: str, temporary: str) -> str:
    """Return the text with machine-independent paths: relative to the project's root, or to `~`, with the names of
    scratch directories replaced."""
    text = re.sub(rf"{re.escape(temporary)}/mz-[\w-]+", "<SCRATCH>", text) if len(temporary) > 1 else text
    replacements = {root: ".", home: "~"}
    for path in sorted((path for path in replacements if len(path) > 1), key=len, reverse=True):
        prefix = rf"(?:(?<![\w.\-/~])|(?<=://)){re.escape(path)}"
        if path == root:
            text = re.sub(rf"{prefix}/(?=\w)", "", text)
        text = re.sub(rf"{prefix}(?![\w-])", replacements[path], text)
    return text


def sanitise(report: Report, redact: Callable[[str], str], relative: Callable[[str], str]) -> Report:
    """Return the report with all texts sanitised. `redact` and `relative` get all texts at once, because scanning for
    secrets is expensive per call."""
    texts: list[str] = []

    def collect(text: str) -> str:
        texts.append(limit_lines(replace_invisible(text)))
        return text

    _map_texts(report, collect)
    sanitised_texts = relative(redact(_SEPARATOR.join(texts))).split(_SEPARATOR)
    if len(sanitised_texts) != len(texts):
        sanitised_texts = [relative(redact(text)) for text in texts]
    sanitised = iter(sanitised_texts)
    result: Report = _map_texts(report, lambda _: next(sanitised))
    return result


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with every text changed, except `CONSTANT_FIELDS`."""
    match value:
        case str():
            return change(value)
        case tuple():
            return tuple(_map_texts(element, change) for element in value)
        case msgspec.Struct():
            names = [name for name in value.__struct_fields__ if name not in CONSTANT_FIELDS]
            return replace(value, **{name: _map_texts(getattr(value, name), change) for name in names})
    return value
