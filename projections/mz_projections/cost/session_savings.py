"""Savings by continued sessions: estimated for one run, or measured against a run of the same work.

Within one run only prompts can be compared: the size of each as sent, and of the full prompt. Effects on what agents
read again and on a provider's cache only show against another run of the same features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallSettled, ReplyParsed, SessionDropped, Usage
from mz_events.envelope import Recorded


class SessionUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of calls, as reported by their agents."""

    input: int = 0
    """All model input over all requests, including repeated and cached input."""
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    nanousd: int = 0
    """Charged to budgets."""

    @property
    def uncached_input(self) -> int:
        """Uncached input."""
        return self.input - self.cache_read


class ContinuedSession(msgspec.Struct, frozen=True, kw_only=True):
    """Continued calls and sessions of one feature, or of a run."""

    name: str
    calls: int = 0
    continued_calls: int = 0
    """Calls that continued a session."""
    sessions_kept: int = 0
    """Sessions started to be continued."""
    dropped: dict[str, int] = {}
    """Dropped sessions, by reason."""
    sent_tokens: int = 0
    """Estimate: the prompts of continued calls, as sent."""
    full_prompt_tokens: int = 0
    """Estimate: the full prompts of the same calls."""
    calls_without_usage: int = 0
    """Calls with unknown usage, missing in `usage`."""
    usage: SessionUsage = SessionUsage()


COUNTS = ("calls", "continued_calls", "sessions_kept", "sent_tokens", "full_prompt_tokens", "calls_without_usage")


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, without (`before`) and with (`after`) continued sessions."""

    figure: str
    before: int
    after: int

    @property
    def percent(self) -> float | None:
        """Positive: saved. None: nothing to save."""
        return None if self.before == 0 else 100 * (self.before - self.after) / self.before


def continued_sessions(events: Iterable[Recorded[Event]]) -> tuple[ContinuedSession, ...]:
    """Return the sessions by feature, in the order of their first calls. Events copied by a fork are ignored."""
    sessions: dict[str, ContinuedSession] = {}
    replies_by_key: dict[str, tuple[str, ReplyParsed]] = {}
    for recorded in events:
        if recorded.is_forked_copy:
            continue
        name = recorded.stream.rpartition("/")[2]
        match recorded.event:
            case ReplyParsed() as reply:
                replies_by_key[reply.ref.key] = name, reply
            case AgentRequested() | SessionDropped() | CallSettled() as event if recorded.stream.count("/") > 1:
                sessions[name] = _count_event(sessions.get(name) or ContinuedSession(name=name), event)
    for name, reply in replies_by_key.values():
        session = sessions.get(name) or ContinuedSession(name=name)
        usage = _add_usage(session.usage, reply.usage)
        sessions[name] = replace(
            session, usage=usage, calls_without_usage=session.calls_without_usage - bool(reply.usage)
        )
    return tuple(sessions.values())


def _count_event(session: ContinuedSession, event: AgentRequested | SessionDropped | CallSettled) -> ContinuedSession:
    match event:
        case CallSettled(nanousd=nanousd):
            return replace(session, usage=replace(session.usage, nanousd=session.usage.nanousd + nanousd))
        case SessionDropped(reason=reason):
            return replace(session, dropped={**session.dropped, reason.value: session.dropped.get(reason.value, 0) + 1})
    session = replace(session, calls=session.calls + 1, calls_without_usage=session.calls_without_usage + 1)
    if event.resumes and event.prompt_tokens is not None and event.full_prompt_tokens is not None:
        return replace(
            session,
            continued_calls=session.continued_calls + 1,
            sent_tokens=session.sent_tokens + event.prompt_tokens,
            full_prompt_tokens=session.full_prompt_tokens + event.full_prompt_tokens,
        )
    return replace(session, sessions_kept=session.sessions_kept + event.keeps_session)


def _add_usage(total: SessionUsage, usages: tuple[Usage, ...]) -> SessionUsage:
    return replace(
        total,
        input=total.input + sum(usage.input for usage in usages),
        cache_read=total.cache_read + sum(usage.cache_read for usage in usages),
        cache_write=total.cache_write + sum(usage.cache_write_5m + usage.cache_write_1h for usage in usages),
        output=total.output + sum(usage.output for usage in usages),
    )


def sum_sessions(name: str, sessions: Iterable[ContinuedSession]) -> ContinuedSession:
    """Return the sum."""
    parts = tuple(sessions)
    dropped = Counter[str]()
    for session in parts:
        dropped.update(session.dropped)
    usage = {name: sum(getattr(part.usage, name) for part in parts) for name in SessionUsage.__struct_fields__}
    counts = {name: sum(getattr(part, name) for part in parts) for name in COUNTS}
    return ContinuedSession(name=name, dropped=dict(dropped), usage=SessionUsage(**usage), **counts)


def estimated_saving(session: ContinuedSession) -> Saving:
    """Return the saving on prompts that continued a session: as sent against the full prompts."""
    return Saving(figure="prompts", before=session.full_prompt_tokens, after=session.sent_tokens)


def measured_savings(session: ContinuedSession, baseline: ContinuedSession) -> tuple[Saving, ...]:
    """Return the savings on the same work: with sessions against calls that each started anew."""
    usage, baseline_usage = session.usage, baseline.usage
    figures = (
        ("input", baseline_usage.input, usage.input),
        ("new input", baseline_usage.uncached_input, usage.uncached_input),
        ("cache reads", baseline_usage.cache_read, usage.cache_read),
        ("output", baseline_usage.output, usage.output),
        ("money", baseline_usage.nanousd, usage.nanousd),
        ("calls", baseline.calls, session.calls),
    )
    return tuple(Saving(figure=figure, before=before, after=after) for figure, before, after in figures)
