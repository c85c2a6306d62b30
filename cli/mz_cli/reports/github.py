"""GitHub Actions: annotations of findings, a guard against commands in other output, and the summary of a step.

Annotations have the format `::error file=...,line=...,title=...::message`. A step shows at most ten of a level, so
findings of one cause share an annotation, the highest risk comes first, and the last annotation counts the remaining.

In the summary, foreign text is always shown literally: with character references for everything that Markdown, HTML or
GitHub's mentions and links would interpret; diffs are in fences longer than any run of backticks in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from mz_engine.errors.codes import MEANINGS
from mz_engine.errors.diagnostics import Exit
from mz_recordings.findings.model import KIND_PROPERTIES, RISKS, FindingGroup

from mz_cli.reports.findings import Report, file_position, finding_groups, group_fix, kind_totals, places
from mz_cli.terminal.text import count_noun, shorten, single_line

Level = Literal["error", "warning"]
LEVELS: tuple[Level, ...] = ("error", "warning")
ANNOTATIONS_MAX = 10
"""Maximum of errors, and of warnings, in one step."""
DETAIL_MAX = 20
"""Maximum of diff lines in an annotation."""
TITLE_MAX = 120


def annotation_lines(report: Report) -> Iterator[str]:
    """Yield annotation lines of a sanitised report: errors for failing findings, else warnings."""
    groups = sorted(finding_groups(report), key=lambda group: -RISKS.index(group.risk))
    for level in LEVELS:
        at_level = [group for group in groups if group.fails == (level == "error")]
        shown = at_level if len(at_level) <= ANNOTATIONS_MAX else at_level[: ANNOTATIONS_MAX - 1]
        for group in shown:
            yield _annotation(level, group)
        if remaining := at_level[len(shown) :]:
            kinds = ", ".join(dict.fromkeys(group.kind for group in remaining))
            title = f"{report.title}: {count_noun(len(remaining), 'more finding')}"
            yield workflow_command(level, f"{kinds}; see the summary of this step or the reports for all", title=title)


def _annotation(level: Level, group: FindingGroup) -> str:
    message, finding = single_line(group.message), group.first
    omitted = ["..."] if len(group.detail) > DETAIL_MAX else []
    fix = [f"fix: {group_fix(group)}"] if finding.fix else []
    return workflow_command(
        level,
        "\n".join([message, f"in {'; '.join(places(group))}", *group.detail[:DETAIL_MAX], *omitted, *fix]),
        file=finding.file,
        line=str(finding.line) if finding.file and finding.line else "",
        title=f"{group.kind}: {shorten(message, TITLE_MAX)}",
    )


def workflow_command(name: str, message: str, **properties: str) -> str:
    """Return `::name key=value,...::message`, escaped for the runner; properties without a value are omitted."""
    escaped = {key: _escape(value).replace(":", "%3A").replace(",", "%2C") for key, value in properties.items()}
    properties_text = ",".join(f"{key}={value}" for key, value in escaped.items() if value)
    return f"::{name}{' ' if properties_text else ''}{properties_text}::{_escape(message)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


BYTES_MAX = 1_000_000
"""GitHub drops a summary above 1 MiB completely."""
SUITES_MAX = 100
PASSED, FAILED = "\u2705", "\u274c"
_MARKUP = re.compile(r"[^\w \u0080-\U0010ffff]|_")


def summary(report: Report, room: int = BYTES_MAX) -> str:
    """Return the summary of a sanitised report in at most `room` bytes; groups that do not fit are left out and
    counted."""
    groups = finding_groups(report)
    text = "\n".join(_head(report, groups)) + "\n"
    tail = "\n".join(_suites(report)) + "\n"
    room_left, shown = room - len(text.encode()) - len(tail.encode()) - 200, 0
    for group in groups:
        block = "\n".join(_group(group)) + "\n"
        room_left -= len(block.encode())
        if room_left < 0:
            break
        text, shown = text + block, shown + 1
    if shown < len(groups):
        text += f"\n_{count_noun(len(groups) - shown, 'more finding')}: the reports have all of them._\n\n"
    full_text = text + tail
    if len(full_text.encode()) <= room:
        return full_text
    return f"{text[: max(room // 8, 0)]}\n" if room > 1000 else ""


def _head(report: Report, groups: tuple[FindingGroup, ...]) -> Iterator[str]:
    """Yield verdict and numbers, and a table of the kinds."""
    mark, verdict = (PASSED, "passed") if report.exit == Exit.OK else (FAILED, "failed")
    yield f"## {mark} {escape_markdown(report.title)}: {verdict}\n"
    findings = "no finding"
    if groups:
        findings = f"{count_noun(report.findings_count, 'finding')} of {count_noun(len(groups), 'cause')}"
    passed = sum(not suite.fails for suite in report.suites)
    yield f"{passed:,} of {len(report.suites):,} passed, {findings}. "
    yield f"Exit code {report.exit}: {escape_markdown(MEANINGS[Exit(report.exit)])}\n"
    if groups:
        yield "| kind | findings | risk | meaning |\n|---|---:|---|---|"
        for kind, risk, count in kind_totals(groups):
            yield f"| {kind} | {count:,} | {risk} | {KIND_PROPERTIES[kind].meaning} |"
        yield ""


def _group(group: FindingGroup) -> Iterator[str]:
    message = escape_markdown(single_line(group.message))
    fails_note = "" if group.fails else ", does not fail"
    yield f"<details>\n<summary><b>{group.kind}</b> {message} ({group.risk} risk{fails_note})</summary>\n"
    if group.first.file:
        yield f"{inline_code(file_position(group.first))}\n"
    yield f"{escape_markdown(single_line('; '.join(places(group))))}\n"
    if group.detail:
        fence = "`" * (max((len(run) for line in group.detail for run in re.findall("`+", line)), default=0) + 4)
        yield "\n".join([f"{fence}diff", *group.detail, f"{fence}\n"])
    if group.first.fix:
        yield f"Fix: {inline_code(group_fix(group))}\n"
    yield "</details>\n"


def _suites(report: Report) -> Iterator[str]:
    """Yield a table of the suites, failed ones first."""
    yield "\n| | checked | findings | time |\n|---|---|---:|---:|"
    ordered = sorted(report.suites, key=lambda suite: (not suite.fails, not suite.findings))
    for suite in ordered[:SUITES_MAX]:
        mark, label = FAILED if suite.fails else PASSED, inline_code(suite.label)
        yield f"| {mark} | {label} | {len(suite.findings):,} | {suite.seconds:.1f} s |"
    if len(ordered) > SUITES_MAX:
        yield f"| | and {len(ordered) - SUITES_MAX:,} more | | |"


def escape_markdown(text: str) -> str:
    """Return text with all markup characters escaped."""
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", text)


def inline_code(text: str) -> str:
    """Return a name or a command as inline code on one line."""
    return f"<code>{escape_markdown(single_line(text))}</code>"
