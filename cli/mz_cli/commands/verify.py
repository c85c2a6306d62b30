"""Command `mz verify`."""

from __future__ import annotations

import sys

import click
from mz_engine.exits import Exit

from mz_cli.context import reading
from mz_cli.help import command
from mz_cli.render.console import answer, is_terminal, note
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.table import Table, columns
from mz_cli.render.text import counted
from mz_cli.shapes.audit import FindingShape, VerifyResult
from mz_cli.userlog import reading_imported
from mz_cli.verification import Verification, verify_log


@command(
    "verify",
    examples=(
        ("mz verify", "the complete log of this repository"),
        ("mz verify r4f1", "one run"),
        ("mz verify --imported", "your own log, with imported sessions"),
        ("mz verify --json | jq -r '.findings[].event_ref'", "the damaged events"),
    ),
    following="`mz audit` reports what a run did, with verified evidence.",
)
@click.argument("run", required=False)
@click.option("--imported", is_flag=True, help="Verify your user log instead, in any directory.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.verify/1.")
@click.pass_context
def verify(context: click.Context, run: str | None, imported: bool, as_json: bool) -> int:
    """Verify the integrity of the log.

    Checks the hash chain of every stream, which detects changed, removed, reordered and inserted events, and every
    blob that an event cites, which detects missing and changed texts. Exits with 1 for damage. RUN is a run's id or
    its beginning (default: the complete log).
    """
    if imported and run is not None:
        raise click.UsageError("--imported verifies your user log, which has no runs; leave RUN out", context)
    with reading_imported() if imported else reading() as log:
        chosen = None if run is None else log.find_run(run)
        found = verify_log(log, chosen, note)
        if as_json:
            show_document("verify", verify_result(found, str(log.home), chosen))
            return int(exit_of(found))
    show_findings(found)
    return int(exit_of(found))


def exit_of(found: Verification) -> Exit:
    return Exit.OK if found.whole else Exit.VERDICT


def verify_result(found: Verification, repository: str, run: str | None) -> VerifyResult:
    return VerifyResult(
        repository=repository, run=run, elsewhere=found.elsewhere, whole=found.whole, events=found.events,
        streams=found.streams, blobs=found.blobs, findings=finding_shapes(found),
    )  # fmt: skip


def finding_shapes(found: Verification) -> tuple[FindingShape, ...]:
    return tuple(
        FindingShape(place=finding.place, kind=finding.kind, what=finding.what, hint=finding.hint)
        for finding in found.findings
    )


def show_findings(found: Verification) -> None:
    """Print the findings; for a pipe as a table, with the summary on stderr."""
    if is_terminal(sys.stdout):
        for each in found.findings:
            answer(f"{each.place}: {each.what}\n  {each.hint}")
        answer(summary(found))
    else:
        rows = tuple((each.place, each.kind, each.what, each.hint) for each in found.findings)
        show(Table(columns=columns("event", "kind", "message", "hint"), rows=rows, empty=""))
        note(summary(found))
    if found.elsewhere:
        note(f"{counted(found.elsewhere, 'more finding')} in other runs: `mz verify` lists them")


def summary(found: Verification) -> str:
    """Return a one-line summary."""
    checked = f"{counted(found.events, 'event')} in {counted(found.streams, 'stream')}, {counted(found.blobs, 'blob')}"
    if found.whole:
        return f"log intact: {checked} verified"
    return f"log damaged: {counted(len(found.findings), 'finding')} in {checked}"
