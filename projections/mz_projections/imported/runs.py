"""Runs of other systems, as their files were read last."""

from __future__ import annotations

from collections.abc import Iterator

from mz_events.catalog.call import Usage
from mz_events.catalog.imported import ImportedRecord, ImportedRunRead
from mz_events.names import BUILDER, StreamId
from mz_events.store import Store

from mz_projections.feature.calls import Call

PREFIX = "imported/"
FAILURES = ("error", "failed", "failure", "timeout")
"""Words of other systems for a call that failed."""


def imported_stream(run: str) -> StreamId:
    return StreamId(f"{PREFIX}{run}")


def imported_runs(store: Store) -> tuple[ImportedRunRead, ...]:
    """Return all imported runs, by name."""
    runs = (imported_run(store, stream.removeprefix(PREFIX)) for stream, _ in store.streams(PREFIX))
    return tuple(run for run in runs if run is not None)


def imported_run(store: Store, run: str) -> ImportedRunRead | None:
    """Return an imported run as it was read last; None if there is none of that name."""
    events = [recorded.event for recorded in store.read(imported_stream(run))]
    return events[-1] if events and isinstance(events[-1], ImportedRunRead) else None


def find_imported_run(store: Store, prefix: str | None) -> ImportedRunRead | None:
    """Return the imported run with this name, or the only one whose name begins so, with the system in it."""
    names = [stream.removeprefix(PREFIX) for stream, _ in store.streams(PREFIX)] if "-" in (prefix or "") else []
    matching = [name for name in names if name == prefix] or [name for name in names if name.startswith(prefix or "")]
    return imported_run(store, matching[0]) if len(matching) == 1 else None


def imported_calls(run: ImportedRunRead) -> Iterator[Call]:
    """Yield the records of a run as calls: without what the other system does not tell."""
    for record in run.records:
        failed = record.status.lower() in FAILURES
        yield Call(
            key=f"{run.run}/{record.item or '-'}/{record.phase}/-/1/{record.attempt}/agent.{BUILDER}",
            run=run.run, feature=record.item, phase=record.phase, unit="", iteration=1, attempt=record.attempt,
            role=BUILDER, agent=record.agent, model=record.model, requested_at_us=record.started_us,
            estimated_tokens=record.estimated_tokens or 0, estimated_nanousd=record.estimated_nanousd,
            status="failed" if failed else "replied", is_accepted=not failed,
            ended_at_us=None if record.duration_ms is None else record.started_us + record.duration_ms * 1000,
            usage=_usage(record), reported_nanousd=record.reported_nanousd,
        )  # fmt: skip


def _usage(record: ImportedRecord) -> tuple[Usage, ...]:
    if record.input is None or record.output is None:
        return ()
    read, written = record.cache_read or 0, record.cache_write or 0
    return (
        Usage(model=record.model, input=record.input, output=record.output, cache_read=read, cache_write_5m=written),
    )
