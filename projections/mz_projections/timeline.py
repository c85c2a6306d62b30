"""Pure: every event in words, one line each. Total over the catalog: a test asks for every type."""

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
    """One event, as a person reads it."""

    at_us: int
    """Microseconds since the epoch, UTC: `recorded_at`."""
    place: str
    """`stream@version`."""
    type: str
    text: str
    """One line of names, numbers and enums; never prose of an agent."""


def timeline(events: Iterable[Recorded[Event]]) -> Iterator[Line]:
    """The events in the order given."""
    for recorded in events:
        yield Line(recorded.recorded_at_us, recorded.place, type_of(recorded.event), words(recorded.event))


def words(event: Event) -> str:
    """What the event says."""
    return WORDS[type(event)](event)


def _usd(nanousd: int | None) -> str:
    return "unpriced" if nanousd is None else f"{nanousd / NANOUSD:.4f} USD"


def _few(names: Iterable[object]) -> str:
    """The first of the names and how many more there are; `nothing` for none."""
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
    why = event.code or (event.hold.value if event.hold else "")
    return f"{event.feature} rests: {event.status.value}" + (f" ({why})" if why else "")


def _requested(event: call.AgentRequested) -> str:
    how = "whole prompt" if event.whole else "only what is new"
    how += " in a continued session" * event.resumes
    return (
        f"{_call(event.ref)}: {event.agent} {event.model}, {how}, about {event.estimated_tokens} tokens, "
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
    return f"{_call(event.ref)}: " + (f"refused by {_rules(event.violations)}" if event.violations else "valid")


def _gate(event: check.GateChecked) -> str:
    return f"{_cell(event)}: {event.gate} " + ("passed" if event.passed else f"failed: {_rules(event.violations)}")


def _changes(event: check.ChangesChecked) -> str:
    offences = f"; reverted {_few(f'{off.kind} {off.path}' for off in event.offences)}" if event.offences else ""
    return f"{_call(event.ref)}: {_counted(len(event.changes), 'change')} within the contract{offences}"


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
    place = f" in {event.template}{line}" if event.template else ""
    return f"waits: {event.hold.value}" + (f" ({event.code}{place})" if event.code else "")


def _asked(event: feature.HumanRequested) -> str:
    place = f"{_cell(event)}: " if event.phase else ""
    return f"{place}a person is asked, {event.ask.value}" + (f" ({event.code})" if event.code else "")


def _added(event: run.ItemAdded) -> str:
    after = f", after {_few(event.depends_on)}" if event.depends_on else ""
    return f"{event.feature} from {event.source}{after}" + (", quarantined" if event.quarantined else "")


def _admitted(event: run.FeatureAdmitted) -> str:
    return f"{event.feature} may start" + (f" on top of {event.onto}" if event.onto else "")


def _compared(event: run.ClaimCompared) -> str:
    return (
        f"{event.feature}: {len(event.confirmed)} claimed paths touched, {len(event.unused)} not, "
        f"{len(event.missed)} touched without a claim"
    )


def _parsed(event: check.ArtifactParsed) -> str:
    units = f", {_counted(len(event.units), 'unit')}" if event.units else ""
    return f"{_cell(event)}: {event.artifact} in {event.path or 'the reply'}{units}"


def _session_read(event: session.SessionRead) -> str:
    corrected = sum(request.before is not None for request in event.requests)
    told = [f"{_counted(len(event.requests) - corrected, 'request')} new"]
    told += [f"{number} {what}" for number, what in ((corrected, "corrected"), (event.seen, "known")) if number]
    told += [_counted(event.bad, "bad line")] * bool(event.bad)
    return f"{event.format} from byte {event.start} to {event.upto}: {', '.join(told)}"


def _session_priced(event: session.SessionPriced) -> str:
    unpriced = f", no price for {_few(event.unpriced)}" if event.unpriced else ""
    return _usd(sum(each.nanousd for each in event.sums)) + unpriced


WORDS: dict[type[Event], Callable[[Any], str]] = {
    run.RunStarted: lambda e: f"pipeline {e.pipeline} on {e.base} at {e.base_commit[:SHORT]}, mz {e.core}",
    run.RunForked: lambda e: f"goes on from version {e.version} of {e.feature} in run {e.source}",
    run.RunResumed: lambda e: f"taken up again, mz {e.core}",
    run.ItemAdded: _added,
    run.ItemSkipped: lambda e: f"{e.feature} was delivered by {e.delivered_by}" + (", text changed" * e.changed),
    run.FeatureAdmitted: _admitted,
    run.FeatureRested: _run_rested,
    run.FeatureReleased: lambda e: f"{e.feature} may go on after {e.hold.value}",
    run.TimerFired: lambda e: f"{e.feature} has waited long enough",
    run.ItemHeld: lambda e: f"{e.feature} cannot start: {e.because} was not delivered",
    run.FilesClaimed: lambda e: f"{e.feature} in {e.phase} claims {_paths(e.paths)}",
    run.FilesContended: lambda e: f"{e.feature} in {e.phase} is refused its claim, {e.holder} holds it",
    run.ClaimCompared: _compared,
    run.AnswerGiven: lambda e: f"{e.feature} is answered: {e.verdict.value}",
    run.CancelGiven: lambda e: f"{e.feature} is given up",
    run.InboxTaken: lambda e: f"message {e.version} " + ("accepted" if e.accepted else f"refused: {e.why}"),
    run.RetryGiven: lambda e: f"{e.feature} is to be done once more" + (f", from {e.phase} on" if e.phase else ""),
    run.ChecksChanged: lambda e: f"{e.feature}: its checks have an answer",
    run.FeatureMerged: lambda e: f"{e.feature} was merged; the base is at {e.head[:SHORT]}",
    run.RunPaused: lambda e: "paused by a person" if e.who else "paused by a signal",
    run.BudgetChanged: lambda e: f"budget of the run {_limit(e.run_nanousd)}, of a feature {_limit(e.feature_nanousd)}",
    run.RunHalted: lambda e: f"halted by {e.feature}: {e.code}",
    run.RunStopped: lambda _: "stopped by the user",
    run.RunRested: lambda _: "nothing can go on by itself",
    run.RunFinished: lambda _: "every item has come to its end",
    feature.FeatureStarted: lambda e: f"branch {e.branch} for {e.target} from {_few(c[:SHORT] for c in e.starts_from)}",
    feature.WorkspaceReady: lambda e: f"worktree at {e.head[:SHORT]}",
    feature.WorkspaceConflicted: lambda e: f"the starting commits do not merge: {_paths(e.paths)}",
    feature.PhaseStarted: _started,
    feature.UnitStarted: lambda e: f"{_cell(e)} iteration {e.iteration}",
    feature.Blocked: lambda e: f"{_cell(e)}: {e.check} {e.path}".rstrip() + f", cause {e.cause}",
    feature.RolledBack: _rolled_back,
    feature.TreeRestored: lambda e: f"the tree is {e.tree[:SHORT]} again",
    feature.UnitCompleted: _cell,
    feature.PhaseCompleted: lambda e: e.phase,
    feature.FeatureHeld: _held,
    feature.HoldReleased: lambda e: f"goes on after {e.hold.value}",
    feature.HumanRequested: _asked,
    feature.HumanAnswered: lambda e: f"a person says {e.verdict.value}",
    feature.FeatureDelivered: lambda e: f"{e.terminal} at {e.head[:SHORT]}, {len(e.touched)} paths",
    feature.FeatureFailed: lambda e: e.code,
    feature.FeatureRetried: lambda e: "once more" + (f", from {e.to} on" if e.to else ""),
    feature.FeatureCancelled: lambda _: "given up by a person",
    call.CallReserved: lambda e: f"{_usd(e.nanousd)} set aside for {e.key}",
    call.CallHeld: lambda e: f"no room in the budget for {e.key}: {_usd(e.nanousd)}",
    call.AgentRequested: _requested,
    call.SessionBroken: lambda e: f"{e.key}: the session is not continued, {e.reason.value}; the prompt is whole",
    call.AgentSwitched: lambda e: f"{_call(e.ref)}: {e.to} takes over from {e.source} ({e.code})",
    call.AgentReplied: _replied,
    call.AgentFailed: lambda e: f"{_call(e.ref)}: {e.problem.kind.value} {e.problem.code} after {e.duration_ms} ms",
    call.AgentLost: lambda e: f"{_call(e.ref)}: lost in a crash",
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
    delivery.PullRequestOpened: lambda e: e.url or "left to a person",
    delivery.BaseMerged: _merged,
    delivery.ChecksSeen: lambda e: f"{e.green} green, {e.red} red, {e.pending} pending at {e.commit[:SHORT]}",
    delivery.ChecksRerun: lambda e: f"{e.runs} started again",
    delivery.DeliveryFailed: lambda e: e.code,
    inbox.AnswerLeft: lambda e: f"for {e.feature}: {e.verdict.value}",
    inbox.CancelLeft: lambda e: f"for {e.feature or 'the whole run'}: give it up",
    inbox.RetryLeft: lambda e: f"for {e.feature}: once more" + (f", from {e.phase} on" if e.phase else ""),
    inbox.PauseLeft: lambda _: "come to rest",
    inbox.ResumeLeft: lambda _: "go on",
    session.SessionOpened: lambda e: f"{e.agent} {e.version}".rstrip() + (", driven by mz" if e.by_mz else ""),
    session.SessionRead: _session_read,
    session.SessionSettled: lambda e: f"{_counted(len(e.requests), 'sum')} that no line shows",
    session.SessionPriced: _session_priced,
}
