"""Workflow commands of GitHub Actions: annotations of findings, and a guard against commands in other output.

The format is `::error file=...,line=...,title=...::message`. A step shows at most ten annotations of a level, so
findings of one cause share an annotation, the highest risk comes first, and the last annotation counts the remaining.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from mz_recordings.findings import RISKS
from mz_recordings.grouping import Group

from mz_cli.render.text import counted
from mz_cli.reports.facts import Report
from mz_cli.reports.groups import groups_of, mend_of, places_of
from mz_cli.reports.plain import one_line

Level = Literal["error", "warning"]
LEVELS: tuple[Level, ...] = ("error", "warning")
EACH_MAX = 10
"""Maximum of errors, and of warnings, in one step."""
DETAIL_MAX = 20
"""Maximum of diff lines in an annotation."""


def annotated(report: Report) -> Iterator[str]:
    """Yield annotation lines of a sanitised report: errors for failing findings, else warnings."""
    groups = sorted(groups_of(report), key=lambda each: -RISKS.index(each.risk))
    for level in LEVELS:
        at_level = [each for each in groups if level_of(each) == level]
        shown = at_level if len(at_level) <= EACH_MAX else at_level[: EACH_MAX - 1]
        for each in shown:
            yield _annotation(level, each)
        if remaining := at_level[len(shown) :]:
            kinds = ", ".join(dict.fromkeys(each.kind for each in remaining))
            title = f"{report.title}: {counted(len(remaining), 'more finding')}"
            yield command(level, f"{kinds}; see the summary of this step or the reports for all", title=title)


def level_of(each: Group) -> Level:
    return "error" if each.fails else "warning"


def _annotation(level: Level, each: Group) -> str:
    finding = each.places[0][1]
    title = f"{each.kind}: {shortened(one_line(each.what))}"
    detail = [*each.detail[:DETAIL_MAX], *(["..."] if len(each.detail) > DETAIL_MAX else [])]
    lines = [one_line(each.what), f"in {places_of(each, 6)}", *detail]
    fix = [f"fix: {mend_of(each, 6)}"] if finding.mend else []
    return command(
        level,
        "\n".join([*lines, *fix]),
        file=finding.file,
        line=str(finding.line) if finding.file and finding.line else "",
        title=title,
    )


def shortened(text: str) -> str:
    """Cut a title to 120 characters."""
    return text if len(text) <= 120 else text[:119] + "\u2026"


def command(name: str, message: str, **properties: str) -> str:
    """Return `::name key=value,...::message`, escaped for the runner; properties without a value are omitted."""
    properties_text = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value)
    return f"::{name}{' ' if properties_text else ''}{properties_text}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def silence(token: str) -> str:
    """Return the command that makes the runner ignore commands until `::TOKEN::`: prompts and agent output may contain
    such commands, and their authors cannot know the token."""
    return command("stop-commands", token)
