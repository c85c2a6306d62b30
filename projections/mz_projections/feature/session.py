"""Applies events to the session that a feature's builder continues.

Only calls that keep a session change it. A dropped session stays in the progress until the next call records the reason
(`SessionDropped`).
"""

from __future__ import annotations

from msgspec.structs import replace
from mz_events.catalog.call import AgentRequested, ReplyParsed, SessionDropReason
from mz_events.catalog.validation import ArtifactParsed
from mz_events.names import Digest

from mz_projections.feature.state import AgentSession
from mz_projections.feature.unit import SESSION_MISSING
from mz_projections.usage import sum_by_model

MARK_CHARS = 16
"""Hexadecimal digits of a digest that distinguish the texts of one feature."""
DROP_REASONS = {"lost": SessionDropReason.LOST, SESSION_MISSING: SessionDropReason.MISSING}


def text_mark(digest: Digest | str) -> str:
    """Return the mark of a text that a session has seen."""
    return digest[:MARK_CHARS]


def drop_session(session: AgentSession | None, reason: SessionDropReason) -> AgentSession | None:
    """Mark the session as dropped; the first reason counts."""
    if session is None or session.drop_reason is not None:
        return session
    return replace(session, drop_reason=reason)


def apply_request(session: AgentSession | None, event: AgentRequested) -> AgentSession | None:
    if not event.keeps_session or event.session is None:
        return session
    if event.resumes and session is not None:
        return replace(
            session,
            key=event.ref.key,
            usage_before=session.usage,
            estimated_tokens=event.estimated_tokens,
            seen_marks=session.seen_marks.union(event.seen_marks),
        )
    return AgentSession(
        agent=event.agent,
        model=event.model,
        id=event.session,
        key=event.ref.key,
        estimated_tokens=event.estimated_tokens,
        seen_marks=frozenset(event.seen_marks),
    )


def apply_reply(session: AgentSession | None, event: ReplyParsed) -> AgentSession | None:
    """Update the session by a parsed reply. A successful call that asks for a person keeps its session; any other
    problem drops it."""
    if session is None or event.ref.key != session.key:
        return session
    sums = sum_by_model((*session.usage_before, *event.usage))
    session = replace(session, id=event.session or session.id, usage=tuple(sums.values()))
    if event.problem is None or event.ending == "success":
        return session
    return drop_session(session, DROP_REASONS.get(event.problem.code, SessionDropReason.FAILED))


def add_written(session: AgentSession | None, key: str, event: ArtifactParsed) -> AgentSession | None:
    """Add the builder's own artifact from call `key` to the texts that the session has seen."""
    if session is None or session.key != key:
        return session
    return replace(session, seen_marks=session.seen_marks | {text_mark(event.digest)})
