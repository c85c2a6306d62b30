"""Folds the stream of one feature into its state.

`apply_strict` returns None for an event that is illegal in a state; the runner rejects such an event before it is
appended. `evolve` is total over every event ever released: an illegal event changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    AgentSwitched,
    CallPriced,
    ReplyParsed,
    SessionDropped,
    SessionDropReason,
)
from mz_events.catalog.delivery import BaseMerged, BranchLanded, CommitRequested, Committed, Pushed
from mz_events.catalog.feature import (
    Blocked,
    FeatureCancelled,
    FeatureDelivered,
    FeatureFailed,
    FeatureHeld,
    FeatureRetried,
    FeatureStarted,
    HoldReleased,
    HumanAnswered,
    HumanRequested,
    PhaseCompleted,
    PhaseSkipped,
    PhaseStarted,
    QuestionKind,
    RolledBack,
    TreeRestored,
    UnitCompleted,
    UnitStarted,
    WorkspaceConflicted,
    WorkspaceReady,
)
from mz_events.catalog.run import ClaimRejected, FeatureOutcome, FilesClaimed, Hold, Verdict
from mz_events.catalog.validation import ArtifactParsed, ChangesChecked, CommandRan, ConditionsChecked
from mz_events.names import BUILDER, Commit, Digest
from mz_events.store import Recorded

from mz_projections.feature.session import add_written, apply_reply, apply_request, drop_session
from mz_projections.feature.state import (
    AcceptedGate,
    Active,
    BetweenPhases,
    CreatingWorkspace,
    Ended,
    FeatureProgress,
    Held,
    InPhase,
    NotStarted,
    Restoring,
    RunningSetup,
    State,
    UnitRun,
    Waiting,
    progress_of,
    run_version_of,
    superseded_phases,
)
from mz_projections.feature.unit import REVIEW, UNIT_RUN_HANDLERS, after_hold, reset_failures

AgentOutcome = AgentReplied | AgentFailed | AgentLost
PROGRESS_EVENTS = frozenset({AgentRequested, AgentReplied, AgentFailed, AgentSwitched, ReplyParsed, CallPriced})
"""Events within a unit that change the feature's progress even without a session."""
HISTORY_EVENTS = frozenset({
    PhaseStarted, PhaseCompleted, PhaseSkipped, Blocked, RolledBack, HumanRequested, HumanAnswered, FeatureRetried,
    ChangesChecked, ConditionsChecked,
})  # fmt: skip
"""Events that records tell of."""
ALWAYS_LEGAL = frozenset({FeatureCancelled, FeatureFailed, FeatureRetried, FeatureHeld, HumanRequested})
"""Legal in any state of a feature that has not ended; ends that state."""


def fold(events: Iterable[Recorded[Event]]) -> State:
    start: State = NotStarted()
    return reduce(evolve, events, start)


def evolve(state: State, recorded: Recorded[Event]) -> State:
    """Return the next state. Total: an illegal event changes nothing."""
    return apply_strict(state, recorded) or state


def apply_strict(state: State, recorded: Recorded[Event]) -> State | None:
    """Return the state after the event, or None if the event is illegal in this state."""
    event = recorded.event
    kind = type(event)
    if type(state) is InPhase and kind not in ALWAYS_LEGAL:
        next_state = _apply_in_phase(state, event, recorded.observed_at_us)
    else:
        next_state = _apply(state, event)
    if next_state is None or kind not in HISTORY_EVENTS:
        return next_state
    if type(event) is ChangesChecked and not any(change.kind == "secret" for change in event.forbidden_changes):
        return next_state
    return _with_history(next_state, event)


def _with_history(state: State, event: Event) -> State:
    match state:
        case InPhase() | BetweenPhases() | RunningSetup() | Restoring():
            return replace(state, progress=replace(state.progress, history=(*state.progress.history, event)))
        case Held() | Waiting():
            return replace(state, suspended=_with_history(state.suspended, event))
    return state


