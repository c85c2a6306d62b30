"""Events of people, which anyone appends: messages to a run (stream `inbox/<run>`; only the coordinator reads it), and
erasures (`erased/<run>`)."""

from __future__ import annotations

from mz_events.catalog.base import ExternalEvent
from mz_events.catalog.run import RetryRequest, Verdict
from mz_events.names import Digest, FeatureId


class AnswerPosted(ExternalEvent, frozen=True, kw_only=True, tag="inbox.answer"):
    """A person's answer to a feature's question.

    It becomes three events, because each stream has one writer and each decider reads one stream: this one is durable
    even while no process drives the run; `AnswerAccepted` reactivates the feature, in one transaction with the inbox's
    cursor (`InboxRead`), so that no crash accepts it twice; `HumanAnswered` is what the feature decides on.
    """

    feature: FeatureId
    verdict: Verdict
    note: Digest | None = None
    actor: Digest
    question: int | None = None
    """Version of the event in the feature's stream that asked; an answer never applies to another question. None: any
    open question."""


class CancelPosted(ExternalEvent, frozen=True, kw_only=True, tag="inbox.cancel"):
    feature: FeatureId | None
    """None: the run."""
    note: Digest | None = None
    actor: Digest


class RetryPosted(RetryRequest, frozen=True, kw_only=True, tag="inbox.retry"):
    """Retry a stopped feature, or revise a delivered one, from a phase on."""


class PausePosted(ExternalEvent, frozen=True, kw_only=True, tag="inbox.pause"):
    """Finish current calls, then pause; the process stays and continues on request."""

    actor: Digest


class ResumePosted(ExternalEvent, frozen=True, kw_only=True, tag="inbox.resume"):
    """Continue a paused run."""

    actor: Digest


class BlobErased(ExternalEvent, frozen=True, kw_only=True, tag="blob.erased"):
    """A person removed a text that events of the run cite; these stay as they are. In the stream `erased/<run>` of each
    run that cites it."""

    blob: Digest
    size_bytes: int
    reason: Digest
    actor: Digest
