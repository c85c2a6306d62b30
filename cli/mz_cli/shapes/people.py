"""Facts: the shapes of the JSON about questions to people, their answers, and messages left for a run."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class LetterShape(Shape, frozen=True, kw_only=True):
    """Something that a person left for a run."""

    kind: str
    """`answer`, `retry`, `cancel`, `pause` or `resume`."""
    verdict: str | None
    """Of an answer: `approve`, `retry` or `reject`."""
    phase: str | None
    """Of a retry: from where on; null: from where the feature stands."""
    who: str
    at: str | None
    note: str | None
    place: str
    fate: str
    """`waits`, `taken` or `refused`."""
    why: str | None
    """Code of the refusal."""


class DecisionShape(Shape, frozen=True, kw_only=True):
    """Something that a person said and the run took up."""

    kind: str
    verdict: str | None
    phase: str | None
    who: str
    at: str | None
    note: str | None
    place: str
    ask: str | None
    """The kind of the question that it answered."""
    code: str | None


class QuestionShape(Shape, frozen=True, kw_only=True):
    """What a feature waits for a person with."""

    run: str
    feature: str
    title: str
    phase: str | None
    unit: str | None
    ask: str
    """Kind of the question; `dependency`: the feature that it needs came to nothing; `budget`: it is used up."""
    code: str | None
    """What it is about: a rule, a gate, a problem, a check, a feature."""
    words: str
    """The same for people."""
    detail: str | None
    since: str | None
    place: str | None
    answered: LetterShape | None
    """An answer, a retry or a cancellation that no process has taken yet."""
    commands: tuple[str, ...]
    """What helps it on, the most natural first."""


class ReviewList(Shape, frozen=True, kw_only=True):
    """`mz review list --json`."""

    questions: tuple[QuestionShape, ...]
    """The newest run first; within a run the oldest question first."""


class EvidenceShape(Shape, frozen=True, kw_only=True):
    """A piece of what a person needs to decide."""

    kind: str
    """`words`, `violations`, `output`, `references`, `paths`, `reply`, `artifact` or `diff`."""
    title: str
    place: str | None
    """Event that tells of it."""
    digest: str | None
    """Blob that holds it."""
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
    """Null: nothing is asked now."""
    halt: str | None
    """Where nothing is asked and the feature does not go on: why, in words."""
    helps: str | None
    """And what helps then."""
    effects: tuple[EffectShape, ...]
    """What each answer does, the most natural first."""
    evidence: tuple[EvidenceShape, ...]
    decisions: tuple[DecisionShape, ...]
    """What people said of the feature, the oldest first."""
    letters: tuple[LetterShape, ...]
    """What was left for it and is not taken, or was refused."""


class MessageResult(Shape, frozen=True, kw_only=True):
    """A message for a run: `mz review approve|reject|answer --json`, `mz retry --json`, `mz pause --json`."""

    run: str
    feature: str | None
    kind: str
    verdict: str | None
    phase: str | None
    place: str | None
    """Where it lies: `inbox/<run>@version`; null: there was nothing to leave."""
    held: bool
    """A process works on the run; otherwise the message waits for the resume."""
    taken: bool
    """That process has taken it."""
    resume: str
    """The command that goes on where no process works."""
