"""A library of recordings as text: the table of its cassettes, and lint findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mz_recordings.files.lint import Linted
from mz_recordings.findings import KINDS

from mz_cli.render.styled import Line, Span
from mz_cli.render.table import Table, columns
from mz_cli.render.text import counted
from mz_cli.replaypage import mending
from mz_cli.shapes.recordings import CassetteLine

UNITS = ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB"))


def table(lines: Iterable[CassetteLine], whole: bool) -> Table:
    """Return the cassettes. `exact`: for a pipe, with sizes in bytes and ISO times."""
    heads = columns(
        "*cassette", "pipeline", "agent", "provenance", ">recordings", ">features", "recorded" if whole else ">age",
        ">format", ">bytes" if whole else ">size", "problem",
    )  # fmt: skip
    rows = tuple(
        (
            one.path,
            one.pipeline or "-",
            one.agent or "-",
            one.provenance or "-",
            str(one.recordings),
            str(len(one.features)),
            (one.recorded or "-") if whole else age(one),
            str(one.format or "-"),
            str(one.bytes) if whole else size(one.bytes),
            one.problem or "-",
        )
        for one in lines
    )
    return Table(columns=heads, rows=rows, empty="There are no cassettes. `mz run --record` makes the first.")


def age(one: CassetteLine) -> str:
    """Return the age in days, with the cassette's limit."""
    if one.age_days is None:
        return "-"
    return f"{one.age_days} d" if one.max_age_days is None else f"{one.age_days} of {one.max_age_days} d"


def size(number: int) -> str:
    """Return a size such as `1.4 MB`."""
    return next((f"{number / unit:.1f} {name}" for unit, name in UNITS if number >= unit), f"{number} B")


def page(results: Sequence[Linted]) -> Iterator[Line]:
    """Yield findings with location in the style of compilers, then the summary."""
    for one in results:
        for finding in one.findings:
            where = f"{finding.file}:{finding.line}" if finding.line else finding.file
            column = "".join(line.strip().removeprefix("column ") for line in finding.detail if "column" in line)
            place = f"{where}:{column}" if column else where
            yield Span(f"{place}: "), Span(finding.kind, "bold red"), Span(f" {finding.what}")
            mend = mending(finding.mend, (one.path,))
            yield Span("  fix: ", "bold"), Span(mend), Span(f"  (exit {int(KINDS[finding.kind].exit)})", "dim")
        for notice in one.notices:
            place = ":".join(str(part) for part in (f"{one.path}/{notice.file}", notice.line, notice.column) if part)
            yield Span(f"{place}: "), Span("warning", "yellow"), Span(f" {notice.what}")
    yield (Span(summary(results)),)


def summary(results: Sequence[Linted]) -> str:
    """Return in one line what was checked, and the verdict."""
    findings = sum(len(one.findings) for one in results)
    notices = sum(len(one.notices) for one in results)
    parts = [
        counted(len(results), "cassette"),
        counted(sum(one.recordings for one in results), "recording"),
        counted(sum(one.files for one in results), "file"),
        size(sum(one.bytes for one in results)),
    ]
    verdict = "no findings" if not findings else counted(findings, "finding")
    warned = f", {counted(notices, 'warning')}" if notices else ""
    return f"{', '.join(parts)}: {verdict}{warned}"
