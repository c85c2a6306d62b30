"""Effects of one agent call: reserve and request, call, reconcile after a crash, parse and price the reply."""

from __future__ import annotations

from hashlib import sha256

from msgspec.json import decode, encode
from msgspec.structs import replace
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    AgentSwitched,
    CallPriced,
    CallRef,
    Offence,
    Problem,
    ProblemClass,
    ReplyRead,
    Usage,
)
from mz_events.catalog.check import RefMoved
from mz_projections.feature import Outcome
from mz_projections.state import Conversation

from mz_engine.calibration import expect
from mz_engine.decide.actions import CallAgent, ReadReply, SwitchAgent
from mz_engine.decide.recovery import agent_of
from mz_engine.effects.check import stand_on
from mz_engine.effects.prompt import compose, outputs_of
from mz_engine.effects.schemas import provide_schemas
from mz_engine.effects.steps import Effect, ReserveCall, Scene, SettleCall, Steps, do, emit, get, put
from mz_engine.effects.talk import configured_model, take_up
from mz_engine.pipelines.definition import Phase, Tool
from mz_engine.ports import CallResult, CallSpec, Capture, Moved, Place, Reading, RepositoryUnusable
from mz_engine.pricing.worst import may_be_more, worst_of

REPLY_TOKENS = 2000
"""Assumed length of a reply, for estimates."""
LOST = Problem(kind=ProblemClass.TRANSIENT, code="lost")
NEVER_BEGAN = frozenset({"tool-missing", "unstartable"})
"""Problem codes of calls that cost nothing, since no process started."""
WORKTREE_LOST = Problem(kind=ProblemClass.PHASE, code="worktree-lost")


def call_agent(action: CallAgent, scene: Scene) -> Effect:
    """Compose the prompt, reserve money, record the request and, if the reservation is granted, call the agent."""
    work, cell, phase, place = scene.work, scene.cell, scene.phase, scene.place
    yield from stand_on(scene, cell.tree)
    yield from provide_schemas(scene, outputs_of(scene, action.role))
    tier, tools, template = _use(phase, action.role)
    agent, key = agent_of(work.book, scene.pins.config), scene.key(f"agent.{action.role}", action.attempt)
    model = configured_model(scene.pins.config, agent, tier) or (
        yield from do("agents.model", lambda ports: ports.agents.model(agent, tier))
    )
    talk = yield from take_up(scene, action.role, agent, model, key)
    composed = yield from compose(scene, action.role, template, talk)
    prompt = yield from _formatted(agent, composed.text)
    spec = CallSpec(
        key=key,
        place=place,
        agent=agent,
        model=model,
        prompt=prompt,
        session=talk.goes_on.id if talk.goes_on else session_of(key),
        resumes=talk.goes_on is not None,
        tools=tools,
        total_seconds=phase.timeout.total_seconds,
        idle_seconds=phase.timeout.idle_seconds,
    )
    tokens = yield from _tokens(agent, prompt)
    counted = yield from do("agents.count_tokens", lambda ports: ports.agents.count_tokens(spec))
    asked = asked_tokens(counted, tokens, talk.goes_on)
    before = yield from do("workspace.snapshot", lambda ports: dict(ports.workspace.snapshot()))
    request = AgentRequested(
        ref=CallRef(
            key=key,
            phase=work.phase,
            unit=cell.unit,
            iteration=cell.iteration,
            attempt=action.attempt,
            role=action.role,
        ),
        agent=agent,
        model=model,
        prompt=(yield from put(prompt)),
        template=template,
        whole=composed.text == composed.whole,
        session=spec.session,
        resumes=spec.resumes,
        tree=cell.tree,
        refs=(yield from put(encode(before))),
        estimated_tokens=asked + REPLY_TOKENS,
        estimated_nanousd=(yield from _estimate(scene, agent, model, asked)),
        kept=talk.kept,
        shown=composed.shown,
        prompt_tokens=tokens if talk.goes_on else None,
        whole_tokens=(yield from _whole_tokens(agent, composed.whole)) if talk.goes_on else None,
        counted=counted,
    )
    granted: bool = yield ReserveCall(request)
    if granted:
        yield from _carry_out(request, spec, before, scene.branches)


def asked_tokens(counted: int | None, prompt_tokens: int, goes_on: Conversation | None) -> int:
    """Return the input tokens of the first model request: as the agent counted them, else estimated.

    The estimate is the prompt plus, in a continued session, the estimate of the call before.
    """
    if counted is not None:
        return counted
    return prompt_tokens + (goes_on.estimated_tokens if goes_on else 0)


