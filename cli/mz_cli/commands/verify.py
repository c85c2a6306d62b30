"""Adapter: `mz verify`."""

from __future__ import annotations

import sys

import click
import msgspec
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
        ("mz verify", "everything that was ever recorded in this repository"),
        ("mz verify r4f1", "one run"),
        ("mz verify --imported", "your own log, with imported sessions"),
        ("mz verify --json | jq -r '.findings[].place'", "where the record is damaged"),
    ),
    following="`mz audit` says what a run did, and checks what it cites.",
)
@click.argument("run", required=False)
@click.option("--imported", is_flag=True, help="Your own log, in any directory.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.verify/1.")
@click.pass_context
def verify(context: click.Context, run: str | None, imported: bool, as_json: bool) -> int:
    """Check that the record is what was recorded.

    Follows the chain of every stream, so that an event that was changed, dropped, swapped or put in is found, and
    reads every text that an event cites, so that one that was lost or changed is found. Ends with 1 where something
    is wrong. RUN is a run's id or the beginning of one; without it, the whole log is checked.
    """
    if imported and run is not None:
        raise click.UsageError("--imported checks your own log, in which there are no runs", context)
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
    return tuple(FindingShape(**msgspec.structs.asdict(finding)) for finding in found.findings)


def show_findings(found: Verification) -> None:
    """A pipe gets the table alone; the sum of it goes beside it."""
    if is_terminal(sys.stdout):
        for each in found.findings:
            answer(f"{each.place}: {each.what}\n  {each.hint}")
        answer(summary(found))
    else:
        rows = tuple((each.place, each.kind, each.what, each.hint) for each in found.findings)
        show(Table(columns=columns("place", "kind", "what", "what to do"), rows=rows, empty=""))
        note(summary(found))
    if found.elsewhere:
        note(f"{found.elsewhere} more in other runs: `mz verify` lists them")


def summary(found: Verification) -> str:
    """What was checked, in one line."""
    checked = f"{counted(found.events, 'event')} in {counted(found.streams, 'stream')}, {counted(found.blobs, 'blob')}"
    if found.whole:
        return f"whole: {checked}; every link of the chain and every cited blob is as it was recorded"
    return f"damaged: {len(found.findings)} found in {checked}"
