"""Options `--variants`, `--inject` and `--bundled` of `mz replay`: altered recordings, and those that come with mz."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from mz_engine.errors import MzError
from mz_engine.exits import Exit
from mz_recordings.cassette import Cassette
from mz_recordings.files.library import CassetteUnusable, load
from mz_recordings.playing.fleet import bundled, environment_of, find
from mz_recordings.recording.scratch import WorldMissing

from mz_cli.render.console import answer, note, put_lines
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.styled import Line, Span
from mz_cli.render.table import Table, columns
from mz_cli.render.text import line
from mz_cli.shapes.whatif import BrokenVariant, InjectResult, VariantsResult, VariedCassette

if TYPE_CHECKING:
    from mz_qa.metamorphic.properties import Outcome

FOLDER = "faults"
PROJECT = "project"
SAMPLE = "sample"
SHOWN_MAX = 50
INSTEAD = ("shuffle", "accept", "reason", "update_unused")
"""Options of a replay that conflict with these."""


def what_if_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator, below `@report_options`: add the three options. The function gets `bundled`; for variants and faults
    it is not called."""

    @functools.wraps(function)
    def with_what_if(*args: Any, variants: bool, inject: str | None, bundled: bool, **options: Any) -> Any:
        if bundled and (options["paths"] or options["accept"] or options["update_unused"]):
            raise click.UsageError("--bundled replays the cassettes of mz and changes nothing: it accepts no PATH")
        if not variants and inject is None:
            return function(*args, bundled=bundled, **options)
        flag = "--variants" if variants else "--inject"
        reports = options["reports"]
        if any(options[name] for name in INSTEAD) or options["bisect"] or reports.files or reports.github:
            raise click.UsageError(f"{flag} writes no report and updates nothing: leave out the other options")
        if variants and inject is not None:
            raise click.UsageError("--variants and --inject exclude each other")
        cassettes = places(options["paths"], bundled)
        if inject is None:
            return play_all_variants(cassettes, options["as_json"])
        return play_fault(cassettes, inject, options["as_json"])

    add_options = (
        click.option("--bundled", is_flag=True, help="Replay the cassettes of mz: the demo's, and the faults."),
        click.option(
            "--inject",
            metavar="CALL=FAULT",
            help="Make one call, such as alpha/code, fail first; see the faults with --bundled.",
        ),
        click.option("--variants", is_flag=True, help="Replay every possible ending of every call."),
    )
    decorated: Callable[..., Any] = with_what_if
    for add_option in add_options:
        decorated = add_option(decorated)
    return decorated


# cassettes ------------------------------------------------------------------------------------------------------------
def places(paths: tuple[Path, ...], with_mz: bool) -> tuple[tuple[Path, Path], ...]:
    """Return cassettes with the projects whose pipelines replay them. Raises MzError (MZ6001)."""
    from mz_cli.commands.replay import cassettes_at
    from mz_cli.context import find_home

    if with_mz:
        return tuple((path, project_of(path)) for path in bundled_cassettes())
    home = find_home(Path.cwd())
    return tuple((path, home) for path in cassettes_at(home, paths))


def bundled_cassettes() -> tuple[Path, ...]:
    """Return the cassettes that come with `mz`."""
    return find((bundled(), bundled() / FOLDER))


def project_of(path: Path) -> Path:
    """Return the project for a cassette of `mz`."""
    faults = bundled() / FOLDER
    return faults / PROJECT if path.parent == faults else bundled() / SAMPLE


def loaded(path: Path) -> Cassette:
    """Load a cassette. Raises MzError (MZ6005)."""
    try:
        return load(path)
    except CassetteUnusable as error:
        raise MzError("MZ6005", str(error), hint="restore it from git, or record it again") from error


def no_world(error: WorldMissing) -> MzError:
    return MzError("MZ6005", str(error), hint="see `mz replay`")


