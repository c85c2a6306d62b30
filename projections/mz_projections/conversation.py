"""Applies events to the session that a feature's builder continues.

Only calls that keep a session change it. A dropped session stays in the progress until the next call records the reason
(`SessionDropped`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, ReplyRead, SessionEnd, Usage
from mz_events.catalog.check import ArtifactParsed
from mz_events.names import Digest

from mz_projections.cell import SESSION_MISSING
from mz_projections.state import Conversation
from mz_projections.usage import plus

MARK = 16
"""Hexadecimal digits of a digest that distinguish the texts of one feature."""
ENDS = {"lost": SessionEnd.LOST, SESSION_MISSING: SessionEnd.MISSING}


def mark(digest: Digest | str) -> str:
    """Return the mark of a text that a session has seen."""
    return digest[:MARK]


def broken(conversation: Conversation | None, reason: SessionEnd) -> Conversation | None:
    """Mark the session as dropped; the first reason counts."""
    if conversation is None or conversation.broken is not None:
        return conversation
    return replace(conversation, broken=reason)


def _requested(conversation: Conversation | None, event: AgentRequested) -> Conversation | None:
    if not event.kept or event.session is None:
        return conversation
    if event.resumes and conversation is not None:
        return replace(
            conversation,
            key=event.ref.key,
            before=conversation.used,
            estimated_tokens=event.estimated_tokens,
            shown=conversation.shown.union(event.shown),
        )
    return Conversation(
        agent=event.agent,
        model=event.model,
        id=event.session,
        key=event.ref.key,
        estimated_tokens=event.estimated_tokens,
        shown=frozenset(event.shown),
    )


def _read(conversation: Conversation | None, event: ReplyRead) -> Conversation | None:
    """Update the session by a parsed reply. A successful call that asks for a person keeps its session; any other
    problem drops it."""
    if conversation is None or event.ref.key != conversation.key:
        return conversation
    conversation = replace(
        conversation, id=event.session or conversation.id, used=total((*conversation.before, *event.usage))
    )
    if event.problem is None or event.terminal == "success":
        return conversation
    return broken(conversation, ENDS.get(event.problem.code, SessionEnd.FAILED))


def wrote(conversation: Conversation | None, key: str, event: ArtifactParsed) -> Conversation | None:
    """Add the builder's own artifact from call `key` to the texts that the session has seen."""
    if conversation is None or conversation.key != key:
        return conversation
    return replace(conversation, shown=conversation.shown | {mark(event.digest)})


IN_SESSION: Mapping[type[Event], Callable[[Conversation | None, Any], Conversation | None]] = {
    AgentRequested: _requested,
    ReplyRead: _read,
}


def total(usage: Iterable[Usage]) -> tuple[Usage, ...]:
    """Return one sum per model, in the order of first occurrence."""
    sums: dict[str, Usage] = {}
    for each in usage:
        known = sums.get(each.model)
        sums[each.model] = each if known is None else _added(known, each)
    return tuple(sums.values())


def _added(one: Usage, other: Usage) -> Usage:
    requests = None if one.requests is None or other.requests is None else one.requests + other.requests
    return replace(plus(one, other), requests=requests, tier="", part="")
