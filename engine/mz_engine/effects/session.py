"""The agent session of a call: a new one, or the feature's own, which is continued."""

from __future__ import annotations

import msgspec
from mz_events.catalog.call import SessionDropped, SessionDropReason
from mz_events.names import BUILDER
from mz_projections.feature.state import AgentSession

from mz_engine.effects.steps import StepContext, Steps, call_port, emit
from mz_engine.model.config import Config
from mz_engine.model.pipeline import Phase
from mz_engine.ports import Agents


class SessionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The session of one call."""

    keeps_session: bool = False
    """Later calls may continue the session."""
    continued_session: AgentSession | None = None
    """The session that the call continues; None: it starts one."""


def configured_model(config: Config, agent: str, tier: str) -> str | None:
    """Return the model that the settings name for a tier; they hold for the configured agent, not for a successor."""
    model: str | None = getattr(config.models, tier) if agent == config.agent else None
    return model


def keeps_session(phase: Phase, role: str, config: Config) -> bool:
    """Return True if calls of this role continue the feature's session. A reviewer's never do."""
    if role != BUILDER or phase.agent is None:
        return False
    return (phase.agent.session or config.sessions) == "continue"


def plan_session(context: StepContext, role: str, agent: str, model: str, key: str) -> Steps[SessionPlan]:
    """Choose the session of a call. A session that cannot be continued is dropped, with a recorded reason.

    An agent without sessions starts a new one every time.
    """
    if not keeps_session(context.phase, role, context.pins.config):
        return SessionPlan()
    last_session = context.phase_state.progress.agent_session
    reason = None if last_session is None else drop_reason(last_session, context.run, agent, model)
    session_id = None if last_session is None or reason is not None else last_session.id
    can_continue = yield from call_port(Agents.continues, agent, session_id, key)
    if last_session is None:
        return SessionPlan(keeps_session=can_continue)
    if session_id is not None and can_continue:
        return SessionPlan(keeps_session=True, continued_session=last_session)
    yield from emit(SessionDropped(key=key, session=last_session.id, reason=reason or SessionDropReason.RECORDED))
    return SessionPlan(keeps_session=can_continue or reason is None)


def drop_reason(session: AgentSession, run: str, agent: str, model: str) -> SessionDropReason | None:
    """Return why the session cannot be continued, as far as the log knows; None if it can."""
    if session.drop_reason is not None:
        return session.drop_reason
    if session.key.partition("/")[0] != run:
        return SessionDropReason.FORK
    if session.agent != agent:
        return SessionDropReason.AGENT
    return SessionDropReason.MODEL if session.model != model else None
