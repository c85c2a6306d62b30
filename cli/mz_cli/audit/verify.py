"""`mz audit --verify`: verify the integrity of the log."""

from __future__ import annotations

import sys

from mz_engine.errors.exits import Exit

from mz_cli.app.context import open_log
from mz_cli.app.user_log import open_imported_log
from mz_cli.audit.json import VerifyResult
from mz_cli.common.verification import Verification, verify_log
from mz_cli.terminal.console import print_line, print_note
from mz_cli.terminal.json import print_document
from mz_cli.terminal.table import Table, columns, print_table, prints_tsv
from mz_cli.terminal.text import count_noun


def print_verification(run: str | None, imported: bool, as_json: bool) -> int:
    """Verify the hash chain of every stream and every cited blob of the log, of one run, or of the user log, and print
    the result. Raises MzError (MZ5001, MZ5011)."""
    with open_imported_log() if imported else open_log() as log:
        run_id = None if run is None else log.find_run(run)
        verification = verify_log(log, run_id, print_note)
        if as_json:
            print_document("verify", verify_result(verification, str(log.home), run_id))
            return int(verify_exit(verification))
    print_result(verification)
    return int(verify_exit(verification))


def verify_exit(verification: Verification) -> Exit:
    return Exit.OK if verification.is_intact else Exit.VERDICT


def verify_result(verification: Verification, repository: str, run: str | None) -> VerifyResult:
    return VerifyResult(
        repository=repository,
        run=run,
        elsewhere=verification.findings_elsewhere,
        intact=verification.is_intact,
        events=verification.events,
        streams=verification.streams,
        blobs=verification.blobs,
        findings=verification.findings,
    )


def print_result(verification: Verification) -> None:
    """Print the findings; for a pipe as a table, with the summary on stderr."""
    if not prints_tsv(sys.stdout):
        for finding in verification.findings:
            print_line(f"{finding.event_ref}: {finding.message}\n  {finding.hint}")
        print_line(summary_line(verification))
    else:
        rows = tuple(
            (finding.event_ref, finding.kind, finding.message, finding.hint) for finding in verification.findings
        )
        print_table(Table(columns=columns("event", "kind", "message", "hint"), rows=rows, empty=""))
        print_note(summary_line(verification))
    if verification.findings_elsewhere:
        more = count_noun(verification.findings_elsewhere, "more finding")
        print_note(f"{more} in other runs: `mz audit --verify` lists them")


def summary_line(verification: Verification) -> str:
    """Return a one-line summary."""
    checked = (
        f"{count_noun(verification.events, 'event')} in "
        f"{count_noun(verification.streams, 'stream')}, {count_noun(verification.blobs, 'blob')}"
    )
    if verification.is_intact:
        return f"log intact: {checked} verified"
    return f"log damaged: {count_noun(len(verification.findings), 'finding')} in {checked}"
