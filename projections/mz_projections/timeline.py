"""A one-line description of every event. Total over the catalog: a test checks every type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from mz_events.catalog import call, check, delivery, feature, inbox, run, session
from mz_events.catalog.base import Event
from mz_events.codec import type_of
from mz_events.envelope import Recorded

SHORT = 8
LISTED_MAX = 3
NANOUSD = 1_000_000_000


class Line(msgspec.Struct, frozen=True):
    """One event, for display."""

    at_us: int
    """`recorded_at_us`: microseconds since the epoch, UTC."""
    place: str
    """`stream@version`."""
    type: str
    text: str
    """One line of names, numbers and enums; never an agent's prose."""


def timeline(events: Iterable[Recorded[Event]]) -> Iterator[Line]:
    """Yield a line for each event, in the order given."""
    for recorded in events:
        yield Line(recorded.recorded_at_us, recorded.place, type_of(recorded.event), words(recorded.event))


def words(event: Event) -> str:
    """Return the description of the event."""
    return WORDS[type(event)](event)


def _usd(nanousd: int | None) -> str:
    return "unpriced" if nanousd is None else f"{nanousd / NANOUSD:.4f} USD"


def _few(names: Iterable[object]) -> str:
    """Return the first names and the number of others; `nothing` for none."""
    listed = [str(name) for name in names]
    more = f" and {len(listed) - LISTED_MAX} more" if len(listed) > LISTED_MAX else ""
    return (", ".join(listed[:LISTED_MAX]) + more) or "nothing"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _cell(event: feature.Blocked | feature.HumanRequested | feature.UnitCompleted | Any) -> str:
    return f"{event.phase}/{event.unit}" if event.unit else str(event.phase)


def _call(ref: call.CallRef) -> str:
    again = f" iteration {ref.iteration}" if ref.iteration > 1 else ""
    return f"{_cell(ref)}{again} attempt {ref.attempt} ({ref.role})"


def _paths(paths: tuple[str, ...]) -> str:
    return f"{_counted(len(paths), 'path')}: {_few(paths)}" if paths else "no paths"


def _rules(violations: tuple[check.Violation, ...]) -> str:
    return _few(f"{broken.rule} {broken.path}".strip() for broken in violations)


def _run_rested(event: run.FeatureRested) -> str:
    reason = event.code or (event.hold.value if event.hold else "")
    return f"{event.feature} stopped: {event.status.value}" + (f" ({reason})" if reason else "")


def _requested(event: call.AgentRequested) -> str:
    prompt = "full prompt" if event.whole else "new content only"
    prompt += " in a continued session" * event.resumes
    return (
        f"{_call(event.ref)}: {event.agent} {event.model}, {prompt}, about {event.estimated_tokens} tokens, "
        f"{_usd(event.estimated_nanousd)}"
    )


def _replied(event: call.AgentReplied) -> str:
    code = "exit unknown, salvaged" if event.exit is None else f"exit {event.exit}"
    return f"{_call(event.ref)}: {code} after {event.duration_ms} ms"


def _read(event: call.ReplyRead) -> str:
    tokens = f"{sum(usage.input for usage in event.usage)} tokens in, {sum(usage.output for usage in event.usage)} out"
    problem = f", {event.problem.kind.value} {event.problem.code}" if event.problem else ""
    return f"{_call(event.ref)}: {event.terminal}, {tokens}, reported {_usd(event.reported_nanousd)}{problem}"


def _ran(event: check.CommandRan) -> str:
    tests = "" if event.passed is None else f", {_counted(event.passed, 'test')} passed, {event.failed or 0} failed"
    code = "killed at its time limit" if event.exit is None else f"exit {event.exit}"
    return f"{event.stage} {event.name} {_cell(event)}".strip() + f": {code}{tests}, {event.duration_ms} ms"


def _validated(event: check.ArtifactValidated) -> str:
    return f"{_call(event.ref)}: " + (f"rejected by {_rules(event.violations)}" if event.violations else "valid")


def _gate(event: check.GateChecked) -> str:
    return f"{_cell(event)}: {event.gate} " + ("passed" if event.passed else f"failed: {_rules(event.violations)}")


def _changes(event: check.ChangesChecked) -> str:
    reverted = f"; reverted {_few(f'{change.kind} {change.path}' for change in event.offences)}"
    allowed = f"{_call(event.ref)}: {_counted(len(event.changes), 'change')} within the write scope"
    return allowed + (reverted if event.offences else "")


def _rolled_back(event: feature.RolledBack) -> str:
    return f"{event.source} back to {event.to}" + (f", units {_few(event.units)}" if event.units else "")


def _limit(nanousd: int | None) -> str:
    return "without limit" if nanousd is None else _usd(nanousd)


