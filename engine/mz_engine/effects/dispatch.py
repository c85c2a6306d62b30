"""Dispatch from each action to its effect."""

from __future__ import annotations

from typing import assert_never

from mz_events.catalog.call import AgentRequested
from mz_events.catalog.check import GateChecked
from mz_events.catalog.delivery import BaseMerged, CommitRequested, PullRequestRequested, PushRequested
from mz_events.catalog.feature import (
    Blocked,
    FeatureFailed,
    FeatureHeld,
    HumanRequested,
    PhaseCompleted,
    PhaseStarted,
    RolledBack,
    UnitCompleted,
    UnitStarted,
)
from mz_events.names import Digest
from mz_projections.state import Working

from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action, Intent
from mz_engine.effects import call, check, checks, delivery, workspace
from mz_engine.effects.steps import ClaimPaths, Effect, Scene, Steps, emit, get_report, put


def effect(action: Action, scene: Scene) -> Effect:
    match action:
        case act.Open():
            yield from workspace.open_workspace(action, scene)
        case act.SetUp():
            yield from check.set_up(action, scene)
        case act.StartPhase():
            yield from emit(PhaseStarted(phase=action.phase, iteration=action.iteration, units=action.units))
        case act.ClaimFiles():
            yield ClaimPaths(action.phase, action.paths)
        case act.StartUnit():
            yield from emit(UnitStarted(phase=action.phase, unit=action.unit, iteration=action.iteration))
        case act.Prepare():
            yield from check.prepare(action, scene)
        case act.CallAgent():
            yield from call.call_agent(action, scene)
        case act.SwitchAgent():
            yield from call.switch_agent(action, scene)
        case act.Settle():
            yield from settle(action.intent, scene)
        case act.ReadReply():
            yield from call.read_reply(action, scene)
        case act.CheckChanges():
            yield from check.check_changes(scene)
        case act.Validate():
            yield from check.validate_outputs(scene)
        case act.RunGate():
            yield from check.run_gate(action, scene)
        case act.CheckRule():
            yield from check.check_feature_rule(action, scene)
        case act.AskHuman():
            yield from _ask(action, scene)
        case act.Block():
            yield from _block(action, scene)
        case act.RollBack():
            yield from emit(
                RolledBack(source=scene.work.phase, to=action.to, units=action.units, keeps_tree=action.keeps_tree)
            )
        case act.Restore():
            yield from workspace.restore(action, scene)
        case act.MakeCommit():
            yield from workspace.make_commit(scene)
        case act.Push():
            yield from delivery.push(scene)
        case act.OpenPullRequest():
            yield from delivery.open_pull_request(scene)
        case act.MergeBase():
            yield from delivery.merge_base(scene)
        case act.LookAtChecks():
            yield from checks.look(scene)
        case act.RerunChecks():
            yield from checks.rerun(scene)
        case act.CompleteUnit():
            yield from emit(UnitCompleted(phase=scene.work.phase, unit=action.unit))
        case act.CompletePhase():
            yield from emit(PhaseCompleted(phase=action.phase))
        case act.HoldFeature():
            yield from emit(FeatureHeld(hold=action.hold, until_us=action.until_us, code=action.code))
        case act.FailFeature():
            yield from emit(FeatureFailed(code=action.code))
        case act.FinishFeature():
            yield from delivery.finish(action, scene)
        case _:
            assert_never(action)


def settle(intent: Intent, scene: Scene) -> Effect:
    """Find out what became of an intent without an outcome, and record it."""
    match intent:
        case AgentRequested():
            yield from call.settle_call(intent, scene)
        case CommitRequested():
            yield from workspace.settle_commit(intent, scene)
        case PushRequested():
            yield from delivery.settle_push(intent)
        case PullRequestRequested():
            yield from delivery.settle_pull_request(intent, scene)
        case _:
            assert_never(intent)


def _ask(action: act.AskHuman, scene: Scene) -> Effect:
    state = scene.state
    phase, unit = (state.phase, state.cell.unit if state.cell else "") if isinstance(state, Working) else ("", "")
    detail = action.text or (yield from _words(action.reports))
    if isinstance(state, Working) and state.cell and isinstance(state.cell.last, BaseMerged):
        detail = yield from put(delivery.conflict_words(state.cell.last))
    yield from emit(HumanRequested(phase=phase, unit=unit, ask=action.ask, code=action.code, detail=detail))


def _block(action: act.Block, scene: Scene) -> Effect:
    cell, last, path = scene.cell, scene.cell.last, ""
    note = action.text or (yield from _words(action.reports))
    if isinstance(last, GateChecked) and last.violations:
        path = last.violations[0].path
    if isinstance(last, BaseMerged) and (last.conflicts or last.unmarked):
        path, note = (*last.conflicts, *last.unmarked)[0], (yield from put(delivery.conflict_words(last)))
    yield from emit(
        Blocked(phase=scene.work.phase, unit=cell.unit, cause=action.cause, check=action.check, path=path, note=note)
    )


def _words(reports: tuple[Digest, ...]) -> Steps[Digest | None]:
    """Store the messages of reports as one text."""
    lines: list[str] = []
    for report in reports:
        lines += yield from get_report(report)
    return (yield from put("\n".join(lines))) if lines else None
