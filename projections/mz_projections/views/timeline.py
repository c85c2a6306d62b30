"""A one-line description of every event. Total over the catalog: a test checks every type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from mz_events.catalog import call, delivery, feature, imported, inbox, memory, run, validation
from mz_events.catalog.base import Event
from mz_events.codec import type_of
from mz_events.store import Recorded

SHORT = 8
LISTED_MAX = 3
NANOUSD = 1_000_000_000
NOTHING = "nothing"
HOLD_TEXTS = {
    run.Hold.TIMER: "by a timer",
    run.Hold.CLAIM: "by files that another feature changes",
    run.Hold.BUDGET: "by the budget",
    run.Hold.FATAL: "by a problem",
    run.Hold.CHECKS: "by the checks of its pull request",
}
FORBIDDEN_TEXTS = {
    "outside": "outside the write scope",
    "denied": "a denied path",
    "special": "no regular file",
    "nested-git": "a nested repository",
    "too-big": "too big",
    "secret": "contains a secret",
    "hidden": "in the place of a file that the agent does not see",
}
"""Why a change by an agent was reverted, by kind."""
ALWAYS = "checkpoint"
"""Code of an approval that a phase always requires; it says nothing more."""


class Line(msgspec.Struct, frozen=True):
    """One event, for display."""

    recorded_at_us: int
    """Time of recording."""
    event_ref: str
    """`stream@version`."""
    type: str
    text: str
    """One line of names, numbers and enums; never an agent's prose."""


def timeline(events: Iterable[Recorded[Event]]) -> Iterator[Line]:
    """Yield a line for each event, in the order given."""
    for recorded in events:
        yield Line(recorded.recorded_at_us, recorded.event_ref, type_of(recorded.event), describe(recorded.event))


def describe(event: Event) -> str:
    return DESCRIPTIONS[type(event)](event)


def _usd(nanousd: int | None) -> str:
    return "unpriced" if nanousd is None else f"${nanousd / NANOUSD:.4f}"


def list_names(names: Iterable[object], listed_max: int = LISTED_MAX) -> str:
    """Return the first names and the number of others; `nothing` for none."""
    texts = [str(name) for name in names]
    suffix = f" and {len(texts) - listed_max} more" if len(texts) > listed_max else ""
    return (", ".join(texts[:listed_max]) + suffix) or NOTHING


