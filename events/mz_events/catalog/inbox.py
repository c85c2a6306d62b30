"""Events of the stream `inbox/<run>`: messages of people to a run. Anyone appends; only the coordinator reads."""

from __future__ import annotations

from mz_events.catalog.base import Event, Role
from mz_events.catalog.run import Verdict
from mz_events.names import Digest, FeatureId


class AnswerLeft(Event, frozen=True, kw_only=True, tag="inbox.answer"):
    ROLE = Role.FACT
    feature: FeatureId
    verdict: Verdict
    note: Digest | None = None
    who: Digest
    question: int | None = None
    """Version of the event in the feature's stream that asked; an answer never applies to another question. None: any
    open question."""


class CancelLeft(Event, frozen=True, kw_only=True, tag="inbox.cancel"):
    ROLE = Role.FACT
    feature: FeatureId | None
    """None: the run."""
    note: Digest | None = None
    who: Digest


class RetryLeft(Event, frozen=True, kw_only=True, tag="inbox.retry"):
    """Retry a stopped feature from a phase on."""

    ROLE = Role.FACT
    feature: FeatureId
    phase: str | None
    """None: the current phase."""
    note: Digest | None = None
    who: Digest


class PauseLeft(Event, frozen=True, kw_only=True, tag="inbox.pause"):
    """Finish current calls, then pause; the process stays and continues on request."""

    ROLE = Role.FACT
    who: Digest


class ResumeLeft(Event, frozen=True, kw_only=True, tag="inbox.resume"):
    """Continue a paused run."""

    ROLE = Role.FACT
    who: Digest
