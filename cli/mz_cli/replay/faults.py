"""Options `--variants`, `--inject` and `--bundled` of `mz replay`: altered recordings, and those that come with mz."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from mz_engine.errors.diagnostics import Exit
from mz_qa.variants.play import VariantOutcome, end_state
from mz_recordings.cassette.files import find_cassettes, load
from mz_recordings.cassette.trace import trace_events
from mz_recordings.faults.faults import FAULTS, InvalidFaultError, fault_reaction, inject
from mz_recordings.replay.replay import ReplayJob, bundled_library, run_replay, without_git_variables

from mz_cli.common.recording import display_path, reject_unusable
from mz_cli.terminal.console import print_note, write_lines
from mz_cli.terminal.json import Shape, print_document
from mz_cli.terminal.table import Table, columns, print_output, print_table
from mz_cli.terminal.text import Line, Span, single_line

FOLDER = "faults"
PROJECT = "project"
SAMPLE = "sample"
SHOWN_MAX = 50


class VariedCassette(Shape, frozen=True, kw_only=True):
    path: str
    variants: int
    """Number of variants replayed."""
    ends: dict[str, int]
    """Number of variants by final state, such as `waiting (recording-missing)`."""
    failing: tuple[VariantOutcome, ...]
    """Variants that violate an invariant."""


class VariantsResult(Shape, frozen=True, kw_only=True):
    exit: int
    cassettes: tuple[VariedCassette, ...]


class InjectResult(Shape, frozen=True, kw_only=True):
    exit: int
    path: str
    call: str
    """Feature and recording, such as `alpha/code.U1`."""
    fault: str
    behavior: str
    """Behavior of the agent with the fault."""
    reactions: tuple[str, ...]
    """Reactions of the pipeline, in order."""
    end: str | None
    """Final state of the feature; null: unnamed."""


def bundled_cassettes() -> tuple[Path, ...]:
    """Return the cassettes that come with `mz`."""
    return find_cassettes((bundled_library(), bundled_library() / FOLDER))


def bundled_project(path: Path) -> Path:
    """Return the project for a cassette of `mz`."""
    faults = bundled_library() / FOLDER
    return faults / PROJECT if path.parent == faults else bundled_library() / SAMPLE


# variants -------------------------------------------------------------------------------------------------------------
def replay_variants(projects: Mapping[Path, Path], as_json: bool) -> int:
    """Replay all variants, and print their final states and violated properties. Raises MzError (MZ6005)."""
    from mz_qa.variants.play import play_variants

    environment, played = without_git_variables(os.environ), []
    for path, project in projects.items():
        with reject_unusable(path):
            outcomes = play_variants(load(path), project, environment)
        played.append((display_path(path), outcomes))
        print_note(f"{single_line(display_path(path))}: {len(outcomes)} variants")
    all_outcomes = [outcome for _, outcomes in played for outcome in outcomes]
    code = Exit.VERDICT if any(outcome.violations for outcome in all_outcomes) else Exit.OK
    if as_json:
        cassettes = tuple(
            VariedCassette(
                path=name,
                variants=len(outcomes),
                ends=dict(Counter(outcome.end for outcome in outcomes)),
                failing=tuple(outcome for outcome in outcomes if outcome.violations),
            )
            for name, outcomes in played
        )
        print_document("replay-variants", VariantsResult(exit=int(code), cassettes=cassettes))
        return int(code)
    ends = Counter((name, outcome.end or "(no name)") for name, outcomes in played for outcome in outcomes)
    most_frequent = sorted(ends.items(), key=lambda entry: (entry[0][0], -entry[1], entry[0][1]))
    rows = tuple((name, end, str(number)) for (name, end), number in most_frequent)
    print_table(Table(columns=columns("cassette", "end", ">variants"), rows=rows, empty="there are no variants"))
    write_lines(sys.stdout, _verdict_lines(all_outcomes))
    return int(code)


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
def replay_fault(projects: Mapping[Path, Path], selector: str, as_json: bool) -> int:
    """Replay a cassette with one failing call, and print how the pipeline reacted. Raises MzError (MZ6005)."""
    call, _, name = selector.partition("=")
    if len(projects) != 1:
        raise click.UsageError(f"--inject needs exactly one cassette, not {len(projects)}")
    ((path, project),) = projects.items()
    environment = without_git_variables(os.environ)
    job = ReplayJob(path=str(path), project=str(project), environment=environment, today=datetime.now(UTC))
    with reject_unusable(path):
        try:
            cassette, identity = inject(load(path), call, name)
        except InvalidFaultError as error:
            raise click.UsageError(str(error)) from error
        trace = run_replay(cassette, job).traces[identity.feature]
    end, actions = end_state(tuple(trace_events(trace))), tuple(fault_reaction(trace, identity))
    description, code = FAULTS[name].description, Exit.OK if end else Exit.VERDICT
    body = InjectResult(exit=int(code), path=display_path(path), call=call, fault=name, behavior=description,
                        reactions=actions, end=end or None)  # fmt: skip
    ended = f"ended: {end}" if end else "did NOT end in a named state"
    reaction = (f"  {action}" for action in actions)
    lines = (f"{call}: {name}: {description}", *reaction, f"{identity.feature} {ended}")
    print_output(as_json, "replay-inject", body, lines)
    return int(code)
