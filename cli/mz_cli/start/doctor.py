"""Command `mz doctor`."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import click
from msgspec.structs import replace
from mz_engine.errors.diagnostics import Exit, MzError
from mz_engine.setup.doctor import CheckStatus, DoctorCheck, DoctorOptions, ok, overall_status, run_checks, warn
from mz_recordings.cassette.files import CassetteUnreadable, list_cassettes, load_summary
from mz_recordings.cassette.model import parse_time

from mz_cli.app.context import find_root
from mz_cli.app.help import command, format_options
from mz_cli.common.recording import library_path
from mz_cli.terminal.console import print_line
from mz_cli.terminal.json import Shape, print_document
from mz_cli.terminal.table import Cell, Table, columns, print_table, prints_tsv

RECORDING_DAYS_MAX = 180


class DoctorShape(Shape, frozen=True, kw_only=True):
    """`mz doctor --json`."""

    repository: str | None
    """Null: outside of a repository; no project was checked."""
    online: bool
    status: CheckStatus
    """Worst status of all checks."""
    exit: int
    checks: tuple[DoctorCheck, ...]


VERDICTS = {
    CheckStatus.OK: "Everything is installed.",
    CheckStatus.WARN: "Runs will work; see the warnings.",
    CheckStatus.FAIL: "Fix the failed checks before you start a run.",
}


@command(
    "doctor",
    examples=(
        ("mz doctor", "is everything installed that a run needs?"),
        ("mz doctor --online", "also query the remote and the forge"),
        ("mz doctor --run-commands", "also run set-up and commands in a worktree of the base"),
        ("mz doctor --self-test", "test mz itself instead: adapters, bundled rules, formats"),
        ("mz doctor --json | jq '.checks[] | select(.status != \"ok\")'", "warnings and failures, for programs"),
    ),
    next_command="`mz init` creates the first files; `mz run --dry-run` shows the plan.",
)
@click.option("--online", is_flag=True, help="Use the network: check the remote and the login of gh.")
@click.option("--run-commands", is_flag=True, help="Run the set-up and the pipeline's commands on the base.")
@click.option("--self-test", is_flag=True, help="Test mz itself instead; takes up to two minutes.")
@format_options("Print one object with the schema mz.doctor/1, or mz.doctor-self-test/1.")
def doctor(online: bool, run_commands: bool, self_test: bool, as_json: bool) -> int:
    """Check that everything a run needs is installed.

    Checks this machine, the agents and their logins, and the project in the current directory. Writes nothing, calls no
    model, prints no keys, and uses no network without --online. Exits with 11 if something required is missing.

    With --run-commands, runs set-up and commands in a worktree of the base, as a run does before it pays for anything.

    With --self-test, checks mz itself, offline and free: bundled pipelines, rules and templates, each agent's adapter
    with all stored outputs of the agent, stored data of older versions, and every ending of recorded calls. Exits with
    1 if something fails.
    """
    root, now = None, time.time()
    with suppress(MzError):
        root = find_root(Path.cwd())
    if self_test:
        from mz_cli.check.command import run_self_test

        return run_self_test(root or Path.cwd(), as_json)
    examined = run_checks(
        DoctorOptions(
            directory=Path.cwd(),
            root=root,
            environment=os.environ,
            online=online,
            run_commands=run_commands,
            now_seconds=now,
        )
    )
    checks = examined.checks
    if examined.root is not None:
        checks = (*checks, replace(recordings_check(examined.root, now), name="recordings"))
    status = overall_status(checks)
    code = Exit.PREREQUISITE if status is CheckStatus.FAIL else Exit.OK
    if as_json:
        repository = str(examined.root) if examined.root else None
        shape = DoctorShape(repository=repository, online=online, status=status, exit=code, checks=checks)
        print_document("doctor", shape)
    else:
        rows = tuple((check.name, check.status.value, result_cell(check), check.hint or "-") for check in checks)
        print_table(Table(columns=columns("check", "status", "~result", "|hint"), rows=rows))
        if not prints_tsv():
            print_line(f"\n{VERDICTS[status]}")
    return int(code)


def result_cell(check: DoctorCheck) -> Cell:
    """Return the result, on a terminal with the hint of a warning or failure."""
    has_hint = check.hint and check.status is not CheckStatus.OK
    return Cell(f"{check.summary}; hint: {check.hint}" if has_hint else check.summary, check.summary)


def recordings_check(root: Path, now: float) -> DoctorCheck:
    """Check the age of the oldest cassette of the library. `now`: seconds since the epoch."""
    try:
        library = library_path(root)
    except MzError:
        return warn("not checked: the settings are invalid", "mz config validate")
    ages: dict[Path, int] = {}
    unusable: list[CassetteUnreadable] = []
    for cassette_path in list_cassettes(library):
        try:
            clock_start = load_summary(cassette_path).fixture.clock_start
            ages[cassette_path] = (datetime.fromtimestamp(now, UTC) - parse_time(clock_start)).days
        except CassetteUnreadable as error:
            unusable.append(error)
    if unusable:
        summary = f"{len(unusable)} of {len(unusable) + len(ages)} unreadable: {unusable[0]}"
        return warn(summary, "restore it from git, or record it again; mz recordings list")
    if not ages:
        return ok("none yet")
    oldest = max(ages, key=ages.__getitem__)
    name = oldest.relative_to(root) if oldest.is_relative_to(root) else oldest
    summary = f"{len(ages)}, the oldest {ages[oldest]} days: {name}"
    too_old = ages[oldest] > RECORDING_DAYS_MAX
    return warn(summary, "agents and models may have changed; record it again") if too_old else ok(summary)
