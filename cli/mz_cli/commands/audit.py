"""Command `mz audit`."""

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
from mz_cli.importedaudit import audit_lines, audit_table, audited, remarks
from mz_cli.render.console import answer, is_terminal, note, terminal_width
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.milestone import milestone
from mz_cli.render.text import clock
from mz_cli.shapes.audit import AuditReport
from mz_cli.userlog import reading_imported
from mz_cli.verification import verify_log


@command(
    "audit",
    examples=(
        ("mz audit", "the newest run: verdict, evidence, timeline"),
        ("mz audit r4f1 --feature login", "one feature of a run"),
        ("mz audit --imported 3f2a", "the evidence for an imported session; without an id, for all"),
        ("mz audit --json | jq '.gaps[] | select(.fault)'", "why the verdict is no"),
    ),
    following="`mz log --at STREAM@VERSION` shows the state after a cited event; `mz verify` checks the complete log.",
)
@click.argument("run", required=False)
@click.option("--feature", metavar="ID", help="Only this feature.")
@click.option("--imported", metavar="[SESSION]", is_flag=False, flag_value="",
              help="An imported session, or all of them, in any directory.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one object, mz.audit/1 or mz.audit-imported/1.")
@click.pass_context
def audit(context: click.Context, run: str | None, feature: str | None, imported: str | None, as_json: bool) -> int:
    """Report what a run did, with evidence.

    Prints the verdict, requests, changes, gates, people's decisions, cost and gaps, then the timeline. Everything comes
    from the log alone, with the address of its event, stream@version. The events and texts used are verified as by
    `mz verify`. Exits with 1 if the verdict is no: something was not delivered, a check was skipped, or the log is
    damaged.
    """
    if imported is not None:
        if run is not None or feature is not None:
            raise click.UsageError("--imported cannot be combined with RUN or --feature", context)
        return of_imported(imported, as_json)
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


def of_imported(session: str, as_json: bool) -> int:
    """Report the sessions of the user log and the log's integrity. Raises MzError (MZ5010, MZ5011)."""
    with reading_imported() as log:
        stream = log.find(session) if session else None
        report = audited(log, verify_log(log, None, note), stream)
        names = log.short_names() if is_terminal(sys.stdout) else None
    if as_json:
        show_document("audit-imported", report)
    elif session and is_terminal(sys.stdout):
        for line in audit_lines(report):
            answer(line)
    else:
        show(audit_table(report, names))
        for remark in remarks(report):
            note(remark)
    for finding in report.findings:
        note(f"{finding.place}: {finding.what}; {finding.hint}")
    return int(Exit.OK if report.whole else Exit.VERDICT)


def exit_of(report: AuditReport) -> Exit:
    return Exit.OK if report.verdict == "yes" else Exit.VERDICT


def pinned(log: Reading, events: Iterable[Recorded[Event]]) -> PinnedRun | None:
    """Return the run's pins, or None if the blob is missing or invalid."""
    started = next((each.event for each in events if isinstance(each.event, RunStarted)), None)
    try:
        return decode_pinned(log.blobs.get(started.pins)) if started else None
    except BlobMissing:
        return None


def concerning(events: Iterable[Recorded[Event]], run: str, feature: str | None) -> Iterator[Recorded[Event]]:
    """Yield all events, or those about one feature."""
    for recorded in events:
        about = getattr(recorded.event, "feature", None)
        if feature is None or recorded.stream == feature_stream(run, feature) or about == feature:
            yield recorded


def milestones(events: Iterable[Recorded[Event]]) -> Iterator[tuple[str, str]]:
    """Yield text and address of the events that matter to people."""
    for recorded in events:
        if words := milestone(recorded):
            yield f"{clock(recorded.recorded_at_us)} {words}", recorded.place
