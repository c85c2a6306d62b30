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


def imported_runs(store: Store, prefix: str = "") -> tuple[ImportedRunRead, ...]:
    """Return the imported runs whose names begin so, by name."""
    streams = store.streams(imported_stream(prefix))
    events = (recorded.event for stream, version in streams for recorded in store.read(stream, version - 1))
    return tuple(event for event in events if isinstance(event, ImportedRunRead))


def find_imported_run(store: Store, prefix: str | None) -> ImportedRunRead | None:
    """Return the imported run with this name, or the only one whose name begins so, with the system in it."""
    runs = imported_runs(store, prefix) if prefix and "-" in prefix else ()
    return next((run for run in runs if run.run == prefix), runs[0] if len(runs) == 1 else None)


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
