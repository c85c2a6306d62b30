"""Facts: what can be said for and against a run, each with the places in the log (`stream@version`) that say it."""

from __future__ import annotations

from typing import Literal

import msgspec
from mz_events.names import Commit, Digest, Path

from mz_projections.queue import Decision
from mz_projections.spending import Judged, Spending
from mz_projections.views import FeatureStatus, RunStatus

GapKind = Literal[
    "not-delivered", "past-gate", "ref-moved", "not-validated", "checks-red",
    "untested", "left-out", "unchecked", "reverted", "failed", "lost", "salvaged", "unpriced", "quarantined", "refused",
]  # fmt: skip
FAULTS: frozenset[GapKind] = frozenset({"not-delivered", "past-gate", "ref-moved", "not-validated", "checks-red"})
"""These make the verdict no, unless a person had a word in it; the others are to be known."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what an audit states."""


class Gap(Fact, frozen=True, kw_only=True):
    """Something that is missing, or that happened and should not have."""

    kind: GapKind
    feature: str
    """Empty: it concerns the run."""
    what: str
    """Names and numbers only."""
    places: tuple[str, ...]
    allowed: str = ""
    """Place of the decision of a person that lets it pass; empty: there is none."""

    @property
    def fault(self) -> bool:
        return self.kind in FAULTS and not self.allowed


class AskedFor(Fact, frozen=True, kw_only=True):
    """One item of the backlog."""

    source: str
    title: Digest | None
    body: Digest | None
    place: str
    skipped: str = ""
    """The delivery by an earlier run, because of which nothing was done; empty: it was not skipped."""


class CommitMade(Fact, frozen=True, kw_only=True):
    phase: str
    unit: str
    purpose: str
    commit: Commit
    files: int
    insertions: int
    deletions: int
    place: str


class CommandRun(Fact, frozen=True, kw_only=True):
    """A process that `mz` ran itself: the evidence of a gate."""

    name: str
    exit: int | None
    """None: killed at its time limit."""
    passed: int | None
    failed: int | None
    output: Digest
    duration_ms: int
    place: str


class GateDecision(Fact, frozen=True, kw_only=True):
    phase: str
    unit: str
    gate: str
    passed: bool
    rules: tuple[str, ...]
    """Broken ones."""
    report: Digest | None
    command: CommandRun | None
    """None: a rule over artifacts and tree decided."""
    place: str


class ReplyDecision(Fact, frozen=True, kw_only=True):
    """The rules' answer to what an agent handed over."""

    phase: str
    unit: str
    iteration: int
    attempt: int
    role: str
    rules: tuple[str, ...]
    """Broken ones; empty: valid."""
    report: Digest | None
    place: str


class ArtifactMade(Fact, frozen=True, kw_only=True):
    """The newest of its name and unit that stands."""

    artifact: str
    phase: str
    unit: str
    path: Path | None
    digest: Digest
    place: str
    call: Judged | None
    """Who made it; None where no call of that cell is known."""
    prompt: Digest | None
    template: str
    asked: str
    """Place of the call's request; empty without one."""


class Tests(Fact, frozen=True, kw_only=True):
    """What one command counted."""

    name: str
    passed: int
    failed: int
    place: str


class FeatureAudit(Fact, frozen=True, kw_only=True):
    feature: str
    asked: AskedFor | None
    status: FeatureStatus
    code: str
    settled: str
    """Place of the last that was recorded of it."""
    branch: str
    target: str
    pull_request: str
    touched: tuple[Path, ...]
    commits: tuple[CommitMade, ...] = ()
    before: tuple[Tests, ...] = ()
    """Before an agent changed anything: by command, the first preparation that counted."""
    after: tuple[Tests, ...] = ()
    """By command, the last gate that counted."""
    replies: tuple[ReplyDecision, ...] = ()
    gates: tuple[GateDecision, ...] = ()
    artifacts: tuple[ArtifactMade, ...] = ()
    decisions: tuple[Decision, ...] = ()
    spent: Spending
    gaps: tuple[Gap, ...] = ()


class RunAudit(Fact, frozen=True, kw_only=True):
    run: str
    status: RunStatus
    pipeline: str
    base: str
    base_commit: str
    core: str
    begun: str
    """Place where it was started."""
    settled: str
    """Place of the last that was recorded of it."""
    features: tuple[FeatureAudit, ...]
    decisions: tuple[Decision, ...]
    """Of people, on the run as a whole."""
    spent: Spending
    gaps: tuple[Gap, ...]
    """Of the run; each feature has its own."""

    @property
    def all_gaps(self) -> tuple[Gap, ...]:
        return (*self.gaps, *(gap for feature in self.features for gap in feature.gaps))

    @property
    def faults(self) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.all_gaps if gap.fault)

    @property
    def delivered(self) -> tuple[str, ...]:
        """Features that are done, by this run or by an earlier one."""
        return tuple(feature.feature for feature in self.features if feature.status in DONE)


DONE: frozenset[FeatureStatus] = frozenset({"delivered", "merged", "tagged", "skipped"})
