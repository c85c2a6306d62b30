"""Commands `mz audit` and `mz seal`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from mz_engine.errors.diagnostics import Exit
from mz_engine.git.files import write_bytes
from mz_engine.run.seals import sign, signing_key, take_seal
from mz_engine.run.settings import load_config
from mz_events.catalog.base import Event
from mz_events.store import Recorded
from mz_projections.audit.auditor import audit as audit_of
from mz_projections.run.pins import decode_pinned
from mz_projections.views.run import run_view
from mz_projections.views.timeline import timeline

from mz_cli.app.context import is_process_running, open_log
from mz_cli.app.help import command, format_options
from mz_cli.app.selectors import select_part
from mz_cli.app.user_log import open_imported_log
from mz_cli.audit.query import audit_report
from mz_cli.audit.text import SHORT, claims, durations_of, render_text, table
from mz_cli.common.seals import read_seals
from mz_cli.common.verification import verify_log
from mz_cli.live.milestones import milestone_text
from mz_cli.terminal.console import print_note, terminal_width, write_text
from mz_cli.terminal.table import Table, columns, print_output, prints_tsv
from mz_cli.terminal.text import count_noun, local_time
from mz_cli.usage.audit import audit_lines, audit_table, imported_audit, remarks

UNSIGNED = "not signed: it proves nothing unless you keep a copy where nobody who changes the log can write"


@command(
    "audit",
    examples=(
        ("mz audit", "the newest run: verdict, remarks, results"),
        ("mz audit --full", "all evidence, then the timeline"),
        ("mz audit r4f1/login", "one feature of a run"),
        ("mz audit --imported 3f2a", "the evidence for an imported session; without an id, for all"),
        ("mz audit --verify", "the integrity of the complete log"),
        ("mz audit --verify --against seal.txt", "and that it is still the log that was sealed"),
        ("mz audit --json | jq '.gaps[] | select(.fault)'", "why the verdict is no"),
    ),
    next_command="`mz log --at STREAM@VERSION` shows the state after a cited event; `mz audit --verify` checks the "
    "complete log.",
)
@click.argument("selector", metavar="[RUN | [RUN/]FEATURE]", required=False)
@click.option("--imported", metavar="[SESSION]", is_flag=False, flag_value="",
              help="An imported session, or all of them, in any directory.")  # fmt: skip
@click.option(
    "--full", is_flag=True, help="Also print the evidence for each feature, people's decisions, cost, timeline."
)
@click.option("--verify", is_flag=True, help="Only verify the log's integrity: of RUN, or the complete log.")
@click.option("--against", metavar="SEAL", multiple=True, help="With --verify, a seal that must fit: a file (a seal, "
              "or the text of a pull request), a commit, or a root; repeatable.")  # fmt: skip
@click.option(
    "--signers",
    metavar="FILE",
    type=click.Path(exists=True, resolve_path=True, path_type=Path),
    help="With --against, allowed signers as for ssh-keygen, one of whom must have signed.",
)
@format_options("Print one object: mz.audit/1, mz.audit-imported/1, or mz.audit-verify/1.")
def audit(
    selector: str | None, imported: str | None, full: bool, verify: bool, against: tuple[str, ...],
    signers: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Report what a run did, with evidence.

    Prints the verdict, remarks and the result of each feature; with --full also requests, changes, gates, people's
    decisions and cost, then the timeline. Everything comes from the log alone, with the address of its event,
    stream@version. The events and texts used are verified as by `mz audit --verify`, also against the run's seals
    in git notes. Exits with 1 if the verdict is no: something was not delivered, a check was skipped, or the log is
    damaged.

    With --verify, only checks the hash chain of every stream, which detects changed, removed, reordered and inserted
    events, and every blob that an event cites, which detects missing and changed texts. With --against, also compares
    the log with a seal, which detects dropped streams, cut ends and chains made anew; the log may have grown. Exits
    with 1 for damage, or if a seal does not fit.
    """
    if (against and (not verify or imported is not None)) or (signers and not against):
        raise click.UsageError("--against belongs to --verify of the repository's log, --signers to --against")
    if verify:
        if full or imported or (imported is not None and selector is not None):
            raise click.UsageError("--verify takes a RUN, or --imported for your user log, and nothing else")
        return print_verification(selector, imported is not None, as_json, against, signers)
    if imported is not None:
        if selector is not None:
            raise click.UsageError("--imported cannot be combined with RUN or FEATURE")
        return print_imported_audit(imported, as_json)
    with open_log() as log:
        selected = select_part(log, selector)
        run_id, feature = selected.run, selected.feature
        events = tuple(log.events(run_id))
        view = run_view(run_id, events)
        statements = audit_of(run_id, events, decode_pinned(log.load_text(view.pins).encode()), feature)
        verification = verify_log(log, run_id, read_seals(log.root, (), run_id))
        durations = durations_of(view)
        selected_events = tuple(filter(selected.includes, events))
        report = audit_report(
            statements, verification, timeline(selected_events), str(log.root), feature, log.load_text,
            is_process_running(log.root),
            {old.event_ref: lines for old in events if (lines := log.setting_changes(old.event))},
        )  # fmt: skip
    if prints_tsv(sys.stdout):
        text: Table | Iterable[str] = table(claims(report, durations, None, full), report.timeline if full else ())
    else:
        entries = tuple(milestones(selected_events)) if full else None
        text = render_text(claims(report, durations, SHORT, full), entries, terminal_width(sys.stdout))
    print_output(as_json, "audit", report, text)
    return int(Exit.OK if report.verdict == "yes" else Exit.VERDICT)


