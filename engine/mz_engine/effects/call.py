"""Effects of one agent call: reserve and request, call, reconcile after a crash, parse and price the reply."""

from __future__ import annotations

from hashlib import sha256

from msgspec.structs import replace
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    CallPriced,
    CallRef,
    Problem,
    ProblemClass,
    ReplyParsed,
)
from mz_events.catalog.feature import FeatureHeld
from mz_events.catalog.run import Hold
from mz_events.catalog.validation import GateChecked, Violation
from mz_events.names import Commit
from mz_events.store import Blobs
from mz_projections.feature.fold import AgentOutcome
from mz_projections.feature.state import AgentSession
from mz_projections.feature.unit import DENIED_COMMANDS

from mz_engine.artifacts.agent_commands import denied_uses
from mz_engine.decide.actions import CallAgent, ParseReply
from mz_engine.decide.caller import caller
from mz_engine.effects.guidance import compose_head
from mz_engine.effects.prompt import (
    Scope,
    compose_prompt,
    configured_model,
    gather_material,
    plan_session,
    provide_files,
)
from mz_engine.effects.steps import Effect, ReserveCall, SettleCall, StepContext, Steps, call_port, emit, put_blob
from mz_engine.effects.validation import broken_rules, ensure_worktree, gate_checked, keep_artifacts
from mz_engine.model.pipeline import AgentReview
from mz_engine.model.rules import RuleFinding
from mz_engine.ports import (
    Agents,
    CallResult,
    CallSpec,
    Capture,
    Clock,
    FeatureWorktree,
    Prices,
    RepositoryUnusable,
    StorageFailed,
    Workspace,
)
from mz_engine.pricing.budget_charge import known_cost, known_tokens, may_be_higher, tokens_may_be_higher
from mz_engine.pricing.calibration import expected_tokens

REPLY_TOKENS = 2000
"""Assumed length of a reply, for estimates."""
NOTHING_SALVAGED = CallResult(stdout=b"", stderr=b"", exit=None, duration_ms=0)
NO_OTHER_AGENT = "no-other-agent"
"""Code of a hold: `not_as` excludes every agent of the run, as in a fork with one agent."""
CALL_LOST = Problem(kind=ProblemClass.TRANSIENT, code="lost")
NOT_STARTED_CODES = frozenset({"tool-missing", "unstartable"})
"""Problem codes of calls that cost nothing, since no process started."""
PRINTED_NOTHING = "the agent's program printed nothing"
WORKTREE_LOST = Problem(kind=ProblemClass.PHASE, code="worktree-lost")
WORKTREE_CODES = frozenset({"worktree-busy", "worktree-lost", "worktree-unusable"})
"""Codes of RepositoryUnusable for what an agent can do to its worktree."""


def call_agent(action: CallAgent, context: StepContext) -> Effect:
    """Compose the prompt, reserve money, record the request and, if the reservation is granted, call the agent."""
    phase_state, unit_run, phase, config = context.phase_state, context.unit_run, context.phase, context.pins.config
    yield from ensure_worktree(context, unit_run.tree)
    if (yield from keep_artifacts(context)):
        return
    use = phase.call_of(action.role)
    template = use.prompt if isinstance(use, AgentReview) else phase.prompt or phase.phase
    called = caller(context.pins, phase_state, unit_run, phase, action.role)
    agent, key = called.agent, context.key(f"agent.{action.role}", action.attempt)
    if agent not in called.allowed:
        yield from emit(FeatureHeld(hold=Hold.FATAL, code=NO_OTHER_AGENT))
        return
    adapter = yield from call_port(Agents.adapter, agent)
    head = yield from compose_head(context, action.role, adapter.capabilities().skills)
    material = yield from gather_material(context, action.role, key, head.texts)
    if broken := (yield from broken_rules(context, use.escalate, material.selection.learnings)):
        called = caller(context.pins, phase_state, unit_run, phase, action.role, broken)
    model = configured_model(config, agent, called.tier) or adapter.capabilities().models[called.tier]
    session_plan = yield from plan_session(context, action.role, agent, model, key)
    session = session_plan.continued_session
    composed = yield from compose_prompt(context, template, session_plan, material)
    prompt = adapter.format_prompt(composed.text)
    worktree, laid_out = yield from _lay_out(context, composed.scope)
    yield from provide_files(context, action.role, worktree, head.files)
    spec = CallSpec(
        key=key,
        worktree=worktree,
        agent=agent,
        model=model,
        prompt=prompt,
        session=session.id if session else session_id(key),
        resumes=session is not None,
        tools=use.tools,
        skills=head.skill_folder,
        total_seconds=phase.timeout.total,
        idle_seconds=phase.timeout.idle,
        nanousd_max=config.budget.call_nanousd,
        tokens_max=config.budget.call_tokens,
        session_usage_before=session.usage if session else (),
    )
    tokens, counted = adapter.estimate_tokens(prompt), (yield from call_port(Agents.count_tokens, spec))
    input_tokens = estimated_input_tokens(counted, tokens, session)
    request = AgentRequested(
        ref=_call_ref(action, context),
        agent=agent,
        model=model,
        prompt=(yield from put_blob(prompt)),
        template=template,
        full_prompt=composed.text == composed.full_text,
        session=spec.session,
        resumes=spec.resumes,
        tree=unit_run.tree,
        estimated_tokens=input_tokens + REPLY_TOKENS,
        estimated_nanousd=(yield from _estimated_cost(context, agent, model, input_tokens)),
        keeps_session=session_plan.keeps_session,
        seen_marks=composed.seen_marks,
        prompt_tokens=tokens if session else None,
        full_prompt_tokens=adapter.estimate_tokens(adapter.format_prompt(composed.full_text)) if session else None,
        counted_tokens=counted,
        escalated_to=called.tier if called.raised_by else "",
        escalated_by=called.raised_by,
        routed_to=called.routed_to,
        laid_out=laid_out,
        card=head.card,
        skills=head.skills,
    )
    if (yield ReserveCall(composed.ledger(key, prompt, material.tokens_max), request)):
        result = yield from call_port(Agents.call, spec)
        yield from _record_outcome(request, result, context)


