"""Expected events of each action, with prompts, verdicts and results taken from the recorded stream. Only the events,
their order, keys and arguments are computed. No prompt is rendered, nothing is parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action
from mz_engine.decide.recovery import agent_of
from mz_engine.effects.call import session_id
from mz_engine.effects.prompt import outputs_of
from mz_engine.effects.session import configured_model, drop_reason, keeps_session
from mz_engine.effects.steps import StepContext
from mz_engine.model.pipeline import PhaseOutput
from mz_engine.model.rules import FileRule
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    AgentSwitched,
    CallOverBudget,
    CallPriced,
    CallRef,
    CallReserved,
    CallSettled,
    ReplyParsed,
    SessionDropped,
    SessionDropReason,
)
from mz_events.catalog.delivery import (
    BaseMerged,
    ChecksPolled,
    ChecksRerun,
    CommitRequested,
    Committed,
    DeliveryFailed,
    PullRequestOpened,
    PullRequestRequested,
    Pushed,
    PushRequested,
)
from mz_events.catalog.feature import (
    Blocked,
    FeatureDelivered,
    FeatureFailed,
    FeatureHeld,
    HumanRequested,
    PhaseCompleted,
    PhaseStarted,
    QuestionKind,
    RolledBack,
    TreeRestored,
    UnitCompleted,
    UnitStarted,
    WorkspaceConflicted,
    WorkspaceReady,
)
from mz_events.catalog.run import ClaimRejected, FilesClaimed
from mz_events.catalog.validation import (
    ArtifactParsed,
    ArtifactValidated,
    ChangesChecked,
    CommandRan,
    GateChecked,
    RefMoved,
    Violation,
)
from mz_events.names import Commit, Digest, FeatureId, Path, parse_path
from mz_projections.feature.state import AgentSession, BetweenPhases, InPhase, Restoring

from mz_recordings.past_runs.expected_events import ExpectedEvents
from mz_recordings.past_runs.recorded_stream import RecordedStream

NO_TEXT = Digest("")


def expected_events(action: Action, scene: StepContext, stream: RecordedStream) -> list[Event]:
    """Return the events that the action appends, as far as the recorded stream matches."""
    expected = ExpectedEvents(scene, stream, stream.position)
    EXPECTED_BY_ACTION[type(action)](expected, action)
    return expected.events


# workspace ------------------------------------------------------------------------------------------------------------
def _open(expected: ExpectedEvents, action: act.CreateWorkspace) -> None:
    event = expected.next_event()
    if isinstance(event, HumanRequested) and event.question_kind is QuestionKind.CONFLICT:
        expected.append(event)
    else:
        expected.append_outcome(WorkspaceReady, WorkspaceConflicted)


def _set_up(expected: ExpectedEvents, action: act.RunSetup) -> None:
    event = expected.next_event()
    if isinstance(event, CommandRan) and (event.stage, event.name) == ("setup", action.command):
        expected.append_outcome(CommandRan)
        expected.append_outcome(WorkspaceReady)
    else:
        expected.append_outcome()


def _restore(expected: ExpectedEvents, action: act.RestoreTree) -> None:
    state, scene = expected.scene.state, expected.scene
    assert isinstance(state, Restoring)
    if action.committed:
        if expected.append_setup():
            expected.append_decided(TreeRestored, {}, tree=state.progress.tree)
        return
    key = f"{scene.run}/{scene.feature}/-/-/{state.progress.restore_count}/0/restore"
    _commit(expected, key, "restore", state.progress.tree, state.progress.head, state.to, "")


def _make_commit(expected: ExpectedEvents, action: act.MakeCommit) -> None:
    scene, cell = expected.scene, expected.scene.unit_run
    _commit(
        expected,
        scene.key("commit"),
        "work",
        cell.tree,
        scene.phase_state.progress.head,
        scene.phase_state.phase,
        cell.unit,
    )


def _commit(
    expected: ExpectedEvents, key: str, purpose: str, tree: Commit, parent: Commit, phase: str, unit: str
) -> None:
    expected.append_decided(
        CommitRequested,
        {"message": NO_TEXT},
        key=key,
        purpose=purpose,
        tree=tree,
        parent=parent,
        phase=phase,
        unit=unit,
    )
    expected.append_outcome(Committed)


# calls ----------------------------------------------------------------------------------------------------------------
def _call(expected: ExpectedEvents, action: act.CallAgent) -> None:
    if not expected.append_setup():
        return
    scene, cell, config = expected.scene, expected.scene.unit_run, expected.scene.pins.config
    phase, key, feature = scene.phase, scene.key(f"agent.{action.role}", action.attempt), FeatureId(scene.feature)
    book = scene.phase_state.progress
    agent = agent_of(book, config)
    session = _session(expected, action.role, agent, key)
    if expected.first_of(CallReserved, CallOverBudget) is CallOverBudget:
        expected.append_decided(CallOverBudget, {"nanousd": None}, feature=feature, key=key, role=action.role)
        return
    expected.append_decided(CallReserved, {"nanousd": None}, feature=feature, key=key)
    if action.role == "builder":
        assert phase.agent is not None
        tier, template = phase.agent.tier, phase.prompt or phase.phase
    else:
        assert phase.agent_review is not None
        tier, template = phase.agent_review.tier, phase.agent_review.prompt
    model = configured_model(config, agent, tier)
    expected.append_decided(
        AgentRequested,
        {
            "model": "", "prompt": NO_TEXT, "refs": NO_TEXT, "estimated_tokens": 0, "estimated_nanousd": None,
            "full_prompt": True, "session": None, "resumes": False,
        },
        ref=CallRef(
            key=key, phase=scene.phase_state.phase, unit=cell.unit, iteration=cell.iteration, attempt=action.attempt,
            role=action.role,
        ),
        agent=agent, template=template, tree=cell.tree,
        session=session.id if session else session_id(key), resumes=session is not None,
        **({} if session else {"full_prompt": True}),
        **({"model": model} if model else {}),
    )  # fmt: skip
    event = _event_after_moves(expected)
    if isinstance(event, AgentReplied | AgentFailed) and event.ref.key == key and not getattr(event, "salvaged", False):
        expected.append_outcome(AgentReplied, AgentFailed)


def _session(expected: ExpectedEvents, role: str, agent: str, key: str) -> AgentSession | None:
    """Return the session that the call continues. If it ends, append that event first. What an agent cannot do, and its
    model, are as recorded."""
    scene = expected.scene
    conversation = scene.phase_state.progress.agent_session
    if conversation is None or not keeps_session(scene.phase, role, scene.pins.config):
        return None
    request = expected.find_near(AgentRequested)
    reason = drop_reason(conversation, scene.run, agent, request.model if request else conversation.model)
    event = expected.next_event()
    if reason is None and isinstance(event, SessionDropped) and event.reason is SessionDropReason.RECORDED:
        reason = SessionDropReason.RECORDED
    if reason is None:
        return conversation
    expected.append_decided(SessionDropped, {}, key=key, session=conversation.id, reason=reason)
    return None


def _switch(expected: ExpectedEvents, action: act.SwitchAgent) -> None:
    request = expected.scene.unit_run.request
    assert request is not None
    expected.append(AgentSwitched(ref=request.ref, source=request.agent, to=action.to, code=action.code))


def _event_after_moves(expected: ExpectedEvents) -> Event | None:
    at, events = expected.position, expected.stream.events
    while at < len(events) and isinstance(events[at].event, RefMoved):
        at += 1
    return events[at].event if at < len(events) else None


def _settle(expected: ExpectedEvents, action: act.ReconcileIntent) -> None:
    event = expected.next_event()
    match action.intent:
        case AgentRequested(ref=ref):
            event = _event_after_moves(expected)
            if isinstance(event, AgentReplied | AgentLost) and event.ref == ref:
                expected.append_outcome(AgentReplied, AgentLost)
            elif isinstance(event, FeatureHeld):
                expected.append_outcome()
        case CommitRequested():
            expected.append_outcome(Committed)
        case PushRequested():
            expected.append_outcome(Pushed, DeliveryFailed)
        case PullRequestRequested():
            expected.append_outcome(PullRequestOpened, DeliveryFailed)


def _read_reply(expected: ExpectedEvents, action: act.ParseReply) -> None:
    ref = action.outcome.ref
    blank = {"parser": "", "ending": "", "session": None, "text": NO_TEXT}
    expected.append_decided(ReplyParsed, blank, ref=ref)
    expected.append_decided(CallPriced, {"computed_nanousd": None}, key=ref.key)
    expected.append_decided(CallSettled, {"nanousd": 0}, feature=FeatureId(expected.scene.feature), key=ref.key)


# checks ---------------------------------------------------------------------------------------------------------------
def _prepare(expected: ExpectedEvents, action: act.RunPreparation) -> None:
    if expected.append_setup():
        _ran(expected, "prepare", action.command)


def _ran(expected: ExpectedEvents, stage: str, name: str) -> CommandRan | None:
    event, scene = expected.next_event(), expected.scene
    if isinstance(event, CommandRan) and event.stage == stage:
        return expected.append_decided(
            CommandRan, {}, phase=scene.phase_state.phase, unit=scene.unit_run.unit, name=name
        )
    expected.append_outcome()
    return None


def _changes(expected: ExpectedEvents, action: act.CheckChanges) -> None:
    if expected.append_setup():
        event, reply = expected.next_event(), expected.scene.unit_run.reply_event
        if isinstance(event, ChangesChecked) and reply is not None:
            expected.append_decided(ChangesChecked, {}, ref=reply.ref)
        else:
            expected.append_outcome()


def _validate(expected: ExpectedEvents, action: act.ValidateOutputs) -> None:
    scene, reply = expected.scene, expected.scene.unit_run.reply_event
    assert reply is not None
    for output in outputs_of(scene, scene.unit_run.role):
        event = expected.next_event()
        parsed = event if isinstance(event, ArtifactParsed) else None
        if (parsed and parsed.artifact == output.artifact) or _must_exist(expected, output):
            path = Path(output.path) if output.path else None
            if path and not (parsed and parsed.path == path):
                path = parse_path(path)  # Expensive.
            expected.append_decided(
                ArtifactParsed, {"digest": NO_TEXT}, artifact=output.artifact, phase=scene.phase_state.phase,
                unit=scene.unit_run.unit, path=path,
            )  # fmt: skip
    event = expected.next_event()
    if isinstance(event, FeatureHeld):
        expected.append_outcome()
    else:
        expected.append_decided(ArtifactValidated, {}, ref=reply.ref)


def _must_exist(expected: ExpectedEvents, output: PhaseOutput) -> bool:
    """Return True if the artifact must have existed: it is the reply, or the verdict does not report it missing."""
    if output.path is None:
        return True
    verdict = expected.next_event()
    files = {rule.id for rule in expected.scene.pins.rules[output.rules].rules if isinstance(rule, FileRule)}
    if not files or not isinstance(verdict, ArtifactValidated):
        return False
    return not any(violation.rule in files and violation.path == output.path for violation in verdict.violations)


def _gate(expected: ExpectedEvents, action: act.RunGate) -> None:
    if not expected.append_setup():
        return
    ran, scene = _ran(expected, "gate", action.gate), expected.scene
    if ran is None:
        return
    passed = ran.exit == 0
    expected.append_decided(
        GateChecked, {}, phase=scene.phase_state.phase, unit=scene.unit_run.unit, gate=action.gate, passed=passed,
        cause=action.cause, violations=() if passed else (Violation(rule=action.gate),),
        signature="" if passed else ran.signature,
    )  # fmt: skip


def _rule(expected: ExpectedEvents, action: act.CheckRule) -> None:
    scene = expected.scene
    if isinstance(expected.next_event(), FeatureHeld):
        expected.append_outcome()
        return
    expected.append_decided(
        GateChecked,
        {"passed": True},
        phase=scene.phase_state.phase,
        unit=scene.unit_run.unit,
        gate=action.rule,
        cause=action.cause,
    )


# people, blocks -------------------------------------------------------------------------------------------------------
def _ask(expected: ExpectedEvents, action: act.AskPerson) -> None:
    state = expected.scene.state
    phase, unit = (
        (state.phase, state.unit_run.unit if state.unit_run else "") if isinstance(state, InPhase) else ("", "")
    )
    expected.append_decided(
        HumanRequested, {}, phase=phase, unit=unit, question_kind=action.question_kind, code=action.code
    )


def _block(expected: ExpectedEvents, action: act.BlockPhase) -> None:
    scene, cell, path = expected.scene, expected.scene.unit_run, ""
    match cell.last_event:
        case GateChecked(violations=(first, *_)):
            path = first.path
        case BaseMerged(conflicts=conflicts, unmarked=unmarked) if conflicts or unmarked:
            path = (*conflicts, *unmarked)[0]
    expected.append_decided(
        Blocked, {}, phase=scene.phase_state.phase, unit=cell.unit, cause=action.cause, check=action.check, path=path
    )


def _roll_back(expected: ExpectedEvents, action: act.RollBack) -> None:
    source = expected.scene.phase_state.phase
    expected.append(RolledBack(source=source, to=action.to, units=action.units, keeps_tree=action.keeps_tree))


# phases and units -----------------------------------------------------------------------------------------------------
def _start_phase(expected: ExpectedEvents, action: act.StartPhase) -> None:
    expected.append(PhaseStarted(phase=action.phase, iteration=action.iteration, units=action.units))


def _claim(expected: ExpectedEvents, action: act.ClaimFiles) -> None:
    kind = expected.first_of(FilesClaimed, ClaimRejected)
    expected.append_decided(kind, {}, feature=FeatureId(expected.scene.feature), phase=action.phase, paths=action.paths)


def _start_unit(expected: ExpectedEvents, action: act.StartUnit) -> None:
    expected.append(UnitStarted(phase=action.phase, unit=action.unit, iteration=action.iteration))


def _complete_unit(expected: ExpectedEvents, action: act.CompleteUnit) -> None:
    expected.append(UnitCompleted(phase=expected.scene.phase_state.phase, unit=action.unit))


def _complete_phase(expected: ExpectedEvents, action: act.CompletePhase) -> None:
    expected.append(PhaseCompleted(phase=action.phase))


def _hold(expected: ExpectedEvents, action: act.HoldFeature) -> None:
    expected.append(FeatureHeld(hold=action.hold, until_us=action.until_us, code=action.code))


def _fail(expected: ExpectedEvents, action: act.FailFeature) -> None:
    expected.append(FeatureFailed(code=action.code))


# delivery -------------------------------------------------------------------------------------------------------------
def _push(expected: ExpectedEvents, action: act.PushBranch) -> None:
    scene = expected.scene
    if isinstance(expected.next_event(), DeliveryFailed | FeatureHeld):
        expected.append_outcome(DeliveryFailed)
        return
    expected.append_decided(
        PushRequested, {"old": None}, key=scene.key("push"), remote=scene.pins.config.pull_requests.remote,
        branch=scene.worktree.branch, commit=scene.phase_state.progress.head,
    )  # fmt: skip
    expected.append_outcome(Pushed, DeliveryFailed)


def _open_pull_request(expected: ExpectedEvents, action: act.OpenPullRequest) -> None:
    scene = expected.scene
    if isinstance(expected.next_event(), DeliveryFailed | FeatureHeld):
        expected.append_outcome(DeliveryFailed)
        return
    expected.append_decided(
        PullRequestRequested, {"target": "", "title": NO_TEXT, "body": NO_TEXT}, key=scene.key("open_pr"),
        branch=scene.worktree.branch, strategy=scene.pins.config.pull_requests.strategy,
    )  # fmt: skip
    expected.append_outcome(PullRequestOpened, DeliveryFailed)


def _merge(expected: ExpectedEvents, action: act.MergeBase) -> None:
    if expected.append_setup():
        expected.append_outcome(BaseMerged, DeliveryFailed)


def _poll_checks(expected: ExpectedEvents, action: act.PollChecks) -> None:
    expected.append_outcome(ChecksPolled)


def _rerun(expected: ExpectedEvents, action: act.RerunChecks) -> None:
    expected.append_outcome(ChecksRerun)


def _finish(expected: ExpectedEvents, action: act.FinishFeature) -> None:
    state = expected.scene.state
    assert isinstance(state, BetweenPhases)
    if isinstance(expected.next_event(), FeatureHeld):
        expected.append_outcome()
        return
    expected.append_decided(
        FeatureDelivered, {}, ending=expected.scene.pins.pipeline.terminal, head=state.progress.head
    )


EXPECTED_BY_ACTION: Mapping[type[Action], Callable[[ExpectedEvents, Any], None]] = {
    act.CreateWorkspace: _open,
    act.RunSetup: _set_up,
    act.StartPhase: _start_phase,
    act.ClaimFiles: _claim,
    act.StartUnit: _start_unit,
    act.RunPreparation: _prepare,
    act.CallAgent: _call,
    act.SwitchAgent: _switch,
    act.ReconcileIntent: _settle,
    act.ParseReply: _read_reply,
    act.CheckChanges: _changes,
    act.ValidateOutputs: _validate,
    act.RunGate: _gate,
    act.CheckRule: _rule,
    act.AskPerson: _ask,
    act.BlockPhase: _block,
    act.RollBack: _roll_back,
    act.RestoreTree: _restore,
    act.MakeCommit: _make_commit,
    act.PushBranch: _push,
    act.OpenPullRequest: _open_pull_request,
    act.MergeBase: _merge,
    act.PollChecks: _poll_checks,
    act.RerunChecks: _rerun,
    act.CompleteUnit: _complete_unit,
    act.CompletePhase: _complete_phase,
    act.HoldFeature: _hold,
    act.FailFeature: _fail,
    act.FinishFeature: _finish,
}