def _estimate(scene: Scene, agent: str, model: str, asked: int) -> Steps[int | None]:
    """Return the estimated cost of the call in nano-dollars, corrected by calibration."""
    tokens = expect(scene.pins.config.calibration, agent, model, scene.work.phase, asked, REPLY_TOKENS)
    return (
        yield from do(
            "prices.estimate",
            lambda ports: ports.prices.estimate(
                model, tokens.input, tokens.output, ports.clock.now_us(), tokens.cache_read, tokens.cache_write
            ),
        )
    )


def _formatted(agent: str, text: str) -> Steps[str]:
    return (yield from do("agents.format_prompt", lambda ports: ports.agents.format_prompt(agent, text)))


def _tokens(agent: str, prompt: str) -> Steps[int]:
    return (yield from do("agents.estimate_tokens", lambda ports: ports.agents.estimate_tokens(agent, prompt)))


def _whole_tokens(agent: str, text: str) -> Steps[int]:
    return (yield from _tokens(agent, (yield from _formatted(agent, text))))


def switch_agent(action: SwitchAgent, scene: Scene) -> Effect:
    """Record that the next call goes to another agent, in a session of its own."""
    request = scene.cell.request
    assert request is not None
    yield from emit(AgentSwitched(ref=request.ref, source=request.agent, to=action.to, code=action.code))


def session_of(key: str) -> str:
    """Return a UUID (RFC 9562, version 8) derived from the call's key, so that it is the same in every replay."""
    digits = sha256(key.encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"


def _carry_out(request: AgentRequested, spec: CallSpec, before: dict[str, str], branches: frozenset[str]) -> Effect:
    place = spec.place
    result = yield from do("agents.call", lambda ports: ports.agents.call(spec))
    after = yield from do("workspace.snapshot", lambda ports: dict(ports.workspace.snapshot()))
    capture = yield from _capture(place, request, before, after)
    moved = yield from _moved(request, place, before, after, branches)
    stdout, stderr = (yield from put(result.stdout)), (yield from put(result.stderr))
    outcome: Outcome
    if capture is None or result.problem is not None:
        outcome = AgentFailed(
            ref=request.ref,
            problem=result.problem or WORKTREE_LOST,
            stdout=stdout,
            stderr=stderr,
            duration_ms=result.duration_ms,
            tree=capture.tree if capture else request.tree,
        )
    else:
        outcome = AgentReplied(
            ref=request.ref,
            stdout=stdout,
            stderr=stderr,
            exit=result.exit,
            duration_ms=result.duration_ms,
            tree=capture.tree,
            offences=capture.offences,
            version=result.version,
        )
    yield from emit(*moved, outcome)


def _moved(
    request: AgentRequested, place: Place, before: dict[str, str], after: dict[str, str], branches: frozenset[str]
) -> Steps[list[RefMoved]]:
    """Return an event for each ref that changed during the call, after saving the old values."""
    moved = moved_refs(before, after, branches)
    if moved:
        yield from do("workspace.rescue", lambda ports: ports.workspace.rescue(place, moved))
    return [RefMoved(ref=request.ref, name=change.name, old=change.old, new=change.new) for change in moved]


def moved_refs(before: dict[str, str], after: dict[str, str], branches: frozenset[str]) -> tuple[Moved, ...]:
    """Return the refs that changed without an event of ours.

    The run's own branches and their remote copies are left out: mz restores these.
    """
    return tuple(
        Moved(name=name, old=before.get(name, ""), new=after.get(name, ""))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name) and branch_of(name) not in branches
    )


def branch_of(ref: str) -> str:
    """Return `feat/a` for `refs/heads/feat/a` and `refs/remotes/origin/feat/a`; an empty text for anything else."""
    match ref.split("/", 3):
        case ["refs", "heads", first, remaining]:
            return f"{first}/{remaining}"
        case ["refs", "heads", name]:
            return name
        case ["refs", "remotes", _, name]:
            return name
    return ""


def _use(phase: Phase, role: str) -> tuple[str, tuple[Tool, ...], str]:
    """Return tier, tools and template of a role's call."""
    if role == "builder":
        assert phase.agent is not None
        return phase.agent.tier, phase.agent.tools, phase.prompt or phase.phase
    assert phase.review is not None
    return phase.review.tier, phase.review.tools, phase.review.prompt


