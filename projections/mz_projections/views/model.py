"""Display data of a run, a feature and an agent call, shared by tables, JSON, reports and the demo.

Decides nothing. Money is integer nano-dollars; None means unknown, never zero.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec
from msgspec.structs import asdict
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallOverBudget
from mz_events.catalog.feature import HumanRequested, QuestionKind
from mz_events.catalog.run import BudgetChanged, Hold, RunForked
from mz_events.catalog.validation import Violation
from mz_events.names import BUILDER, Commit, Digest, Path
from mz_events.store import Recorded

from mz_projections.feature.calls import Call
from mz_projections.usage import sum_known
from mz_projections.views.timeline import landing_text

FeatureStatus = Literal[
    "queued", "skipped", "working",
    "delivered", "merged", "tagged", "done", "failed", "waiting", "held", "cancelled", "interrupted", "paused",
]  # fmt: skip
DELIVERED_STATUSES: tuple[FeatureStatus, ...] = ("delivered", "merged", "tagged", "done")
DONE_STATUSES: tuple[FeatureStatus, ...] = (*DELIVERED_STATUSES, "skipped")
ENDED_STATUSES: tuple[FeatureStatus, ...] = (*DONE_STATUSES, "cancelled", "failed")
RunStatus = Literal["running", "paused", "halted", "stopped", "idle", "finished"]


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of display data."""


V = TypeVar("V", bound=View)


def view_of(kind: type[V], event: Event, **values: object) -> V:
    """Return the view of an event: `values`, and the fields of the same name."""
    return msgspec.convert(asdict(event) | values, kind)


class Rejection(View, frozen=True, kw_only=True):
    """Reason why a reply was rejected: broken rules, or a gate."""

    gate: str
    """Empty: the rules of the artifacts."""
    violations: tuple[Violation, ...]
    report: Digest | None
    """Blob: JSON array of messages."""
    note: Digest | None = None
    """Blob: the agent's own text, with which it blocked its phase."""


class ArtifactView(View, frozen=True, kw_only=True):
    artifact: str
    phase: str
    unit: str = ""
    path: Path | None
    """None: it is the reply itself."""
    digest: Digest


class CallView(Call, frozen=True, kw_only=True):
    """One agent call and the result of its reply, for display."""

    event_ref: str
    """`stream@version` of the request."""
    prompt: Digest
    template: str = ""
    """Name of the template in the pins."""
    tree_before: Commit | None = None
    """Capture at the start of the call."""
    tree_after: Commit | None = None
    """Capture after the call, with forbidden changes reverted."""
    exit: int | None = None
    duration_ms: int | None = None
    salvaged: bool = False
    problem: str = ""
    """Problem code."""
    detail: Digest | None = None
    """Blob: the agent's own message about the problem."""
    text: Digest | None = None
    """Blob: the final text of the reply."""
    stdout: Digest | None = None
    stderr: Digest | None = None
    undecodable_lines: int = 0
    """Output lines that the parser could not read."""
    changed_paths: tuple[Path, ...] = ()
    forbidden_changes: tuple[str, ...] = ()
    """Reverted changes, as `kind path`."""
    rejections: tuple[Rejection, ...] = ()
    artifacts: tuple[ArtifactView, ...] = ()
    """Artifacts of this reply, superseded or not."""


class PhaseView(View, frozen=True, kw_only=True):
    """One iteration of one phase."""

    phase: str
    iteration: int
    started_us: int
    units: tuple[str, ...] = ()
    units_done: tuple[str, ...] = ()
    state: Literal["started", "completed", "skipped", "superseded"] = "started"
    ended_us: int | None = None


class CommandView(View, frozen=True, kw_only=True):
    """A configured command that ran: setup, preparation or gate."""

    stage: Literal["setup", "prepare", "gate", "base"]
    phase: str
    unit: str = ""
    name: str
    exit: int | None
    passed: int | None
    failed: int | None
    new_failures: int | None = None
    """Failed tests that are not known; None: not compared."""
    output: Digest
    """Blob: full output."""
    excerpt: Digest
    """Blob: normalised and shortened."""
    duration_ms: int
    iteration: int = 0
    """Iteration of the phase; 0: a set-up that belongs to none."""
    attempt: int = 0
    """The last builder call in that unit before it ran; 0: none yet."""


