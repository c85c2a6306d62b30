"""A finding for `--json`.

JSON documents about runs: run, status, runs, show, demo, cancel.

JSON document of `mz log --at`: a past state.

JSON lines of `mz log --json`, and error documents.
"""

from __future__ import annotations

from typing import Any, Literal

from mz_projections.views.model import ArtifactView, CommitView, PhaseView
from mz_recordings.findings.model import KIND_PROPERTIES, Finding, risk_of

from mz_cli.cost.json import Amounts
from mz_cli.replay.json import ReplayFinding
from mz_cli.reports.findings import fix_command
from mz_cli.terminal.json import Shape, Tests, Tokens, shape_of


def finding_shape(finding: Finding, path: str) -> ReplayFinding:
    """Return the JSON form of a finding. `path`: its cassette."""
    return shape_of(
        ReplayFinding,
        finding,
        risk=risk_of(finding),
        exit=int(KIND_PROPERTIES[finding.kind].exit) if finding.fails else 0,
        fix=fix_command(finding.fix, (path,)),
    )


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
    artifacts: tuple[ArtifactView, ...]
    """Artifacts produced by this reply, current or not."""
    diff: str | None
    """With `--diff` and `--attempt`: its changes as a patch."""


class PhaseShape(PhaseView, frozen=True, kw_only=True):
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


class FeatureDetail(FeatureStatus, frozen=True, kw_only=True):
    """`mz show FEATURE --json`; `--phase` and `--attempt` filter the lists."""

    run: str
    history: tuple[PhaseShape, ...]
    calls: tuple[AttemptShape, ...]
    artifacts: tuple[ArtifactView, ...]
    commands: tuple[CommandShape, ...]
    commits: tuple[CommitView, ...]
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


class AttemptCounts(Shape, frozen=True, kw_only=True):
    """Calls of one role in the current unit and iteration."""

    role: str
    attempt: int
    """Number of requests so far, including failed and lost ones."""
    refused: int
    """Rejected replies since the last answer of a person."""
    failures: int
    """Failed or lost calls since the last answer of a person."""


class OpenQuestion(Shape, frozen=True, kw_only=True):
    question_kind: str
    code: str | None
    phase: str
    unit: str | None
    detail: str | None


class FeatureState(Shape, frozen=True, kw_only=True):
    """State of a feature from which the engine decides."""

    state: str
    """State of the engine, such as held or waiting; of an ended feature, its outcome."""
    within: str | None
    """State that is held or waits."""
    phase: str | None
    unit: str | None
    iteration: int | None
    units: tuple[str, ...]
    units_done: tuple[str, ...]
    done: tuple[str, ...]
    """Phases completed, in order."""
    rollbacks: int
    attempts: tuple[AttemptCounts, ...]
    checked: dict[str, bool]
    """Gates and rules run on the current reply; true: passed."""
    pending_outcome: str | None
    """Type of an intent without an outcome yet."""
    hold: str | None
    until: str | None
    code: str | None
    """Code of a hold or a failure."""
    question: OpenQuestion | None
    branch: str | None
    target: str | None
    base: str | None
    head: str | None
    artifacts: tuple[ArtifactView, ...]
    cost: Amounts


class TrackShape(Shape, frozen=True, kw_only=True):
    """One feature as the run sees it."""

    id: str
    state: str
    """queued, working, skipped, or the feature's outcome."""
    hold: str | None
    until: str | None
    code: str | None
    held_by: str | None
    """Dependency that was not delivered."""
    claim: tuple[str, ...]
    spent_usd: str
    reserved_usd: str


class RunStateShape(Shape, frozen=True, kw_only=True):
    """State of the run from which the engine decides."""

    status: str
    """running, paused, halted, stopped, idle or finished."""
    code: str | None
    pipeline: str | None
    base: str | None
    base_commit: str | None
    inbox: int
    """Number of processed messages of people."""
    committed_usd: str
    """Spent and reserved."""
    features: tuple[TrackShape, ...]


class StateAt(Shape, frozen=True, kw_only=True):
    """`mz log --at STREAM@VERSION --json`, with the schema mz.state/1: the state after that event."""

    repository: str
    event_ref: str
    at: str | None
    event: str
    """Type of the event."""
    text: str
    """Description of the event."""
    newest: int
    """Current version of the stream."""
    feature: FeatureState | None
    """Set for a feature's stream."""
    run: RunStateShape | None
    """Set for a run's own stream."""


class LogHeader(Shape, frozen=True, kw_only=True):
    """The first line of `mz log --json`; the others are `LogEntry`."""

    type: str
    """Always `version`."""
    schema: str
    """`mz.log/1`."""


class LogEntry(Shape, frozen=True, kw_only=True):
    """One event: one object per line."""

    type: str
    """Such as `gate.checked`."""
    role: str
    """`intent`, `outcome`, `external` or `derived`."""
    event_ref: str
    """`stream@version`, the event's address."""
    stream: str
    version: int
    """Number within the stream, from 1."""
    position: int
    """Number within the log, from 1, without gaps."""
    recorded_at: str
    """Time of recording; never decreases within a stream."""
    observed_at: str
    """Time shown by the clock."""
    causation: str | None
    """Address of the event that caused it."""
    event: dict[str, Any]
    """Stored fields of the event; `mz schema events` describes them."""


class ErrorLocation(Shape, frozen=True, kw_only=True):
    """Location in a file; line and column count from 1."""

    file: str
    line: int | None
    """Null: the whole file."""
    column: int | None


class ErrorPart(Shape, frozen=True, kw_only=True):
    """One error or warning."""

    severity: str
    """`error` or `warning`."""
    code: str
    """Error code such as `MZ2005`; `mz help` describes it."""
    message: str
    hint: str | None
    """Suggested fix."""
    where: ErrorLocation | None


class ErrorDocument(ErrorPart, frozen=True, kw_only=True):
    """Errors of a failed command: one line on stderr, when `--json` is given. The fields beside `errors` are those of
    the first error."""

    exit: int
    """Exit code."""
    errors: tuple[ErrorPart, ...]
    """All errors, in reading order."""
