"""Command `mz replay`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from msgspec.structs import replace
from mz_engine.errors import MzError
from mz_engine.exits import Exit, worst
from mz_recordings.findings import ACCEPTABLE, KINDS, FindingKind, Played
from mz_recordings.grouping import ended as words_of
from mz_recordings.playing.fleet import environment_of, find, play_all, shuffled
from mz_recordings.playing.replay import Job

from mz_cli.context import find_home
from mz_cli.findingshape import finding_shape
from mz_cli.help import command
from mz_cli.past import clamped, past_options
from mz_cli.recording import library_of, shown
from mz_cli.render.console import note, put_lines
from mz_cli.render.document import show_document
from mz_cli.replaypage import page
from mz_cli.reports.facts import ReportOptions
from mz_cli.reports.options import answering, check_reports, relative_to, report_options, write_reports
from mz_cli.reports.replayed import suites_of
from mz_cli.shapes.replay import ReplayedCassette, ReplayResult
from mz_cli.whatif import bundled_cassettes, project_of, what_if_options

OPEN = (
    "warning: network-not-denied: this system has no network namespaces, so agents and commands only get a proxy "
    "address that leads nowhere"
)

UNBLAMED: tuple[FindingKind, ...] = ("STALE", "SEEDED")
"""Findings that no commit causes: time has passed, or the replies never were the agent's."""


@command(
    "replay",
    examples=(
        ("mz replay", "every cassette of the library, through the current pipeline"),
        ("mz replay recordings/rollback -n 4", "one cassette, four features at a time"),
        ("mz replay -n 2 --junit junit.xml --html replay.html", "in CI: reports for tools and for people"),
        ('mz replay --accept PROMPT --reason "clearer wording"', "keep the replies to prompts that you changed"),
        ("mz replay recordings/whole --variants", "would the pipeline accept any failure as a success?"),
        ("mz replay recordings/whole --inject alpha/code=rate-limit", "how would the pipeline react?"),
        ("mz replay --run r4f1", "a past run through the current code"),
        ("git bisect run mz replay --bisect", "which commit changed a prompt?"),
    ),
    following="`mz record` records a run again when the old replies are no longer useful.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-n", "workers", metavar="N", type=click.IntRange(min=1), help="Number of parallel replays. [default: processors]"
)
@click.option("--shuffle", metavar="SEED", type=int, help="Shuffle cassettes and features with this seed.")
@click.option(
    "--accept",
    metavar="CLASS",
    type=click.Choice(ACCEPTABLE),
    multiple=True,
    help="Accept differences of this class and keep the replies; repeatable.",
)
@click.option("--reason", metavar="TEXT", help="Reason why the old replies are still valid; stored with them.")
@click.option("--update-unused", is_flag=True, help="Remove unused recordings.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.replay/1.")
@report_options
@past_options
@what_if_options
@click.pass_context
def replay(
    context: click.Context,
    paths: tuple[Path, ...],
    workers: int | None,
    shuffle: int | None,
    accept: tuple[str, ...],
    reason: str | None,
    update_unused: bool,
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
        raise click.UsageError("--accept and --reason go together: say why the old replies are still valid", context)
    check_reports(reports, as_json)
    home = Path.cwd() if bundled else find_home(Path.cwd())
    found = bundled_cassettes() if bundled else cassettes_at(home, paths)
    jobs = jobs_of(
        home, shuffled(found, shuffle), workers or os.cpu_count() or 1, shuffle, accept, reason or "", update_unused
    )
    if bundled:
        jobs = tuple(replace(job, project=str(project_of(Path(os.path.realpath(job.path))))) for job in jobs)
    position = {shown(path): at for at, path in enumerate(found)}
    with answering(reports, as_json) as stream:
        results = play_all(jobs, workers or os.cpu_count() or 1, lambda result: tell(result, len(jobs)))
        results = tuple(sorted(results, key=lambda result: position[result.path]))
        results = blaming(results) if bisect else results
        if not all(result.offline for result in results):
            note(OPEN)
        ended = exit_of(results, bisect)
        if as_json:
            show_document("replay", document(results, ended))
        else:
            put_lines(stream, page(results))
    write_reports(reports, "mz replay", suites_of(results, relative_to(home)), ended, as_json)
    return int(ended)


def cassettes_at(home: Path, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the cassettes at the paths, or of the library. Raises MzError (MZ6001) for a path without one."""
    places = paths or (library_of(home),)
    for place in places:
        if not find((place,)):
            message = f"no cassette in {shown(place)}"
            raise MzError("MZ6001", message, hint="record a run first: mz run && mz record")
    return find(places)


def jobs_of(
    home: Path, found: tuple[Path, ...], workers: int, seed: int | None, accept: tuple[str, ...], reason: str,
    update_unused: bool,
) -> tuple[Job, ...]:  # fmt: skip
    today, environment = datetime.now(UTC), environment_of(os.environ)
    return tuple(
        Job(
            path=shown(path),
            project=str(home),
            environment=environment,
            parallel=max(1, workers // len(found)),
            seed=seed,
            today=today,
            accept=accept,
            reason=reason,
            update_unused=update_unused,
        )
        for path in found
    )


def tell(played: Played, number: int) -> None:
    """Print the result of one of several cassettes when it ends."""
    if number > 1:
        note(words_of(played, played.path))


def blaming(results: Sequence[Played]) -> tuple[Played, ...]:
    """Return the results with only those findings failing that a commit can cause."""
    return tuple(
        replace(
            result,
            findings=tuple(replace(finding, fails=finding.kind not in UNBLAMED) for finding in result.findings),
        )
        for result in results
    )


def exit_of(results: Sequence[Played], bisect: bool = False) -> Exit:
    """Return the worst exit code of the failing findings; with `bisect`, limited to codes that git accepts."""
    code = worst((KINDS[finding.kind].exit for one in results for finding in one.findings if finding.fails), bisect)
    return clamped(code) if bisect else code


def document(results: Sequence[Played], ended: Exit) -> ReplayResult:
    return ReplayResult(exit=int(ended), cassettes=tuple(_cassette(one) for one in results))


def _cassette(played: Played) -> ReplayedCassette:
    return ReplayedCassette(
        path=played.path,
        name=played.name,
        provenance=played.provenance or None,
        recordings=played.recordings,
        played=played.played,
        predates=played.predates,
        offline=played.offline,
        stories=played.stories,
        compared=played.compared,
        duration_ms=played.duration_ms,
        findings=tuple(finding_shape(one, played.path) for one in played.findings),
        held=played.held,
        renewed=played.renewed,
    )