def _apply(state: State, event: Event) -> State | None:
    if type(event) is PhaseStarted and (type(state) is BetweenPhases or type(state) is RunningSetup):
        return _start_phase(state.progress, event)
    match state, event:
        case (NotStarted(), FeatureStarted()):
            return CreatingWorkspace(started=event, run_version=event.run_version)
        case (Ended(state_before=state_before), FeatureRetried()) if state_before is not None:
            return _retry(state_before, event)
        case (Ended(progress=FeatureProgress() as progress, state_before=None), FeatureRetried(keeps_tree=True)):
            return _revise(progress, event)
        case (Ended(), _) | (NotStarted(), _):
            return None
        case (_, FeatureCancelled()):
            return _end_feature(state, FeatureOutcome.CANCELLED, run_version=event.run_version)
        case (_, FeatureFailed(code=code)):
            return replace(_end_feature(state, FeatureOutcome.FAILED, code=code), detail=event.detail)
        case (Held(), HoldReleased()):
            return _release_hold(state, event)
        case (Waiting(question=question, suspended=suspended), HumanAnswered()):
            return _apply_answer(suspended, question, event)
        case (Held(suspended=suspended) | Waiting(suspended=suspended), FeatureRetried()):
            return _retry(suspended, event)
        case (Held() | Waiting(), _):
            return None
        case (_, FeatureRetried()):
            return _retry(state, event)
        case (_, FeatureHeld()):
            return Held(hold=event.hold, until_us=event.until_us, code=event.code, suspended=state)
        case (_, HumanRequested()):
            return Waiting(question=event, suspended=state)
        case (CreatingWorkspace(started=started, run_version=run_version), WorkspaceReady(head=head, tree=tree)):
            progress = FeatureProgress(started=started, base=head, head=head, tree=tree, run_version=run_version)
            return RunningSetup(progress=progress) if event.environment is None else BetweenPhases(progress=progress)
        case (CreatingWorkspace(), WorkspaceConflicted()):
            return replace(state, last_event=event)
        case (RunningSetup(), CommandRan(stage="setup")):
            return replace(state, command_runs=(*state.command_runs, event))
        case (RunningSetup(progress=progress), WorkspaceReady()):
            return replace(state, progress=replace(progress, head=event.head, tree=event.tree))
        case (BetweenPhases(progress=progress), FeatureDelivered()):
            return Ended(
                status=FeatureOutcome(event.ending),
                run_version=progress.run_version,
                head=event.head,
                changed_paths=event.changed_paths,
                progress=progress,
            )
        case (Restoring(), CommitRequested(purpose="restore")):
            return replace(state, last_event=event)
        case (Restoring(progress=progress), Committed()):
            return replace(state, last_event=event, progress=replace(progress, head=event.commit))
        case (Restoring(progress=progress), TreeRestored(tree=tree)):
            return BetweenPhases(progress=replace(progress, tree=tree))
    return None


def _end_feature(state: State, status: FeatureOutcome, run_version: int = 0, code: str | None = None) -> Ended:
    progress = progress_of(state)
    active = state.suspended if isinstance(state, Held | Waiting) else state
    return Ended(
        status=status,
        run_version=max(run_version, run_version_of(state)),
        head=progress.head if progress else None,
        code=code,
        progress=progress,
        state_before=active if isinstance(active, Active) else None,
    )


def _start_phase(progress: FeatureProgress, event: PhaseStarted) -> InPhase:
    starts = {**progress.start_trees, event.phase: progress.start_trees.get(event.phase, progress.tree)}
    return InPhase(
        progress=replace(progress, start_trees=starts),
        phase=event.phase,
        units=event.units,
        finished_units=progress.kept_units.get(event.phase, ()),
        kept_units=progress.kept_units.get(event.phase, ()),
    )


# people and holds -----------------------------------------------------------------------------------------------------
def _acknowledge(suspended: Active, run_version: int) -> Active:
    if isinstance(suspended, CreatingWorkspace):
        return replace(suspended, run_version=run_version)
    return replace(suspended, progress=replace(suspended.progress, run_version=run_version))


