"""Command `mz log`."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice, starmap
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec
from mz_engine.errors.diagnostics import MzError
from mz_engine.paths import BLOBS_FOLDER, LOG_FILE, MZ_FOLDER
from mz_engine.run.seals import take_seal
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.adapters.transfer import export_run, import_run
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallPriced
from mz_events.codec import ALL_EVENTS, type_of
from mz_events.names import StreamId
from mz_events.seal import InvalidSeal
from mz_events.store import BlobMissing, Recorded, StoreUnusable
from mz_projections.views.timeline import describe

from mz_cli.app.context import ProjectLog, find_root, is_process_running, open_log
from mz_cli.app.help import command, did_you_mean, format_options
from mz_cli.app.period import parse_period
from mz_cli.app.selectors import Selector, not_an_event, select, select_one_run, select_or_newest
from mz_cli.app.user_log import open_imported_log
from mz_cli.inspect.show import checked_part
from mz_cli.inspect.state_at import state_at, state_rows
from mz_cli.live.milestones import milestone_text
from mz_cli.live.watch import follow_events
from mz_cli.reports.options import open_output
from mz_cli.terminal.console import print_line, write_text
from mz_cli.terminal.json import Shape, json_line, plain_value, shape_of
from mz_cli.terminal.table import Table, columns, labelled, print_output, prints_tsv
from mz_cli.terminal.text import iso_time, local_date_time, rounded_usd, shorten, single_line

TEXT_MAX = 160
LINE_BYTES_MAX = 1 << 30
"""Of an exported run: a longer blob is rejected."""


class LogHeader(Shape, frozen=True, kw_only=True):
    """The first line of `mz log --json`; the others are `LogEntry`."""

    type: str
    """Always `version`."""
    schema: str
    """`mz.log/1`."""


class LogEntry(Shape, frozen=True, kw_only=True):
    """One event: one object per line."""

    type: str
    """Such as `gate.checked`."""
    role: str
    """`intent`, `outcome`, `external` or `derived`."""
    event_ref: str
    """`stream@version`, the event's address."""
    stream: str
    version: int
    """Number within the stream, from 1."""
    position: int
    """Number within the log, from 1, without gaps."""
    recorded_at_us: int
    """Time of recording; never decreases within a stream."""
    observed_at_us: int
    """Time shown by the clock."""
    causation: str | None
    """Address of the event that caused it."""
    event: dict[str, Any]
    """Stored fields of the event; `mz schema events` describes them."""
    changes: tuple[str, ...]
    """Of `commands.changed`: lines of a diff with the old and the new text of each setting; else empty."""


@command(
    "log",
    examples=(
        ("mz log", "the milestones of the newest run"),
        ("mz log --all --since 1h", "every event of the last hour"),
        ("mz log --type gate.checked -n 5", "the last five events of a type"),
        ("mz log login --follow", "watch one feature until the run stops"),
        ("mz log r4f1/login/code#2", "one attempt of a phase in another run"),
        ("mz log --at login@12", "the state of a feature after the twelfth event of its stream"),
        ("mz log r4f1 --export r4f1.jsonl", "one run with its texts, for `mz log --import` in another clone"),
        ("mz log --imported 3f2a", "the events of an imported session; without an id, of all"),
        ("mz log --json | jq -r 'select(.type == \"gate.checked\") | .event_ref'", "JSON Lines, for programs"),
    ),
    next_command="`mz show FEATURE` shows the same, phase by phase.",
)
@click.argument("selectors", metavar="[SELECTOR]...", nargs=-1)
@click.option("--all", "all_events", is_flag=True, help="Print every event, not only milestones.")
@click.option("--since", metavar="TIME", help="Events since then: a day, a time, or an age (7d, 36h).")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Events of this type, such as gate.checked; "
              "repeatable.")  # fmt: skip
@click.option("-n", "last", metavar="N", type=click.IntRange(min=1), help="Only the last N lines.")
@click.option("--follow", "-f", is_flag=True, help="Print new events until the run stops, or until Ctrl-C.")
@click.option("--at", metavar="STREAM@VERSION", help="Print the state after that event instead of events.")
@click.option("--imported", metavar="[SESSION]", is_flag=False, flag_value="",
              help="Print your user log, or one imported session in it; in any directory.")  # fmt: skip
