"""Events of the memory: learnings that artifacts state, what people decide about them and about what was learned of
agents (stream `project/memory`), and what they give to all projects (stream `user/memory` of the user's log)."""

from __future__ import annotations

from mz_events.catalog.base import DerivedEvent, EventPart, ExternalEvent
from mz_events.names import Digest, RunId


class CapturedLearning(EventPart, frozen=True, kw_only=True):
    """One learning that an artifact states, or that a person shares."""

    kind: str
    """Of an artifact's: pattern, anti_pattern or convention."""
    key: str
    text: Digest
    """Blob: the statement; of a shared one, what an agent is told."""
    tags: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    """Phases that it is meant for; empty: the one that stated it."""


class LearningsCaptured(DerivedEvent, frozen=True, kw_only=True, tag="learnings.captured"):
    """A valid artifact states learnings."""

    phase: str
    unit: str
    artifact: str
    learnings: tuple[CapturedLearning, ...]


class LearningPromoted(ExternalEvent, frozen=True, kw_only=True, tag="learning.promoted"):
    """A person gives a learning to all features; the last decision about a learning counts."""

    id: str
    actor: Digest
    reason: Digest


class LearningArchived(ExternalEvent, frozen=True, kw_only=True, tag="learning.archived"):
    """A person withdraws a learning from all features; in the user's log, from all projects but its own."""

    id: str
    actor: Digest
    reason: Digest


class LearningShared(ExternalEvent, frozen=True, kw_only=True, tag="learning.shared"):
    """A person gives a learning of one project to all that take shared ones. It replaces an earlier text."""

    learning: CapturedLearning
    project: Digest
    """Blob: the name of the project's folder."""
    actor: Digest
    reason: Digest


class LearningOffered(DerivedEvent, frozen=True, kw_only=True, tag="learning.offered"):
    """A project whose settings say so offers a learning of its project layer to others, when a run had finished."""

    learning: CapturedLearning
    project: Digest
    """Blob: the name of the project's folder."""


class RouteProposal(EventPart, frozen=True, kw_only=True):
    """Who would do better."""

    phase: str
    unit: str = ""
    """`FIELD=VALUE`; empty: all units."""
    agent: str
    tier: str


class RoutingProposed(DerivedEvent, frozen=True, kw_only=True, tag="routing.proposed"):
    """What all runs propose to route differently, when a run had finished."""

    run: RunId
    proposals: tuple[RouteProposal, ...]


class RoutingApplied(ExternalEvent, frozen=True, kw_only=True, tag="routing.applied"):
    """A person routes phases as `mz routing suggest` proposed."""

    phases: tuple[str, ...]
    """Those that changed, as `PHASE` or `PHASE FIELD=VALUE`."""
    routing: Digest
    """Blob: the content of routing.yaml from then on."""
    actor: Digest
    reason: Digest
