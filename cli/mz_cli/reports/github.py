"""Pure: what GitHub Actions reads from the output of a step: annotations, and words that keep it from reading more.

The form is that of workflow commands, `::error file=...,line=...,title=...::message`. A step shows at most ten of a
kind, so findings of one cause are one annotation, the gravest come first, and the last one sums up the rest.
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
"""Of errors, and of warnings, in one step."""
DETAIL_MAX = 20
"""Lines of a difference."""


def annotated(report: Report) -> Iterator[str]:
    """Lines without their ends. The report has been cleaned. What the command fails for are errors, all else is
    warnings."""
    groups = sorted(groups_of(report), key=lambda each: -RISKS.index(each.risk))
    for level in LEVELS:
        mine = [each for each in groups if level_of(each) == level]
        fit = mine if len(mine) <= EACH_MAX else mine[: EACH_MAX - 1]
        for each in fit:
            yield _annotation(level, each)
        if rest := mine[len(fit) :]:
            kinds = ", ".join(dict.fromkeys(each.kind for each in rest))
            title = f"{report.title}: {counted(len(rest), 'more finding')}"
            yield command(level, f"{kinds}; the summary of this step and the reports have all of them", title=title)


def level_of(each: Group) -> Level:
    return "error" if each.fails else "warning"


def _annotation(level: Level, each: Group) -> str:
    finding = each.places[0][1]
    title = f"{each.kind}: {shortened(one_line(each.what))}"
    detail = [*each.detail[:DETAIL_MAX], *(["..."] if len(each.detail) > DETAIL_MAX else [])]
    lines = [one_line(each.what), f"in {places_of(each, 6)}", *detail]
    mend = mend_of(each, 6) if finding.mend else ""
    return command(
        level,
        "\n".join([*lines, *([f"mend: {mend}"] if mend else [])]),
        file=finding.file,
        line=str(finding.line) if finding.file and finding.line else "",
        title=title,
    )


def shortened(text: str) -> str:
    """For a title."""
    return text if len(text) <= 120 else text[:119] + "\u2026"


def command(name: str, message: str, **properties: str) -> str:
    """`::name key=value,...::message`, escaped as the runner unescapes it; properties without a value are left out."""
    said = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value)
    return f"::{name}{' ' if said else ''}{said}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def silence(token: str) -> str:
    """From here on the runner obeys no command: prompts and agents' words may look like one. Nobody who wrote them can
    know the token, which a command of that name ends it with."""
    return command("stop-commands", token)
