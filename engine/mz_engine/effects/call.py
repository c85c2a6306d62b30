"""Effects of one agent call: reserve and request, call, settle after a crash, read and price the reply."""

from __future__ import annotations

from hashlib import sha256

from msgspec.json import decode, encode
from msgspec.structs import replace
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    CallPriced,
    CallRef,
    Offence,
    Problem,
    ProblemClass,
    ReplyRead,
)
from mz_events.catalog.check import RefMoved
from mz_projections.feature import Outcome

from mz_engine.decide.actions import CallAgent, ReadReply
from mz_engine.effects.check import stand_on
from mz_engine.effects.prompt import compose
from mz_engine.effects.steps import Effect, ReserveCall, Scene, SettleCall, Steps, do, emit, get, put
from mz_engine.pipelines.definition import Phase, Timeout, Tool
from mz_engine.ports import CallResult, CallSpec, Capture, Moved, Place, Price, Reading, RepositoryUnusable

REPLY_TOKENS = 2000
"""Assumed length of a reply, for the estimate."""
LOST = Problem(kind=ProblemClass.TRANSIENT, code="lost")
NEVER_BEGAN = frozenset({"tool-missing", "unstartable"})
"""Problems of calls that cost nothing, since nothing was started."""
WORKTREE_LOST = Problem(kind=ProblemClass.PHASE, code="worktree-lost")


def call_agent(action: CallAgent, scene: Scene) -> Effect:
    work, cell, phase, place, config = scene.work, scene.cell, scene.phase, scene.place, scene.pins.config
    yield from stand_on(scene, cell.tree)
    tier, tools, template = _use(phase, action.role)
    text = yield from compose(scene, action.role, template)
    prompt = yield from do("agents.format_prompt", lambda ports: ports.agents.format_prompt(config.agent, text))
    model = getattr(config.models, tier) or (
        yield from do("agents.model", lambda ports: ports.agents.model(config.agent, tier))
    )
    tokens = yield from do("agents.estimate_tokens", lambda ports: ports.agents.estimate_tokens(config.agent, prompt))
    estimate = yield from do(
        "prices.estimate",
        lambda ports: ports.prices.estimate(model, tokens, REPLY_TOKENS, ports.clock.now_us()),
    )
    before = yield from do("workspace.snapshot", lambda ports: dict(ports.workspace.snapshot()))
    key = scene.key(f"agent.{action.role}", action.attempt)
    request = AgentRequested(
        ref=CallRef(
            key=key,
            phase=work.phase,
            unit=cell.unit,
            iteration=cell.iteration,
            attempt=action.attempt,
            role=action.role,
        ),
        agent=config.agent,
        model=model,
        prompt=(yield from put(prompt)),
        template=template,
        whole=True,
        session=session_of(key),
        resumes=False,
        tree=cell.tree,
        refs=(yield from put(encode(before))),
        estimated_tokens=tokens + REPLY_TOKENS,
        estimated_nanousd=estimate,
    )
    granted: bool = yield ReserveCall(request)
    if granted:
        yield from _carry_out(request, place, prompt, tools, phase.timeout, before, scene.branches)


def session_of(key: str) -> str:
    """A UUID (RFC 9562, version 8) that only this call has; the same in every replay."""
    digits = sha256(key.encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"


def _carry_out(
    request: AgentRequested,
    place: Place,
    prompt: str,
    tools: tuple[Tool, ...],
    timeout: Timeout,
    before: dict[str, str],
    branches: frozenset[str],
) -> Effect:
    spec = CallSpec(
        key=request.ref.key,
        place=place,
        agent=request.agent,
        model=request.model,
        prompt=prompt,
        session=request.session,
        resumes=request.resumes,
        tools=tools,
        total_seconds=timeout.total_seconds,
        idle_seconds=timeout.idle_seconds,
    )
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
    """What moved during the call; the old values are kept."""
    moved = moved_refs(before, after, branches)
    if moved:
        yield from do("workspace.rescue", lambda ports: ports.workspace.rescue(place, moved))
    return [RefMoved(ref=request.ref, name=one.name, old=one.old, new=one.new) for one in moved]


def moved_refs(before: dict[str, str], after: dict[str, str], branches: frozenset[str]) -> tuple[Moved, ...]:
    """What no event of ours explains. The run's own branches are put back, not reported; so are their remote copies."""
    return tuple(
        Moved(name=name, old=before.get(name, ""), new=after.get(name, ""))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name) and branch_of(name) not in branches
    )