def _call_ref(action: CallAgent, context: StepContext) -> CallRef:
    unit_run, role, attempt = context.unit_run, action.role, action.attempt
    return CallRef(
        key=context.key(f"agent.{role}", attempt),
        phase=context.phase.phase,
        unit=unit_run.unit,
        iteration=unit_run.iteration,
        attempt=attempt,
        role=role,
    )


def _lay_out(context: StepContext, scope: Scope | None) -> Steps[tuple[FeatureWorktree, Commit | None]]:
    """Return the directory in which the agent works, and a capture of what is in it, if it is not the whole tree."""
    if scope is None:
        return context.worktree, None
    laid_out = yield from call_port(Workspace.lay_out, context.worktree, context.unit_run.tree, scope.paths)
    return replace(context.worktree, is_scoped=True), laid_out


def estimated_input_tokens(counted: int | None, prompt_tokens: int, session: AgentSession | None) -> int:
    """Return the input tokens of the first model request: as the agent counted them, else as the prompt and, in a
    continued session, the call before let expect."""
    if counted is not None:
        return counted
    return prompt_tokens + (session.estimated_tokens if session else 0)


def _estimated_cost(context: StepContext, agent: str, model: str, input_tokens: int) -> Steps[int | None]:
    """Return the estimated cost of the call in nano-dollars, corrected by calibration."""
    calibration, phase = context.pins.config.calibration, context.phase_state.phase
    usage = expected_tokens(calibration, agent, model, phase, input_tokens, REPLY_TOKENS)
    now_us = yield from call_port(Clock.now_us)
    return (yield from call_port(Prices.price_entry, usage, now_us))


