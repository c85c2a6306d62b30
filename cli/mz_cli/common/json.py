"""JSON documents about runs and features, and of errors."""

from __future__ import annotations

from msgspec import field
from mz_engine.errors.diagnostics import Diagnostic

from mz_cli.terminal.json import Shape, Tests, Tokens


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
    estimated_nanousd: int | None
    reported_nanousd: int | None
    computed_nanousd: int | None


class WaitingShape(Shape, frozen=True, kw_only=True):
    """A question to a person."""

    question_kind: str
    code: str | None
    phase: str
    unit: str | None
    since_us: int | None = field(name="since")
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
    until_us: int | None = field(name="until")
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
    mz_version: str
    """Version of mz that started the run."""
    started_us: int | None
    last_recorded_us: int | None = field(name="last_event_at")
    events: int
    code: str | None
    features: tuple[FeatureStatus, ...]


class ErrorDocument(Diagnostic, frozen=True, kw_only=True):
    """Errors of a failed command: one line on stderr, when `--json` is given. The fields beside `errors` are those of
    the first error."""

    exit: int
    """Exit code."""
    errors: tuple[Diagnostic, ...]
    """All errors, in reading order."""
