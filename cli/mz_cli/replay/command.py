"""Command `mz replay`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from msgspec.structs import replace
from mz_engine.errors.diagnostics import MzError
from mz_engine.errors.exits import Exit, most_severe
from mz_recordings.findings.grouping import verdict_line as words_of
from mz_recordings.findings.model import ACCEPTABLE, KIND_PROPERTIES, FindingKind, ReplayResult
from mz_recordings.replay.parallel import find_cassettes, replay_all, shuffled, without_git_variables
from mz_recordings.replay.replay import ReplayJob

from mz_cli.app.context import find_home
from mz_cli.app.help import command, format_options, jobs_option, message_option
from mz_cli.common.json import finding_shape
from mz_cli.common.recording import display_path, library_path
from mz_cli.replay.bisect import clamp_exit, past_options
from mz_cli.replay.faults import bundled_cassettes, bundled_project, what_if_options
from mz_cli.replay.json import ReplayedCassette, ReplayReport
from mz_cli.reports.model import ReportOptions
from mz_cli.reports.options import check_reports, project_relative, report_options, text_stream, write_reports
from mz_cli.reports.replay_text import render_text
from mz_cli.reports.replays import replay_suites
from mz_cli.terminal.console import print_note, write_lines
from mz_cli.terminal.json import print_document, shape_of

NETWORK_WARNING = (
    "warning: network-not-denied: this system has no network namespaces, so agents and commands only get a proxy "
    "address that leads nowhere"
)

NOT_CAUSED_BY_COMMITS: tuple[FindingKind, ...] = ("EXPIRED", "COPIED")
"""Findings that no commit causes: time has passed, or the replies never were the agent's."""