def branch_of(ref: str) -> str:
    """`feat/a` of `refs/heads/feat/a` and of `refs/remotes/origin/feat/a`; empty for anything else."""
    match ref.split("/", 3):
        case ["refs", "heads", first, rest]:
            return f"{first}/{rest}"
        case ["refs", "heads", name]:
            return name
        case ["refs", "remotes", _, name]:
            return name
    return ""


def _use(phase: Phase, role: str) -> tuple[str, tuple[Tool, ...], str]:
    """Tier, tools and template of a role's call."""
    if role == "builder":
        assert phase.agent is not None
        return phase.agent.tier, phase.agent.tools, phase.prompt or phase.phase
    assert phase.review is not None
    return phase.review.tier, phase.review.tools, phase.review.prompt


def settle_call(intent: AgentRequested, scene: Scene) -> Effect:
    """After a crash: kill what runs under the key; a spool that ends with a terminal event is a reply, else the call
    is lost. The tree is only looked at: the next call's preparation restores it, after the outcome is durable."""
    place, found = scene.place, (yield from do("agents.salvage", lambda ports: ports.agents.salvage(intent.ref.key)))
    before = decode((yield from get(intent.refs)), type=dict[str, str])
    after = yield from do("workspace.snapshot", lambda ports: dict(ports.workspace.snapshot()))
    moved = yield from _moved(intent, place, before, after, scene.branches)
    if found is None:
        yield from emit(*moved, AgentLost(ref=intent.ref, stdout=(yield from put(b""))))
        return
    stdout, stderr = (yield from put(found.stdout)), (yield from put(found.stderr))
    reading = yield from _read(intent.agent, found)
    capture = yield from _capture(place, intent, before, after)
    if reading.terminal == "no-terminal" or capture is None:
        yield from emit(*moved, AgentLost(ref=intent.ref, stdout=stdout))
        return
    reply = AgentReplied(
        ref=intent.ref,
        stdout=stdout,
        stderr=stderr,
        exit=None,
        duration_ms=found.duration_ms,
        tree=capture.tree,
        offences=capture.offences,
        salvaged=True,
        version=found.version,
    )
    yield from emit(*moved, reply)


def _capture(
    place: Place, request: AgentRequested, before: dict[str, str], after: dict[str, str]
) -> Steps[Capture | None]:
    """The tree, and with it the commits that the agent made by itself. None: it left no worktree that can be read."""
    try:
        capture = yield from do("workspace.capture", lambda ports: ports.workspace.capture(place, request.tree))
    except RepositoryUnusable:
        return None
    branch = f"refs/heads/{place.branch}"
    if before.get(branch) == after.get(branch):
        return capture
    return replace(capture, offences=(*capture.offences, Offence(kind="commit", path=place.branch)))


def _read(agent: str, result: CallResult) -> Steps[Reading]:
    return (yield from do("agents.read", lambda ports: ports.agents.read(agent, result)))


def read_reply(action: ReadReply, scene: Scene) -> Effect:
    """Parse, price and settle, in one transaction."""
    outcome = action.outcome
    result = yield from _result_of(outcome)
    reading = yield from _read(scene.pins.config.agent, result)
    ended_at_us = scene.cell.ended_at_us
    price = yield from do("prices.price", lambda ports: ports.prices.price(reading.usage, ended_at_us))
    problem = LOST if isinstance(outcome, AgentLost) else reading.problem
    if problem is not None and problem.detail is None and reading.problem_detail:
        detail = yield from put(reading.problem_detail)
        problem = replace(problem, detail=detail)
    read = ReplyRead(
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
    yield SettleCall(outcome.ref.key, worst_of(reading, price) if began else 0, (read, priced))


def worst_of(reading: Reading, price: Price) -> int | None:
    """The higher of what the agent reported and what its usage comes to; None where a call that did not end said
    neither."""
    known = [amount for amount in (reading.reported_nanousd, price.nanousd if reading.usage else None) if amount]
    if not known and reading.terminal == "no-terminal":
        return None
    return max(known, default=0)


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
