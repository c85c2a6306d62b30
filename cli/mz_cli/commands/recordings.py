"""Commands `mz recordings list` and `mz recordings lint`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from mz_engine.adapters.known_secrets import known_secrets
from mz_engine.exits import Exit, worst
from mz_recordings.files.lint import Linted, Notice, lint_all
from mz_recordings.files.shelf import Shelved, look
from mz_recordings.findings import KINDS, Finding
from mz_recordings.playing.fleet import find

from mz_cli.commands.replay import cassettes_at
from mz_cli.context import find_home
from mz_cli.help import section
from mz_cli.recorded import age_days
from mz_cli.recording import library_of, shown
from mz_cli.recordingspage import page, table
from mz_cli.render.console import is_terminal, put_lines
from mz_cli.render.document import show_document
from mz_cli.render.draw import show as show_table
from mz_cli.replaypage import mending
from mz_cli.shapes.recordings import CassetteLine, CassetteList, LintedCassette, NoticeShape, RecordingsLint
from mz_cli.shapes.replay import ReplayFinding


@section(
    "recordings",
    examples=(
        ("mz recordings list", "the cassettes of the library"),
        ("mz recordings lint", "search it for secrets and damage"),
    ),
    following="`mz replay` replays the recordings; `mz record` adds one.",
)
def recordings() -> None:
    """List and check the library of recordings.

    The library is the folder `recordings/`, unless `recordings:` in mz.yaml names another; each folder in it with a
    cassette.yaml is a cassette.
    """


@recordings.page(
    "list",
    examples=(
        ("mz recordings list", "all cassettes, with age and size"),
        ("mz recordings list --json | jq -r '.cassettes[] | select(.age_days > 90) | .path'", "old cassettes"),
    ),
    following="`mz recordings lint` checks every file of them.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.recordings-list/1.")
def list_(paths: tuple[Path, ...], as_json: bool) -> int:
    """List the cassettes of the library.

    PATH is a cassette or a folder of cassettes. Reads only their descriptions. Exits with 125 if a cassette cannot be
    replayed.
    """
    home = find_home(Path.cwd())
    folders = paths or (library_of(home),)
    today = datetime.now(UTC)
    lines = tuple(line_of(look(path), today) for path in find(folders))
    code = Exit.NOT_COMPARABLE if any(line.problem for line in lines) else Exit.OK
    if as_json:
        library = tuple(map(shown, folders))
        show_document("recordings-list", CassetteList(exit=int(code), library=library, cassettes=lines))
    else:
        show_table(table(lines, whole=not is_terminal(sys.stdout)))
    return int(code)


def line_of(one: Shelved, today: datetime) -> CassetteLine:
    manifest = one.manifest
    recorded = manifest.world.clock_start if manifest else None
    return CassetteLine(
        path=shown(one.place),
        name=manifest.name if manifest else None,
        pipeline=manifest.pipeline if manifest else None,
        agent=manifest.agent if manifest else None,
        provenance=manifest.provenance if manifest else None,
        recordings=one.recordings,
        features=tuple(item.feature for item in manifest.world.items) if manifest else (),
        recorded=recorded,
        age_days=age_days(recorded, today) if recorded else None,
        max_age_days=manifest.max_age_days if manifest else None,
        format=one.format,
        bytes=one.bytes,
        problem=one.problem or None,
    )


@recordings.page(
    "lint",
    examples=(
        ("mz recordings lint", "every file of every cassette"),
        ("mz recordings lint recordings/rollback --json", "one cassette, for programs"),
    ),
    following="treat a secret as leaked: rotate it, then record a run again with `mz record`.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.recordings-lint/1.")
def lint(paths: tuple[Path, ...], as_json: bool) -> int:
    """Find secrets and defects in recordings.

    Searches every file, and the repository inside a cassette, for the secrets of this environment and repository and
    for keys of well-known services, plain and encoded; and for defects that prevent a replay. Possible keys, home
    directories and e-mail addresses are only warnings. Secrets are never printed. Exits with 5 for a secret, 4 for
    unreferenced files, 125 for a cassette that cannot be replayed.
    """
    home = find_home(Path.cwd())
    named = {place: shown(place) for place in cassettes_at(home, paths)}
    results = tuple(lint_all(named, known_secrets(home, os.environ), os.environ, os.cpu_count() or 1))
    code = exit_of(results)
    if as_json:
        shapes = tuple(map(_cassette, results))
        show_document("recordings-lint", RecordingsLint(exit=int(code), cassettes=shapes))
    else:
        put_lines(sys.stdout, page(results))
    return int(code)


def exit_of(results: Sequence[Linted]) -> Exit:
    return worst(KINDS[finding.kind].exit for one in results for finding in one.findings)


def _cassette(one: Linted) -> LintedCassette:
    return LintedCassette(
        path=one.path,
        format=one.format,
        recordings=one.recordings,
        files=one.files,
        bytes=one.bytes,
        findings=tuple(_finding(finding, one.path) for finding in one.findings),
        notices=tuple(_notice(notice) for notice in one.notices),
    )


def _finding(one: Finding, path: str) -> ReplayFinding:
    return ReplayFinding(
        kind=one.kind,
        risk=KINDS[one.kind].risk,
        exit=int(KINDS[one.kind].exit),
        what=one.what,
        feature=None,
        call=None,
        cause=None,
        detail=one.detail,
        mend=mending(one.mend, (path,)),
        file=one.file or None,
        line=one.line,
    )


def _notice(one: Notice) -> NoticeShape:
    return NoticeShape(what=one.what, file=one.file, line=one.line, column=one.column)