@click.option("--export", "export", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True),
              help="Write one run with its texts, to import it elsewhere; - is stdout.")  # fmt: skip
@click.option("--import", "source_file", metavar="FILE", type=click.File("rb"),
              help="Add a run that --export wrote to this log.")  # fmt: skip
@format_options("Print JSON Lines: a version line, then one per event; with --at, one object: mz.log-state/1.")
def log(
    selectors: tuple[str, ...], all_events: bool, since: str | None, types: tuple[str, ...], last: int | None,
    follow: bool, at: str | None, imported: str | None, export: str | None, source_file: BinaryIO | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Print the event log, one line per event.

    Prints milestones: starts and ends of the run and of phases, calls with their cost, rejections, questions, holds and
    deliveries, each with date, time and the event's address, stream@version; --all, --type and --json print all.
    SELECTOR is a run's id or its beginning (default: the newest run), a feature, RUN/FEATURE, FEATURE/PHASE,
    FEATURE/PHASE#ATTEMPT, or one event, STREAM@VERSION, where STREAM is a run, a feature or RUN/FEATURE; `mz help
    selectors` lists all.

    --export writes a run as JSON Lines: its seal, its events with their chain, and the texts that they cite; --import
    adds such a file to the log of another clone, or nothing if any of it is not as it was sealed.
    """
    if source_file is not None:
        import_log(source_file)
        return
    if at is not None and (follow or all_events or since or types or last):
        raise click.UsageError("--at can be combined only with --json")
    if follow and last is not None:
        raise click.UsageError("-n cannot be combined with --follow")
    entry_filter = make_filter(since, types)
    if imported is not None:
        if selectors or follow or since or types or last or at is not None:
            raise click.UsageError("--imported can be combined only with --json")
        with open_imported_log() as source:
            events = source.store.read(StreamId(source.find(imported))) if imported else source.store.read_all()
            print_events(events, as_json)
        return
    with open_log() as source:
        if at is not None:
            print_state(source, at, selectors[0] if selectors else None, as_json)
            return
        chosen = selected(source, selectors)
        run_id = select_one_run(chosen)
        if export is not None:
            with open_output(export) as file:
                for line in export_run(source.store, source.blobs, take_seal(source.store, run_id)):
                    file.write(msgspec.json.encode(line) + b"\n")
            return
        events = follow_events(source, run_id, all_events=True) if follow else source.events(run_id)
        every_event = all_events or bool(types) or as_json or any(selector.version for selector in chosen)
        named = (recorded for recorded in events if any(selector.includes(recorded) for selector in chosen))
        entries: Iterable[Recorded[Event]] = filter(entry_filter, named)
        if not every_event:
            entries = (recorded for recorded in entries if log_milestone(recorded))
        if last is not None:
            entries = deque(entries, maxlen=last)
        print_events(entries, as_json, not every_event, source)


def import_log(file: BinaryIO) -> None:
    """Import an exported run, and print its id. Raises MzError (MZ5002, MZ5015)."""
    folder = find_root(Path.cwd()) / MZ_FOLDER
    if is_process_running(folder.parent):
        raise MzError("MZ5002", "a process drives a run in this repository", hint="wait for it, or stop it")
    folder.mkdir(exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    with SqliteStore(folder / LOG_FILE) as store:
        lines = iter(partial(file.readline, LINE_BYTES_MAX), b"")
        try:
            seal, is_new = import_run(store, FileBlobs(folder / BLOBS_FOLDER), lines)
        except (InvalidSeal, msgspec.DecodeError, ValueError, StoreUnusable, BlobMissing) as error:
            raise MzError("MZ5015", f"{file.name}: {error}", hint="nothing was imported; export it again") from error
    print_line(f"{seal.run} {'imported' if is_new else 'is here already'}")


def make_filter(since: str | None, types: tuple[str, ...]) -> Callable[[Recorded[Event]], bool]:
    """Return a filter by time and type. Raises UsageError for an invalid time or an unknown type."""
    period = parse_period(since, None, time.time_ns() // 1000, None)
    all_types = [type_of(event_type) for event_type in ALL_EVENTS]
    for name in types:
        if name not in all_types:
            raise click.UsageError(f"there is no event type {name[:80]!r}{did_you_mean(name, all_types)}")

    def matches(recorded: Recorded[Event]) -> bool:
        return (not types or type_of(recorded.event) in types) and period.contains(recorded.recorded_at_us)

    return matches


def selected(source: ProjectLog, selectors: tuple[str, ...]) -> tuple[Selector, ...]:
    """Resolve the selectors; by default the newest run. Raises MzError (MZ1002, MZ4010, MZ5001, MZ5007) and
    UsageError."""
    chosen = tuple(select(source, text) for text in selectors) or (select_or_newest(source, None),)
    for selector in chosen:
        if selector.phase is not None:
            view = source.find_feature(selector.run, str(selector.feature))
            checked_part(view, selector)
    return chosen


def print_state(source: ProjectLog, at: str, run: str | None, as_json: bool) -> None:
    """Print the state after an event. Raises MzError (MZ4010, MZ5001, MZ5007)."""
    selector = select(source, at, run)
    if selector.version is None:
        raise not_an_event(at)
    stream = selector.stream
    events = tuple(islice(source.store.read(stream), selector.version))
    newest_version = dict(source.store.streams(stream))[stream]
    state = state_at(events, newest_version, str(source.root), source.load_text)
    lines = (f"{name}: {value}" for name, value in starmap(labelled, state_rows(state, labelled)))
    table = Table(columns=columns("field", "~value"), rows=tuple(state_rows(state)))
    print_output(as_json, "log-state", state, table if prints_tsv() else lines)


def print_events(
    events: Iterable[Recorded[Event]], as_json: bool, milestones: bool = False, source: ProjectLog | None = None
) -> None:
    full = prints_tsv()
    if as_json:
        write_text(sys.stdout, json_line(LogHeader(type="version", schema="mz.log/1")) + "\n")
    for recorded in events:
        changes = source.setting_changes(recorded.event) if source else ()
        text = log_milestone(recorded) if milestones and not full else describe(recorded.event)
        lines = (event_line(recorded, line, full, milestones) for line in (text, *changes))
        entry = json_line(plain_value(log_entry(recorded, changes))) if as_json else "\n".join(lines)
        write_text(sys.stdout, f"{entry}\n")


def log_entry(recorded: Recorded[Event], changes: tuple[str, ...] = ()) -> LogEntry:
    fields, role = msgspec.to_builtins(recorded.event), recorded.event.KIND.value
    return shape_of(LogEntry, recorded, type=fields.pop("type"), role=role, event=fields, changes=changes)


def log_milestone(recorded: Recorded[Event]) -> str:
    """Return what a person wants to know of a run, including the cost of calls; empty for a detail."""
    event = recorded.event
    if isinstance(event, CallPriced) and not recorded.is_forked_copy:
        _, feature, phase, unit, _, attempt, _ = event.key.split("/")
        cost = rounded_usd(event.computed_nanousd) or "cost unknown"
        return f"{feature}: {phase}{'' if unit == '-' else f' {unit}'} attempt {attempt}: {cost}"
    return milestone_text(recorded)


def event_line(recorded: Recorded[Event], text: str, exact: bool, milestones: bool) -> str:
    """Return time, text, event ref and, unless among milestones, type. `exact`: for a pipe, with tabs, nothing cut."""
    event_type, text = type_of(recorded.event), single_line(text)
    if exact:
        return "\t".join((iso_time(recorded.recorded_at_us) or "", recorded.event_ref, event_type, text))
    at, text = local_date_time(recorded.recorded_at_us), shorten(text, TEXT_MAX)
    return (
        f"{at}  {text}  ({recorded.event_ref})" if milestones else f"{at}  {recorded.event_ref}  {event_type}  {text}"
    )