def _release_hold(held: Held, event: HoldReleased) -> State:
    suspended = _acknowledge(held.suspended, event.run_version)
    if isinstance(suspended, InPhase):
        suspended = replace(suspended, claim_rejected=False)
        if event.hold is Hold.FATAL:  # The problem was fixed: start with the configured agent again.
            suspended = replace(suspended, progress=replace(suspended.progress, replaced_agents={}))
        if suspended.unit_run is not None:
            return replace(suspended, unit_run=after_hold(suspended.unit_run, event, held.until_us))
    return suspended


def _apply_answer(suspended: Active, question: HumanRequested, event: HumanAnswered) -> State:
    suspended = _acknowledge(suspended, event.run_version)
    match suspended:
        case CreatingWorkspace(text_approved=approved):
            approves_text = question.question_kind is QuestionKind.WITHHELD and event.verdict is Verdict.APPROVE
            return replace(suspended, last_event=event, text_approved=approved or approves_text)
        case RunningSetup():
            return replace(_drop_failed_commands(suspended), last_event=event)
        case InPhase(progress=progress, unit_run=UnitRun() as unit_run):
            if question.question_kind is QuestionKind.SECRET:  # The files that it wrote are reverted.
                progress = replace(
                    progress, agent_session=drop_session(progress.agent_session, SessionDropReason.ROLLBACK)
                )
            if event.verdict is Verdict.ACCEPT and (gate := rejecting_gate(unit_run)):
                return _accept_gate(suspended, unit_run, gate, question, event)
            if event.verdict is Verdict.ACCEPT:  # There is no gate to accept.
                event = replace(event, verdict=Verdict.APPROVE)
            return replace(suspended, progress=progress, unit_run=_answer_unit_run(unit_run, question, event))
    return suspended


def _drop_failed_commands(state: RunningSetup) -> RunningSetup:
    return replace(state, command_runs=tuple(command for command in state.command_runs if command.exit == 0))


def rejecting_gate(unit_run: UnitRun) -> str:
    """Return the gate whose result blocks the unit run; empty if none does."""
    check = unit_run.block.check if unit_run.block else ""
    return check if unit_run.check_results.get(check) is False else ""


def _accept_gate(
    state: InPhase, unit_run: UnitRun, gate: str, question: HumanRequested, event: HumanAnswered
) -> InPhase:
    """Continue with the work as it is: the gate counts as passed, and its failure as known."""
    accepted = AcceptedGate(gate=gate, answer=event, ran=unit_run.gate_runs.get(gate))
    progress = replace(state.progress, accepted_gates=(*state.progress.accepted_gates, accepted))
    accepted_run = replace(
        unit_run,
        check_results={**unit_run.check_results, gate: True},
        answered_question=question,
        block=None,
        reports=(),
        signature="",
        last_event=event,
    )
    return replace(state, progress=progress, unit_run=accepted_run)