@command(
    "replay",
    examples=(
        ("mz replay", "every cassette of the library, through the current pipeline"),
        ("mz replay recordings/rollback -j 4", "one cassette, four features at a time"),
        ("mz replay -j 2 --junit junit.xml --html replay.html", "in CI: reports for tools and for people"),
        ('mz replay --accept PROMPT -m "clearer wording"', "keep the replies to prompts that you changed"),
        ("mz replay recordings/whole --variants", "would the pipeline accept any failure as a success?"),
        ("mz replay recordings/whole --inject alpha/code=rate-limit", "how would the pipeline react?"),
        ("mz replay --run r4f1", "a past run through the current code"),
        ("git bisect run mz replay --bisect", "which commit changed a prompt?"),
    ),
    next_command="`mz record` records a run again when the old replies are no longer useful.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@jobs_option("Number of parallel replays. [default: processors]")
@click.option("--shuffle", metavar="SEED", type=int, help="Shuffle cassettes and features with this seed.")
@click.option(
    "--accept",
    metavar="CLASS",
    type=click.Choice(ACCEPTABLE),
    multiple=True,
    help="Accept differences of this class and keep the replies; repeatable.",
)
@message_option("reason", "Reason why the old replies are still valid; stored with them.")
@click.option("--prune", is_flag=True, help="Remove unused recordings.")
@format_options("Print one object with the schema mz.replay/1.")
@report_options
@past_options
@what_if_options
@click.pass_context
def replay(
    context: click.Context,
    paths: tuple[Path, ...],
    jobs: int | None,
    shuffle: int | None,
    accept: tuple[str, ...],
    reason: str | None,
    prune: bool,
    as_json: bool,
    reports: ReportOptions,
    bisect: bool,
    bundled: bool,
) -> int:
    """Replay recordings through the current pipeline, offline and free.

    Runs the current pipeline, rules, templates, settings, parsers and gates in a scratch repository; only the agents'
    replies are recorded. The network is cut off. Each difference is reported with the command that fixes it. PATH is
    a cassette or a folder of cassettes (default: the library). Exits with 3 for drift, 4 for a missing, unused or
    expired recording, 6 for an attempt to use the network.
    """
    if bool(accept) != bool(reason and reason.strip()):
        raise click.UsageError("--accept and -m go together: say why the old replies are still valid", context)
    check_reports(reports, as_json)
    home = Path.cwd() if bundled else find_home(Path.cwd())
    cassettes = bundled_cassettes() if bundled else require_cassettes(home, paths)
    workers = jobs or os.cpu_count() or 1
    replays = replay_jobs(home, shuffled(cassettes, shuffle), workers, shuffle, accept, reason or "", prune)
    if bundled:
        replays = tuple(replace(job, project=str(bundled_project(Path(os.path.realpath(job.path))))) for job in replays)
    position = {display_path(path): at for at, path in enumerate(cassettes)}
    with text_stream(reports, as_json) as stream:
        results = replay_all(replays, workers, lambda result: print_progress(result, len(replays)))
        results = tuple(sorted(results, key=lambda result: position[result.path]))
        results = failing_by_commit(results) if bisect else results
        if not all(result.offline for result in results):
            print_note(NETWORK_WARNING)
        exit_code = replay_exit(results, bisect)
        if as_json:
            print_document("replay", replay_document(results, exit_code))
        else:
            write_lines(stream, render_text(results))
    write_reports(reports, "mz replay", replay_suites(results, project_relative(home)), exit_code, as_json)
    return int(exit_code)


def require_cassettes(home: Path, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the cassettes at the paths, or of the library. Raises MzError (MZ6001) for a path without one."""
    folders = paths or (library_path(home),)
    for folder in folders:
        if not find_cassettes((folder,)):
            message = f"no cassette in {display_path(folder)}"
            raise MzError("MZ6001", message, hint="record a run first: mz run && mz record")
    return find_cassettes(folders)


def replay_jobs(
    home: Path, cassettes: tuple[Path, ...], jobs: int, seed: int | None, accept: tuple[str, ...], reason: str,
    prune: bool,
) -> tuple[ReplayJob, ...]:  # fmt: skip
    today, environment = datetime.now(UTC), without_git_variables(os.environ)
    return tuple(
        ReplayJob(
            path=display_path(path),
            project=str(home),
            environment=environment,
            features_parallel=max(1, jobs // len(cassettes)),
            seed=seed,
            today=today,
            accept=accept,
            reason=reason,
            prune=prune,
        )
        for path in cassettes
    )


def print_progress(result: ReplayResult, cassette_count: int) -> None:
    """Print the result of one of several cassettes when it ends."""
    if cassette_count > 1:
        print_note(words_of(result, result.path))


def failing_by_commit(results: Sequence[ReplayResult]) -> tuple[ReplayResult, ...]:
    """Return the results with only those findings failing that a commit can cause."""
    return tuple(
        replace(
            result,
            findings=tuple(
                replace(finding, fails=finding.kind not in NOT_CAUSED_BY_COMMITS) for finding in result.findings
            ),
        )
        for result in results
    )


def replay_exit(results: Sequence[ReplayResult], bisect: bool = False) -> Exit:
    """Return the worst exit code of the failing findings; with `bisect`, limited to codes that git accepts."""
    code = most_severe(
        (KIND_PROPERTIES[finding.kind].exit for result in results for finding in result.findings if finding.fails),
        bisect,
    )
    return clamp_exit(code) if bisect else code


def replay_document(results: Sequence[ReplayResult], exit_code: Exit) -> ReplayReport:
    return ReplayReport(exit=int(exit_code), cassettes=tuple(_cassette_shape(result) for result in results))


def _cassette_shape(result: ReplayResult) -> ReplayedCassette:
    return shape_of(
        ReplayedCassette,
        result,
        played=result.calls_replayed,
        traces=result.trace_digests,
        compared=result.traces_compared,
        findings=tuple(finding_shape(finding, result.path) for finding in result.findings),
        held=result.overridden_settings,
        renewed=result.changes,
    )