def print_verification(
    run: str | None, imported: bool, as_json: bool, against: tuple[str, ...], signers: Path | None
) -> int:
    """Verify the hash chain of every stream and every cited blob of the log, of one run, or of the user log, and print
    the findings; for a pipe as a table, with the summary on stderr. Raises MzError (MZ5001, MZ5011, MZ5013, MZ5014)."""
    with open_imported_log() if imported else open_log() as log:
        run_id = None if run is None else log.find_run(run)
        result = verify_log(log, run_id, read_seals(log.root, against), signers)
    checked = f"{count_noun(result.events, 'event')} in {count_noun(result.streams, 'stream')}, "
    checked += count_noun(result.blobs, "blob")
    damage = f"log damaged: {count_noun(len(result.findings), 'finding')} in {checked}"
    summary = f"log intact: {checked} verified" if result.intact else damage
    notes = [*result.seals]
    if result.findings_elsewhere:
        more = count_noun(result.findings_elsewhere, "more finding")
        notes.append(f"{more} in other runs: `mz audit --verify` lists them")
    if prints_tsv(sys.stdout):
        rows = [(finding.event_ref, finding.kind, finding.message, finding.hint) for finding in result.findings]
        findings = Table(columns=columns("event", "kind", "~message", "~hint"), rows=rows)
        print_output(as_json, "audit-verify", result, findings, (summary, *notes))
    else:
        lines = (f"{finding.event_ref}: {finding.message}\n  {finding.hint}" for finding in result.findings)
        print_output(as_json, "audit-verify", result, (*lines, summary), notes)
    return int(Exit.OK if result.intact else Exit.VERDICT)


def print_imported_audit(session: str, as_json: bool) -> int:
    """Report the sessions of the user log and the log's integrity. Raises MzError (MZ5010, MZ5011)."""
    with open_imported_log() as log:
        stream = log.find(session) if session else None
        report = imported_audit(log, verify_log(log, None), stream)
        names = log.short_names()
    in_full = session and not prints_tsv(sys.stdout)
    text = audit_lines(report) if in_full else audit_table(report, names)
    print_output(as_json, "audit-imported", report, text, () if in_full else remarks(report))
    print_note(*(f"{finding.event_ref}: {finding.message}; {finding.hint}" for finding in report.findings))
    return int(Exit.OK if report.intact else Exit.VERDICT)


def milestones(events: Iterable[Recorded[Event]]) -> Iterator[tuple[str, str]]:
    """Yield text and address of the events that matter to people."""
    for recorded in events:
        if text := milestone_text(recorded):
            yield f"{local_time(recorded.recorded_at_us)} {text}", recorded.event_ref


@command(
    "seal",
    examples=(
        ("mz seal --out seal.txt", "of the complete log, into a file to keep elsewhere"),
        ("mz seal r4f1 --sign ~/.ssh/id_ed25519", "of one run, signed"),
    ),
    next_command="`mz audit --verify --against seal.txt` checks that the log is still the one that was sealed.",
)
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--sign", "key", metavar="KEY", help="SSH key that signs. [default: seal_key of mz.yaml, or git's]")
@click.option("--out", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file.")
def seal(run: str | None, key: str | None, out: Path | None) -> None:
    """Print a seal of the log: the end of every stream, and one root over all.

    With a copy of it, or of its root, `mz audit --verify --against` finds whatever was changed, dropped, cut or made
    anew since, hash chains included; the log may grow. Without a signature a seal proves nothing unless a copy is where
    nobody who changes the log can write. Pull requests name the root of a seal, and git notes of what was delivered
    (refs/notes/mz-seal) have the seal itself. RUN is a run's id or its beginning (default: the complete log).
    """
    with open_log() as log:
        made = take_seal(log.store, None if run is None else log.find_run(run))
        configured = key or load_config(log.root, os.environ, {}).config.seal_key
        key = signing_key(Path.cwd() if key else log.root, os.environ, configured)
    made = sign(made, key, os.environ) if key else made
    write_text(sys.stdout, made.text) if out is None else write_bytes(out, made.text.encode())
    print_note(f"{count_noun(len(made.heads), 'stream')} sealed, {f'signed with {key}' if key else UNSIGNED}")