class CommitView(View, frozen=True, kw_only=True):
    phase: str
    unit: str = ""
    purpose: Literal["work", "restore"]
    """restore: the tree was reset to an earlier state."""
    commit: Commit
    files: int
    insertions: int
    deletions: int


class Question(View, frozen=True, kw_only=True):
    """A question to a person; unanswered unless it is one of a decision."""

    question_kind: QuestionKind
    code: str
    """Subject of the question: a rule, a gate, a problem's code, a check; several are separated by commas."""
    phase: str
    unit: str
    detail: Digest | None
    """Blob: the text for the person."""
    since_us: int
    event_ref: str
    """`stream@version` of the question."""
    gate: str = ""
    """The gate that rejected the work, if a person can accept it as it is."""

    @property
    def run(self) -> str:
        return self.event_ref.split("/")[1]

    @property
    def feature(self) -> str:
        return self.event_ref.split("/")[2].rpartition("@")[0]

    @property
    def version(self) -> int:
        """Version in the feature's stream, cited by an answer."""
        return int(self.event_ref.rpartition("@")[2])


def question_of(event: HumanRequested, recorded: Recorded[Event]) -> Question:
    origin = {"since_us": recorded.recorded_at_us, "event_ref": recorded.event_ref}
    return view_of(Question, event, code=event.subject, **origin)


class TemplateFault(View, frozen=True, kw_only=True):
    """A template that failed to render."""

    template: Path
    line: int | None
    detail: Digest | None

    @property
    def location(self) -> str:
        return f"{self.template}:{self.line}" if self.line else self.template


class Landing(View, frozen=True, kw_only=True):
    """Into what a feature's branch was merged."""

    branch: str
    commit: Commit


AWAITS_WORK, AWAITS_MERGE = "dependency", "merge"
"""Codes of features that an idle run did not start, because of a dependency."""


class FeatureView(View, frozen=True, kw_only=True):
    """All display data of one feature."""

    feature: str
    status: FeatureStatus = "queued"
    title: Digest | None = None
    source: str = ""
    kind: str = ""
    """As the pipeline defines it; empty: it defines none."""
    depends_on: tuple[str, ...] = ()
    quarantined: bool = False
    hold: Hold | None = None
    over_budget: CallOverBudget | None = None
    """The last call that did not fit into a budget."""
    until_us: int | None = None
    blocked_by: str = ""
    """The feature that blocks this one, or the event ref of an earlier delivery."""
    code: str = ""
    """Code of a failure or a fatal problem, or of what an idle run waits for."""
    failure: Digest | None = None
    """Why it failed."""
    template_error: TemplateFault | None = None
    """Cause of the halt, if it was a template."""
    branch: str = ""
    target: str = ""
    started_us: int | None = None
    """Later by the time between an end and a retry or revision."""
    ended_us: int | None = None
    """Time of the last stop; None while running."""
    phases: tuple[PhaseView, ...] = ()
    current_phases: tuple[str, ...] = ()
    """Phases not superseded, in the order of their start."""
    calls: tuple[CallView, ...] = ()
    artifacts: tuple[ArtifactView, ...] = ()
    """The latest of each, without superseded ones."""
    commands: tuple[CommandView, ...] = ()
    commits: tuple[CommitView, ...] = ()
    pending_commit: tuple[str, str, Literal["work", "restore"]] | None = None
    """Phase, unit and purpose of a requested commit that is not made yet."""
    rollbacks: int = 0
    pull_request: str = ""
    checks: tuple[int, int, int] | None = None
    """Checks of the pull request at the last poll: passed, failed, pending."""
    landed: Landing | None = None
    tags: tuple[str, ...] = ()
    branch_closed: bool = False
    """The branch was deleted."""
    question: Question | None = None
    changed_paths: tuple[Path, ...] = ()

    @property
    def delivery(self) -> str:
        """Return what the delivery changed in the repository: a merge, and tags."""
        merged = [landing_text(self.landed.branch, self.landed.commit)] if self.landed else []
        return ", ".join([*merged, *([f"tagged {', '.join(self.tags)}"] if self.tags else [])])

    @property
    def awaits_dependency(self) -> bool:
        """True if it cannot start before a dependency is delivered or merged, which may still happen."""
        return self.status == "held" and self.code in (AWAITS_WORK, AWAITS_MERGE)

    @property
    def phase(self) -> str:
        """The current or last phase; empty before the first."""
        return self.phases[-1].phase if self.phases else ""

    @property
    def completed_phases(self) -> tuple[str, ...]:
        """Completed phases that are not superseded, in order."""
        return tuple(phase.phase for phase in self.phases if phase.state == "completed")

    @property
    def attempts(self) -> dict[str, int]:
        """Builder calls by phase, over all iterations and units; phases in the order of their start."""
        calls_by_phase = {phase.phase: 0 for phase in self.phases}
        for call in self.calls:
            if call.role == BUILDER:
                calls_by_phase[call.phase] = calls_by_phase.get(call.phase, 0) + 1
        return {phase: count for phase, count in calls_by_phase.items() if count}

    @property
    def tests(self) -> tuple[int, int] | None:
        """Passed and failed tests, by the last run of each gate that counts tests; None: none did."""
        last_by_command = {
            command.name: (command.passed or 0, command.failed or 0)
            for command in self.commands
            if command.stage == "gate" and (command.passed is not None or command.failed is not None)
        }
        counts = last_by_command.values()
        return (sum(passed for passed, _ in counts), sum(failed for _, failed in counts)) if counts else None

    @property
    def paid_calls(self) -> tuple[CallView, ...]:
        """The calls of this run, without those copied by a fork."""
        return tuple(call for call in self.calls if not call.is_forked_copy)

    @property
    def input_tokens(self) -> int | None:
        return sum_known(call.input_tokens for call in self.paid_calls)

    @property
    def output_tokens(self) -> int | None:
        return sum_known(call.output_tokens for call in self.paid_calls)

    @property
    def estimated_nanousd(self) -> int | None:
        return sum_known(call.estimated_nanousd for call in self.paid_calls)

    @property
    def reported_nanousd(self) -> int | None:
        return sum_known(call.reported_nanousd for call in self.paid_calls)

    @property
    def computed_nanousd(self) -> int | None:
        return sum_known(call.computed_nanousd for call in self.paid_calls)

    @property
    def unpriced(self) -> int:
        """Ended calls missing in the computed sum: no price, or unknown token counts."""
        ended = (call for call in self.paid_calls if call.priced or call.status in ("failed", "lost"))
        return sum(call.computed_nanousd is None for call in ended)


