"""Expected events of each action, with prompts, verdicts and results taken from the recorded stream. Only the events,
their order, keys and arguments are computed. No prompt is rendered, nothing is parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mz_engine.artifacts.rule import File
from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action
from mz_engine.decide.recovery import agent_of
from mz_engine.effects.call import session_of
from mz_engine.effects.prompt import outputs_of
from mz_engine.effects.steps import Scene
from mz_engine.effects.talk import configured_model, ended, keeps
from mz_engine.pipelines.definition import Output
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    AgentSwitched,
    CallHeld,
    CallPriced,
    CallRef,
    CallReserved,
    CallSettled,
    ReplyRead,
    SessionBroken,
    SessionEnd,
)
from mz_events.catalog.check import (
    ArtifactParsed,
    ArtifactValidated,
    ChangesChecked,
    CommandRan,
    GateChecked,
    RefMoved,
    Violation,
)
from mz_events.catalog.delivery import (
    BaseMerged,
    ChecksRerun,
    ChecksSeen,
    CommitRequested,
    Committed,
    DeliveryFailed,
    PullRequestOpened,
    PullRequestRequested,
    Pushed,
    PushRequested,
)
from mz_events.catalog.feature import (
    Ask,
    Blocked,
    FeatureDelivered,
    FeatureFailed,
    FeatureHeld,
    HumanRequested,
    PhaseCompleted,
    PhaseStarted,
    RolledBack,
    TreeRestored,
    UnitCompleted,
    UnitStarted,
    WorkspaceConflicted,
    WorkspaceReady,
)
from mz_events.catalog.run import FilesClaimed, FilesContended
from mz_events.names import Commit, Digest, FeatureId, Path, parse_path
from mz_projections.state import Between, Conversation, Restoring, Working

from mz_recordings.history.drawing import Sketch
from mz_recordings.history.tape import Tape

NO_TEXT = Digest("")


def sketch(action: Action, scene: Scene, tape: Tape) -> list[Event]:
    """Return the events that the action appends, as far as the recorded stream matches."""
    drawn = Sketch(scene, tape, tape.at)
    DRAWN[type(action)](drawn, action)
    return drawn.events


# workspace ------------------------------------------------------------------------------------------------------------
def _open(drawn: Sketch, action: act.Open) -> None:
    found = drawn.next()
    if isinstance(found, HumanRequested) and found.ask is Ask.CONFLICT:
        drawn.exactly(found)
    else:
        drawn.answered(WorkspaceReady, WorkspaceConflicted)


def _set_up(drawn: Sketch, action: act.SetUp) -> None:
    found = drawn.next()
    if isinstance(found, CommandRan) and (found.stage, found.name) == ("setup", action.command):
        drawn.answered(CommandRan)
        drawn.answered(WorkspaceReady)
    else:
        drawn.answered()


def _restore(drawn: Sketch, action: act.Restore) -> None:
    state, scene = drawn.scene.state, drawn.scene
    assert isinstance(state, Restoring)
    if action.committed:
        if drawn.set_up():
            drawn.decided(TreeRestored, {}, tree=state.book.tree)
        return
    key = f"{scene.run}/{scene.feature}/-/-/{state.book.restores}/0/restore"
    _commit(drawn, key, "restore", state.book.tree, state.book.head, state.to, "")


def _make_commit(drawn: Sketch, action: act.MakeCommit) -> None:
    scene, cell = drawn.scene, drawn.scene.cell
    _commit(drawn, scene.key("commit"), "work", cell.tree, scene.work.book.head, scene.work.phase, cell.unit)


def _commit(drawn: Sketch, key: str, purpose: str, tree: Commit, parent: Commit, phase: str, unit: str) -> None:
    drawn.decided(
        CommitRequested,
        {"message": NO_TEXT},
        key=key,
        purpose=purpose,
        tree=tree,
        parent=parent,
        phase=phase,
        unit=unit,
    )
    drawn.answered(Committed)


# calls ----------------------------------------------------------------------------------------------------------------
def _call(drawn: Sketch, action: act.CallAgent) -> None:
    if not drawn.set_up():
        return
    scene, cell, config = drawn.scene, drawn.scene.cell, drawn.scene.pins.config
    phase, key, feature = scene.phase, scene.key(f"agent.{action.role}", action.attempt), FeatureId(scene.feature)
    book = scene.work.book
    agent = agent_of(book, config)
    goes_on = _session(drawn, action.role, agent, key)
    if drawn.first_of(CallReserved, CallHeld) is CallHeld:
        drawn.decided(CallHeld, {"nanousd": None}, feature=feature, key=key, role=action.role)
        return
    drawn.decided(CallReserved, {"nanousd": None}, feature=feature, key=key)
    if action.role == "builder":
        assert phase.agent is not None
        tier, template = phase.agent.tier, phase.prompt or phase.phase
    else:
        assert phase.review is not None
        tier, template = phase.review.tier, phase.review.prompt
    model = configured_model(config, agent, tier)
    drawn.decided(
        AgentRequested,
        {
            "model": "", "prompt": NO_TEXT, "refs": NO_TEXT, "estimated_tokens": 0, "estimated_nanousd": None,
            "whole": True, "session": None, "resumes": False,
        },
        ref=CallRef(
            key=key, phase=scene.work.phase, unit=cell.unit, iteration=cell.iteration, attempt=action.attempt,
            role=action.role,
        ),
        agent=agent, template=template, tree=cell.tree,
        session=goes_on.id if goes_on else session_of(key), resumes=goes_on is not None,
        **({} if goes_on else {"whole": True}),
        **({"model": model} if model else {}),
    )  # fmt: skip
    found = _behind_moves(drawn)
    if isinstance(found, AgentReplied | AgentFailed) and found.ref.key == key and not getattr(found, "salvaged", False):
        drawn.answered(AgentReplied, AgentFailed)


def _session(drawn: Sketch, role: str, agent: str, key: str) -> Conversation | None:
    """Return the session that the call continues. If it ends, append that event first. What an agent cannot do, and its
    model, are as recorded."""
    scene = drawn.scene
    conversation = scene.work.book.conversation
    if conversation is None or not keeps(scene.phase, role, scene.pins.config):
        return None
    request = drawn.ahead(AgentRequested)
    reason = ended(conversation, scene.run, agent, request.model if request else conversation.model)
    found = drawn.next()
    if reason is None and isinstance(found, SessionBroken) and found.reason is SessionEnd.ELSEWHERE:
        reason = SessionEnd.ELSEWHERE
    if reason is None:
        return conversation
    drawn.decided(SessionBroken, {}, key=key, session=conversation.id, reason=reason)
    return None


def _switch(drawn: Sketch, action: act.SwitchAgent) -> None:
    request = drawn.scene.cell.request
    assert request is not None
    drawn.exactly(AgentSwitched(ref=request.ref, source=request.agent, to=action.to, code=action.code))


def _behind_moves(drawn: Sketch) -> Event | None:
    at, events = drawn.at, drawn.tape.events
    while at < len(events) and isinstance(events[at].event, RefMoved):
        at += 1
    return events[at].event if at < len(events) else None


def _settle(drawn: Sketch, action: act.Settle) -> None:
    found = drawn.next()
    match action.intent:
        case AgentRequested(ref=ref):
            found = _behind_moves(drawn)
            if isinstance(found, AgentReplied | AgentLost) and found.ref == ref:
                drawn.answered(AgentReplied, AgentLost)
            elif isinstance(found, FeatureHeld):
                drawn.answered()
        case CommitRequested():
            drawn.answered(Committed)
        case PushRequested():
            drawn.answered(Pushed, DeliveryFailed)
        case PullRequestRequested():
            drawn.answered(PullRequestOpened, DeliveryFailed)


def _read(drawn: Sketch, action: act.ReadReply) -> None:
    ref = action.outcome.ref
    blank = {"parser": "", "terminal": "", "session": None, "text": NO_TEXT}
    drawn.decided(ReplyRead, blank, ref=ref)
    drawn.decided(CallPriced, {"computed_nanousd": None}, key=ref.key)
    drawn.decided(CallSettled, {"nanousd": 0}, feature=FeatureId(drawn.scene.feature), key=ref.key)


# checks ---------------------------------------------------------------------------------------------------------------
def _prepare(drawn: Sketch, action: act.Prepare) -> None:
    if drawn.set_up():
        _ran(drawn, "prepare", action.command)


def _ran(drawn: Sketch, stage: str, name: str) -> CommandRan | None:
    found, scene = drawn.next(), drawn.scene
    if isinstance(found, CommandRan) and found.stage == stage:
        return drawn.decided(CommandRan, {}, phase=scene.work.phase, unit=scene.cell.unit, name=name)
    drawn.answered()
    return None


def _changes(drawn: Sketch, action: act.CheckChanges) -> None:
    if drawn.set_up():
        found, reply = drawn.next(), drawn.scene.cell.replied
        if isinstance(found, ChangesChecked) and reply is not None:
            drawn.decided(ChangesChecked, {}, ref=reply.ref)
        else:
            drawn.answered()


def _validate(drawn: Sketch, action: act.Validate) -> None:
    scene, reply = drawn.scene, drawn.scene.cell.replied
    assert reply is not None
    for output in outputs_of(scene, scene.cell.role):
        found = drawn.next()
        parsed = found if isinstance(found, ArtifactParsed) else None
        if (parsed and parsed.artifact == output.artifact) or _is_owed(drawn, output):
            path = Path(output.path) if output.path else None
            if path and not (parsed and parsed.path == path):
                path = parse_path(path)  # Expensive.
            drawn.decided(
                ArtifactParsed, {"digest": NO_TEXT}, artifact=output.artifact, phase=scene.work.phase,
                unit=scene.cell.unit, path=path,
            )  # fmt: skip
    found = drawn.next()
    if isinstance(found, FeatureHeld):
        drawn.answered()
    else:
        drawn.decided(ArtifactValidated, {}, ref=reply.ref)


def _is_owed(drawn: Sketch, output: Output) -> bool:
    """Return True if the artifact must have existed: it is the reply, or the verdict does not report it missing."""
    if output.path is None:
        return True
    verdict = drawn.next()
    files = {rule.id for rule in drawn.scene.pins.rules[output.rules].rules if isinstance(rule, File)}
    if not files or not isinstance(verdict, ArtifactValidated):
        return False
    return not any(one.rule in files and one.path == output.path for one in verdict.violations)


def _gate(drawn: Sketch, action: act.RunGate) -> None:
    if not drawn.set_up():
        return
    ran, scene = _ran(drawn, "gate", action.gate), drawn.scene
    if ran is None:
        return
    passed = ran.exit == 0
    drawn.decided(
        GateChecked, {}, phase=scene.work.phase, unit=scene.cell.unit, gate=action.gate, passed=passed,
        cause=action.cause, violations=() if passed else (Violation(rule=action.gate),),
        signature="" if passed else ran.signature,
    )  # fmt: skip


def _rule(drawn: Sketch, action: act.CheckRule) -> None:
    scene = drawn.scene
    if isinstance(drawn.next(), FeatureHeld):
        drawn.answered()
        return
    drawn.decided(
        GateChecked,
        {"passed": True},
        phase=scene.work.phase,
        unit=scene.cell.unit,
        gate=action.rule,
        cause=action.cause,
    )


# people, blocks -------------------------------------------------------------------------------------------------------
def _ask(drawn: Sketch, action: act.AskHuman) -> None:
    state = drawn.scene.state
    phase, unit = (state.phase, state.cell.unit if state.cell else "") if isinstance(state, Working) else ("", "")
    drawn.decided(HumanRequested, {}, phase=phase, unit=unit, ask=action.ask, code=action.code)


def _block(drawn: Sketch, action: act.Block) -> None:
    scene, cell, path = drawn.scene, drawn.scene.cell, ""
    match cell.last:
        case GateChecked(violations=(first, *_)):
            path = first.path
        case BaseMerged(conflicts=conflicts, unmarked=unmarked) if conflicts or unmarked:
            path = (*conflicts, *unmarked)[0]
    drawn.decided(
        Blocked, {}, phase=scene.work.phase, unit=cell.unit, cause=action.cause, check=action.check, path=path
    )


def _roll_back(drawn: Sketch, action: act.RollBack) -> None:
    source = drawn.scene.work.phase
    drawn.exactly(RolledBack(source=source, to=action.to, units=action.units, keeps_tree=action.keeps_tree))


# phases and units -----------------------------------------------------------------------------------------------------
def _start_phase(drawn: Sketch, action: act.StartPhase) -> None:
    drawn.exactly(PhaseStarted(phase=action.phase, iteration=action.iteration, units=action.units))


def _claim(drawn: Sketch, action: act.ClaimFiles) -> None:
    kind = drawn.first_of(FilesClaimed, FilesContended)
    drawn.decided(kind, {}, feature=FeatureId(drawn.scene.feature), phase=action.phase, paths=action.paths)


def _start_unit(drawn: Sketch, action: act.StartUnit) -> None:
    drawn.exactly(UnitStarted(phase=action.phase, unit=action.unit, iteration=action.iteration))


def _complete_unit(drawn: Sketch, action: act.CompleteUnit) -> None:
    drawn.exactly(UnitCompleted(phase=drawn.scene.work.phase, unit=action.unit))


def _complete_phase(drawn: Sketch, action: act.CompletePhase) -> None:
    drawn.exactly(PhaseCompleted(phase=action.phase))


def _hold(drawn: Sketch, action: act.HoldFeature) -> None:
    drawn.exactly(FeatureHeld(hold=action.hold, until_us=action.until_us, code=action.code))


def _fail(drawn: Sketch, action: act.FailFeature) -> None:
    drawn.exactly(FeatureFailed(code=action.code))


# delivery -------------------------------------------------------------------------------------------------------------
def _push(drawn: Sketch, action: act.Push) -> None:
    scene = drawn.scene
    if isinstance(drawn.next(), DeliveryFailed | FeatureHeld):
        drawn.answered(DeliveryFailed)
        return
    drawn.decided(
        PushRequested, {"old": None}, key=scene.key("push"), remote=scene.pins.config.pull_requests.remote,
        branch=scene.place.branch, commit=scene.work.book.head,
    )  # fmt: skip
    drawn.answered(Pushed, DeliveryFailed)


def _open_pull_request(drawn: Sketch, action: act.OpenPullRequest) -> None:
    scene = drawn.scene
    if isinstance(drawn.next(), DeliveryFailed | FeatureHeld):
        drawn.answered(DeliveryFailed)
        return
    drawn.decided(
        PullRequestRequested, {"target": "", "title": NO_TEXT, "body": NO_TEXT}, key=scene.key("open_pr"),
        branch=scene.place.branch, strategy=scene.pins.config.pull_requests.strategy,
    )  # fmt: skip
    drawn.answered(PullRequestOpened, DeliveryFailed)


def _merge(drawn: Sketch, action: act.MergeBase) -> None:
    if drawn.set_up():
        drawn.answered(BaseMerged, DeliveryFailed)


def _look(drawn: Sketch, action: act.LookAtChecks) -> None:
    drawn.answered(ChecksSeen)


def _rerun(drawn: Sketch, action: act.RerunChecks) -> None:
    drawn.answered(ChecksRerun)


def _finish(drawn: Sketch, action: act.FinishFeature) -> None:
    state = drawn.scene.state
    assert isinstance(state, Between)
    if isinstance(drawn.next(), FeatureHeld):
        drawn.answered()
        return
    drawn.decided(FeatureDelivered, {}, terminal=drawn.scene.pins.pipeline.terminal, head=state.book.head)


DRAWN: Mapping[type[Action], Callable[[Sketch, Any], None]] = {
    act.Open: _open,
    act.SetUp: _set_up,
    act.StartPhase: _start_phase,
    act.ClaimFiles: _claim,
    act.StartUnit: _start_unit,
    act.Prepare: _prepare,
    act.CallAgent: _call,
    act.SwitchAgent: _switch,
    act.Settle: _settle,
    act.ReadReply: _read,
    act.CheckChanges: _changes,
    act.Validate: _validate,
    act.RunGate: _gate,
    act.CheckRule: _rule,
    act.AskHuman: _ask,
    act.Block: _block,
    act.RollBack: _roll_back,
    act.Restore: _restore,
    act.MakeCommit: _make_commit,
    act.Push: _push,
    act.OpenPullRequest: _open_pull_request,
    act.MergeBase: _merge,
    act.LookAtChecks: _look,
    act.RerunChecks: _rerun,
    act.CompleteUnit: _complete_unit,
    act.CompletePhase: _complete_phase,
    act.HoldFeature: _hold,
    act.FailFeature: _fail,
    act.FinishFeature: _finish,
}