def settle_call(intent: AgentRequested, scene: Scene) -> Effect:
    """Record the outcome of a call that a crash interrupted, after killing what still runs under its key.

    A spool that ends with a terminal event is a reply; otherwise the call is lost. The worktree is only captured: the
    next call restores it, after the outcome is durable.
    """
    place = scene.place
    salvaged = yield from do("agents.salvage", lambda ports: ports.agents.salvage(intent.ref.key))
    before = decode((yield from get(intent.refs)), type=dict[str, str])
    after = yield from do("workspace.snapshot", lambda ports: dict(ports.workspace.snapshot()))
    moved = yield from _moved(intent, place, before, after, scene.branches)
    if salvaged is None:
        yield from emit(*moved, AgentLost(ref=intent.ref, stdout=(yield from put(b""))))
        return
    stdout, stderr = (yield from put(salvaged.stdout)), (yield from put(salvaged.stderr))
    reading = yield from _read(intent.agent, replace(salvaged, model=intent.model))
    capture = yield from _capture(place, intent, before, after)
    if reading.terminal == "no-terminal" or capture is None:
        yield from emit(*moved, AgentLost(ref=intent.ref, stdout=stdout))
        return
    reply = AgentReplied(
        ref=intent.ref,
        stdout=stdout,
        stderr=stderr,
        exit=None,
        duration_ms=salvaged.duration_ms,
        tree=capture.tree,
        offences=capture.offences,
        salvaged=True,
        version=reading.version,
    )
    yield from emit(*moved, reply)


def _capture(
    place: Place, request: AgentRequested, before: dict[str, str], after: dict[str, str]
) -> Steps[Capture | None]:
    """Capture the worktree, and note commits that the agent made itself. None: the worktree cannot be read."""
    try:
        capture = yield from do("workspace.capture", lambda ports: ports.workspace.capture(place, request.tree))
    except RepositoryUnusable:
        return None
    branch = f"refs/heads/{place.branch}"
    if before.get(branch) == after.get(branch):
        return capture
    return replace(capture, offences=(*capture.offences, Offence(kind="commit", path=place.branch)))


def _read(agent: str, result: CallResult) -> Steps[Reading]:
    return (yield from do("agents.parse_reply", lambda ports: ports.agents.read(agent, result)))


def read_reply(action: ReadReply, scene: Scene) -> Effect:
    """Parse, price and settle a reply, in one transaction."""
    outcome = action.outcome
    request = scene.cell.request
    assert request is not None
    result = replace((yield from _result_of(outcome)), model=request.model, earlier=_earlier(request, scene))
    reading = yield from _read(request.agent, result)
    ended_at_us = scene.cell.ended_at_us
    price = yield from do("prices.price", lambda ports: ports.prices.price(reading.usage, ended_at_us))
    problem = LOST if isinstance(outcome, AgentLost) else reading.problem
    if problem is not None and problem.detail is None and reading.problem_detail:
        detail = yield from put(reading.problem_detail)
        problem = replace(problem, detail=detail)
    parsed = ReplyRead(
        ref=outcome.ref,
        parser=reading.parser,
        terminal=reading.terminal,
        session=reading.session,
        usage=reading.usage,
        reported_nanousd=reading.reported_nanousd,
        text=(yield from put(reading.text)),
        problem=problem,
        bad_lines=reading.bad_lines,
    )
    priced = CallPriced(
        key=outcome.ref.key,
        computed_nanousd=price.nanousd if reading.usage else None,
        unpriced=price.unpriced,
        prices=price.prices,
    )
    began = not (isinstance(outcome, AgentFailed) and outcome.problem.code in NEVER_BEGAN)
    cost = worst_of(reading, price) if began else 0
    yield SettleCall(outcome.ref.key, cost, (parsed, priced), began and may_be_more(reading, price))


def _earlier(request: AgentRequested, scene: Scene) -> tuple[Usage, ...]:
    conversation = scene.work.book.conversation
    return conversation.before if request.resumes and conversation is not None else ()


def _result_of(outcome: Outcome) -> Steps[CallResult]:
    stdout = yield from do("blobs.get", lambda ports: ports.blobs.get(outcome.stdout))
    if isinstance(outcome, AgentLost):
        return CallResult(stdout=stdout, stderr=b"", exit=None, duration_ms=0, problem=LOST)
    stderr = yield from do("blobs.get", lambda ports: ports.blobs.get(outcome.stderr))
    if isinstance(outcome, AgentFailed):
        return CallResult(
            stdout=stdout, stderr=stderr, exit=None, duration_ms=outcome.duration_ms, problem=outcome.problem
        )
    return CallResult(
        stdout=stdout, stderr=stderr, exit=outcome.exit, duration_ms=outcome.duration_ms, version=outcome.version
    )
