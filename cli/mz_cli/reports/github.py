"""Workflow commands of GitHub Actions: annotations of findings, and a guard against commands in other output.

The format is `::error file=...,line=...,title=...::message`. A step shows at most ten annotations of a level, so
findings of one cause share an annotation, the highest risk comes first, and the last annotation counts the remaining.

Markdown summary of a GitHub Actions step. Foreign text is always shown literally.

Text is written with character references for everything that Markdown, HTML or GitHub's mentions and links would
interpret; diffs are in fences longer than any run of backticks in them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from mz_engine.errors.codes import MEANINGS
from mz_engine.errors.exits import Exit
from mz_recordings.findings.grouping import ORDER, FindingGroup
from mz_recordings.findings.model import KIND_PROPERTIES, RISKS

from mz_cli.reports.model import Report, Suite, call_locations, finding_groups, group_fix, highest_risk
from mz_cli.reports.sanitise import single_line
from mz_cli.terminal.text import count_noun

Level = Literal["error", "warning"]
LEVELS: tuple[Level, ...] = ("error", "warning")
ANNOTATIONS_MAX = 10
"""Maximum of errors, and of warnings, in one step."""
DETAIL_MAX = 20
"""Maximum of diff lines in an annotation."""


def annotation_lines(report: Report) -> Iterator[str]:
    """Yield annotation lines of a sanitised report: errors for failing findings, else warnings."""
    groups = sorted(finding_groups(report), key=lambda group: -RISKS.index(group.risk))
    for level in LEVELS:
        at_level = [group for group in groups if annotation_level(group) == level]
        shown = at_level if len(at_level) <= ANNOTATIONS_MAX else at_level[: ANNOTATIONS_MAX - 1]
        for group in shown:
            yield _annotation(level, group)
        if remaining := at_level[len(shown) :]:
            kinds = ", ".join(dict.fromkeys(group.kind for group in remaining))
            title = f"{report.title}: {count_noun(len(remaining), 'more finding')}"
            yield workflow_command(level, f"{kinds}; see the summary of this step or the reports for all", title=title)


def annotation_level(group: FindingGroup) -> Level:
    return "error" if group.fails else "warning"


def _annotation(level: Level, group: FindingGroup) -> str:
    finding = group.occurrences[0][1]
    title = f"{group.kind}: {shorten_title(single_line(group.message))}"
    detail = [*group.detail[:DETAIL_MAX], *(["..."] if len(group.detail) > DETAIL_MAX else [])]
    lines = [single_line(group.message), f"in {call_locations(group, 6)}", *detail]
    fix = [f"fix: {group_fix(group, 6)}"] if finding.fix else []
    return workflow_command(
        level,
        "\n".join([*lines, *fix]),
        file=finding.file,
        line=str(finding.line) if finding.file and finding.line else "",
        title=title,
    )


def shorten_title(text: str) -> str:
    """Cut a title to 120 characters."""
    return text if len(text) <= 120 else text[:119] + "\u2026"


def workflow_command(name: str, message: str, **properties: str) -> str:
    """Return `::name key=value,...::message`, escaped for the runner; properties without a value are omitted."""
    properties_text = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items() if value)
    return f"::{name}{' ' if properties_text else ''}{properties_text}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def stop_commands(token: str) -> str:
    """Return the command that makes the runner ignore commands until `::TOKEN::`: prompts and agent output may contain
    such commands, and their authors cannot know the token."""
    return workflow_command("stop-commands", token)


BYTES_MAX = 1_000_000
"""GitHub drops a summary above 1 MiB completely."""
SUITES_MAX = 100
PASSED, FAILED = "\u2705", "\u274c"
_MARKUP = re.compile(r"[^\w \u0080-\U0010ffff]|_")


def summary(report: Report, room: int = BYTES_MAX) -> str:
    """Return the summary of a sanitised report in at most `room` bytes; groups that do not fit are left out and
    counted."""
    groups = finding_groups(report)
    text = "\n".join([*_head(report, groups), *_kinds(groups)]) + "\n"
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
    passed = report.exit == Exit.OK
    yield f"## {PASSED if passed else FAILED} {escape_markdown(report.title)}: {'passed' if passed else 'failed'}"
    yield ""
    findings = (
        f"{count_noun(len(report.findings), 'finding')} of {count_noun(len(groups), 'cause')}"
        if groups
        else "no finding"
    )
    failed_count = sum(suite.fails for suite in report.suites)
    yield f"{len(report.suites) - failed_count:,} of {len(report.suites):,} passed, {findings}. "
    yield f"Exit code {report.exit}: {escape_markdown(MEANINGS[Exit(report.exit)])}"
    yield ""


def _kinds(groups: tuple[FindingGroup, ...]) -> Iterator[str]:
    """Yield a table of the kinds: number of findings and highest risk."""
    counts = Counter(group.kind for group in groups for _ in group.occurrences)
    if not counts:
        return
    yield "| kind | findings | risk | meaning |"
    yield "|---|---:|---|---|"
    for kind in ORDER:
        if counts[kind]:
            yield f"| {kind} | {counts[kind]:,} | {highest_risk(groups, kind)} | {KIND_PROPERTIES[kind].meaning} |"
    yield ""


def _group(group: FindingGroup) -> Iterator[str]:
    fails_note = "" if group.fails else ", does not fail"
    yield "<details>"
    yield (
        f"<summary><b>{group.kind}</b> {escape_markdown(single_line(group.message))} ({group.risk} "
        f"risk{fails_note})</summary>"
    )
    yield ""
    finding = group.occurrences[0][1]
    if finding.file:
        yield f"{inline_code(finding.file + (f':{finding.line}' if finding.line else ''))}\n"
    yield escape_markdown(single_line(call_locations(group, 20)))
    yield ""
    if group.detail:
        fence = "`" * (max((len(run) for line in group.detail for run in re.findall("`+", line)), default=0) + 4)
        yield f"{fence}diff"
        yield from group.detail
        yield fence
        yield ""
    if finding.fix:
        yield f"Fix: {inline_code(group_fix(group, 6))}"
        yield ""
    yield "</details>"
    yield ""


def _suites(report: Report) -> Iterator[str]:
    """Yield a table of the suites, failed ones first."""
    yield ""
    yield "| | checked | findings | time |"
    yield "|---|---|---:|---:|"
    ordered = sorted(report.suites, key=lambda suite: (not suite.fails, not suite.findings))
    for suite in ordered[:SUITES_MAX]:
        yield _suite(suite)
    if len(ordered) > SUITES_MAX:
        yield f"| | and {len(ordered) - SUITES_MAX:,} more | | |"


def _suite(suite: Suite) -> str:
    mark = FAILED if suite.fails else PASSED
    return f"| {mark} | {inline_code(suite.label)} | {len(suite.findings):,} | {suite.seconds:.1f} s |"


def escape_markdown(text: str) -> str:
    """Return text with all markup characters escaped."""
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", text)


def inline_code(text: str) -> str:
    """Return a name or a command as inline code on one line."""
    return f"<code>{escape_markdown(single_line(text))}</code>"