def _answer_unit_run(unit_run: UnitRun, question: HumanRequested, event: HumanAnswered) -> UnitRun:
    """Continue on approval; leave a rejection to the decision; otherwise retry with the note and reset counters.

    The retry is by the builder if a person judged its work, and from the start of the unit if no agent was called yet.
    """
    unit_run = replace(unit_run, answered_question=question)
    approved = event.verdict is Verdict.APPROVE
    approved_questions = (*unit_run.approved_questions, *question.subjects) if approved else unit_run.approved_questions
    if event.verdict is Verdict.REJECT:
        return replace(unit_run, last_event=event)
    unit_run = replace(unit_run, notes=unit_run.notes if event.note is None else (*unit_run.notes, event.note))
    if approved and question.question_kind is QuestionKind.APPROVAL:
        return replace(unit_run, approved_questions=approved_questions)
    if approved and question.question_kind is QuestionKind.EXHAUSTED and unit_run.role != BUILDER:
        # The work itself is valid, so it is accepted without the review, whose invalid verdict nobody reads.
        artifacts, of_review = unit_run.parsed_artifacts.items(), unit_run.review_artifacts
        return replace(
            unit_run,
            role=BUILDER,
            conditions={**unit_run.conditions, REVIEW: ()},
            parsed_artifacts={name: parsed for name, parsed in artifacts if name not in of_review},
            reports=(),
            last_event=replace(event, verdict=Verdict.ACCEPT),
        )
    if question.question_kind is QuestionKind.CHECKS:
        return replace(
            unit_run,
            approved_questions=approved_questions,
            last_poll=None,
            checks_began_at_us=0,
            reruns=0,
            block=None,
            rollback_allowed=True,
            last_event=event,
        )
    if question.question_kind is QuestionKind.CONFLICT and approved and isinstance(unit_run.last_event, BaseMerged):
        return replace(unit_run, approved_questions=approved_questions)
    if question.question_kind in (QuestionKind.ROLLBACKS, QuestionKind.CONFLICT):
        return replace(unit_run, rollback_allowed=True)
    if not any(attempts.attempt for attempts in unit_run.attempts.values()):
        return replace(
            unit_run,
            last_event=None,
            attempts={},
            preparation_runs=(),
            check_results={},
            block=None,
            approved_questions=approved_questions,
        )
    reset_attempts = {
        role: reset_failures(replace(attempts, rejected=0)) for role, attempts in unit_run.attempts.items()
    }
    role = BUILDER if question.question_kind in (QuestionKind.APPROVAL, QuestionKind.UNROUTED) else unit_run.role
    tree = unit_run.base if question.question_kind is QuestionKind.SECRET else unit_run.tree
    return replace(unit_run, last_event=event, attempts=reset_attempts, block=None, role=role, tree=tree)


# inside a phase -------------------------------------------------------------------------------------------------------
def _apply_in_phase(state: InPhase, event: Event, observed_at_us: int) -> State | None:
    unit_run = state.unit_run
    change = UNIT_RUN_HANDLERS.get(type(event)) if unit_run is not None else None
    if unit_run is not None and change is not None:
        next_run, progress = change(unit_run, event, observed_at_us), state.progress
        if next_run is None:
            return None
        if progress.agent_session is not None or type(event) in PROGRESS_EVENTS:
            progress = _update_progress(progress, unit_run, event)
        is_same = next_run is unit_run and progress is state.progress
        return state if is_same else replace(state, unit_run=next_run, progress=progress)
    if unit_run is None:
        return _apply_between_units(state, event)
    if type(event) is Committed:
        progress = replace(state.progress, head=event.commit)
        return replace(state, progress=progress, unit_run=replace(unit_run, commit=event.commit, last_event=event))
    if type(event) is UnitCompleted:
        progress, finished = _complete_unit(state.progress, state.phase, unit_run), (*state.finished_units, event.unit)
        return replace(state, progress=progress, finished_units=finished, unit_run=None)
    if type(event) is PhaseSkipped:
        session = drop_session(state.progress.agent_session, SessionDropReason.ROLLBACK)
        progress = replace(state.progress, agent_session=session)
        return BetweenPhases(progress=_complete_phase(progress, event.phase, state.finished_units))
    if type(event) is SessionDropped:
        return replace(state, progress=replace(state.progress, agent_session=None))
    if type(event) is Blocked:
        progress = replace(
            state.progress,
            issue_counts=_increment(state.progress.issue_counts, issue_of(event)),
            block_counts=_increment(state.progress.block_counts, event.cause),
        )
        return replace(state, progress=progress, unit_run=replace(unit_run, block=event, last_event=event))
    if type(event) is RolledBack:
        return _roll_back(state, unit_run, event)
    if type(event) is BaseMerged:
        return _apply_merge(state, unit_run, event)
    if type(event) is Pushed:
        pushed_run = replace(unit_run, delivery_steps=(*unit_run.delivery_steps, "push"), last_event=event)
        return replace(state, progress=replace(state.progress, pushed_commit=event.commit), unit_run=pushed_run)
    if type(event) is BranchLanded:
        landed_run = replace(unit_run, delivery_steps=(*unit_run.delivery_steps, "merge"), last_event=event)
        return replace(state, progress=replace(state.progress, landed=event), unit_run=landed_run)
    return _apply_claim(state, event)


