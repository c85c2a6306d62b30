"""A library of recordings as text: the table of its cassettes, and lint findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mz_recordings.findings.lint import LintResult
from mz_recordings.findings.model import KIND_PROPERTIES

from mz_cli.recordings.json import CassetteLine
from mz_cli.reports.findings import fix_command
from mz_cli.terminal.table import Table, columns
from mz_cli.terminal.text import count_noun, format_size
from mz_cli.terminal.width import Line, Span


def table(lines: Iterable[CassetteLine], exact: bool) -> Table:
    """Return the cassettes. `exact`: for a pipe, with sizes in bytes and ISO times."""
    heads = columns(
        "*cassette", "pipeline", "agent", "provenance", ">recordings", ">features", "recorded" if exact else ">age",
        ">format", ">bytes" if exact else ">size", "problem",
    )  # fmt: skip
    rows = tuple(
        (
            cassette.path,
            cassette.pipeline or "-",
            cassette.agent or "-",
            cassette.provenance or "-",
            str(cassette.recordings),
            str(len(cassette.features)),
            (cassette.recorded or "-") if exact else age_cell(cassette),
            str(cassette.format or "-"),
            str(cassette.bytes) if exact else format_size(cassette.bytes),
            cassette.problem or "-",
        )
        for cassette in lines
    )
    return Table(columns=heads, rows=rows, empty="There are no cassettes. `mz run --record` makes the first.")


def age_cell(cassette: CassetteLine) -> str:
    """Return the age in days, with the cassette's limit."""
    if cassette.age_days is None:
        return "-"
    return (
        f"{cassette.age_days} d"
        if cassette.max_age_days is None
        else f"{cassette.age_days} of {cassette.max_age_days} d"
    )


def render_text(results: Sequence[LintResult]) -> Iterator[Line]:
    """Yield findings with location in the style of compilers, then the summary."""
    for cassette in results:
        for finding in cassette.findings:
            file_and_line = f"{finding.file}:{finding.line}" if finding.line else finding.file
            column = "".join(line.strip().removeprefix("column ") for line in finding.detail if "column" in line)
            location = f"{file_and_line}:{column}" if column else file_and_line
            yield Span(f"{location}: "), Span(finding.kind, "bold red"), Span(f" {finding.message}")
            fix = fix_command(finding.fix, (cassette.path,))
            yield Span("  fix: ", "bold"), Span(fix), Span(f"  (exit {int(KIND_PROPERTIES[finding.kind].exit)})", "dim")
        for notice in cassette.notices:
            location = ":".join(
                str(part) for part in (f"{cassette.path}/{notice.file}", notice.line, notice.column) if part
            )
            yield Span(f"{location}: "), Span("warning", "yellow"), Span(f" {notice.message}")
    yield (Span(summary(results)),)


def summary(results: Sequence[LintResult]) -> str:
    """Return in one line what was checked, and the verdict."""
    findings = sum(len(cassette.findings) for cassette in results)
    notices = sum(len(cassette.notices) for cassette in results)
    parts = [
        count_noun(len(results), "cassette"),
        count_noun(sum(cassette.recordings for cassette in results), "recording"),
        count_noun(sum(cassette.files for cassette in results), "file"),
        format_size(sum(cassette.bytes for cassette in results)),
    ]
    verdict = "no findings" if not findings else count_noun(findings, "finding")
    warned = f", {count_noun(notices, 'warning')}" if notices else ""
    return f"{', '.join(parts)}: {verdict}{warned}"