class RunView(View, frozen=True, kw_only=True):
    run: str
    status: RunStatus = "running"
    pipeline: str = ""
    base: str = ""
    base_commit: str = ""
    integration: str = ""
    """Name of its integration branch; empty: it has none."""
    cycle: int = 0
    """The latest cycle; 0: it has none."""
    over: str = ""
    """Why no cycle follows, as `CycleEnded` says it; empty: one may follow."""
    closing: str = ""
    """How a person ends it, `finish` or `cancel`; empty: nobody does."""
    is_capped: bool = False
    """A person said after which cycle it stops."""
    pins: Digest | None = None
    mz_version: str = ""
    isolation: tuple[str, ...] = ()
    """Levels that it had, each once; empty: unknown."""
    fork: RunForked | None = None
    """The event that it was forked from."""
    started_us: int | None = None
    last_recorded_us: int | None = None
    """Time of the last recorded event of the run."""
    code: str = ""
    """Code of the fatal problem that halted it."""
    clock_us: int | None = None
    """Start of its clock: the start of the run, later by the time without work."""
    budget: BudgetChanged | None = None
    """Replaces the initial one."""
    charged_nanousd: int = 0
    """For ended calls."""
    reservations: dict[str, int] = {}
    """Reserved money by key of an open call."""
    events: int = 0
    features: tuple[FeatureView, ...] = ()
    """In the order of the backlog."""

    def find_feature(self, feature: str) -> FeatureView | None:
        return next((view for view in self.features if view.feature == feature), None)

    @property
    def committed_nanousd(self) -> int:
        """Charged and reserved."""
        return self.charged_nanousd + sum(self.reservations.values())

    @property
    def has_stopped(self) -> bool:
        """True if nothing can continue by itself; after a stop or a halt, working features still have to stop."""
        if self.status in ("stopped", "halted"):
            return not any(feature.status == "working" for feature in self.features)
        return self.status in ("idle", "finished")
