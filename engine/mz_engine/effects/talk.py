"""The agent session of a call: a new one, or the feature's own, which is continued."""

from __future__ import annotations

import msgspec
from mz_events.catalog.call import SessionBroken, SessionEnd
from mz_projections.state import Conversation

from mz_engine.config import Config
from mz_engine.effects.steps import Scene, Steps, do, emit
from mz_engine.pipelines.definition import Phase
from mz_engine.pipelines.lint import BUILDER


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """The session of one call."""

    kept: bool = False
    """Later calls may continue the session."""
    goes_on: Conversation | None = None
    """The session that the call continues; None: it starts one."""


def configured_model(config: Config, agent: str, tier: str) -> str | None:
    """Return the model that the settings name for a tier; they hold for the configured agent, not for a successor."""
    model: str | None = getattr(config.models, tier) if agent == config.agent else None
    return model


def keeps(phase: Phase, role: str, config: Config) -> bool:
    """Return True if calls of this role continue the feature's session. A reviewer's never do."""
    if role != BUILDER or phase.agent is None:
        return False
    return (phase.agent.session or config.sessions) == "continue"


def take_up(scene: Scene, role: str, agent: str, model: str, key: str) -> Steps[Talk]:
    """Choose the session of a call. A session that cannot be continued is dropped, with a recorded reason.

    An agent without sessions starts a new one every time.
    """
    if not keeps(scene.phase, role, scene.pins.config):
        return Talk()
    conversation = scene.work.book.conversation
    reason = None if conversation is None else ended(conversation, scene.run, agent, model)
    session = None if conversation is None or reason is not None else conversation.id
    can_continue = yield from do("agents.continues", lambda ports: ports.agents.continues(agent, session, key))
    if conversation is None:
        return Talk(kept=can_continue)
    if session is not None and can_continue:
        return Talk(kept=True, goes_on=conversation)
    yield from emit(SessionBroken(key=key, session=conversation.id, reason=reason or SessionEnd.ELSEWHERE))
    return Talk(kept=can_continue or reason is None)


def ended(conversation: Conversation, run: str, agent: str, model: str) -> SessionEnd | None:
    """Return why the session cannot be continued, as far as the log knows; None if it can."""
    if conversation.broken is not None:
        return conversation.broken
    if conversation.key.partition("/")[0] != run:
        return SessionEnd.FORK
    if conversation.agent != agent:
        return SessionEnd.AGENT
    return SessionEnd.MODEL if conversation.model != model else None
