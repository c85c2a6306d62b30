"""JSON documents about runs: run, status, runs, show, demo, cancel."""

from __future__ import annotations

from typing import Literal

from mz_cli.shapes.base import Shape, Tests, Tokens


class FeatureSummary(Shape, frozen=True, kw_only=True):
    """One feature, as every command that lists features shows it."""

    id: str
    status: str
    branch: str | None
    phases: tuple[str, ...]
    """Completed phases, in order."""
    attempts: dict[str, int]
    """Builder calls by phase, over all iterations and units."""
    tests: Tests | None
    tokens: Tokens
    estimated_usd: str | None
    reported_usd: str | None
    computed_usd: str | None


class WaitingShape(Shape, frozen=True, kw_only=True):
    """A question to a person."""

    question_kind: str
    code: str | None
    phase: str
    unit: str | None
    since: str | None
    event_ref: str
    detail: str | None
    answers: tuple[str, ...]
    """Possible verdicts, the most likely first."""
    resume: str
    """Command that gives the most likely answer; after an answer, the one that continues the run."""
    commands: tuple[str, ...]
    """Commands that show the question, then that answer it, the most likely first."""
    answered: bool
    """A message for the question was posted and not read yet."""


class CiChecksShape(Shape, frozen=True, kw_only=True):
    passed: int
    failed: int
    pending: int


class TemplateErrorShape(Shape, frozen=True, kw_only=True):
    """A template that could not be rendered."""

    template: str
    """Path below `pipelines/templates/`."""
    line: int | None
    detail: str | None
    """Error message."""


class FeatureStatus(FeatureSummary, frozen=True, kw_only=True):
    title: str
    source: str | None
    phase: str | None
    """Current or last phase."""
    iteration: int | None
    depends_on: tuple[str, ...]
    quarantined: bool
    rollbacks: int
    unpriced_calls: int
    """Calls that `computed_usd` does not include."""
    pull_request: str | None
    checks: CiChecksShape | None
    """CI checks of the pull request when last polled."""
    pull_request_text: str | None
    """File with the text of a pull request to be opened by hand."""
    target: str | None
    """Target branch: the base, or the branch of the feature that this one is stacked on."""
    worktree: str | None
    """Path of the worktree, while it exists."""
    hold: str | None
    until: str | None
    blocked_by: str | None
    code: str | None
    template_error: TemplateErrorShape | None
    """Template error that halted the run."""
    waiting: WaitingShape | None
    next: str | None
    """Command needed to continue; null: none."""


class RunStatus(Shape, frozen=True, kw_only=True):
    """`mz status --json` and `mz run --json`."""

    repository: str
    run: str
    status: str
    process_running: bool
    """A process is running the run. Without one, a run with the status `running` was interrupted."""
    pipeline: str
    base: str
    base_commit: str
    mz: str
    """Version of mz that started the run."""
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
    """File, or path within the artifact."""
    line: int | None
    message: str | None
    """Null: the text was erased."""


class RejectionShape(Shape, frozen=True, kw_only=True):
    gate: str | None
    """Null: the rules of the artifacts."""
    rules: tuple[str, ...]
    messages: tuple[str, ...]
    violations: tuple[ViolationShape, ...]
    """Empty if a command failed: its output has the reason."""


class ArtifactShape(Shape, frozen=True, kw_only=True):
    artifact: str
    phase: str
    unit: str | None
    path: str | None
    """Null: the artifact is the reply itself."""
    digest: str


class AttemptShape(Shape, frozen=True, kw_only=True):
    """One agent call."""

    key: str
    event_ref: str
    phase: str
    unit: str | None
    iteration: int
    attempt: int
    role: str
    agent: str
    model: str
    requested_at: str | None
    outcome: str
    exit: int | None
    duration_ms: int | None
    problem: str | None
    detail: str | None
    bad_lines: int
    """Number of undecodable lines in the output."""
    stdout_digest: str | None
    stderr_digest: str | None
    stdout: str | None
    """With `--output`, for a failed call: its complete output."""
    stderr: str | None
    """With `--output`, for a failed call."""
    changed: tuple[str, ...]
    reverted: tuple[str, ...]
    refusals: tuple[RejectionShape, ...]
    tokens: Tokens
    estimated_usd: str | None
    reported_usd: str | None
    computed_usd: str | None
    prompt_digest: str
    prompt: str | None
    """With `--prompt`."""
    artifacts: tuple[ArtifactShape, ...]
    """Artifacts produced by this reply, current or not."""
    diff: str | None
    """With `--diff` and `--attempt`: its changes as a patch."""


class PhaseShape(Shape, frozen=True, kw_only=True):
    phase: str
    iteration: int
    state: str
    started_at: str | None
    ended_at: str | None
    units: tuple[str, ...]
    units_done: tuple[str, ...]
    diff: str | None
    """With `--diff`: the changes of all attempts of the iteration, as a patch."""


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
    """Iteration of the phase; 0: set-up."""
    attempt: int
    """Attempt that was checked; 0: before the first."""
    excerpt: str
    """Normalised and shortened output."""
    output_digest: str
    output: str | None
    """With `--output`: the complete output."""


class CommitShape(Shape, frozen=True, kw_only=True):
    commit: str
    purpose: str
    phase: str
    unit: str | None
    files: int
    insertions: int
    deletions: int


class FeatureDetail(FeatureStatus, frozen=True, kw_only=True):
    """`mz show FEATURE --json`; `--phase` and `--attempt` filter the lists."""

    run: str
    history: tuple[PhaseShape, ...]
    calls: tuple[AttemptShape, ...]
    artifacts: tuple[ArtifactShape, ...]
    commands: tuple[CommandShape, ...]
    commits: tuple[CommitShape, ...]
    changed_paths: tuple[str, ...]


class CancelResult(Shape, frozen=True, kw_only=True):
    """`mz cancel --json`."""

    run: str
    features: tuple[str, ...]
    """Empty: all features of the run."""
    event_refs: tuple[str, ...]
    """Addresses of the messages, `inbox/<run>@version`."""
    process_running: bool
    """A process is running the run; otherwise the message waits for `mz resume`."""
    messages_read: bool
    """That process has read the messages."""
    resume: str


class RunLine(Shape, frozen=True, kw_only=True):
    run: str
    status: Literal["started", "interrupted", "paused", "halted", "stopped", "idle", "finished"]
    """`interrupted`: the run was active, and its process is gone."""
    pipeline: str
    base: str
    started: str
    features: dict[str, str]
    """Status of each feature, in backlog order."""
    fork_of: str | None
    """`stream@version` that the run was forked from; null: not a fork."""


class RunList(Shape, frozen=True, kw_only=True):
    """`mz runs --json`."""

    repository: str
    runs: tuple[RunLine, ...]
    """The newest first."""