def session_id(key: str) -> str:
    """Return a UUID (RFC 9562, version 8) derived from the call's key, so that it is the same in every replay."""
    digits = sha256(key.encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"


def _record_outcome(
    request: AgentRequested, result: CallResult, context: StepContext, *, salvaged: bool = False, lost: bool = False
) -> Effect:
    """Record how a call ended, with the worktree that it left."""
    ref = request.ref
    capture = None if lost else (yield from _capture_worktree(context.worktree, request))
    stdout, stderr = (yield from put_blob(result.stdout)), (yield from put_blob(result.stderr))
    outcome: AgentOutcome
    if salvaged and capture is None:
        outcome = AgentLost(ref=ref, stdout=stdout)
    elif capture is None or result.problem is not None:
        outcome = AgentFailed(
            ref=ref,
            problem=result.problem or WORKTREE_LOST,
            stdout=stdout,
            stderr=stderr,
            duration_ms=result.duration_ms,
            tree=capture.tree if capture else request.tree,
        )
    else:
        outcome = AgentReplied(
            ref=ref,
            stdout=stdout,
            stderr=stderr,
            exit=result.exit,
            duration_ms=result.duration_ms,
            tree=capture.tree,
            forbidden_changes=capture.forbidden_changes,
            salvaged=salvaged,
            version=result.version,
        )
    yield from emit(outcome)


def reconcile_call(intent: AgentRequested, context: StepContext) -> Effect:
    """Record the outcome of a call that a crash interrupted, after killing what still runs under its key.

    A spool with a terminal event, or with an exit that proves a reply, is a reply; otherwise the call is lost. The
    worktree is only captured: the next call restores it, after the outcome is durable.
    """
    result = (yield from call_port(Agents.salvage, intent.ref.key)) or NOTHING_SALVAGED
    adapter = yield from call_port(Agents.adapter, intent.agent)
    # An exit that mz caused says nothing about the reply.
    ended = replace(result, exit=None if result.problem else result.exit, problem=None)
    reading = adapter.parse_output(replace(ended, model=intent.model))
    lost = result is NOTHING_SALVAGED or reading.ending == "no-terminal"
    result = replace(ended, version=reading.version)
    yield from _record_outcome(intent, result, context, salvaged=True, lost=lost)


def _capture_worktree(worktree: FeatureWorktree, request: AgentRequested) -> Steps[Capture | None]:
    """Capture the worktree. None: it cannot be read. Raises RepositoryUnusable if git fails: the intent stays open, so
    that the reply is read from its spool once git works again."""
    try:
        if request.laid_out is not None:
            return (yield from call_port(Workspace.collect, worktree, request.tree, request.laid_out))
        return (yield from call_port(Workspace.capture, worktree, request.tree))
    except RepositoryUnusable as error:
        if isinstance(error, StorageFailed) or error.code not in WORKTREE_CODES:
            raise
        return None


def parse_reply(action: ParseReply, context: StepContext) -> Effect:
    """Parse, price and settle a reply, in one transaction."""
    outcome = action.outcome
    request = context.unit_run.request
    assert request is not None
    session = context.phase_state.progress.agent_session
    usage_before = session.usage_before if request.resumes and session is not None else ()
    stored = yield from _stored_result(outcome)
    result = replace(stored, model=request.model, session_usage_before=usage_before)
    adapter = yield from call_port(Agents.adapter, request.agent)
    reading = adapter.parse_output(result)
    ended_at_us = context.unit_run.ended_at_us
    price = yield from call_port(Prices.price, reading.usage, ended_at_us)
    problem = CALL_LOST if isinstance(outcome, AgentLost) else reading.problem
    if problem is not None and problem.detail is None:
        is_silent = isinstance(outcome, AgentReplied) and not result.stdout.strip()
        text = reading.problem_detail or (PRINTED_NOTHING if is_silent else "")
        problem = replace(problem, detail=(yield from put_blob(text)) if text else None)
    parsed = ReplyParsed(
        ref=outcome.ref,
        parser=reading.parser,
        ending=reading.ending,
        session=reading.session,
        usage=reading.usage,
        reported_nanousd=reading.reported_nanousd,
        text=(yield from put_blob(reading.text)),
        problem=problem,
        bad_lines=reading.undecodable_lines,
    )
    nanousd = price.nanousd if reading.usage else None
    priced = CallPriced(key=outcome.ref.key, computed_nanousd=nanousd, unpriced=price.unpriced, prices=price.prices)
    was_started = not (isinstance(outcome, AgentFailed) and outcome.problem.code in NOT_STARTED_CODES)
    key, events = outcome.ref.key, (*(yield from _denied_commands(result.stdout, context)), parsed, priced)
    if not was_started:
        yield SettleCall(key, 0, events)
        return
    cost, tokens = known_cost(reading, price), known_tokens(reading)
    yield SettleCall(key, cost, events, may_be_higher(reading, price), tokens, tokens_may_be_higher(reading))


def _denied_commands(output: bytes, context: StepContext) -> Steps[tuple[GateChecked, ...]]:
    """Return the failed gate of a call that ran denied commands, for which a person decides; empty for any other."""
    uses = denied_uses(output, context.pins.config.denied_commands).items()
    messages = (f"the agent ran a denied command (`{pattern}`): {command}" for command, pattern in uses)
    findings = tuple(RuleFinding(violation=Violation(rule=DENIED_COMMANDS), message=message) for message in messages)
    return ((yield from gate_checked(context, DENIED_COMMANDS, "person", findings)),) if findings else ()


def _stored_result(outcome: AgentOutcome) -> Steps[CallResult]:
    stdout = yield from call_port(Blobs.get, outcome.stdout)
    if isinstance(outcome, AgentLost):
        return CallResult(stdout=stdout, stderr=b"", exit=None, duration_ms=0, problem=CALL_LOST)
    stderr = yield from call_port(Blobs.get, outcome.stderr)
    result = CallResult(stdout=stdout, stderr=stderr, exit=None, duration_ms=outcome.duration_ms)
    if isinstance(outcome, AgentFailed):
        return replace(result, problem=outcome.problem)
    return replace(result, exit=outcome.exit, version=outcome.version)
