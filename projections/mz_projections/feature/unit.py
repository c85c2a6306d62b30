"""Applies events to the unit run in which they occur. A table of handlers, because this is the most frequent step of a
fold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    AgentSwitched,
    CallOverBudget,
    CallPriced,
    CallReserved,
    CallSettled,
    ContextComposed,
    ReplyParsed,
)
from mz_events.catalog.delivery import (
    BranchesClosed,
    ChecksPolled,
    ChecksRerun,
    CommitRequested,
    DeliveryFailed,
    MergeRequested,
    PullRequestOpened,
    PullRequestRequested,
    PushRequested,
    Tagged,
    TagRequested,
    TargetMoved,
)
from mz_events.catalog.feature import EditMade, HoldReleased
from mz_events.catalog.memory import LearningsCaptured
from mz_events.catalog.run import ItemsAdded
from mz_events.catalog.validation import (
    ArtifactParsed,
    ArtifactsKept,
    ArtifactValidated,
    ChangesChecked,
    CommandRan,
    ConditionsChecked,
    GateChecked,
)
from mz_events.names import BUILDER, Digest

from mz_projections.feature.state import Attempts, UnitRun
from mz_projections.memory.evidence import rule_signature

DENIED_COMMANDS = "denied_commands"
"""Gate that a call fails by running a denied command."""
JUDGED_RULES = "judged_rules"
"""Gate of the rules that a reviewer judges."""
BLOCK = "block"
"""Artifact in which an agent says why its phase cannot continue."""
RAISED = "raised."
"""What the check of such a block begins with."""
REVIEW = "review"
NO_ATTEMPTS = Attempts()
SESSION_MISSING = "session-missing"
"""Problem code of a continued call that is repeated with a full prompt. Not a failure of the work; it cannot occur
twice in a row, since the repeated call starts a new session."""


# calls ----------------------------------------------------------------------------------------------------------------
def _on_agent_requested(unit_run: UnitRun, event: AgentRequested, at_us: int) -> UnitRun:
    role = event.ref.role
    attempts = {**unit_run.attempts, role: replace(unit_run.attempts.get(role, NO_ATTEMPTS), attempt=event.ref.attempt)}
    results = unit_run.check_results.items() if role != BUILDER else ()
    checked = {gate: passed for gate, passed in results if gate != DENIED_COMMANDS}
    artifacts, conditions = unit_run.parsed_artifacts, unit_run.conditions
    of_reply = {BLOCK, *unit_run.review_artifacts}
    if role == BUILDER and (REVIEW in conditions or not of_reply.isdisjoint(artifacts)):
        artifacts = {name: parsed for name, parsed in artifacts.items() if name not in of_reply}
        conditions = {of: met for of, met in conditions.items() if of != REVIEW}
    return replace(
        unit_run,
        role=role,
        attempts=attempts,
        approved_questions=(),
        check_results=checked,
        parsed_artifacts=artifacts,
        conditions=conditions,
        request=event,
        last_event=event,
    )


def _on_reply_parsed(unit_run: UnitRun, event: ReplyParsed, at_us: int) -> UnitRun:
    role = event.ref.role
    attempts = unit_run.attempts.get(role, NO_ATTEMPTS)
    continues_session = unit_run.request is not None and unit_run.request.resumes
    if event.problem is None or event.is_question:
        attempts = replace(attempts, waited_seconds=0)
    elif not (continues_session and event.problem.code == SESSION_MISSING):
        code = event.problem.code
        attempts = replace(attempts, failures={**attempts.failures, code: attempts.failures.get(code, 0) + 1})
    attempts_by_role = {**unit_run.attempts, role: attempts}
    return replace(unit_run, attempts=attempts_by_role, reply_text=event.text, last_event=event)


def _on_agent_switched(unit_run: UnitRun, event: AgentSwitched, at_us: int) -> UnitRun:
    """Reset the failures: the next agent has its own retries."""
    role = event.ref.role
    attempts = reset_failures(unit_run.attempts.get(role, NO_ATTEMPTS))
    return replace(unit_run, attempts={**unit_run.attempts, role: attempts}, last_event=event)


def reset_failures(attempts: Attempts) -> Attempts:
    return replace(attempts, failures={}, waits=0, waited_seconds=0)


def after_hold(unit_run: UnitRun, event: HoldReleased, until_us: int | None) -> UnitRun:
    """Return the unit run after a hold, which it continues with the call or the step of delivery that was held for
    money or a problem, or with another look at checks; other holds do not affect it."""
    last, role = unit_run.last_event, unit_run.role
    if isinstance(last, ChecksPolled | ChecksRerun):
        return replace(unit_run, last_poll=None, last_event=event)
    if isinstance(last, CallOverBudget | DeliveryFailed) or (isinstance(last, ReplyParsed) and last.problem):
        attempts = unit_run.attempts.get(role, NO_ATTEMPTS)
        if until_us is not None:  # A pause, which began with the end of the last call or step.
            waited_seconds = attempts.waited_seconds + (until_us - unit_run.ended_at_us) // 1_000_000
            attempts = replace(attempts, waits=attempts.waits + 1, waited_seconds=waited_seconds)
        return replace(unit_run, attempts={**unit_run.attempts, role: attempts}, last_event=event)
    return unit_run


# checks ---------------------------------------------------------------------------------------------------------------
def _on_command_ran(unit_run: UnitRun, event: CommandRan, at_us: int) -> UnitRun | None:
    unit_run = replace(unit_run, failed_setup=event if event.stage == "setup" and event.phase else None)
    if event.stage == "prepare":
        return replace(unit_run, preparation_runs=(*unit_run.preparation_runs, event), last_event=event)
    if event.stage == "gate":
        return replace(unit_run, gate_runs={**unit_run.gate_runs, event.name: event})
    return unit_run if event.stage == "setup" else None


def _on_artifact_validated(unit_run: UnitRun, event: ArtifactValidated, at_us: int) -> UnitRun:
    if event.violations and event.report is not None:
        return _reject_reply(replace(unit_run, last_event=event), event.report, event.ref.role)
    return replace(unit_run, reports=(), signature="", last_event=event)


def _on_gate_checked(unit_run: UnitRun, event: GateChecked, at_us: int) -> UnitRun:
    if unit_run.failed_setup is not None:
        gate_runs = {**unit_run.gate_runs, event.gate: unit_run.failed_setup}
        unit_run = replace(unit_run, gate_runs=gate_runs, failed_setup=None)
    unit_run = replace(unit_run, check_results={**unit_run.check_results, event.gate: event.passed}, last_event=event)
    unit_run = replace(unit_run, judged_by=event.judged_by) if event.judged_by else unit_run
    if event.passed or event.report is None:
        return unit_run
    if event.cause == "person":
        return replace(unit_run, reports=(*unit_run.reports, event.report))
    return replace(_reject_reply(unit_run, event.report, BUILDER), signature=event.signature)


def _reject_reply(unit_run: UnitRun, report: Digest, role: str) -> UnitRun:
    attempts = unit_run.attempts.get(role, NO_ATTEMPTS)
    attempts = replace(attempts, rejected=attempts.rejected + 1)
    return replace(unit_run, role=role, attempts={**unit_run.attempts, role: attempts}, reports=(report,), signature="")


# delivery -------------------------------------------------------------------------------------------------------------
def _on_target_moved(unit_run: UnitRun, event: TargetMoved, at_us: int) -> UnitRun:
    """The base is merged again; what was pushed is out of date then."""
    steps = tuple(step for step in unit_run.delivery_steps if step not in ("push", "open_pr"))
    return replace(
        unit_run,
        delivery_steps=steps,
        target_merge=None,
        target_moves=unit_run.target_moves + 1,
        last_poll=None,
        checks_began_at_us=0,
        last_event=event,
    )


def _on_step_done(unit_run: UnitRun, event: Tagged | BranchesClosed, at_us: int) -> UnitRun:
    step = event.key.rpartition("/")[2]
    return replace(unit_run, delivery_steps=(*unit_run.delivery_steps, step), last_event=event)


# any ------------------------------------------------------------------------------------------------------------------
def _set_last_event(unit_run: UnitRun, event: Any, at_us: int) -> UnitRun:
    return replace(unit_run, last_event=event)


UNIT_RUN_HANDLERS: Mapping[type[Event], Callable[[UnitRun, Any, int], UnitRun | None]] = {
    AgentRequested: _on_agent_requested,
    AgentReplied: lambda run, event, at_us: replace(run, reply_event=event, ended_at_us=at_us, last_event=event),
    AgentFailed: lambda run, event, at_us: replace(run, ended_at_us=at_us, last_event=event),
    AgentLost: lambda run, event, at_us: replace(run, ended_at_us=at_us, last_event=event),
    ReplyParsed: _on_reply_parsed,
    CallOverBudget: lambda run, event, _: replace(run, role=event.role, last_event=event),
    AgentSwitched: _on_agent_switched,
    LearningsCaptured: lambda run, _event, _at_us: run,
    ContextComposed: lambda run, _event, _at_us: run,
    CallReserved: lambda run, _event, _at_us: run,
    CallPriced: lambda run, _event, _at_us: run,
    CallSettled: lambda run, _event, _at_us: run,
    CommandRan: _on_command_ran,
    ChangesChecked: lambda run, event, _: replace(run, tree=event.tree, last_event=event),
    ArtifactParsed: lambda run, event, _: replace(
        run,
        parsed_artifacts={**run.parsed_artifacts, event.artifact: event},
        review_artifacts=run.review_artifacts if run.role == BUILDER else (*run.review_artifacts, event.artifact),
    ),
    ArtifactValidated: _on_artifact_validated,
    ArtifactsKept: _set_last_event,
    ConditionsChecked: lambda run, event, _: replace(
        run, conditions={**run.conditions, event.of: event.met}, last_event=event
    ),
    GateChecked: _on_gate_checked,
    ItemsAdded: lambda run, event, _: replace(run, items_added=True, last_event=event),
    EditMade: lambda run, event, _: replace(run, base=event.tree, tree=event.tree, is_edited=True, last_event=event),
    CommitRequested: _set_last_event,
    PushRequested: _set_last_event,
    PullRequestRequested: _set_last_event,
    MergeRequested: _set_last_event,
    TagRequested: _set_last_event,
    TargetMoved: _on_target_moved,
    Tagged: _on_step_done,
    BranchesClosed: _on_step_done,
    DeliveryFailed: lambda run, event, at_us: replace(run, last_event=event, ended_at_us=at_us),
    PullRequestOpened: lambda run, event, _: replace(
        run, delivery_steps=(*run.delivery_steps, "open_pr"), pull_request_number=event.number, last_event=event
    ),
    ChecksPolled: lambda run, event, at_us: replace(
        run, last_poll=event, polled_at_us=at_us, checks_began_at_us=run.checks_began_at_us or at_us, last_event=event
    ),
    ChecksRerun: lambda run, event, at_us: replace(
        run, last_poll=None, reruns=run.reruns + 1, checks_began_at_us=at_us, last_event=event
    ),
}
"""By event type: returns the next unit run, given the observation time; None: illegal. Unlisted events do not occur
inside a unit run, or change more than it."""


def failure_of(unit_run: UnitRun) -> str:
    """Return the signature of the failure that the next call has to fix; empty if there is none."""
    match unit_run.last_event:
        case ArtifactValidated(violations=(violation, *_)):
            return rule_signature(violation.rule)
    return unit_run.signature
