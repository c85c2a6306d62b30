"""Command `mz log`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice

import click
from mz_events.catalog.base import Event
from mz_events.envelope import Recorded
from mz_events.names import StreamId, feature_stream, run_stream
from mz_projections.views.run import RunProjection

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command
from mz_cli.app.selectors import Selector, find_event_ref, select, select_one_run, select_or_newest
from mz_cli.app.user_log import open_imported_log
from mz_cli.common.feature_query import DetailOptions
from mz_cli.inspect.log_entry import entry_json, entry_line, log_header
from mz_cli.inspect.show import check_attempt, check_phase
from mz_cli.inspect.state_at import state_at, state_rows
from mz_cli.terminal.console import is_terminal, print_line, write_text
from mz_cli.terminal.json import json_line, print_document
from mz_cli.terminal.table import Table, columns, print_table

POLL_SECONDS = 0.1


@command(
    "log",
    examples=(
        ("mz log", "the events of the newest run"),
        ("mz log login --follow", "watch one feature until the run stops"),
        ("mz log r4f1/login/code#2", "one attempt of a phase in another run"),
        ("mz log --at login@12", "the state of a feature after the twelfth event of its stream"),
        ("mz log --imported 3f2a", "the events of an imported session; without an id, of all"),
        ("mz log --json | jq -r 'select(.type == \"gate.checked\") | .event_ref'", "JSON Lines, for programs"),
    ),
    next_command="`mz show FEATURE` shows the same, phase by phase.",
)
@click.argument("selectors", metavar="[SELECTOR]...", nargs=-1)
@click.option("--feature", "features", multiple=True, hidden=True)
@click.option("--follow", "-f", is_flag=True, help="Print new events until the run stops, or until Ctrl-C.")
@click.option("--at", metavar="STREAM@VERSION", help="Print the state after that event instead of events.")
@click.option("--imported", metavar="[SESSION]", is_flag=False, flag_value="",
              help="Print your user log, or one imported session in it; in any directory.")  # fmt: skip
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON Lines: a version line, then one line per event; with --at, one object: mz.state/1.",
)
@click.pass_context
def log(
    context: click.Context, selectors: tuple[str, ...], features: tuple[str, ...], follow: bool, at: str | None,
    imported: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Print the event log, one line per event.

    Each line begins with the time and the event's address, stream@version. SELECTOR is a run's id or its beginning
    (default: the newest run), a feature, RUN/FEATURE, FEATURE/PHASE, FEATURE/PHASE#ATTEMPT, or one event,
    STREAM@VERSION, where STREAM is a run, a feature or RUN/FEATURE.
    """
    if at is not None and (features or follow):
        raise click.UsageError("--at cannot be combined with --feature or --follow", context)
    if imported is not None:
        if selectors or features or follow or at is not None:
            raise click.UsageError("--imported can be combined only with --json", context)
        print_imported_events(imported, as_json)
        return
    with open_log() as source:
        if at is not None:
            print_state(source, at, selectors[0] if selectors else None, as_json)
            return
        chosen = selected(source, selectors, features)
        run_id = select_one_run(chosen)
        events = follow_events(source, run_id) if follow else source.events(run_id)
        if as_json:
            write_text(sys.stdout, json_line(log_header()) + "\n")
        print_events(filter_events(events, chosen), as_json, full=not is_terminal(sys.stdout))


def selected(source: ProjectLog, selectors: tuple[str, ...], features: tuple[str, ...]) -> tuple[Selector, ...]:
    """Resolve the selectors; by default the newest run. `features`: values of `--feature`, which restrict a run. Raises
    MzError (MZ1002, MZ4010, MZ5001, MZ5007) and UsageError."""
    chosen = tuple(select(source, text) for text in selectors) or (select_or_newest(source, None),)
    if features:
        run = select_one_run(chosen)
        chosen = tuple(select(source, f"{run}/{feature}") for feature in features)
    for selector in chosen:
        if selector.phase is not None:
            view = source.find_feature(selector.run, str(selector.feature))[1]
            check_phase(view, selector.phase)
            check_attempt(view, DetailOptions(phase=selector.phase, attempt=selector.attempt))
    return chosen


def print_imported_events(session: str, as_json: bool) -> None:
    """Print the events of the user log. Raises MzError (MZ5010, MZ5011)."""
    with open_imported_log() as source:
        events = source.store.read(StreamId(source.find(session))) if session else source.store.read_all()
        if as_json:
            write_text(sys.stdout, json_line(log_header()) + "\n")
        print_events(events, as_json, full=not is_terminal(sys.stdout))


def print_state(source: ProjectLog, at: str, run: str | None, as_json: bool) -> None:
    """Print the state after an event. Raises MzError (MZ5001, MZ5007)."""
    stream, version = find_event_ref(source, at, run)
    events = tuple(islice(source.store.read(stream), version))
    newest_version = dict(source.store.streams(stream))[stream]
    state = state_at(events, newest_version, str(source.home), source.load_text)
    if as_json:
        print_document("state", state)
    elif is_terminal(sys.stdout):
        print_line("\n".join(f"{name}: {value}" for name, value in state_rows(state)))
    else:
        print_table(Table(columns=columns("field", "value"), rows=state_rows(state, exact=True), empty=""))


def print_events(events: Iterable[Recorded[Event]], as_json: bool, full: bool) -> None:
    for recorded in events:
        text = json_line(entry_json(recorded)) if as_json else entry_line(recorded, full)
        write_text(sys.stdout, f"{text}\n")


def filter_events(events: Iterable[Recorded[Event]], selectors: Iterable[Selector]) -> Iterator[Recorded[Event]]:
    """Yield the events that a selector names; those of a feature are in its own stream and in the run's."""
    for recorded in events:
        if any(is_selected(recorded, selector) for selector in selectors):
            yield recorded


def is_selected(recorded: Recorded[Event], selector: Selector) -> bool:
    if selector.version is not None:
        return (recorded.stream, recorded.version) == (selector.stream, selector.version)
    subject = getattr(recorded.event, "feature", None)
    if selector.feature is not None and recorded.stream != selector.stream and subject != selector.feature:
        return False
    call = getattr(recorded.event, "ref", recorded.event)
    return (
        selector.phase in (None, getattr(call, "phase", None))
        and selector.attempt in (None, getattr(call, "attempt", None))
    )  # fmt: skip


def follow_events(source: ProjectLog, run: str) -> Iterator[Recorded[Event]]:
    """Yield the run's events as they are recorded, until the run is idle."""
    stream, feature_prefix = run_stream(run), feature_stream(run, "")
    fold, position, idle = RunProjection(run), next(source.store.read(stream)).position - 1, False
    while not idle:
        for recorded in source.store.read_all(position):
            position = recorded.position
            if recorded.stream == stream or recorded.stream.startswith(feature_prefix):
                fold.apply(recorded)
                yield recorded
        idle = fold.run.has_stopped
        time.sleep(0 if idle else POLL_SECONDS)