def _merged(event: delivery.BaseMerged) -> str:
    if not event.changed:
        return f"nothing new since {event.base[:SHORT]}"
    return f"{event.base[:SHORT]} merged" + (f", conflicts in {_few(event.conflicts)}" if event.conflicts else "")


def _started(event: feature.PhaseStarted) -> str:
    units = [unit for unit in event.units if unit]
    return f"{event.phase} iteration {event.iteration}" + (f", units {_few(units)}" if units else "")


def _held(event: feature.FeatureHeld) -> str:
    line = f":{event.line}" if event.line else ""
    location = f" in {event.template}{line}" if event.template else ""
    return f"held: {event.hold.value}" + (f" ({event.code}{location})" if event.code else "")


def _asked(event: feature.HumanRequested) -> str:
    unit = f"{_cell(event)}: " if event.phase else ""
    return f"{unit}question to a person, {event.ask.value}" + (f" ({event.code})" if event.code else "")


def _added(event: run.ItemAdded) -> str:
    after = f", after {_few(event.depends_on)}" if event.depends_on else ""
    return f"{event.feature} from {event.source}{after}" + (", quarantined" if event.quarantined else "")


def _admitted(event: run.FeatureAdmitted) -> str:
    return f"{event.feature} may start" + (f" on top of {event.onto}" if event.onto else "")


def _compared(event: run.ClaimCompared) -> str:
    return (
        f"{event.feature}: {len(event.confirmed)} claimed paths changed, {len(event.unused)} unchanged, "
        f"{len(event.missed)} changed without a claim"
    )


def _parsed(event: check.ArtifactParsed) -> str:
    units = f", {_counted(len(event.units), 'unit')}" if event.units else ""
    return f"{_cell(event)}: {event.artifact} in {event.path or 'the reply'}{units}"


def _session_read(event: session.SessionRead) -> str:
    corrected = sum(request.before is not None for request in event.requests)
    counts = [f"{_counted(len(event.requests) - corrected, 'request')} new"]
    counts += [f"{corrected} corrected"] * bool(corrected)
    counts += [f"{event.seen} already counted"] * bool(event.seen)
    counts += [_counted(event.bad, "undecodable line")] * bool(event.bad)
    return f"{event.format} from byte {event.start} to {event.upto}: {', '.join(counts)}"


def _session_priced(event: session.SessionPriced) -> str:
    unpriced = f", no price for {_few(event.unpriced)}" if event.unpriced else ""
    return _usd(sum(priced.nanousd for priced in event.sums)) + unpriced


