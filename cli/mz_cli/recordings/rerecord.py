"""Command `mz rerecord`: ask before anything is paid, show the differences, write what was accepted."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import click
from msgspec.structs import replace
from mz_engine.decoding.quantity import Usd
from mz_engine.errors.diagnostics import Exit, MzError, most_severe
from mz_engine.pricing.estimate import Estimate
from mz_engine.run.process import UNWRITABLE
from mz_engine.run.settings import load_config
from mz_recordings.cassette.files import CassetteChanged, digest_of, find_cassettes, load, load_summary, overwrite
from mz_recordings.cassette.model import Cassette, Manifest
from mz_recordings.drift.compare import compare_cassettes
from mz_recordings.drift.model import AgentDescriptions
from mz_recordings.findings.model import ACCEPTABLE, Finding, FindingKind, finding_kinds
from mz_recordings.record.recorder import SecretInRecording
from mz_recordings.replay.replay import without_git_variables
from mz_recordings.rerecord.driver import RunControl, RunEnd
from mz_recordings.rerecord.plan import CallSelection, CallSelector
from mz_recordings.rerecord.rerecord import (
    RerecordChoices,
    RerecordJob,
    RerecordPlan,
    RerecordResult,
    check_installed,
    prepare_rerecord,
    run_rerecord,
)
from mz_recordings.rerecord.workspace import (
    RerecordWorkspace,
    is_pending,
    lock_workspace,
    pending_path,
    remove_pending,
    write_pending,
)

from mz_cli.app.context import RunNames, find_root
from mz_cli.app.help import command, did_you_mean, format_options, parsed_by
from mz_cli.app.input import is_confirmed, may_ask
from mz_cli.app.selectors import resolve
from mz_cli.common.recording import display_path, library_path, reject_unusable
from mz_cli.common.run_text import fatal_exit
from mz_cli.live.driver import handle_signals
from mz_cli.recordings.rerecord_text import (
    RerecordedCassette,
    RerecordReport,
    differences,
    kind_lines,
    nothing_to_do_text,
    planned_estimate,
    progress_text,
    rerecorded_cassette,
    result_lines,
    summary_lines,
    table,
)
from mz_cli.replay.command import require_cassettes
from mz_cli.terminal.console import print_line, print_note, write_lines
from mz_cli.terminal.json import print_document, shape_of
from mz_cli.terminal.table import print_table
from mz_cli.terminal.text import single_line

ALL = "ALL"
KINDS = (*ACCEPTABLE, "FILES", "MISSING", "UNUSED", "EXPIRED", "COPIED", ALL)
CHANGED_MEANWHILE = "cassette changed meanwhile"
STOPPING_NOTE = "stopping after the current call; Ctrl-C again ends the agent now. Paid replies are kept"
STOP_EXITS = {"budget": Exit.LIMIT, "interrupted": Exit.STOPPED}
FALSE_VALUES = ("", "0", "false")
BUILD_SERVERS = ("GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "TEAMCITY_VERSION", "JENKINS_URL", "TF_BUILD")
"""Variables set by build servers, some of which do not set `CI`."""
WRITE_ERRORS = UNWRITABLE | {errno.EEXIST, errno.ENOTDIR, errno.EPERM}


class RerecordOptions(RerecordChoices, frozen=True, kw_only=True):
    """The command line, without cassettes and output."""

    budget_nanousd: int | None = None
    accept: tuple[str, ...] = ()
    yes: bool = False
    in_ci: bool = False


class RerecordWork(NamedTuple):
    """One cassette prepared for re-recording."""

    path: Path
    job: RerecordJob
    workspace: RerecordWorkspace
    prepared: RerecordPlan


class RecordedRuns(RunNames):
    """The runs that cassettes were recorded from."""

    listing = "`mz recordings list` lists the cassettes"

    def __init__(self, manifests: Sequence[Manifest]) -> None:
        self._fixtures = sorted((manifest.fixture for manifest in manifests), key=lambda fixture: fixture.clock_start)

    def runs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(fixture.run for fixture in reversed(self._fixtures)))

    def features(self, run: str, skipped: bool = True) -> tuple[str, ...]:
        fixtures = (fixture for fixture in self._fixtures if fixture.run == run)
        return tuple(dict.fromkeys(item.feature for fixture in fixtures for item in fixture.items))

    def check_feature(self, run: str, feature: str) -> None:
        recorded = [name for run in self.runs() for name in self.features(run)]
        if feature not in recorded:
            message = f"no cassette has the feature {feature!r}{did_you_mean(feature, recorded)}"
            raise MzError("MZ4010", message, hint=f"valid: {', '.join(dict.fromkeys(recorded))}")
        super().check_feature(run, feature)


@command(
    "rerecord",
    examples=(
        ("mz rerecord", "changed, expired and missing recordings of the library"),
        ("mz rerecord recordings/rollback login/code --budget 2.50", "every call of one phase, within a budget"),
        ("mz rerecord --expired --yes --accept ARTIFACT --accept COST", "without questions"),
        ("mz rerecord recordings/rollback --accept-pending --accept ALL", "accept a pending cassette"),
    ),
    next_command="`mz replay` replays the recordings; then commit them.",
)
@click.argument("targets", metavar="[PATH | SELECTOR]...", nargs=-1)
@click.option("--agent", metavar="NAME", help="Agent to call instead of the cassette's own.")
@click.option("--changed", is_flag=True, help="Calls whose prompt, arguments, tree or stream have changed.")
@click.option("--expired", is_flag=True, help="Calls whose replies have expired or come from another agent.")
@click.option("--new", is_flag=True, help="Calls that were never recorded.")
@click.option("--all", "everything", is_flag=True, help="Every call.")
@click.option("--prune", is_flag=True, help="Remove unused recordings.")
@click.option(
    "--budget",
    "budget_nanousd",
    metavar="USD",
    callback=parsed_by(lambda text: int(Usd.parse(text))),
    help="Maximum cost; calls that exceed it or have no price are not started.",
)
@click.option(
    "--accept",
    metavar="KIND",
    type=click.Choice(KINDS),
    multiple=True,
    help="Accept differences of this kind: a kind of drift, MISSING, UNUSED or ALL; repeatable.",
)
@click.option("--accept-pending", "take", is_flag=True, help="Accept pending new cassettes; no agent is called.")
@click.option(
    "--provenance",
    type=click.Choice(["live", "scripted-model"]),
    default="live",
    show_default=True,
    help="Origin of the new replies: a real model or a scripted one.",
)
@click.option("--yes", is_flag=True, help="Do not ask whether to call the agent.")
@click.option("--in-ci", is_flag=True, help="Allow agent calls on a CI server; needs --budget.")
@format_options("Print one object with the schema mz.rerecord/1.")
def rerecord(
    targets: tuple[str, ...],
    changed: bool,
    expired: bool,
    new: bool,
    everything: bool,
    take: bool,
    as_json: bool,
    **values: Any,
) -> int:
    """Re-record calls with the real agent and review the differences.

    Lists the calls with reason and estimated cost, and asks for confirmation. Then the fixture is run through the
    current pipeline: unchanged calls are served from the recording, the others by the agent. A feature that ends with
    another outcome keeps its old recordings. Differences are shown by kind, and written when every kind is accepted;
    otherwise the new cassette waits. Paid replies are never lost: the same command continues a stopped attempt, and
    replies of a feature that was not accepted because of another one are reused. PATH is a cassette or a folder of
    cassettes (default: the library), SELECTOR is [RUN/]FEATURE[/PHASE[#ATTEMPT]] in them. Without --changed, --expired,
    --new or --all, the first three apply, or all calls that a SELECTOR names.
    """
    root = find_root(Path.cwd())
    selection = CallSelection(changed=changed, expired=expired, new=new, everything=everything)
    options = RerecordOptions(selection=selection, **values)
    paths = tuple(path for path in map(Path, targets) if find_cassettes((path,)))
    names = [target for target in targets if Path(target) not in paths]
    if take and (names or replace(options, accept=(), yes=False, in_ci=False, provenance="live") != RerecordOptions()):
        raise click.UsageError("--accept-pending can be combined only with PATH, --accept and --json")
    cassettes = require_cassettes(root, paths)
    options = replace(options, selection=replace(selection, selectors=select_calls(root, cassettes, names)))
    results = (accept_waiting if take else rerecord_cassettes)(root, cassettes, options)
    exit_code = int(rerecord_exit(results))
    if as_json:
        report = RerecordReport(exit=exit_code, budget_nanousd=options.budget_nanousd, cassettes=results)
        print_document("rerecord", report)
        return exit_code
    for cassette in results:
        print_line(*result_lines(cassette))
        if cassette.next:
            print_note(f"next: {cassette.next}")
    return exit_code


def select_calls(root: Path, cassettes: Sequence[Path], texts: Sequence[str]) -> tuple[CallSelector, ...]:
    """Resolve selectors against the runs that were recorded. Raises MzError (MZ1002, MZ4010, MZ5001, MZ6001,
    MZ6005)."""
    manifests: list[Manifest] = []
    for path in cassettes if texts else ():
        with reject_unusable(path):
            manifests.append(load_summary(path))
    runs = RecordedRuns(manifests)
    return tuple(_select_calls(root, runs, text) for text in texts)


def _select_calls(root: Path, runs: RecordedRuns, text: str) -> CallSelector:
    try:
        selected = resolve(runs, text, feature_only=True)
    except MzError:
        is_in_library = Path(text).absolute().is_relative_to(library_path(root))
        if is_in_library or text.startswith((".", "/")) or os.path.lexists(text):
            require_cassettes(root, (Path(text),))
        raise
    if selected.version is not None or not {"phase", "attempt"}.issuperset(selected.part):
        noun = "an event" if selected.version is not None else "more than an attempt of a phase"
        raise MzError("MZ1002", f"{text[:80]!r} is {noun}", hint="name [RUN/]FEATURE[/PHASE[#ATTEMPT]]")
    return CallSelector(
        run=selected.run if selected.names_run else None,
        feature=selected.feature or "",
        phase=selected.phase,
        attempt=selected.attempt,
    )


# cassettes ------------------------------------------------------------------------------------------------------------
def rerecord_cassettes(root: Path, paths: Sequence[Path], options: RerecordOptions) -> tuple[RerecordedCassette, ...]:
    """Re-record the selected calls of each cassette, one cassette after the other; a stop ends all. Raises MzError."""
    environment = without_git_variables(os.environ)
    check_ci(os.environ, options)
    with ExitStack() as stack:
        works = [_prepare_work(stack, root, path, environment, options) for path in paths]
        check_phases(works, options.selection)
        for work in works:
            if not _has_work(work):
                print_note(single_line(nothing_to_do_text(display_path(work.path), work.prepared)))
        todo = [work for work in works if _has_work(work)]
        paid_works = [work for work in todo if work.prepared.calls]
        if paid_works:
            ask_consent(paid_works, options)
        return _execute_all(todo, options)


def _prepare_work(
    stack: ExitStack, root: Path, path: Path, environment: dict[str, str], options: RerecordOptions
) -> RerecordWork:
    if is_pending(path):
        hint = f"accept it: mz rerecord {quote(display_path(path))} --accept-pending; or delete it: rm -r "
        message = f"{display_path(pending_path(path))}: a new cassette is waiting for your decision"
        raise MzError("MZ6002", message, hint=hint + quote(display_path(pending_path(path))))
    paths = {"path": str(path.resolve()), "project": str(root.resolve())}
    job = shape_of(RerecordJob, options, **paths, environment=environment, now=datetime.now(UTC))
    with reject_failures(path):
        workspace = stack.enter_context(lock_workspace(root.resolve(), path))
        return RerecordWork(path, job, workspace, prepare_rerecord(job, workspace))


@contextmanager
def reject_failures(path: Path) -> Iterator[None]:
    """Turn errors of an unreadable cassette into MzError MZ6005, of a secret into MZ6004, and of writing into MZ1006;
    paid replies are kept."""
    try:
        with reject_unusable(path):
            yield
    except SecretInRecording as error:
        hint = "remove the secret and rotate it. The cassette is unchanged"
        raise MzError("MZ6004", str(error), hint=hint) from error
    except OSError as error:
        if error.errno not in WRITE_ERRORS:
            raise
        message = f"{error.filename or display_path(path)} cannot be written: {error.strerror}"
        hint = "make it writable, or free disk space; the same command then continues without paying anything twice"
        raise MzError("MZ1006", message, hint=hint) from error


def _has_work(work: RerecordWork) -> bool:
    return bool(work.prepared.calls) or work.prepared.cassette is not work.prepared.old


def _execute_all(todo: Sequence[RerecordWork], options: RerecordOptions) -> tuple[RerecordedCassette, ...]:
    done: list[RerecordedCassette] = []
    control = RunControl(options.budget_nanousd, lambda progress: print_note(progress_text(progress)))
    for work in todo:
        outcome = RerecordResult(RunEnd("", 0))
        if work.prepared.calls:
            with reject_failures(work.path), handle_signals(partial(end_calls, control)):
                outcome = run_rerecord(work.job, work.prepared, work.workspace, control)
            if control.budget_nanousd is not None:
                control.budget_nanousd = max(0, control.budget_nanousd - outcome.run_end.charged_nanousd)
        for key in outcome.denied_keys:
            print_note(f"{key}: a command tried to use the network, which is cut off while recording")
        done.append(_finish_work(work, outcome, options))
        if outcome.run_end.stop_reason:
            break
    return tuple(done)


# before anything is paid ----------------------------------------------------------------------------------------------
def check_ci(environment: Mapping[str, str], options: RerecordOptions) -> None:
    """Raise MzError (MZ1002) on a build server unless both options are given."""
    if on_build_server(environment) and not (options.in_ci and options.budget_nanousd is not None):
        message = "in CI the real agent is called only with --in-ci and --budget"
        raise MzError("MZ1002", message, hint="record on your machine, or: mz rerecord --in-ci --budget 5.00")


def on_build_server(environment: Mapping[str, str]) -> bool:
    """Return True on a build server: `CI` decides if it is set, even if empty; else each server's own variable."""
    if "CI" in environment:
        return environment["CI"].lower() not in FALSE_VALUES
    return any(environment.get(name, "").lower() not in FALSE_VALUES for name in BUILD_SERVERS)


def check_phases(works: Sequence[RerecordWork], selection: CallSelection) -> None:
    """Raise MzError (MZ1002) for a phase that no cassette has."""
    phases = {call.recording.identity.phase: None for work in works for call in work.prepared.old.calls}
    phases |= {phase.phase: None for work in works for phase in work.prepared.pins.pipeline.phases}
    for selector in selection.selectors:
        if selector.phase is not None and selector.phase not in phases:
            message = f"no cassette has the phase {selector.phase!r}{did_you_mean(selector.phase, phases)}"
            raise MzError("MZ1002", message, hint=f"valid: {', '.join(phases)}")


def ask_consent(works: Sequence[RerecordWork], options: RerecordOptions) -> None:
    """Show the planned calls with their cost, and ask once. Raises MzError, and click.Abort for a no."""
    for work in works:
        check_installed(work.job, work.prepared)
    shown_works = [(display_path(work.path), work.prepared) for work in works]
    print_table(table(shown_works), sys.stderr)
    print_note(*summary_lines(shown_works, options.budget_nanousd))
    check_prices(planned_estimate(shown_works), options.budget_nanousd)
    if options.yes or on_build_server(os.environ):
        return
    if not may_ask(os.environ):
        hint = "check the table above, then repeat the command with --yes and --budget"
        raise MzError("MZ1002", "calling the real agent costs money and needs your consent", hint=hint)
    if not is_confirmed("Call the real agent?"):
        raise click.Abort


def check_prices(estimate: Estimate, budget_nanousd: int | None) -> None:
    """Raise MzError (MZ1002) for calls without a price if a budget is given."""
    if budget_nanousd is not None and estimate.nanousd is None:
        message = "a call has no price, so a budget cannot limit it"
        hint = "use a model with a price in mz.yaml, or leave out --budget (not in CI)"
        raise MzError("MZ1002", message, hint=hint)


def end_calls(control: RunControl, at_once: bool) -> None:
    """Stop the run after the current call, or end agents at once."""
    if at_once:
        control.kill()
    else:
        control.stop()
        print_note(STOPPING_NOTE)


# after ----------------------------------------------------------------------------------------------------------------
def _finish_work(work: RerecordWork, outcome: RerecordResult, options: RerecordOptions) -> RerecordedCassette:
    path, prepared = work.path, work.prepared
    result = rerecorded_cassette(display_path(path), prepared, outcome)
    if outcome.run_end.stop_reason:
        if outcome.paid_replies:
            print_note(paid_text(outcome.paid_replies))
        return replace(result, next=continue_command(path, options, outcome.run_end.stop_reason))
    pruned = prepared.cassette if prepared.cassette is not prepared.old else None
    new = outcome.cassette or pruned
    with reject_failures(path):
        if new is not None:
            result = write_or_hold(path, prepared.old, new, prepared.pins.config.agents, options, result)
        if kept_replies := work.workspace.discard_paid(outcome.used_up_features):
            print_note(paid_text(kept_replies))
    return result


def paid_text(replies: int) -> str:
    kept_text = "1 paid reply is kept" if replies == 1 else f"{replies} paid replies are kept"
    return f"{kept_text}; the next attempt repeats only the other calls"


def write_or_hold(
    path: Path,
    old: Cassette,
    new: Cassette,
    described: AgentDescriptions,
    options: RerecordOptions,
    result: RerecordedCassette,
) -> RerecordedCassette:
    """Show the differences, and write the new cassette if all are accepted; else keep it for a later decision."""
    expected_digest = digest_of(path)
    is_unchanged, findings = load(path) == old, compare_cassettes(old, new, described)
    rejected: tuple[str, ...] = rejected_kinds(findings, options)
    try:
        if not rejected and is_unchanged:
            overwrite(new, path.resolve(), expected_digest)
    except CassetteChanged:
        is_unchanged = False
    if not rejected and not is_unchanged:
        rejected = (CHANGED_MEANWHILE,)
    result = replace(result, differences=differences(findings), rejected=rejected)
    if rejected:
        write_pending(new, path)
        command = f"mz rerecord {quote(display_path(path))} --accept-pending"
        command += "".join(f" --accept {kind}" for kind in finding_kinds(findings))
        return replace(result, pending=display_path(pending_path(path)), next=command)
    remove_pending(path)
    return replace(result, written=True)


def rejected_kinds(findings: Sequence[Finding], options: RerecordOptions) -> tuple[FindingKind, ...]:
    """Return the kinds of differences that are not accepted; on a terminal, ask for each kind."""
    rejected: list[FindingKind] = []
    for kind in finding_kinds(findings):
        write_lines(sys.stderr, kind_lines(kind, findings))
        is_accepted = ALL in options.accept or kind in options.accept or (options.prune and kind == "UNUSED")
        if not is_accepted and not (may_ask(os.environ) and is_confirmed(f"Accept {kind}?")):
            rejected.append(kind)
    return tuple(rejected)


def continue_command(path: Path, options: RerecordOptions, stopped: str) -> str:
    """Return the command that continues after a stop."""
    selection, path_text = options.selection, display_path(path)
    arguments = ["mz", "rerecord", quote(path_text), *(quote(str(selector)) for selector in selection.selectors)]
    arguments += ["--agent", quote(options.agent)] if options.agent else []
    flags = {
        "changed": selection.changed,
        "expired": selection.expired,
        "new": selection.new,
        "all": selection.everything,
        "prune": options.prune,
    }
    arguments += [f"--{name}" for name, is_set in flags.items() if is_set]
    arguments += ["--budget", "MORE"] if stopped == "budget" else []
    return " ".join(arguments)


def accept_waiting(root: Path, paths: Sequence[Path], options: RerecordOptions) -> tuple[RerecordedCassette, ...]:
    """Replace cassettes by their waiting new ones, as far as the differences are accepted now. Raises MzError (MZ6001)
    if none is waiting."""
    waiting_paths = [path for path in paths if is_pending(path)]
    if not waiting_paths:
        message = f"no new cassette is waiting in {', '.join(display_path(path) for path in paths)}"
        raise MzError("MZ6001", message, hint="`mz rerecord` makes one")
    results, described = [], load_config(root, os.environ, {}).config.agents
    for path in waiting_paths:
        with reject_failures(path), lock_workspace(root.resolve(), path):
            old, new = load(path), load(pending_path(path))
            results.append(
                write_or_hold(path, old, new, described, options, RerecordedCassette(path=display_path(path)))
            )
    return tuple(results)


def rerecord_exit(done: Sequence[RerecordedCassette]) -> Exit:
    """Return the exit code of the command."""
    exits: list[Exit] = []
    for cassette in done:
        if cassette.stopped:
            exits.append(STOP_EXITS.get(cassette.stopped) or fatal_exit(cassette.stopped))
        if cassette.dropped:
            exits.append(Exit.VERDICT)
        if cassette.rejected:
            exits.append(Exit.DRIFT)
    return most_severe(exits)