def count_noun(number: int, noun: str) -> str:
    """Return `1 file`, `2 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def code_suffix(code: str | None) -> str:
    """Return the code in brackets, with a blank before; empty for none, and for one that says nothing."""
    return f" ({code})" if code and code != ALWAYS else ""


def unit_name(event: feature.Blocked | feature.HumanRequested | feature.UnitCompleted | Any) -> str:
    return f"{event.phase}/{event.unit}" if event.unit else str(event.phase)


def _call_name(ref: call.CallRef) -> str:
    iteration = f" iteration {ref.iteration}" if ref.iteration > 1 else ""
    return f"{unit_name(ref)}{iteration} attempt {ref.attempt} ({ref.role})"


def _path_list(paths: tuple[str, ...]) -> str:
    return f"{count_noun(len(paths), 'path')}: {list_names(paths)}" if paths else "no paths"


def _rule_list(violations: tuple[validation.Violation, ...]) -> str:
    return list_names(f"{violation.rule} {violation.path}".strip() for violation in violations)


def _context_composed(event: call.ContextComposed) -> str:
    shown = [part for part in event.parts if not part.left_out]
    left_out = count_noun(len(event.parts) - len(shown), "part")
    learnings = f", learnings {list_names(item.id for item in event.learnings)}" if event.learnings else ""
    return f"{event.key}: {sum(part.tokens for part in shown)} tokens{learnings}, {left_out} left out" + (
        f", {event.over} tokens over the limit" if event.over else ""
    )


def _agent_requested(event: call.AgentRequested) -> str:
    prompt = "full prompt" if event.full_prompt else "new content only"
    prompt += " in a continued session" * event.resumes
    return (
        f"{_call_name(event.ref)}: {event.agent} {event.model}, {prompt}, about {event.estimated_tokens} tokens, "
        f"{_usd(event.estimated_nanousd)}"
    )


def _reply_parsed(event: call.ReplyParsed) -> str:
    tokens = "tokens unknown"
    if event.usage:
        sums = sum(usage.input for usage in event.usage), sum(usage.output for usage in event.usage)
        tokens = f"{sums[0]} tokens in, {sums[1]} out"
    problem = f", {event.problem.kind.value} {event.problem.code}" if event.problem else ""
    return f"{_call_name(event.ref)}: {event.ending}, {tokens}, reported {_usd(event.reported_nanousd)}{problem}"


def _command_ran(event: validation.CommandRan) -> str:
    tests = "" if event.passed is None else f", {count_noun(event.passed, 'test')} passed, {event.failed or 0} failed"
    tests += "" if event.new_failures is None else f", {event.new_failures or 'none'} of them new"
    exit_text = "killed at its time limit" if event.exit is None else f"exit {event.exit}"
    is_made = event.environment and event.stage == "setup" and event.exit == 0
    made = f", for environment {(event.environment or '')[:12]}" if is_made else ""
    name = f"{event.stage} {event.name} {unit_name(event)}".strip()
    return f"{name}: {exit_text}{tests}, {event.duration_ms} ms{made}"


def _base_tested(event: run.BaseTested) -> str:
    if event.unusable:
        return f"{list_names(event.unusable)} cannot be used on the base"
    return f"{list_names(event.red)} failed on the base" if event.red else "all commands succeeded on the base"


def _gate_checked(event: validation.GateChecked) -> str:
    rules = _rule_list(tuple(violation for violation in event.violations if violation.rule != event.gate))
    failed = "failed" + (f": {rules}" if rules != NOTHING else "")
    passed, judge = ("judged as met", f", by {event.judged_by}") if event.judged_by else ("passed", "")
    return f"{unit_name(event)}: gate {event.gate} {passed if event.passed else failed}{judge}"


def _changes_checked(event: validation.ChangesChecked) -> str:
    forbidden_changes = (forbidden_text(change.kind, change.path) for change in event.forbidden_changes)
    reverted = f"; reverted {list_names(forbidden_changes)}"
    allowed = f"{_call_name(event.ref)}: {count_noun(len(event.changes), 'change')} within the write scope"
    return allowed + (reverted if event.forbidden_changes else "")


def forbidden_text(kind: str, path: str) -> str:
    """Return path and reason of a reverted change."""
    return f"{path} ({FORBIDDEN_TEXTS.get(kind, kind)})".strip()


def _repetition(event: feature.FeatureRetried | run.RetryAccepted) -> str:
    commits = f" with commits of people up to {event.commits.head[:12]}" if event.commits else ""
    return f"revised{commits}" if event.keeps_tree else "retried"


def _limit(nanousd: int | None) -> str:
    return "without limit" if nanousd is None else _usd(nanousd)


def landing_text(branch: str, commit: str) -> str:
    """Return into what a feature's branch was merged."""
    return f"merged into {branch} at {commit[:SHORT]}"


def _base_merged(event: delivery.BaseMerged) -> str:
    if not event.changed:
        return f"nothing new since {event.base[:SHORT]}"
    return f"{event.base[:SHORT]} merged" + (f", conflicts in {list_names(event.conflicts)}" if event.conflicts else "")


def _phase_started(event: feature.PhaseStarted) -> str:
    units = [unit for unit in event.units if unit]
    return f"{event.phase} iteration {event.iteration}" + (f", units {list_names(units)}" if units else "")


def _feature_held(event: feature.FeatureHeld) -> str:
    line = f":{event.line}" if event.line else ""
    location = f" in {event.template}{line}" if event.template else ""
    return HOLD_TEXTS[event.hold] + (f" ({event.code}{location})" if event.code else "")


def _human_requested(event: feature.HumanRequested) -> str:
    unit = f"{unit_name(event)}: " if event.phase else ""
    return f"{unit}question to a person, {event.question_kind.value}{code_suffix(event.subject)}"


def _item_added(event: run.ItemAdded) -> str:
    after = f", after {list_names(event.depends_on)}" if event.depends_on else ""
    decision = ": quarantined" if event.quarantined else ": suspicious" if event.suspicions else ""
    lines = f" (mz show {event.suspicions[:SHORT]})" if event.suspicions else ""
    screened = f", score {event.score}{decision}{lines}" if event.score or event.quarantined else ""
    return f"{event.feature} from {event.source}{after}{screened}"


