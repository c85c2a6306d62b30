"""Commands `mz recordings list` and `mz recordings lint`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from mz_engine.errors.diagnostics import Exit, most_severe
from mz_engine.secrets import project_secrets
from mz_events.redaction.redactor import Secrets
from mz_recordings.cassette.files import CassetteUnreadable, find_cassettes, is_recording, load_summary, read_sums
from mz_recordings.cassette.model import parse_time
from mz_recordings.cassette.safe_files import walk
from mz_recordings.findings.lint import Linter, LintNotice, LintResult
from mz_recordings.findings.model import KIND_PROPERTIES

from mz_cli.app.context import find_root
from mz_cli.app.help import command_family, format_options
from mz_cli.common.recording import display_path, library_path
from mz_cli.replay.command import require_cassettes
from mz_cli.reports.findings import ReplayFinding, finding_shapes, fix_command
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.table import Cell, Table, columns, print_output, size_cell, write_output
from mz_cli.terminal.text import Line, Span, count_noun, format_size


class CassetteLine(Shape, frozen=True, kw_only=True):
    """One cassette. Unknown values are null; then `problem` has the reason."""

    path: str
    name: str | None
    pipeline: str | None
    agent: str | None
    provenance: str | None
    """`live`, `scripted-model`, `unknown`, `documented` or `copied`."""
    recordings: int
    features: tuple[str, ...]
    recorded: str | None
    """Start of the recorded run; ISO 8601, UTC."""
    age_days: int | None
    max_age_days: int | None
    """Days until its replies expire; null: never."""
    format: int | None
    size_bytes: int
    problem: str | None
    """Reason why it cannot be replayed. Only `mz recordings lint` reads every file; null here is no proof."""


class CassetteList(Shape, frozen=True, kw_only=True):
    exit: int
    library: tuple[str, ...]
    """Searched folders."""
    cassettes: tuple[CassetteLine, ...]


class LintedCassette(Shape, frozen=True, kw_only=True):
    path: str
    format: int | None
    recordings: int
    files: int
    size_bytes: int
    findings: tuple[ReplayFinding, ...]
    notices: tuple[LintNotice, ...]


class RecordingsLint(Shape, frozen=True, kw_only=True):
    exit: int
    cassettes: tuple[LintedCassette, ...]


@command_family(
    "recordings",
    examples=(
        ("mz recordings list", "the cassettes of the library"),
        ("mz recordings lint", "search it for secrets and damage"),
    ),
    next_command="`mz replay` replays the recordings; `mz record` adds one.",
)
def recordings() -> None:
    """List and check the library of recordings.

    The library is the folder `recordings/`, unless `recordings:` in mz.yaml names another; each folder in it with a
    cassette.yaml is a cassette.
    """


@recordings.command(
    "list",
    examples=(
        ("mz recordings list", "all cassettes, with age and size"),
        ("mz recordings list --json | jq -r '.cassettes[] | select(.age_days > 90) | .path'", "old cassettes"),
    ),
    next_command="`mz recordings lint` checks every file of them.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@format_options("Print one object with the schema mz.recordings-list/1.")
def list_(paths: tuple[Path, ...], as_json: bool) -> int:
    """List the cassettes of the library.

    PATH is a cassette or a folder of cassettes. Reads only their descriptions. Exits with 125 if a cassette cannot be
    replayed.
    """
    root = find_root(Path.cwd())
    folders = paths or (library_path(root),)
    today = datetime.now(UTC)
    lines = tuple(cassette_line(path, today) for path in find_cassettes(folders))
    code = Exit.NOT_COMPARABLE if any(line.problem for line in lines) else Exit.OK
    cassettes = CassetteList(exit=int(code), library=tuple(map(display_path, folders)), cassettes=lines)
    print_output(as_json, "recordings-list", cassettes, table(lines))
    return int(code)


def cassette_line(folder: Path, today: datetime) -> CassetteLine:
    """Describe a cassette by its manifest and the sizes of its files. Never raises for its content."""
    manifest, problems, sizes = None, list[str](), dict[str, int]()
    try:
        manifest = load_summary(folder)
    except CassetteUnreadable as error:
        problems.append(str(error))
    try:
        sizes = {name: status.st_size for name, status in walk(folder)}
        problems += [f"{folder}: {name} is missing" for name in read_sums(folder) if name not in sizes]
    except CassetteUnreadable as error:
        problems.append(str(error))
    recorded = manifest.fixture.clock_start if manifest else None
    return shape_of(
        CassetteLine,
        manifest,
        path=display_path(folder),
        recordings=sum(map(is_recording, sizes)),
        size_bytes=sum(sizes.values()),
        problem=problems[0] if problems else None,
        features=tuple(item.feature for item in manifest.fixture.items) if manifest else (),
        recorded=recorded,
        age_days=(today - parse_time(recorded)).days if recorded else None,
    )


@recordings.command(
    "lint",
    examples=(
        ("mz recordings lint", "every file of every cassette"),
        ("mz recordings lint recordings/rollback --json", "one cassette, for programs"),
    ),
    next_command="treat a secret as leaked: rotate it, then record a run again with `mz record`.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@format_options("Print one object with the schema mz.recordings-lint/1.")
def lint(paths: tuple[Path, ...], as_json: bool) -> int:
    """Find secrets and defects in recordings.

    Searches every file, and the repository inside a cassette, for the secrets of this environment and repository and
    for keys of well-known services, plain and encoded; and for defects that prevent a replay. Possible keys, home
    directories and e-mail addresses are only warnings. Secrets are never printed. Exits with 5 for a secret, 4 for
    unreferenced files, 125 for a cassette that cannot be replayed.
    """
    root = find_root(Path.cwd())
    cassettes, linter = require_cassettes(root, paths), Linter(Secrets(project_secrets(root, os.environ)), os.environ)
    results = tuple(linter.lint(path, display_path(path)) for path in cassettes)
    code = most_severe(KIND_PROPERTIES[finding.kind].exit for result in results for finding in result.findings)
    shapes = tuple(
        shape_of(LintedCassette, result, findings=finding_shapes(result.findings, result.path)) for result in results
    )
    report = RecordingsLint(exit=int(code), cassettes=shapes)
    write_output(sys.stdout, as_json, "recordings-lint", report, render_text(results))
    return int(code)


def table(lines: Iterable[CassetteLine]) -> Table:
    heads = columns(
        *("*cassette", "pipeline", "agent", "provenance", ">recordings", ">features", "age|recorded", ">format"),
        *(">size|bytes", "~problem"),
    )
    rows = tuple(
        (
            cassette.path,
            cassette.pipeline or "-",
            cassette.agent or "-",
            cassette.provenance or "-",
            str(cassette.recordings),
            str(len(cassette.features)),
            Cell(age_text(cassette), cassette.recorded or "-"),
            str(cassette.format or "-"),
            size_cell(cassette.size_bytes),
            cassette.problem or "-",
        )
        for cassette in lines
    )
    return Table(columns=heads, rows=rows, empty="There are no cassettes. `mz run --record` makes the first.")


def age_text(cassette: CassetteLine) -> str:
    """Return the age in days, with the cassette's limit."""
    if cassette.age_days is None:
        return "-"
    limit = "" if cassette.max_age_days is None else f" of {cassette.max_age_days}"
    return f"{cassette.age_days}{limit} d"


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
        format_size(sum(cassette.size_bytes for cassette in results)),
    ]
    verdict = "no findings" if not findings else count_noun(findings, "finding")
    warned = f", {count_noun(notices, 'warning')}" if notices else ""
    return f"{', '.join(parts)}: {verdict}{warned}"
