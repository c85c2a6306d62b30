"""Statements of an audit for and against a run, each with the event refs (`stream@version`) that prove it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec
from mz_events.catalog.delivery import CommitRequested, Committed
from mz_events.catalog.validation import ArtifactParsed, ArtifactValidated, CommandRan, GateChecked, Violation
from mz_events.names import Digest
from mz_events.store import Recorded

from mz_projections.cost.totals import Spending
from mz_projections.views.messages import Decision
from mz_projections.views.model import CallView, FeatureView, RunView

GapKind = Literal[
    "not-delivered", "past-gate", "not-validated", "checks-red",
    "red-base", "fewer-tests", "untested", "unchanged", "left-out", "unchecked", "reverted", "failed", "lost",
    "salvaged", "unpriced", "quarantined", "refused", "weak-isolation",
]  # fmt: skip
FAULT_KINDS: frozenset[GapKind] = frozenset({"not-delivered", "past-gate", "not-validated", "checks-red"})
"""Gaps that make the verdict negative unless a person allowed them; the others are remarks."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Something missing, or something that should not have happened."""

    kind: GapKind
    feature: str = ""
    """Empty: it concerns the run."""
    message: str
    """Names and numbers only."""
    event_refs: tuple[str, ...]
    allowed_by: str = ""
    """Event ref of the person's decision that allows it; empty: none."""

    @property
    def fault(self) -> bool:
        return self.kind in FAULT_KINDS and not self.allowed_by


class RequestedItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item of the backlog."""

    source: str
    title: Digest | None
    body_digest: Digest | None
    event_ref: str
    skipped_for: str = ""
    """Event ref of the earlier delivery for which it was skipped; empty: not skipped."""


class CommitMade(NamedTuple):
    request: CommitRequested
    committed: Recorded[Committed]


class GateDecision(NamedTuple):
    checked: Recorded[GateChecked]
    command: Recorded[CommandRan] | None
    """The process started by `mz`: the gate, or the set-up that failed before it; None: a rule over artifacts and tree
    decided."""


class ArtifactMade(NamedTuple):
    """The latest artifact of its name and unit that is not superseded."""

    parsed: Recorded[ArtifactParsed]
    call: CallView | None
    """The call that made it; None if no call of that unit is known."""


class FeatureAudit(msgspec.Struct, frozen=True, kw_only=True):
    view: FeatureView
    requested: RequestedItem | None
    last_ref: str
    """Event ref of its last event."""
    commits: tuple[CommitMade, ...] = ()
    tests_before: tuple[Recorded[CommandRan], ...] = ()
    """Before any agent change: the first preparation of each command that counted tests."""
    tests_after: tuple[Recorded[CommandRan], ...] = ()
    """The last gate of each command that counted tests."""
    replies: tuple[Recorded[ArtifactValidated], ...] = ()
    """Decisions of the rules on agents' artifacts."""
    gates: tuple[GateDecision, ...] = ()
    artifacts: tuple[ArtifactMade, ...] = ()
    decisions: tuple[Decision, ...] = ()
    spending: Spending
    gaps: tuple[Gap, ...] = ()


class RunAudit(msgspec.Struct, frozen=True, kw_only=True):
    view: RunView
    started_ref: str
    """Event ref of its start."""
    last_ref: str
    """Event ref of its last event."""
    features: tuple[FeatureAudit, ...]
    decisions: tuple[Decision, ...]
    """People's decisions about the run itself."""
    spending: Spending
    gaps: tuple[Gap, ...]
    """Gaps of the run; each feature has its own."""

    @property
    def all_gaps(self) -> tuple[Gap, ...]:
        return (*self.gaps, *(gap for feature in self.features for gap in feature.gaps))

    @property
    def faults(self) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.all_gaps if gap.fault)


def broken_rules(violations: Iterable[Violation]) -> tuple[str, ...]:
    """Return the distinct rule ids in the order of the report."""
    return tuple(dict.fromkeys(violation.rule for violation in violations))
