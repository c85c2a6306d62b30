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


class CancelLeft(Event, frozen=True, kw_only=True, tag="inbox.cancel"):
    ROLE = Role.FACT
    feature: FeatureId | None
    """None: the whole run."""
    note: Digest | None = None
    who: Digest
