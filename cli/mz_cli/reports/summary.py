"""Markdown summary of a GitHub Actions step. Foreign text is always shown literally.

Text is written with character references for everything that Markdown, HTML or GitHub's mentions and links would
interpret; diffs are in fences longer than any run of backticks in them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from mz_engine.exits import MEANINGS, Exit
from mz_recordings.findings import KINDS
from mz_recordings.grouping import ORDER, Group

from mz_cli.render.text import counted
from mz_cli.reports.facts import Report, Suite
from mz_cli.reports.groups import groups_of, mend_of, places_of, risk_of_kind
from mz_cli.reports.plain import one_line

BYTES_MAX = 1_000_000
"""GitHub drops a summary above 1 MiB completely."""
SUITES_MAX = 100
PASSED, FAILED = "\u2705", "\u274c"
_MARKS = re.compile(r"[^\w \u0080-\U0010ffff]|_")


def summary(report: Report, room: int = BYTES_MAX) -> str:
    """Return the summary of a sanitised report in at most `room` bytes; groups that do not fit are left out and
    counted."""
    groups = groups_of(report)
    text = "\n".join([*_head(report, groups), *_kinds(groups)]) + "\n"
    tail = "\n".join(_suites(report)) + "\n"
    left, shown = room - len(text.encode()) - len(tail.encode()) - 200, 0
    for each in groups:
        block = "\n".join(_group(each)) + "\n"
        left -= len(block.encode())
        if left < 0:
            break
        text, shown = text + block, shown + 1
    if shown < len(groups):
        text += f"\n_{counted(len(groups) - shown, 'more finding')}: the reports have all of them._\n\n"
    full_text = text + tail
    if len(full_text.encode()) <= room:
        return full_text
    return f"{text[: max(room // 8, 0)]}\n" if room > 1000 else ""


def _head(report: Report, groups: tuple[Group, ...]) -> Iterator[str]:
    passed = report.exit == Exit.OK
    yield f"## {PASSED if passed else FAILED} {words(report.title)}: {'passed' if passed else 'failed'}"
    yield ""
    findings = (
        f"{counted(len(report.findings), 'finding')} of {counted(len(groups), 'cause')}" if groups else "no finding"
    )
    bad = sum(suite.fails for suite in report.suites)
    yield f"{len(report.suites) - bad:,} of {len(report.suites):,} passed, {findings}. "
    yield f"Exit code {report.exit}: {words(MEANINGS[Exit(report.exit)])}"
    yield ""


def _kinds(groups: tuple[Group, ...]) -> Iterator[str]:
    """Yield a table of the kinds: number of findings and highest risk."""
    counts = Counter(each.kind for each in groups for _ in each.places)
    if not counts:
        return
    yield "| kind | findings | risk | meaning |"
    yield "|---|---:|---|---|"
    for kind in ORDER:
        if counts[kind]:
            yield f"| {kind} | {counts[kind]:,} | {risk_of_kind(groups, kind)} | {KINDS[kind].meaning} |"
    yield ""


def _group(each: Group) -> Iterator[str]:
    fails_note = "" if each.fails else ", does not fail"
    yield "<details>"
    yield f"<summary><b>{each.kind}</b> {words(one_line(each.what))} ({each.risk} risk{fails_note})</summary>"
    yield ""
    finding = each.places[0][1]
    if finding.file:
        yield f"{code(finding.file + (f':{finding.line}' if finding.line else ''))}\n"
    yield words(one_line(places_of(each, 20)))
    yield ""
    if each.detail:
        fence = "`" * (max((len(run) for line in each.detail for run in re.findall("`+", line)), default=0) + 4)
        yield f"{fence}diff"
        yield from each.detail
        yield fence
        yield ""
    if finding.mend:
        yield f"Fix: {code(mend_of(each, 6))}"
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
    return f"| {mark} | {code(suite.label)} | {len(suite.findings):,} | {suite.seconds:.1f} s |"


def words(text: str) -> str:
    """Return text with all markup characters escaped."""
    return _MARKS.sub(lambda found: f"&#{ord(found[0])};", text)


def code(text: str) -> str:
    """Return a name or a command as inline code on one line."""
    return f"<code>{words(one_line(text))}</code>"