def _artifact_parsed(event: validation.ArtifactParsed) -> str:
    units = f", {count_noun(len(event.units), 'unit')}" if event.units else ""
    source = "the result of a command" if event.is_result else "the reply"
    return f"{unit_name(event)}: {event.artifact} in {event.path or source}{units}"


def _conditions_checked(event: validation.ConditionsChecked) -> str:
    skipped, done = ("skipped", "takes place") if event.of == "phase" else ("no review", "reviewed")
    reason = f"{done} because of {list_names(event.met)}" if event.met else f"{skipped}, none of its conditions holds"
    return f"{unit_name(event)}: {reason}"


def _imported_file_read(event: imported.ImportedFileRead) -> str:
    corrected = sum(request.before is not None for request in event.requests)
    counts = [f"{count_noun(len(event.requests) - corrected, 'request')} new"]
    counts += [f"{corrected} corrected"] * bool(corrected)
    counts += [f"{event.already_counted} already counted"] * bool(event.already_counted)
    counts += [count_noun(event.undecodable_lines, "undecodable line")] * bool(event.undecodable_lines)
    return f"{event.format} from byte {event.offset_start} to {event.offset_end}: {', '.join(counts)}"


DESCRIPTIONS: dict[type[Event], Callable[[Any], str]] = {
    run.RunStarted: lambda e: f"pipeline {e.pipeline} on {e.base} at {e.base_commit[:SHORT]}, mz {e.mz_version}",
    run.RunForked: lambda e: f"forked from version {e.version} of {e.feature} in run {e.source}",
    run.RunResumed: lambda e: f"mz {e.mz_version}",
    run.ItemAdded: _item_added,
    run.ItemSkipped: lambda e: f"{e.feature} was delivered by {e.delivered_by}" + (", text changed" * e.changed),
    run.ItemsAdded: lambda e: (
        f"{e.feature} adds {list_names(entry.feature for entry in e.added) or 'nothing'}"
        + (f"; there are already {list_names(e.duplicates)}" if e.duplicates else "")
    ),
    run.ItemRequeued: lambda e: f"{e.feature} is begun again, attempt {e.attempt}",
    run.CycleStarted: lambda e: f"cycle {e.cycle}",
    run.CycleEnded: lambda e: (
        f"cycle {e.cycle}: {e.added} added, {e.delivered} delivered, {e.failed} failed"
        + (f"; no cycle follows ({e.over})" if e.over else "")
    ),
    run.CyclesAllowed: lambda e: f"cycles up to {e.until} allowed",
    run.BranchAdopted: lambda e: f"{e.branch} has commits of people up to {e.commit[:SHORT]}; work starts from them",
    run.RunClosing: lambda e: "a person ends the run" if e.how == "finish" else "a person gives the run up",
    run.BaseTested: _base_tested,
    run.CommandsChanged: lambda _: "commands, set-up or what they need were corrected in the settings",
    run.FeatureAdmitted: lambda e: f"{e.feature} may start" + (f" on top of {e.stacked_on}" if e.stacked_on else ""),
    run.FeatureStopped: lambda e: (
        f"{e.feature} stopped: {e.status.value}" + (code_suffix(e.code) or code_suffix(e.hold.value if e.hold else ""))
    ),
    run.FeatureReleased: lambda e: f"{e.feature} may continue: {e.hold.value} released",
    run.TimerFired: lambda e: f"{e.feature}: wait is over",
    run.ItemHeld: lambda e: f"{e.feature} cannot start: {e.blocked_by} was not delivered",
    run.FilesClaimed: lambda e: f"{e.feature} in {e.phase} claims {_path_list(e.paths)}",
    run.ClaimRejected: lambda e: f"{e.feature} in {e.phase}: claim rejected, files held by {e.holder}",
    run.ClaimCompared: lambda e: (
        f"{e.feature}: {len(e.confirmed)} claimed paths changed, {len(e.unused)} unchanged, "
        f"{len(e.missed)} changed without a claim"
    ),
    run.AnswerAccepted: lambda e: f"{e.feature} answered: {e.verdict.value}",
    run.CancelAccepted: lambda e: f"{e.feature} cancelled",
    run.InboxRead: lambda e: f"message {e.version} " + ("accepted" if e.accepted else f"rejected: {e.rejection_code}"),
    run.RetryAccepted: lambda e: f"{e.feature} to be {_repetition(e)}" + (f" from {e.phase}" if e.phase else ""),
    run.ChecksChanged: lambda e: f"{e.feature}: checks are no longer pending",
    run.FeatureMerged: lambda e: f"{e.feature} was merged; the base is at {e.head[:SHORT]}",
    run.RunPaused: lambda e: "paused by a person" if e.actor else "paused by a signal",
    run.BudgetChanged: lambda e: (
        f"budget of the run {_limit(e.run_nanousd)}, of a feature {_limit(e.feature_nanousd)}, of a call "
        f"{_limit(e.call_nanousd)}, of a day {_limit(e.day_nanousd)}"
    ),
    run.RunHalted: lambda e: f"halted by {e.feature}: {e.code}",
    run.RunStopRequested: lambda _: "stop requested by the user",
    run.RunIdle: lambda _: "nothing can continue by itself",
    run.RunFinished: lambda _: "every item has ended",
    feature.FeatureStarted: lambda e: (
        f"branch {e.branch} for {e.target} from {list_names(c[:SHORT] for c in e.starts_from)}"
    ),
    feature.WorkspaceReady: lambda e: f"worktree at {e.head[:SHORT]}",
    feature.WorkspaceConflicted: lambda e: f"conflict between the starting commits: {_path_list(e.paths)}",
    feature.PhaseStarted: _phase_started,
    feature.UnitStarted: lambda e: f"{unit_name(e)} iteration {e.iteration}",
    feature.Blocked: lambda e: f"{unit_name(e)}: {e.check} {e.path}".rstrip() + f", cause {e.cause}",
    feature.RolledBack: lambda e: f"{e.source} back to {e.to}" + (f", units {list_names(e.units)}" if e.units else ""),
    feature.TreeRestored: lambda e: f"tree {e.tree[:SHORT]} restored",
    feature.EditMade: lambda e: (
        f"{e.edit}: {count_noun(len(e.written), 'file')} written, {count_noun(len(e.deleted), 'file')} deleted"
    ),
    feature.UnitCompleted: unit_name,
    feature.PhaseSkipped: lambda e: f"{unit_name(e)}: left out, since it is not required: {e.code}",
    feature.PhaseCompleted: lambda e: e.phase,
    feature.FeatureHeld: _feature_held,
    feature.HoldReleased: lambda e: f"no longer held {HOLD_TEXTS[e.hold]}",
    feature.HumanRequested: _human_requested,
    feature.HumanAnswered: lambda e: e.verdict.value,
    feature.FeatureDelivered: lambda e: f"{e.ending} at {e.head[:SHORT]}, {len(e.changed_paths)} paths",
    feature.FeatureFailed: lambda e: e.code,
    feature.FeatureRetried: lambda e: _repetition(e) + (f" from {e.to}" if e.to else ""),
    feature.FeatureCancelled: lambda _: "cancelled by a person",
    call.CallReserved: lambda e: f"{_usd(e.nanousd)} reserved for {e.key}",
    call.CallOverBudget: lambda e: f"{e.key} exceeds the budget{f' {e.budget}' * bool(e.budget)}: {_usd(e.nanousd)}",
    call.ContextComposed: _context_composed,
    call.AgentRequested: _agent_requested,
    call.SessionDropped: lambda e: f"{e.key}: session dropped, {e.reason.value}; the next prompt is a full one",
    call.AgentSwitched: lambda e: f"{_call_name(e.ref)}: {e.to} takes over from {e.source} ({e.code})",
    call.AgentReplied: lambda e: (
        f"{_call_name(e.ref)}: exit {'unknown' if e.exit is None else e.exit}{', salvaged' * e.salvaged} "
        f"after {e.duration_ms} ms"
    ),
    call.AgentFailed: lambda e: (
        f"{_call_name(e.ref)}: {e.problem.kind.value} {e.problem.code} after {e.duration_ms} ms"
    ),
    call.AgentLost: lambda e: f"{_call_name(e.ref)}: lost by a crash",
    call.ReplyParsed: _reply_parsed,
    call.CallPriced: lambda e: (
        f"{e.key}: {_usd(e.computed_nanousd)}" + (f", {list_names(e.unpriced)}" if e.unpriced else "")
    ),
    call.CallSettled: lambda e: f"{e.key}: {_usd(e.nanousd)}",
    validation.CommandRan: _command_ran,
    validation.ChangesChecked: _changes_checked,
    validation.ArtifactParsed: _artifact_parsed,
    validation.ArtifactValidated: lambda e: (
        f"{_call_name(e.ref)}: {f'rejected by {_rule_list(e.violations)}' if e.violations else 'valid'}"
    ),
    validation.ConditionsChecked: _conditions_checked,
    validation.ArtifactsKept: lambda e: f"{unit_name(e)}: valid and newer than what they depend on, no agent is called",
    validation.GateChecked: _gate_checked,
    delivery.CommitRequested: lambda e: f"{e.purpose} {unit_name(e)}",
    delivery.Committed: lambda e: f"{e.commit[:SHORT]}: {count_noun(e.files, 'file')}, +{e.insertions} -{e.deletions}",
    delivery.PushRequested: lambda e: f"{e.branch} at {e.commit[:SHORT]} to {e.remote}",
    delivery.Pushed: lambda e: e.commit[:SHORT],
    delivery.PullRequestRequested: lambda e: f"{e.branch} into {e.target} ({e.strategy})",
    delivery.PullRequestOpened: lambda e: e.url or "to be opened by a person",
    delivery.BaseMerged: _base_merged,
    delivery.ChecksPolled: lambda e: f"{e.passed} passed, {e.failed} failed, {e.pending} pending at {e.commit[:SHORT]}",
    delivery.ChecksRerun: lambda e: f"{e.runs} started again",
    delivery.MergeRequested: lambda e: f"{e.head[:SHORT]} into {e.branch} at {e.old[:SHORT]}",
    delivery.BranchLanded: lambda e: landing_text(e.branch, e.commit) if e.changed else f"{e.branch} had it already",
    delivery.TargetMoved: lambda e: f"{e.branch} is at {e.commit[:SHORT]} now, which is merged first",
    delivery.TagRequested: lambda e: f"{e.name} at {e.commit[:SHORT]}",
    delivery.Tagged: lambda e: f"{e.name} at {e.commit[:SHORT]}",
    delivery.BranchesClosed: lambda e: list_names(e.branches),
    delivery.IssueRequested: lambda e: f"in {e.repository} for {e.feature}",
    delivery.IssueOpened: lambda e: f"{e.issue} shows {e.feature}",
    delivery.DeliveryFailed: lambda e: e.code,
    inbox.AnswerPosted: lambda e: f"for {e.feature}: {e.verdict.value}",
    inbox.CancelPosted: lambda e: f"cancel {e.feature or 'the run'}",
    inbox.RetryPosted: lambda e: (
        f"{'revise' if e.keeps_tree else 'retry'} {e.feature}" + (f" from {e.phase}" if e.phase else "")
    ),
    inbox.PausePosted: lambda _: "pause",
    inbox.ResumePosted: lambda _: "continue",
    inbox.BlobErased: lambda e: f"blob {e.blob[:SHORT]} of {e.size_bytes} bytes",
    imported.ImportedSessionFound: lambda e: f"{e.agent} {e.version}".rstrip() + (", driven by mz" if e.by_mz else ""),
    imported.ImportedFileRead: _imported_file_read,
    imported.ImportedTotalsReconciled: lambda e: f"{count_noun(len(e.requests), 'total')} beyond the lines",
    imported.ImportedRunRead: lambda e: (
        f"{e.system} {e.status}".rstrip()
        + f": {count_noun(len(e.items), 'item')}, {count_noun(len(e.records), 'call')}"
    ),
    imported.ImportedPriced: lambda e: (
        _usd(sum(priced.nanousd for priced in e.sums))
        + (f", no price for {list_names(e.unpriced)}" if e.unpriced else "")
    ),
    memory.LearningsCaptured: lambda e: (
        f"{unit_name(e)}: {e.artifact} states {list_names(f'{item.kind} {item.key}' for item in e.learnings)}"
    ),
    memory.LearningPromoted: lambda e: f"{e.id} for all features",
    memory.LearningArchived: lambda e: f"{e.id} for no feature",
    memory.LearningShared: lambda e: f"{e.learning.kind} {e.learning.key} for all projects",
    memory.LearningOffered: lambda e: f"{e.learning.kind} {e.learning.key} for all projects, once another offers it",
    memory.RoutingProposed: lambda e: ", ".join(
        f"{p.phase} {p.unit}".rstrip() + f": {p.agent} {p.tier}" for p in e.proposals
    ),
    memory.RoutingApplied: lambda e: f"routing.yaml: {', '.join(e.phases)}",
}
