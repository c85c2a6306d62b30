"""Facts of the stream `inbox/<run>`: what people leave for a run. Anyone appends; only the coordinator reads."""

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
    """Version of the feature's stream that asked; an answer never meets another question. None: whichever is open."""


class CancelLeft(Event, frozen=True, kw_only=True, tag="inbox.cancel"):
    ROLE = Role.FACT
    feature: FeatureId | None
    """None: the whole run."""
    note: Digest | None = None
    who: Digest


class RetryLeft(Event, frozen=True, kw_only=True, tag="inbox.retry"):
    """Do a feature that rests once more, from a phase on."""

    ROLE = Role.FACT
    feature: FeatureId
    phase: str | None
    """None: the phase in which it stands."""
    note: Digest | None = None
    who: Digest


class PauseLeft(Event, frozen=True, kw_only=True, tag="inbox.pause"):
    """Come to rest after what is under way; the process stays, and goes on when it is told so."""

    ROLE = Role.FACT
    who: Digest


class ResumeLeft(Event, frozen=True, kw_only=True, tag="inbox.resume"):
    """A paused run goes on."""

    ROLE = Role.FACT
    who: Digest