WORDS: dict[type[Event], Callable[[Any], str]] = {
    run.RunStarted: lambda e: f"pipeline {e.pipeline} on {e.base} at {e.base_commit[:SHORT]}, mz {e.core}",
    run.RunForked: lambda e: f"forked from version {e.version} of {e.feature} in run {e.source}",
    run.RunResumed: lambda e: f"resumed, mz {e.core}",
    run.ItemAdded: _added,
    run.ItemSkipped: lambda e: f"{e.feature} was delivered by {e.delivered_by}" + (", text changed" * e.changed),
    run.FeatureAdmitted: _admitted,
    run.FeatureRested: _run_rested,
    run.FeatureReleased: lambda e: f"{e.feature} may continue: {e.hold.value} released",
    run.TimerFired: lambda e: f"{e.feature}: wait is over",
    run.ItemHeld: lambda e: f"{e.feature} cannot start: {e.because} was not delivered",
    run.FilesClaimed: lambda e: f"{e.feature} in {e.phase} claims {_paths(e.paths)}",
    run.FilesContended: lambda e: f"{e.feature} in {e.phase}: claim rejected, files held by {e.holder}",
    run.ClaimCompared: _compared,
    run.AnswerGiven: lambda e: f"{e.feature} answered: {e.verdict.value}",
    run.CancelGiven: lambda e: f"{e.feature} cancelled",
    run.InboxTaken: lambda e: f"message {e.version} " + ("accepted" if e.accepted else f"rejected: {e.why}"),
    run.RetryGiven: lambda e: f"{e.feature} to be retried" + (f" from {e.phase}" if e.phase else ""),
    run.ChecksChanged: lambda e: f"{e.feature}: checks are no longer pending",
    run.FeatureMerged: lambda e: f"{e.feature} was merged; the base is at {e.head[:SHORT]}",
    run.RunPaused: lambda e: "paused by a person" if e.who else "paused by a signal",
    run.BudgetChanged: lambda e: f"budget of the run {_limit(e.run_nanousd)}, of a feature {_limit(e.feature_nanousd)}",
    run.RunHalted: lambda e: f"halted by {e.feature}: {e.code}",
    run.RunStopped: lambda _: "stop requested by the user",
    run.RunRested: lambda _: "idle: nothing can continue by itself",
    run.RunFinished: lambda _: "every item has ended",
    feature.FeatureStarted: lambda e: f"branch {e.branch} for {e.target} from {_few(c[:SHORT] for c in e.starts_from)}",
    feature.WorkspaceReady: lambda e: f"worktree at {e.head[:SHORT]}",
    feature.WorkspaceConflicted: lambda e: f"conflict between the starting commits: {_paths(e.paths)}",
    feature.PhaseStarted: _started,
    feature.UnitStarted: lambda e: f"{_cell(e)} iteration {e.iteration}",
    feature.Blocked: lambda e: f"{_cell(e)}: {e.check} {e.path}".rstrip() + f", cause {e.cause}",
    feature.RolledBack: _rolled_back,
    feature.TreeRestored: lambda e: f"tree {e.tree[:SHORT]} restored",
    feature.UnitCompleted: _cell,
    feature.PhaseCompleted: lambda e: e.phase,
    feature.FeatureHeld: _held,
    feature.HoldReleased: lambda e: f"continues: {e.hold.value} released",
    feature.HumanRequested: _asked,
    feature.HumanAnswered: lambda e: f"answer of a person: {e.verdict.value}",
    feature.FeatureDelivered: lambda e: f"{e.terminal} at {e.head[:SHORT]}, {len(e.touched)} paths",
    feature.FeatureFailed: lambda e: e.code,
    feature.FeatureRetried: lambda e: "retried" + (f" from {e.to}" if e.to else ""),
    feature.FeatureCancelled: lambda _: "cancelled by a person",
    call.CallReserved: lambda e: f"{_usd(e.nanousd)} reserved for {e.key}",
    call.CallHeld: lambda e: f"{e.key} exceeds the budget: {_usd(e.nanousd)}",
    call.AgentRequested: _requested,
    call.SessionBroken: lambda e: f"{e.key}: session dropped, {e.reason.value}; the next prompt is a full one",
    call.AgentSwitched: lambda e: f"{_call(e.ref)}: {e.to} takes over from {e.source} ({e.code})",
    call.AgentReplied: _replied,
    call.AgentFailed: lambda e: f"{_call(e.ref)}: {e.problem.kind.value} {e.problem.code} after {e.duration_ms} ms",
    call.AgentLost: lambda e: f"{_call(e.ref)}: lost by a crash",
    call.ReplyRead: _read,
    call.CallPriced: lambda e: f"{e.key}: {_usd(e.computed_nanousd)}" + (f", {_few(e.unpriced)}" if e.unpriced else ""),
    call.CallSettled: lambda e: f"{e.key}: {_usd(e.nanousd)}",
    check.CommandRan: _ran,
    check.ChangesChecked: _changes,
    check.RefMoved: lambda e: f"{e.name} changed while {_call(e.ref)} worked",
    check.ArtifactParsed: _parsed,
    check.ArtifactValidated: _validated,
    check.GateChecked: _gate,
    delivery.CommitRequested: lambda e: f"{e.purpose} {_cell(e)}",
    delivery.Committed: lambda e: f"{e.commit[:SHORT]}: {_counted(e.files, 'file')}, +{e.insertions} -{e.deletions}",
    delivery.PushRequested: lambda e: f"{e.branch} at {e.commit[:SHORT]} to {e.remote}",
    delivery.Pushed: lambda e: e.commit[:SHORT],
    delivery.PullRequestRequested: lambda e: f"{e.branch} into {e.target} ({e.strategy})",
    delivery.PullRequestOpened: lambda e: e.url or "to be opened by a person",
    delivery.BaseMerged: _merged,
    delivery.ChecksSeen: lambda e: f"{e.green} passed, {e.red} failed, {e.pending} pending at {e.commit[:SHORT]}",
    delivery.ChecksRerun: lambda e: f"{e.runs} started again",
    delivery.DeliveryFailed: lambda e: e.code,
    inbox.AnswerLeft: lambda e: f"for {e.feature}: {e.verdict.value}",
    inbox.CancelLeft: lambda e: f"cancel {e.feature or 'the run'}",
    inbox.RetryLeft: lambda e: f"retry {e.feature}" + (f" from {e.phase}" if e.phase else ""),
    inbox.PauseLeft: lambda _: "pause",
    inbox.ResumeLeft: lambda _: "continue",
    session.SessionOpened: lambda e: f"{e.agent} {e.version}".rstrip() + (", driven by mz" if e.by_mz else ""),
    session.SessionRead: _session_read,
    session.SessionSettled: lambda e: f"{_counted(len(e.requests), 'total')} beyond the lines",
    session.SessionPriced: _session_priced,
}
