"""Facts: the shapes of the JSON about runs: status, show, demo, cancel."""

from __future__ import annotations

from typing import Literal

from mz_cli.shapes.base import Shape, Tests, Tokens


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
    """The command that gives the likeliest; where one was given, the one that takes it up."""
    commands: tuple[str, ...]
    """To look at what is asked, then to answer it, the likeliest answer first."""
    answered: bool
    """Something was left for it, and waits for the run to take it."""


class ChecksShape(Shape, frozen=True, kw_only=True):
    green: int
    red: int
    pending: int


class BrokenShape(Shape, frozen=True, kw_only=True):
    """A template of which no prompt could be made."""

    template: str
    """Below `pipelines/templates/`."""
    line: int | None
    detail: str | None
    """What is wrong there."""


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
    checks: ChecksShape | None
    """Of the pull request, when it was last looked at."""
    pull_request_text: str | None
    """The file with the text of a pull request that a person is to open."""
    target: str | None
    """The branch that its own is for: the base, or that of the feature on which it builds."""
    worktree: str | None
    """Where its files are, as long as they are there."""
    hold: str | None
    until: str | None
    because: str | None
    code: str | None
    broken: BrokenShape | None
    """What halted the run, where that was a template."""
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


class ArtifactText(Shape, frozen=True, kw_only=True):
    """`mz show FEATURE --artifact NAME --json`, with the schema mz.artifact/1."""

    run: str
    feature: str
    artifact: str
    phase: str
    unit: str | None
    path: str | None
    digest: str
    text: str


class DemoResult(Shape, frozen=True, kw_only=True):
    """`mz demo --json`."""

    repository: str
    run: str
    features: tuple[FeatureSummary, ...]


class ViolationShape(Shape, frozen=True, kw_only=True):
    rule: str
    path: str | None
    """File, or place within the artifact."""
    line: int | None
    message: str | None
    """Null: its words were erased."""


class RefusalShape(Shape, frozen=True, kw_only=True):
    gate: str | None
    """Null: the rules of the artifacts."""
    rules: tuple[str, ...]
    messages: tuple[str, ...]
    violations: tuple[ViolationShape, ...]
    """Empty where a command refused: its output says why."""


class ArtifactShape(Shape, frozen=True, kw_only=True):
    artifact: str
    phase: str
    unit: str | None
    path: str | None
    """Null: it is the reply itself."""
    digest: str


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
    bad_lines: int
    """Of its output: lines that could not be read."""
    stdout_digest: str | None
    stderr_digest: str | None
    stdout: str | None
    """With `--output`, of a call that failed: all that it printed."""
    stderr: str | None
    """With `--output`, of a call that failed."""
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
    artifacts: tuple[ArtifactShape, ...]
    """What this reply handed over, whether it stands or not."""
    diff: str | None
    """With `--diff` and `--attempt`: what it changed, as a patch."""


class PhaseShape(Shape, frozen=True, kw_only=True):
    phase: str
    iteration: int
    state: str
    started_at: str | None
    ended_at: str | None
    units: tuple[str, ...]
    units_done: tuple[str, ...]
    diff: str | None
    """With `--diff`: what all attempts of the iteration changed, as a patch."""


class CommandShape(Shape, frozen=True, kw_only=True):
    stage: str
    phase: str
    unit: str | None
    name: str
    exit: int | None
    passed: int | None
    failed: int | None
    duration_ms: int
    iteration: int
    """Of the phase; 0: the set-up."""
    attempt: int
    """That it judged; 0: none was made yet."""
    excerpt: str
    """Normalised and shortened."""
    output_digest: str
    output: str | None
    """With `--output`: all of it."""


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
    history: tuple[PhaseShape, ...]
    calls: tuple[AttemptShape, ...]
    artifacts: tuple[ArtifactShape, ...]
    commands: tuple[CommandShape, ...]
    commits: tuple[CommitShape, ...]
    touched: tuple[str, ...]


class CancelResult(Shape, frozen=True, kw_only=True):
    """`mz cancel --json`."""

    run: str
    features: tuple[str, ...]
    """Empty: the whole run."""
    places: tuple[str, ...]
    """Where the messages lie, as `inbox/<run>@version`."""
    held: bool
    """A process works on the run; otherwise the message waits for the resume."""
    taken: bool
    """That process has taken the messages."""
    resume: str


class RunLine(Shape, frozen=True, kw_only=True):
    run: str
    status: Literal["started", "interrupted", "paused", "halted", "stopped", "rested", "finished"]
    """Interrupted: it was at work, and its process is gone."""
    pipeline: str
    base: str
    started: str
    features: dict[str, str]
    """How each stands, in the order of the backlog."""
    fork_of: str | None
    """`stream@version` that it goes on from; null: a run of its own."""


class RunList(Shape, frozen=True, kw_only=True):
    """`mz runs --json`."""

    repository: str
    runs: tuple[RunLine, ...]
    """The newest first."""