def _apply_between_units(state: InPhase, event: Event) -> State | None:
    if type(event) is UnitStarted:
        unit, tree, usage = event.unit, state.progress.tree, state.progress.usage
        notes = _start_notes(state.progress, event.phase, unit)
        started = UnitRun(unit=unit, iteration=event.iteration, base=tree, tree=tree, notes=notes, usage_before=usage)
        return replace(state, unit_run=started)
    if type(event) is PhaseCompleted:
        return BetweenPhases(progress=_complete_phase(state.progress, event.phase, state.finished_units))
    return _apply_claim(state, event)


def _apply_claim(state: InPhase, event: Event) -> State | None:
    if type(event) is FilesClaimed:
        return replace(state, claimed=True, claim_rejected=False)
    return replace(state, claim_rejected=True) if type(event) is ClaimRejected else None


def _update_progress(progress: FeatureProgress, unit_run: UnitRun, event: Event) -> FeatureProgress:
    """Apply an event of a unit to the feature's usage, session and agent."""
    usage, agent_session = progress.usage, progress.agent_session
    if type(event) is AgentRequested:
        calls, agent_session = _increment(progress.calls, event.ref.phase), apply_request(agent_session, event)
        return replace(progress, calls=calls, agent_session=agent_session)
    if type(event) is AgentReplied or type(event) is AgentFailed:
        return replace(progress, usage=replace(usage, duration_ms=usage.duration_ms + event.duration_ms))
    if type(event) is ReplyParsed:
        input_tokens, output_tokens = usage.input_tokens, usage.output_tokens
        for part in event.usage:
            input_tokens, output_tokens = input_tokens + part.input, output_tokens + part.output
        return replace(
            progress,
            usage=replace(usage, input_tokens=input_tokens, output_tokens=output_tokens),
            agent_session=apply_reply(agent_session, event),
            builder_agents=_builder_agents(progress, unit_run.request, event),
        )
    if type(event) is CallPriced:
        parsed, nanousd = unit_run.last_event, event.computed_nanousd
        if nanousd is None and type(parsed) is ReplyParsed:
            nanousd = parsed.reported_nanousd
        return replace(progress, usage=replace(usage, nanousd=usage.nanousd + (nanousd or 0)))
    if type(event) is ArtifactParsed and not event.is_result and unit_run.reply_event is not None:
        return replace(progress, agent_session=add_written(agent_session, unit_run.reply_event.ref.key, event))
    if type(event) is AgentSwitched:
        return replace(progress, replaced_agents={**progress.replaced_agents, event.source: event.to})
    return progress


def _builder_agents(
    progress: FeatureProgress, request: AgentRequested | None, reply: ReplyParsed
) -> dict[str, tuple[str, ...]]:
    """Return the builders of each phase, with that of a successful reply."""
    if request is None or reply.ending != "success" or request.ref.role != BUILDER:
        return progress.builder_agents
    phase, agents = request.ref.phase, progress.builder_agents.get(request.ref.phase, ())
    return (
        progress.builder_agents
        if request.agent in agents
        else {**progress.builder_agents, phase: (*agents, request.agent)}
    )


def _complete_unit(progress: FeatureProgress, phase: str, unit_run: UnitRun) -> FeatureProgress:
    artifacts = dict(progress.artifacts)
    for name, artifact in unit_run.parsed_artifacts.items():
        artifacts[name] = artifact
        if unit_run.unit:
            artifacts[f"{name}/{unit_run.unit}"] = artifact
    gate_runs = {**progress.gate_runs, **unit_run.gate_runs}
    key, runs = f"{phase}/{unit_run.unit}", (*unit_run.preparation_runs, *unit_run.gate_runs.values())
    judged_by = {**progress.judged_by, key: unit_run.judged_by} if unit_run.judged_by else progress.judged_by
    return replace(
        progress,
        artifacts=artifacts,
        tree=progress.tree if unit_run.commit is None else unit_run.tree,  # After the delivery nothing is committed.
        gate_runs=gate_runs,
        judged_by=judged_by,
        unit_trees=_add_trees(progress, phase, unit_run),
        unit_results={**progress.unit_results, key: runs},
    )


