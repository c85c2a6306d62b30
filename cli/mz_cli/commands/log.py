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
from mz_projections.overview import Overview

from mz_cli.asof import rows, state_at
from mz_cli.context import Reading, reading
from mz_cli.help import command
from mz_cli.places import find_place
from mz_cli.render.console import answer, is_terminal, put
from mz_cli.render.document import json_line, show_document
from mz_cli.render.draw import show
from mz_cli.render.entry import entry_json, entry_line, header
from mz_cli.render.table import Table, columns
from mz_cli.userlog import reading_imported

POLL_SECONDS = 0.1


@command(
    "log",
    examples=(
        ("mz log", "the events of the newest run"),
        ("mz log --feature login --follow", "watch one feature until the run stops"),
        ("mz log --at login@12", "the state of a feature after the twelfth event of its stream"),
        ("mz log --imported 3f2a", "the events of an imported session; without an id, of all"),
        ("mz log --json | jq -r 'select(.type == \"gate.checked\") | .event_ref'", "JSON Lines, for programs"),
    ),
    following="`mz show FEATURE` shows the same, phase by phase.",
)
@click.argument("run", required=False)
@click.option("--feature", "features", metavar="ID", multiple=True, help="Only this feature's events; repeatable.")
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
    context: click.Context, run: str | None, features: tuple[str, ...], follow: bool, at: str | None,
    imported: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Print the event log, one line per event.

    Each line begins with the time and the event's address, stream@version. RUN is a run's id or its beginning
    (default: the newest run). With --at, STREAM is a run's id or its beginning, a feature, or RUN/FEATURE.
    """
    if at is not None and (features or follow):
        raise click.UsageError("--at cannot be combined with --feature or --follow", context)
    if imported is not None:
        if run is not None or features or follow or at is not None:
            raise click.UsageError("--imported can be combined only with --json", context)
        of_imported(imported, as_json)
        return
    with reading() as source:
        if at is not None:
            show_state(source, at, run, as_json)
            return
        chosen = source.find_run(run)
        for feature in features:
            source.check_feature(chosen, feature)
        events = following(source, chosen) if follow else source.events(chosen)
        if as_json:
            put(sys.stdout, json_line(header()) + "\n")
        write(selected(events, chosen, features), as_json, whole=not is_terminal(sys.stdout))


def of_imported(session: str, as_json: bool) -> None:
    """Print the events of the user log. Raises MzError (MZ5010, MZ5011)."""
    with reading_imported() as source:
        events = source.store.read(StreamId(source.find(session))) if session else source.store.read_all()
        if as_json:
            put(sys.stdout, json_line(header()) + "\n")
        write(events, as_json, whole=not is_terminal(sys.stdout))


def show_state(source: Reading, at: str, run: str | None, as_json: bool) -> None:
    """Print the state after an event. Raises MzError (MZ5001, MZ5007)."""
    stream, version = find_place(source, at, run)
    events = tuple(islice(source.store.read(stream), version))
    newest = dict(source.store.streams(stream))[stream]
    state = state_at(events, newest, str(source.home), source.words)
    if as_json:
        show_document("state", state)
    elif is_terminal(sys.stdout):
        answer("\n".join(f"{name}: {value}" for name, value in rows(state)))
    else:
        show(Table(columns=columns("field", "value"), rows=rows(state, whole=True), empty=""))


def write(events: Iterable[Recorded[Event]], as_json: bool, whole: bool) -> None:
    for recorded in events:
        text = json_line(entry_json(recorded)) if as_json else entry_line(recorded, whole)
        put(sys.stdout, f"{text}\n")


def selected(events: Iterable[Recorded[Event]], run: str, features: tuple[str, ...]) -> Iterator[Recorded[Event]]:
    """Yield the features' events, from their own streams and the run's; all events if no feature is named."""
    streams = {feature_stream(run, feature) for feature in features}
    for recorded in events:
        about = getattr(recorded.event, "feature", None)
        if not features or recorded.stream in streams or about in features:
            yield recorded


def following(source: Reading, run: str) -> Iterator[Recorded[Event]]:
    """Yield the run's events as they are recorded, until the run is idle."""
    stream, feature_prefix = run_stream(run), feature_stream(run, "")
    fold, after, at_rest = Overview(run), next(source.store.read(stream)).position - 1, False
    while not at_rest:
        for recorded in source.store.read_all(after):
            after = recorded.position
            if recorded.stream == stream or recorded.stream.startswith(feature_prefix):
                fold.apply(recorded)
                yield recorded
        at_rest = fold.run.at_rest
        time.sleep(0 if at_rest else POLL_SECONDS)
