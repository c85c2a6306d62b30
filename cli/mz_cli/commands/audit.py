"""Adapter: `mz audit`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import click
from mz_engine.exits import Exit
from mz_events.catalog.base import Event
from mz_events.catalog.run import RunStarted
from mz_events.envelope import Recorded
from mz_events.names import feature_stream
from mz_events.store import BlobMissing
from mz_projections.auditor import audit as audit_of
from mz_projections.pinned import PinnedRun, decode_pinned
from mz_projections.timeline import timeline

from mz_cli.auditing import audit_report
from mz_cli.auditpage import page, table
from mz_cli.context import Reading, reading
from mz_cli.help import command
from mz_cli.render.console import answer, is_terminal, note, terminal_width
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.milestone import milestone
from mz_cli.render.text import clock
from mz_cli.shapes.audit import AuditReport
from mz_cli.verification import verify_log


@command(
    "audit",
    examples=(
        ("mz audit", "the newest run: verdict, evidence, timeline"),
        ("mz audit r4f1 --feature login", "one feature of a run"),
        ("mz audit --json | jq '.gaps[] | select(.fault)'", "why the verdict is no"),
    ),
    following="`mz log --at PLACE` shows the state at any place that is cited; `mz verify` checks the whole log.",
)
@click.argument("run", required=False)
@click.option("--feature", metavar="ID", help="Only this feature.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.audit/1.")
def audit(run: str | None, feature: str | None, as_json: bool) -> int:
    """Say what a run did, on what evidence.

    The verdict first: what was asked, what changed, which gates decided on what, who decided what and why, what it
    cost, and what is missing; then the timeline. Everything is read from the log alone and names its place there,
    stream@version. The events and texts that it rests on are checked as `mz verify` does. Ends with 1 where the
    verdict is no: something was not delivered, a check was passed over, or the record is damaged.
    """
    with reading() as log:
        chosen = log.find_run(run)
        if feature is not None:
            log.check_feature(chosen, feature)
        events = tuple(log.events(chosen))
        found = audit_of(chosen, events, pinned(log, events), feature)
        record = verify_log(log, chosen, note)
        told = tuple(concerning(events, chosen, feature))
        report = audit_report(found, record, timeline(told), str(log.home), feature, log.words)
    if as_json:
        show_document("audit", report)
    elif is_terminal(sys.stdout):
        answer("\n".join(page(report, tuple(milestones(told)), terminal_width(sys.stdout))))
    else:
        show(table(report))
    return int(exit_of(report))


def exit_of(report: AuditReport) -> Exit:
    return Exit.OK if report.verdict == "yes" else Exit.VERDICT


def pinned(log: Reading, events: Iterable[Recorded[Event]]) -> PinnedRun | None:
    """What the run was started with; None where the blob is gone or is not that."""
    started = next((each.event for each in events if isinstance(each.event, RunStarted)), None)
    try:
        return decode_pinned(log.blobs.get(started.pins)) if started else None
    except BlobMissing:
        return None


def concerning(events: Iterable[Recorded[Event]], run: str, feature: str | None) -> Iterator[Recorded[Event]]:
    """All of it, or what is about one feature."""
    for recorded in events:
        about = getattr(recorded.event, "feature", None)
        if feature is None or recorded.stream == feature_stream(run, feature) or about == feature:
            yield recorded


def milestones(events: Iterable[Recorded[Event]]) -> Iterator[tuple[str, str]]:
    """What people care about: text and place."""
    for recorded in events:
        if words := milestone(recorded):
            yield f"{clock(recorded.recorded_at_us)} {words}", recorded.place
