"""Workflow commands of GitHub Actions: annotations of findings, and a guard against commands in other output.

The format is `::error file=...,line=...,title=...::message`. A step shows at most ten annotations of a level, so
findings of one cause share an annotation, the highest risk comes first, and the last annotation counts the remaining.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from mz_recordings.findings import RISKS
from mz_recordings.grouping import FindingGroup

from mz_cli.render.text import count_noun
from mz_cli.reports.facts import Report
from mz_cli.reports.groups import call_locations, finding_groups, group_fix
from mz_cli.reports.plain import single_line

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
