"""Facts: what people are shown of a run, a feature and an agent call. Tables, JSON, reports and the demo share these.

Nothing here decides anything. Money is integer nano-dollars; None means unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from mz_events.catalog.call import Usage
from mz_events.catalog.check import Violation
from mz_events.catalog.feature import Ask
from mz_events.catalog.run import BudgetChanged, Hold, RunForked
from mz_events.names import Commit, Digest, Path

FeatureStatus = Literal[
    "queued", "skipped", "working",
    "delivered", "merged", "tagged", "failed", "waiting", "held", "cancelled", "stopped", "paused",
]  # fmt: skip
RunStatus = Literal["running", "paused", "halted", "stopped", "rested", "finished"]
CallOutcome = Literal["open", "replied", "failed", "lost"]
BUILDER = "builder"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what is shown."""


def total(amounts: Iterable[int | None]) -> int | None:
    """The sum of what is known; None where nothing is."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


class Refusal(View, frozen=True, kw_only=True):
    """Why a reply was not accepted: broken rules, or a gate."""

    gate: str
    """Empty: the rules of the artifacts."""
    violations: tuple[Violation, ...]
    report: Digest | None
    """Blob: JSON array of messages."""


class ArtifactView(View, frozen=True, kw_only=True):
    artifact: str
    phase: str
    unit: str
    path: Path | None
    """None: it is the reply itself."""
    digest: Digest


class CallView(View, frozen=True, kw_only=True):
    """One agent call and what became of its reply."""

    key: str
    place: str
    """`stream@version` of the request."""
    phase: str
    unit: str
    iteration: int
    attempt: int
    role: str
    agent: str
    model: str
    prompt: Digest
    asked_us: int
    copied: bool = False
    """It was made in the run that this one was forked from, and paid there."""
    before: Commit | None = None
    """Capture that the call began with."""
    after: Commit | None = None
    """Capture of what it left, with what was outside its contract taken back."""
    outcome: CallOutcome = "open"
    exit: int | None = None
    duration_ms: int | None = None
    salvaged: bool = False
    problem: str = ""
    """Code of what went wrong."""
    detail: Digest | None = None
    """Blob: the agent's own words on the problem."""
    text: Digest | None = None
    """Blob: the final text of the reply."""
    stdout: Digest | None = None
    stderr: Digest | None = None
    bad_lines: int = 0
    """Of its output: lines that the parser could not read."""
    usage: tuple[Usage, ...] = ()
    changed: tuple[Path, ...] = ()
    offences: tuple[str, ...] = ()
    """What was reverted, as `kind path`."""
    refusals: tuple[Refusal, ...] = ()
    validated: bool = False
    """The rules were asked; with no refusals, the reply holds."""
    artifacts: tuple[ArtifactView, ...] = ()
    """What this reply handed over, superseded or not."""
    estimated_nanousd: int | None = None
    reported_nanousd: int | None = None
    computed_nanousd: int | None = None
    priced: bool = False
    """The price table was asked; `computed_nanousd` says what it knew."""
    unpriced: tuple[str, ...] = ()
    """Models that had no price."""

    @property
    def took_nothing(self) -> bool:
        """Of a call that settled at nothing: it was refused, as in `cost.was_refused`."""
        return not (self.usage or self.unpriced or self.computed_nanousd) and bool(self.estimated_nanousd)

    @property
    def input_tokens(self) -> int | None:
        return total(usage.input for usage in self.usage)

    @property
    def output_tokens(self) -> int | None:
        return total(usage.output for usage in self.usage)


class PhaseView(View, frozen=True, kw_only=True):
    """One iteration of one phase."""

    phase: str
    iteration: int
    started_us: int
    units: tuple[str, ...] = ()
    units_done: tuple[str, ...] = ()
    state: Literal["started", "completed", "superseded"] = "started"
    ended_us: int | None = None


class CommandView(View, frozen=True, kw_only=True):
    """A command of the user's that ran: setup, preparation or gate."""

    stage: Literal["setup", "prepare", "gate"]
    phase: str
    unit: str
    name: str
    exit: int | None
    passed: int | None
    failed: int | None
    output: Digest
    """Blob: all of it."""
    excerpt: Digest
    """Blob: normalised and shortened."""
    duration_ms: int
    iteration: int = 0
    """Of the phase; 0: the set-up, which belongs to none."""
    attempt: int = 0
    """The builder's last call in that cell before it ran; 0: there was none yet."""


class CommitView(View, frozen=True, kw_only=True):
    phase: str
    unit: str
    purpose: Literal["work", "restore"]
    commit: Commit
    files: int
    insertions: int
    deletions: int


class Waiting(View, frozen=True, kw_only=True):
    """A question to a person that nobody has answered."""

    ask: Ask
    code: str
    phase: str
    unit: str
    detail: Digest | None
    since_us: int
    place: str


