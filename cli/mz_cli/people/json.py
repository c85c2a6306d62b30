"""JSON documents about questions to people, their answers, and messages for a run."""

from __future__ import annotations

from mz_cli.terminal.json import Shape


class MessageShape(Shape, frozen=True, kw_only=True):
    """A message from a person to a run."""

    kind: str
    """`answer`, `retry`, `cancel`, `pause` or `resume`."""
    verdict: str | None
    """For an answer: `approve`, `retry` or `reject`."""
    phase: str | None
    """For a retry: the first phase; null: the current phase."""
    actor: str
    at: str | None
    note: str | None
    event_ref: str
    outcome: str
    """`pending`, `accepted` or `rejected`."""
    rejection_code: str | None
    """Code of the reason for rejecting the message."""


class AcceptedMessage(Shape, frozen=True, kw_only=True):
    """A person's message that the run accepted."""

    kind: str
    verdict: str | None
    phase: str | None
    actor: str
    at: str | None
    note: str | None
    event_ref: str
    question_kind: str | None
    """Kind of the answered question."""
    code: str | None


class QuestionShape(Shape, frozen=True, kw_only=True):
    """An open question of a feature."""

    run: str
    feature: str
    title: str
    phase: str | None
    unit: str | None
    question_kind: str
    """Kind of the question; `dependency`: a required feature was not delivered; `budget`: the budget is used up."""
    code: str | None
    """Subject of the question: a rule, gate, problem, check or feature."""
    text: str
    """Text of the question."""
    detail: str | None
    since: str | None
    event_ref: str | None
    answered: MessageShape | None
    """A posted answer, retry or cancellation that the run has not read yet."""
    commands: tuple[str, ...]
    """Commands that answer it, the most likely first."""


class ReviewList(Shape, frozen=True, kw_only=True):
    """`mz review list --json`."""

    questions: tuple[QuestionShape, ...]
    """The newest run first; within a run the oldest question first."""


class EvidenceShape(Shape, frozen=True, kw_only=True):
    """One piece of evidence for a decision."""

    kind: str
    """`words`, `violations`, `output`, `references`, `paths`, `reply`, `artifact` or `diff`."""
    title: str
    event_ref: str | None
    """Event that recorded it."""
    digest: str | None
    """Digest of the blob with the evidence."""
    text: str


class EffectShape(Shape, frozen=True, kw_only=True):
    answer: str
    does: str
    command: str


class ReviewDetail(Shape, frozen=True, kw_only=True):
    """`mz review show FEATURE --json`."""

    run: str
    feature: str
    title: str
    status: str
    branch: str | None
    question: QuestionShape | None
    """Null: no question is open."""
    halt: str | None
    """Reason why the feature does not continue, if no question is open."""
    helps: str | None
    """Suggested fix for `halt`."""
    effects: tuple[EffectShape, ...]
    """Effect of each answer, the most likely first."""
    evidence: tuple[EvidenceShape, ...]
    decisions: tuple[AcceptedMessage, ...]
    """Decisions about the feature, the oldest first."""
    messages: tuple[MessageShape, ...]
    """Messages for the feature that are unread or were rejected."""


class MessageResult(Shape, frozen=True, kw_only=True):
    """A message for a run: `mz review approve|reject|answer --json`, `mz retry --json`, `mz pause --json`."""

    run: str
    feature: str | None
    kind: str
    verdict: str | None
    phase: str | None
    event_ref: str | None
    """Address of the message, `inbox/<run>@version`; null: no message was needed."""
    process_running: bool
    """A process is running the run; otherwise the message waits for `mz resume`."""
    message_read: bool
    """That process has read the message."""
    resume: str
    """Command that continues the run if no process is running it."""