def _add_trees(
    progress: FeatureProgress, phase: str, unit_run: UnitRun
) -> dict[str, tuple[tuple[Commit, Commit], ...]]:
    key = f"{phase}/{unit_run.unit}"
    return {**progress.unit_trees, key: (*progress.unit_trees.get(key, ()), (unit_run.base, unit_run.tree))}


def _complete_phase(progress: FeatureProgress, phase: str, units: tuple[str, ...]) -> FeatureProgress:
    kept_units, notes = progress.kept_units, progress.notes
    if kept_units or notes:
        kept_units = {name: units for name, units in kept_units.items() if name != phase}
        notes = {key: value for key, value in notes.items() if key.split("/")[0] != phase}
    completed, finished = (*progress.completed_phases, phase), progress.finished_units
    if any(units):
        finished = {**finished, phase: units}
    return replace(progress, completed_phases=completed, finished_units=finished, kept_units=kept_units, notes=notes)


def issue_of(block: Blocked) -> str:
    """Return the identity of an issue: never prose, so that the same issue is recognised."""
    return f"{block.phase}|{block.check}|{block.unit}|{block.path}"


def _increment(counts: dict[str, int], key: str) -> dict[str, int]:
    return {**counts, key: counts.get(key, 0) + 1}


def _roll_back(state: InPhase, unit_run: UnitRun, event: RolledBack) -> State:
    new_notes = unit_run.notes[len(_start_notes(state.progress, state.phase, unit_run.unit)) :]
    reasons = (unit_run.block.note, *new_notes) if unit_run.block and unit_run.block.note else new_notes
    progress = _supersede_phases(state.progress, event.to, event.units, reasons)
    agent_session = drop_session(progress.agent_session, SessionDropReason.ROLLBACK)
    progress = replace(progress, rollback_count=progress.rollback_count + 1, agent_session=agent_session)
    if event.units or event.keeps_tree:
        trees = _add_trees(state.progress, state.phase, unit_run)  # What the blocked unit changed stays in the tree.
        progress = replace(progress, unit_trees=trees if unit_run.tree != unit_run.base else state.progress.unit_trees)
    if event.units:
        is_own = event.to == state.phase
        finished = state.finished_units if is_own else progress.finished_units.get(event.to, ())
        kept_units = tuple(unit for unit in finished if unit not in event.units)
        return BetweenPhases(
            progress=replace(progress, kept_units={**progress.kept_units, event.to: kept_units}, tree=unit_run.tree)
        )
    if event.keeps_tree:
        return BetweenPhases(progress=replace(progress, tree=unit_run.tree))
    return _start_restoring(progress, event.to, state.progress)


def _supersede_phases(
    progress: FeatureProgress, target: str, units: tuple[str, ...], reasons: tuple[Digest, ...]
) -> FeatureProgress:
    """Supersede phases since `target` was started, or only these units of it, with their artifacts and completions."""
    from_target = superseded_phases(tuple(progress.start_trees), target)
    superseded = superseded_phases(tuple(progress.start_trees), target, units)
    counts = dict(progress.superseded_counts)
    for key in (*superseded, *(f"{target}/{unit}" for unit in units)):
        counts[key] = counts.get(key, 0) + 1
    notes = {key: value for key, value in progress.notes.items() if key.split("/")[0] not in superseded}
    for key in [f"{target}/{unit}" for unit in units] or [target]:
        notes[key] = (*notes.get(key, ()), *reasons)
    return replace(
        progress,
        completed_phases=tuple(phase for phase in progress.completed_phases if phase not in from_target),
        artifacts={name: artifact for name, artifact in progress.artifacts.items() if artifact.phase not in superseded},
        start_trees={phase: tree for phase, tree in progress.start_trees.items() if phase not in superseded},
        unit_trees={key: trees for key, trees in progress.unit_trees.items() if key.split("/")[0] not in superseded},
        unit_results={key: runs for key, runs in progress.unit_results.items() if key.split("/")[0] not in superseded},
        builder_agents={phase: names for phase, names in progress.builder_agents.items() if phase not in superseded},
        superseded_counts=counts,
        kept_units={phase: names for phase, names in progress.kept_units.items() if phase not in from_target},
        notes=notes,
    )


