"""Adapter: `mz replay`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from mz_engine.errors import MzError
from mz_engine.exits import Exit, worst
from mz_recordings.findings import ACCEPTABLE, KINDS, Played
from mz_recordings.fleet import environment_of, find, play_all, shuffled
from mz_recordings.replay import Job

from mz_cli.context import find_home
from mz_cli.help import command
from mz_cli.recording import library_of, shown
from mz_cli.render.console import note, put_lines
from mz_cli.render.document import show_document
from mz_cli.replaypage import mending, page
from mz_cli.shapes.replay import ReplayedCassette, ReplayFinding, ReplayResult

OPEN = (
    "warning: network-not-denied: there is no network namespace here, so agents and commands are only told of a proxy "
    "that leads nowhere"
)


@command(
    "replay",
    examples=(
        ("mz replay", "every cassette of the library, through today's pipeline"),
        ("mz replay recordings/rollback -n 4", "one cassette, four features at a time"),
        ('mz replay --accept PROMPT --reason "clearer wording"', "keep the answers of prompts that you changed"),
    ),
    following="`mz record` records a run anew where the old answers are of no use any more.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-n", "workers", metavar="N", type=click.IntRange(min=1), help="How many at the same time. [default: processors]"
)
@click.option("--shuffle", metavar="SEED", type=int, help="In an order that the number decides; features too.")
@click.option(
    "--accept",
    metavar="CLASS",
    type=click.Choice(ACCEPTABLE),
    multiple=True,
    help="Renew what went in and keep the answers: PROMPT, CONFIG or EVENT; repeatable.",
)
@click.option("--reason", metavar="TEXT", help="Why the old answers still hold; kept with them.")
@click.option("--update-unused", is_flag=True, help="Remove recordings that nothing asks for.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.replay/1.")
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
) -> int:
    """Play recordings through today's pipeline, for nothing.

    Today's pipeline, rules, templates, settings, parsers and gates are real, in a scratch repository; only the
    agents' answers are recorded. The network is cut off. Anything that is not as it was recorded is named, with the
    command that mends it. A PATH is a cassette or a folder of them; without one, the library is played. Ends with 3
    for a drift, 4 for a recording that is missing, unused or too old, 6 where something tried to reach the network.
    """
    if bool(accept) != bool(reason and reason.strip()):
        raise click.UsageError("--accept and --reason go together: why do the old answers still hold?", context)
    home = find_home(Path.cwd())
    found = cassettes_at(home, paths)
    jobs = jobs_of(
        home, shuffled(found, shuffle), workers or os.cpu_count() or 1, shuffle, accept, reason or "", update_unused
    )
    results = play_all(jobs, workers or os.cpu_count() or 1, lambda played: tell(played, len(jobs)))
    results = tuple(sorted(results, key=lambda one: [shown(path) for path in found].index(one.path)))
    if not all(one.offline for one in results):
        note(OPEN)
    if as_json:
        show_document("replay", document(results))
    else:
        put_lines(sys.stdout, page(results))
    return int(exit_of(results))


def cassettes_at(home: Path, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Raises MzError (MZ6001) where there is none, also at one of several places."""
    places = paths or (library_of(home),)
    for place in places:
        if not find((place,)):
            message = f"there is no cassette in {shown(place)}"
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
    """A word on each of several, as it ends."""
    if number > 1:
        verdict = "as recorded" if not played.findings else ", ".join(sorted({one.kind for one in played.findings}))
        note(f"{played.path}: {verdict} ({played.duration_ms / 1000:.1f} s)")


def exit_of(results: Sequence[Played]) -> Exit:
    return worst(KINDS[finding.kind].exit for one in results for finding in one.findings)


def document(results: Sequence[Played]) -> ReplayResult:
    return ReplayResult(exit=int(exit_of(results)), cassettes=tuple(_cassette(one) for one in results))


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
        findings=tuple(
            ReplayFinding(
                kind=one.kind,
                risk=KINDS[one.kind].risk,
                exit=int(KINDS[one.kind].exit),
                what=one.what,
                feature=one.feature or None,
                call=one.call or None,
                cause=one.cause or None,
                detail=one.detail,
                mend=mending(one.mend, (played.path,)),
            )
            for one in played.findings
        ),
        renewed=played.renewed,
    )
