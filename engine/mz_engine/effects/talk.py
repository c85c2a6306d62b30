"""Effects and rules of who is called, and in which session: a new one, or the feature's own, which goes on."""

from __future__ import annotations

import msgspec
from mz_events.catalog.call import SessionBroken, SessionEnd
from mz_projections.state import Conversation

from mz_engine.config import Config
from mz_engine.effects.steps import Scene, Steps, do, emit
from mz_engine.pipelines.definition import Phase
from mz_engine.pipelines.lint import BUILDER


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """How a call stands to sessions."""

    kept: bool = False
    """Later calls may go on in its session."""
    goes_on: Conversation | None = None
    """The session that it goes on in; None: it begins one."""


def configured_model(config: Config, agent: str, tier: str) -> str | None:
    """The model that the settings name for a tier; they speak of their own agent, not of one that took over."""
    named: str | None = getattr(config.models, tier) if agent == config.agent else None
    return named


def keeps(phase: Phase, role: str, config: Config) -> bool:
    """Whether calls of this role go on in the feature's session. A reviewer's never do."""
    if role != BUILDER or phase.agent is None:
        return False
    return (phase.agent.session or config.sessions) == "continue"


def take_up(scene: Scene, role: str, agent: str, model: str, key: str) -> Steps[Talk]:
    """Where a session cannot go on, the reason is recorded, and another begins; an agent without sessions begins anew
    every time."""
    if not keeps(scene.phase, role, scene.pins.config):
        return Talk()
    conversation = scene.work.book.conversation
    reason = None if conversation is None else ended(conversation, scene.run, agent, model)
    session = None if conversation is None or reason is not None else conversation.id
    can = yield from do("agents.continues", lambda ports: ports.agents.continues(agent, session, key))
    if conversation is None:
        return Talk(kept=can)
    if session is not None and can:
        return Talk(kept=True, goes_on=conversation)
    yield from emit(SessionBroken(key=key, session=conversation.id, reason=reason or SessionEnd.ELSEWHERE))
    return Talk(kept=can or reason is None)


def ended(conversation: Conversation, run: str, agent: str, model: str) -> SessionEnd | None:
    """Why this session cannot go on, as far as the log knows; None: it can."""
    if conversation.broken is not None:
        return conversation.broken
    if conversation.key.partition("/")[0] != run:
        return SessionEnd.FORK
    if conversation.agent != agent:
        return SessionEnd.AGENT
    return SessionEnd.MODEL if conversation.model != model else None