# variants -------------------------------------------------------------------------------------------------------------
def play_all_variants(found: Sequence[tuple[Path, Path]], as_json: bool) -> int:
    """Replay all variants, and print their final states and violated properties."""
    from mz_cli.recording import shown

    played = []
    for path, project in found:
        outcomes = _outcomes(loaded(path), project)
        played.append((shown(path), outcomes))
        note(f"{line(shown(path))}: {len(outcomes)} variants")
    broken = any(one.violations for _, outcomes in played for one in outcomes)
    code = Exit.VERDICT if broken else Exit.OK
    if as_json:
        cassettes = tuple(_varied(path, outcomes) for path, outcomes in played)
        show_document("replay-variants", VariantsResult(exit=int(code), cassettes=cassettes))
        return int(code)
    ends = Counter((path, one.end or "(no name)") for path, outcomes in played for one in outcomes)
    rows = tuple((path, end, str(number)) for (path, end), number in sorted(ends.items(), key=_most))
    show(Table(columns=columns("cassette", "end", ">variants"), rows=rows, empty="there are no variants"))
    put_lines(sys.stdout, _verdict([one for _, outcomes in played for one in outcomes]))
    return int(code)


def _most(entry: tuple[tuple[str, str], int]) -> tuple[str, int, str]:
    (path, end), number = entry
    return path, -number, end


def _outcomes(cassette: Cassette, project: Path) -> tuple[Outcome, ...]:
    from mz_qa.metamorphic.play import play_variants
    from mz_qa.metamorphic.processes import play_sample

    environment = environment_of(os.environ)
    try:
        return (
            *play_variants(cassette, project, environment),
            *play_sample(cassette, project, environment, datetime.now(UTC)),
        )
    except WorldMissing as error:
        raise no_world(error) from error


def _varied(path: str, outcomes: Sequence[Outcome]) -> VariedCassette:
    return VariedCassette(
        path=path,
        played=len(outcomes),
        ends=dict(Counter(one.end or "" for one in outcomes)),
        broken=tuple(
            BrokenVariant(
                feature=one.feature,
                call=one.call or None,
                variant=one.variant,
                how=one.how,
                end=one.end or None,
                violations=one.violations,
            )
            for one in outcomes
            if one.violations
        ),
    )


def _verdict(outcomes: Sequence[Outcome]) -> Iterator[Line]:
    broken = [one for one in outcomes if one.violations]
    yield ()
    for one in broken[:SHOWN_MAX]:
        yield (Span("BROKEN", "bold red"), Span(f"  {one.name}"))
        for words in one.violations:
            yield (Span(f"  {words}"),)
    if len(broken) > SHOWN_MAX:
        yield (Span(f"... and {len(broken) - SHOWN_MAX} more; --json has all"),)
    verdict = f"{len(broken)} FAILED" if broken else "all ended in a named state, and no failure passed as a success"
    yield (Span(f"{len(outcomes)} variants: {verdict}"),)


# faults ---------------------------------------------------------------------------------------------------------------
def play_fault(found: Sequence[tuple[Path, Path]], wanted: str, as_json: bool) -> int:
    """Replay a cassette with one failing call, and print how the pipeline reacted."""
    from mz_qa.metamorphic.properties import end_of, parse_story
    from mz_recordings.playing.replay import Job, perform
    from mz_recordings.whatif.faults import FAULTS
    from mz_recordings.whatif.injection import FaultMisplaced, aftermath, inject

    from mz_cli.recording import shown

    call, _, name = wanted.partition("=")
    if len(found) != 1:
        raise click.UsageError(f"--inject needs exactly one cassette, not {len(found)}")
    ((path, project),) = found
    try:
        cassette, identity = inject(loaded(path), call, name)
    except FaultMisplaced as error:
        raise click.UsageError(str(error)) from error
    job = Job(
        path=str(path), project=str(project), environment=environment_of(os.environ), today=datetime.now(UTC)
    )  # fmt: skip
    try:
        story = perform(cassette, job).stories[identity.feature]
    except WorldMissing as error:
        raise no_world(error) from error
    end, did = end_of(parse_story(story)), tuple(aftermath(story, identity))
    code = Exit.OK if end else Exit.VERDICT
    if as_json:
        body = InjectResult(
            exit=int(code), path=shown(path), call=call, fault=name, what=FAULTS[name].what, did=did, end=end or None
        )
        show_document("replay-inject", body)
    else:
        answer(f"{call}: {name}: {FAULTS[name].what}")
        for words in did:
            answer(f"  {words}")
        answer(_ended(identity.feature, end))
    return int(code)


def _ended(feature: str, end: str) -> str:
    return f"{feature} ended: {end}" if end else f"{feature} did NOT end in a named state"
