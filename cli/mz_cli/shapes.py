"""Facts: the shapes of the JSON that commands print. Additions keep the schema's number; anything else raises it.

Money is a decimal string of USD or null; times are ISO 8601 in UTC; null means unknown or none.
"""

from __future__ import annotations

import msgspec


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what `--json` prints."""


class Tests(Shape, frozen=True, kw_only=True):
    passed: int
    failed: int


class Tokens(Shape, frozen=True, kw_only=True):
    input: int | None
    output: int | None


class FeatureSummary(Shape, frozen=True, kw_only=True):
    """One feature, as every command that lists features shows it."""

    id: str
    status: str
    branch: str | None
    phases: tuple[str, ...]
    """Completed ones, in order."""
    attempts: dict[str, int]
    """By phase: calls of its own agent, over all iterations and units."""
    tests: Tests | None
    tokens: Tokens
    estimated_usd: str | None
    reported_usd: str | None
    computed_usd: str | None


class WaitingShape(Shape, frozen=True, kw_only=True):
    """A question to a person."""

    ask: str
    code: str | None
    phase: str
    unit: str | None
    since: str | None
    place: str
    detail: str | None
    answers: tuple[str, ...]
    """What `--answer` takes, the likeliest first."""
    resume: str
    """The command that gives the likeliest."""


class FeatureStatus(FeatureSummary, frozen=True, kw_only=True):
    title: str
    source: str | None
    phase: str | None
    """The one it is in, or was in last."""
    iteration: int | None
    depends_on: tuple[str, ...]
    quarantined: bool
    rollbacks: int
    unpriced_calls: int
    """Calls that `computed_usd` lacks."""
    pull_request: str | None
    hold: str | None
    until: str | None
    because: str | None
    code: str | None
    waiting: WaitingShape | None
    next: str | None
    """The command that helps it on, where one is needed."""


class RunStatus(Shape, frozen=True, kw_only=True):
    """`mz status --json` and `mz run --json`."""

    repository: str
    run: str
    status: str
    held: bool
    """A process works on it. Without one, a run whose status is `running` was interrupted."""
    pipeline: str
    base: str
    base_commit: str
    mz: str
    """Version that started the run."""
    started_at: str | None
    last_event_at: str | None
    events: int
    code: str | None
    features: tuple[FeatureStatus, ...]


class DemoResult(Shape, frozen=True, kw_only=True):
    """`mz demo --json`."""

    repository: str
    run: str
    features: tuple[FeatureSummary, ...]


class RefusalShape(Shape, frozen=True, kw_only=True):
    gate: str | None
    """Null: the rules of the artifacts."""
    rules: tuple[str, ...]
    messages: tuple[str, ...]


class AttemptShape(Shape, frozen=True, kw_only=True):
    """One agent call."""

    key: str
    place: str
    phase: str
    unit: str | None
    iteration: int
    attempt: int
    role: str
    agent: str
    model: str
    asked_at: str | None
    outcome: str
    exit: int | None
    duration_ms: int | None
    problem: str | None
    detail: str | None
    changed: tuple[str, ...]
    reverted: tuple[str, ...]
    refusals: tuple[RefusalShape, ...]
    tokens: Tokens
    estimated_usd: str | None
    reported_usd: str | None
    computed_usd: str | None
    prompt_digest: str
    prompt: str | None
    """With `--prompt`."""


class PhaseShape(Shape, frozen=True, kw_only=True):
    phase: str
    iteration: int
    state: str
    started_at: str | None
    ended_at: str | None
    units: tuple[str, ...]
    units_done: tuple[str, ...]


class ArtifactShape(Shape, frozen=True, kw_only=True):
    artifact: str
    phase: str
    unit: str | None
    path: str | None
    digest: str


class CommandShape(Shape, frozen=True, kw_only=True):
    stage: str
    phase: str
    unit: str | None
    name: str
    exit: int | None
    passed: int | None
    failed: int | None
    duration_ms: int


class CommitShape(Shape, frozen=True, kw_only=True):
    commit: str
    purpose: str
    phase: str
    unit: str | None
    files: int
    insertions: int
    deletions: int


class FeatureDetail(FeatureStatus, frozen=True, kw_only=True):
    """`mz show FEATURE --json`; with `--phase` or `--attempt`, the lists hold only what belongs there."""

    run: str
    target: str | None
    history: tuple[PhaseShape, ...]
    calls: tuple[AttemptShape, ...]
    artifacts: tuple[ArtifactShape, ...]
    commands: tuple[CommandShape, ...]
    commits: tuple[CommitShape, ...]
    touched: tuple[str, ...]


class PlannedFeature(Shape, frozen=True, kw_only=True):
    id: str
    title: str
    branch: str
    depends_on: tuple[str, ...]
    quarantined: bool
    score: int
    """Of the injection screen."""
    estimated_tokens: int | None
    """Every phase at its first attempt; null: the agent is not known."""
    estimated_usd: str | None


class LeftOutShape(Shape, frozen=True, kw_only=True):
    id: str
    why: str
    because: str | None


class PlanShape(Shape, frozen=True, kw_only=True):
    """`mz run --dry-run --json`, with the schema mz.plan/1."""

    pipeline: str
    phases: tuple[str, ...]
    base: str
    agent: str
    autonomy: str
    parallel_max: int
    budget_run_usd: str | None
    """Null: no limit."""
    budget_feature_usd: str | None
    goes_on: str | None
    """The unfinished run that these features join."""
    features: tuple[PlannedFeature, ...]
    """In the order of readiness."""
    left_out: tuple[LeftOutShape, ...]


class CancelResult(Shape, frozen=True, kw_only=True):
    """`mz cancel --json`."""

    run: str
    features: tuple[str, ...]
    """Empty: the whole run."""
    places: tuple[str, ...]
    """Where the messages lie, as `inbox/<run>@version`."""
    held: bool
    """A process holds the run and takes the message now; otherwise it waits for the resume."""
    resume: str