def _start_restoring(progress: FeatureProgress, target: str, previous: FeatureProgress) -> Restoring:
    """Return the state that restores, on the branch, the tree that phase `target` began with."""
    agent_session = drop_session(progress.agent_session, SessionDropReason.ROLLBACK)
    tree = previous.start_trees.get(target, previous.tree)
    return Restoring(
        progress=replace(progress, tree=tree, restore_count=progress.restore_count + 1, agent_session=agent_session),
        to=target,
    )


def _retry(suspended: Active, event: FeatureRetried) -> State:
    """Reset all counters: a person has looked at the feature, or the run begins it again."""
    suspended = _acknowledge(suspended, event.run_version)
    if isinstance(suspended, CreatingWorkspace):
        return replace(suspended, last_event=None)
    if isinstance(suspended, RunningSetup):
        return replace(_drop_failed_commands(suspended), last_event=None)
    progress = _reset_counters(suspended.progress)
    reasons = () if event.note is None else (event.note,)
    if event.to not in progress.start_trees:
        if not isinstance(suspended, Restoring):
            return BetweenPhases(progress=progress)
        notes = {**progress.notes, suspended.to: (*progress.notes.get(suspended.to, ()), *reasons)}
        return Restoring(
            progress=replace(progress, restore_count=progress.restore_count + 1, notes=notes), to=suspended.to
        )
    if event.actor is None and isinstance(suspended, InPhase):  # The reason is for the phase that failed.
        superseded = _supersede_phases(progress, event.to, (), ())
        notes = {**superseded.notes, suspended.phase: (*superseded.notes.get(suspended.phase, ()), *reasons)}
        return _start_restoring(replace(superseded, notes=notes), event.to, progress)
    return _start_restoring(_supersede_phases(progress, event.to, (), reasons), event.to, progress)


def _reset_counters(progress: FeatureProgress) -> FeatureProgress:
    return replace(progress, issue_counts={}, block_counts={}, rollback_count=0, replaced_agents={})


def _revise(progress: FeatureProgress, event: FeatureRetried) -> BetweenPhases:
    """Take delivered work up again: a new iteration of `to` and later phases on the present tree, with commits of
    people, which a rollback must not revert."""
    reasons = () if event.note is None else (event.note,)
    agent_session = drop_session(progress.agent_session, SessionDropReason.ROLLBACK)
    progress = replace(_reset_counters(progress), run_version=event.run_version, agent_session=agent_session)
    if event.commits is not None:
        head, tree = event.commits.head, event.commits.tree
        progress = replace(progress, head=head, tree=tree, start_trees=dict.fromkeys(progress.start_trees, tree))
    return BetweenPhases(progress=_supersede_phases(progress, event.to, (), reasons))


def _apply_merge(state: InPhase, unit_run: UnitRun, event: BaseMerged) -> State:
    """Apply a merge of the target to every earlier tree too, so that a rollback does not revert it."""
    progress = replace(state.progress, head=event.head, conflicted_files=event.conflicts)
    if event.changed:
        progress = replace(
            progress, merged_target=event.base, start_trees=dict.fromkeys(progress.start_trees, event.tree)
        )
        unit_run = replace(unit_run, check_results={})
    return replace(
        state, progress=progress, unit_run=replace(unit_run, tree=event.tree, target_merge=event, last_event=event)
    )


def _start_notes(progress: FeatureProgress, phase: str, unit: str) -> tuple[Digest, ...]:
    """Return the notes that a unit run begins with: for this unit, not for one that the work is rolled back to."""
    return progress.notes.get(phase, ()) + (progress.notes.get(f"{phase}/{unit}", ()) if unit else ())
