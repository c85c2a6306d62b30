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
from mz_engine.errors.diagnostics import MzError
from mz_engine.errors.exits import Exit
from mz_recordings.cassette.files import CassetteUnreadable, load
from mz_recordings.cassette.model import Cassette
from mz_recordings.cassette.repository import FixtureUnavailable
from mz_recordings.replay.parallel import bundled_library, find_cassettes, without_git_variables

from mz_cli.replay.json import BrokenVariant, InjectResult, VariantsResult, VariedCassette
from mz_cli.terminal.console import print_line, print_note, write_lines
from mz_cli.terminal.json import print_document, shape_of
from mz_cli.terminal.table import Table, columns, print_table
from mz_cli.terminal.text import single_line
from mz_cli.terminal.width import Line, Span

if TYPE_CHECKING:
    from mz_qa.variants.properties import VariantOutcome

FOLDER = "faults"
PROJECT = "project"
SAMPLE = "sample"
SHOWN_MAX = 50
CONFLICTING_OPTIONS = ("shuffle", "accept", "reason", "prune")
"""Options of a replay that conflict with these."""


def what_if_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator, below `@report_options`: add the three options. The function gets `bundled`; for variants and faults
    it is not called."""

    @functools.wraps(function)
    def with_what_if(*args: Any, variants: bool, inject: str | None, bundled: bool, **options: Any) -> Any:
        if bundled and (options["paths"] or options["accept"] or options["prune"]):
            raise click.UsageError("--bundled replays the cassettes of mz and changes nothing: it accepts no PATH")
        if not variants and inject is None:
            return function(*args, bundled=bundled, **options)
        flag = "--variants" if variants else "--inject"
        reports = options["reports"]
        if any(options[name] for name in CONFLICTING_OPTIONS) or options["bisect"] or reports.files or reports.github:
            raise click.UsageError(f"{flag} writes no report and updates nothing: leave out the other options")
        if variants and inject is not None:
            raise click.UsageError("--variants and --inject exclude each other")
        cassettes = cassettes_with_projects(options["paths"], bundled)
        if inject is None:
            return replay_variants(cassettes, options["as_json"])
        return replay_fault(cassettes, inject, options["as_json"])

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
def cassettes_with_projects(paths: tuple[Path, ...], include_bundled: bool) -> tuple[tuple[Path, Path], ...]:
    """Return cassettes with the projects whose pipelines replay them. Raises MzError (MZ6001)."""
    from mz_cli.app.context import find_home
    from mz_cli.replay.command import require_cassettes

    if include_bundled:
        return tuple((path, bundled_project(path)) for path in bundled_cassettes())
    home = find_home(Path.cwd())
    return tuple((path, home) for path in require_cassettes(home, paths))


def bundled_cassettes() -> tuple[Path, ...]:
    """Return the cassettes that come with `mz`."""
    return find_cassettes((bundled_library(), bundled_library() / FOLDER))


def bundled_project(path: Path) -> Path:
    """Return the project for a cassette of `mz`."""
    faults = bundled_library() / FOLDER
    return faults / PROJECT if path.parent == faults else bundled_library() / SAMPLE


def load_cassette(path: Path) -> Cassette:
    """Load a cassette. Raises MzError (MZ6005)."""
    try:
        return load(path)
    except CassetteUnreadable as error:
        raise MzError("MZ6005", str(error), hint="restore it from git, or record it again") from error


def fixture_missing_error(error: FixtureUnavailable) -> MzError:
    return MzError("MZ6005", str(error), hint="see `mz replay`")


# variants -------------------------------------------------------------------------------------------------------------
def replay_variants(cassette_projects: Sequence[tuple[Path, Path]], as_json: bool) -> int:
    """Replay all variants, and print their final states and violated properties."""
    from mz_cli.common.recording import display_path

    played = []
    for path, project in cassette_projects:
        outcomes = _outcomes(load_cassette(path), project)
        played.append((display_path(path), outcomes))
        print_note(f"{single_line(display_path(path))}: {len(outcomes)} variants")
    has_violations = any(outcome.violations for _, outcomes in played for outcome in outcomes)
    code = Exit.VERDICT if has_violations else Exit.OK
    if as_json:
        cassettes = tuple(_varied_shape(path, outcomes) for path, outcomes in played)
        print_document("replay-variants", VariantsResult(exit=int(code), cassettes=cassettes))
        return int(code)
    ends = Counter((path, outcome.end or "(no name)") for path, outcomes in played for outcome in outcomes)
    rows = tuple((path, end, str(number)) for (path, end), number in sorted(ends.items(), key=_most_frequent))
    print_table(Table(columns=columns("cassette", "end", ">variants"), rows=rows, empty="there are no variants"))
    write_lines(sys.stdout, _verdict_lines([outcome for _, outcomes in played for outcome in outcomes]))
    return int(code)


def _most_frequent(entry: tuple[tuple[str, str], int]) -> tuple[str, int, str]:
    (path, end), number = entry
    return path, -number, end


def _outcomes(cassette: Cassette, project: Path) -> tuple[VariantOutcome, ...]:
    from mz_qa.variants.play import play_variants
    from mz_qa.variants.processes import play_sample

    environment = without_git_variables(os.environ)
    try:
        return (
            *play_variants(cassette, project, environment),
            *play_sample(cassette, project, environment, datetime.now(UTC)),
        )
    except FixtureUnavailable as error:
        raise fixture_missing_error(error) from error


def _varied_shape(path: str, outcomes: Sequence[VariantOutcome]) -> VariedCassette:
    return VariedCassette(
        path=path,
        played=len(outcomes),
        ends=dict(Counter(outcome.end or "" for outcome in outcomes)),
        broken=tuple(shape_of(BrokenVariant, outcome, how=outcome.mode) for outcome in outcomes if outcome.violations),
    )


def _verdict_lines(outcomes: Sequence[VariantOutcome]) -> Iterator[Line]:
    failing = [outcome for outcome in outcomes if outcome.violations]
    yield ()
    for outcome in failing[:SHOWN_MAX]:
        yield (Span("BROKEN", "bold red"), Span(f"  {outcome.name}"))
        for violation in outcome.violations:
            yield (Span(f"  {violation}"),)
    if len(failing) > SHOWN_MAX:
        yield (Span(f"... and {len(failing) - SHOWN_MAX} more; --json has all"),)
    verdict = f"{len(failing)} FAILED" if failing else "all ended in a named state, and no failure passed as a success"
    yield (Span(f"{len(outcomes)} variants: {verdict}"),)


# faults ---------------------------------------------------------------------------------------------------------------
def replay_fault(cassettes: Sequence[tuple[Path, Path]], selector: str, as_json: bool) -> int:
    """Replay a cassette with one failing call, and print how the pipeline reacted."""
    from mz_qa.variants.properties import end_state, parse_trace
    from mz_recordings.faults.faults import FAULTS
    from mz_recordings.faults.inject import InvalidFaultError, fault_reaction, inject
    from mz_recordings.replay.replay import ReplayJob, run_replay

    from mz_cli.common.recording import display_path

    call, _, name = selector.partition("=")
    if len(cassettes) != 1:
        raise click.UsageError(f"--inject needs exactly one cassette, not {len(cassettes)}")
    ((path, project),) = cassettes
    try:
        cassette, identity = inject(load_cassette(path), call, name)
    except InvalidFaultError as error:
        raise click.UsageError(str(error)) from error
    job = ReplayJob(
        path=str(path), project=str(project), environment=without_git_variables(os.environ), today=datetime.now(UTC)
    )  # fmt: skip
    try:
        trace = run_replay(cassette, job).traces[identity.feature]
    except FixtureUnavailable as error:
        raise fixture_missing_error(error) from error
    end, actions = end_state(parse_trace(trace)), tuple(fault_reaction(trace, identity))
    code = Exit.OK if end else Exit.VERDICT
    if as_json:
        body = InjectResult(
            exit=int(code),
            path=display_path(path),
            call=call,
            fault=name,
            what=FAULTS[name].description,
            did=actions,
            end=end or None,
        )
        print_document("replay-inject", body)
    else:
        print_line(f"{call}: {name}: {FAULTS[name].description}")
        for action in actions:
            print_line(f"  {action}")
        print_line(_end_text(identity.feature, end))
    return int(code)


def _end_text(feature: str, end: str) -> str:
    return f"{feature} ended: {end}" if end else f"{feature} did NOT end in a named state"