class Broken(View, frozen=True, kw_only=True):
    """A template that no prompt could be made of."""

    template: Path
    line: int | None
    detail: Digest | None

    @property
    def place(self) -> str:
        return f"{self.template}:{self.line}" if self.line else self.template


class FeatureView(View, frozen=True, kw_only=True):
    """Everything that is shown of one feature."""

    feature: str
    status: FeatureStatus = "queued"
    title: Digest | None = None
    source: str = ""
    depends_on: tuple[str, ...] = ()
    quarantined: bool = False
    hold: Hold | None = None
    until_us: int | None = None
    because: str = ""
    """The feature that this one is held by, or the stream@version that delivered it before."""
    code: str = ""
    """Of a failure or a fatal problem."""
    broken: Broken | None = None
    """What halted the run, where that was a template."""
    branch: str = ""
    target: str = ""
    started_us: int | None = None
    ended_us: int | None = None
    """When it came to rest; None: it has not."""
    phases: tuple[PhaseView, ...] = ()
    calls: tuple[CallView, ...] = ()
    artifacts: tuple[ArtifactView, ...] = ()
    """The newest of each, superseded ones left out."""
    commands: tuple[CommandView, ...] = ()
    commits: tuple[CommitView, ...] = ()
    committing: tuple[str, str, Literal["work", "restore"]] | None = None
    """Phase, unit and purpose of a commit that is asked for and not made."""
    rollbacks: int = 0
    pull_request: str = ""
    checks: tuple[int, int, int] | None = None
    """Of the pull request when it was last looked at: green, red, pending."""
    waiting: Waiting | None = None
    touched: tuple[Path, ...] = ()

    @property
    def phase(self) -> str:
        """The phase that it is in, or was in last; empty before the first."""
        return self.phases[-1].phase if self.phases else ""

    @property
    def completed(self) -> tuple[str, ...]:
        """Phases that are done and stand, in order."""
        return tuple(phase.phase for phase in self.phases if phase.state == "completed")

    @property
    def attempts(self) -> dict[str, int]:
        """Calls of each phase's own agent, over all its iterations and units; phases in the order of their start."""
        found = {phase.phase: 0 for phase in self.phases}
        for call in self.calls:
            if call.role == BUILDER:
                found[call.phase] = found.get(call.phase, 0) + 1
        return {phase: count for phase, count in found.items() if count}

    @property
    def tests(self) -> tuple[int, int] | None:
        """Passed and failed, by the last run of each gate that counts tests; None: none did."""
        last = {
            command.name: (command.passed or 0, command.failed or 0)
            for command in self.commands
            if command.stage == "gate" and (command.passed is not None or command.failed is not None)
        }
        return (sum(p for p, _ in last.values()), sum(f for _, f in last.values())) if last else None

    @property
    def paid(self) -> tuple[CallView, ...]:
        """The calls of this run, without those that it was forked after."""
        return tuple(call for call in self.calls if not call.copied)

    @property
    def input_tokens(self) -> int | None:
        return total(call.input_tokens for call in self.paid)

    @property
    def output_tokens(self) -> int | None:
        return total(call.output_tokens for call in self.paid)

    @property
    def estimated_nanousd(self) -> int | None:
        return total(call.estimated_nanousd for call in self.paid)

    @property
    def reported_nanousd(self) -> int | None:
        return total(call.reported_nanousd for call in self.paid)

    @property
    def computed_nanousd(self) -> int | None:
        return total(call.computed_nanousd for call in self.paid)

    @property
    def unpriced(self) -> int:
        """Calls that ended and that the computed sum lacks: no price, or tokens that nobody counted."""
        ended = (call for call in self.paid if call.priced or call.outcome in ("failed", "lost"))
        return sum(call.computed_nanousd is None for call in ended)


class RunView(View, frozen=True, kw_only=True):
    run: str
    status: RunStatus = "running"
    pipeline: str = ""
    base: str = ""
    base_commit: str = ""
    pins: Digest | None = None
    core: str = ""
    forked: RunForked | None = None
    """Where it goes on from another run."""
    started_us: int | None = None
    last_us: int | None = None
    """When anything of the run was last recorded."""
    code: str = ""
    """Of the fatal problem that halted it."""
    taken_up_us: int | None = None
    """When the last process began to work on it."""
    budget: BudgetChanged | None = None
    """In place of the one that the run began with."""
    committed_nanousd: int = 0
    """What budgets count: calls that ended, each by the worst that is known, and what is set aside for open ones."""
    events: int = 0
    features: tuple[FeatureView, ...] = ()
    """In the order of the backlog."""

    def find(self, feature: str) -> FeatureView | None:
        return next((view for view in self.features if view.feature == feature), None)

    @property
    def at_rest(self) -> bool:
        """Nothing more is to come by itself; after a stop or a halt, features that work still come to rest."""
        if self.status in ("stopped", "halted"):
            return not any(feature.status == "working" for feature in self.features)
        return self.status in ("rested", "finished")
