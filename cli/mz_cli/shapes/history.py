"""Facts: the shapes of the JSON about past runs: where today's code parts from them, and what today's rules say."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class FieldShape(Shape, frozen=True, kw_only=True):
    """One field that is not as it was recorded."""

    field: str
    """Path within the event, such as `ref.attempt`."""
    recorded: str | None
    """As JSON; null: there was no such field."""
    produced: str | None
    lines: tuple[str, ...]
    """Of a text that the field cites: `-` recorded, `+` today."""


class DivergenceShape(Shape, frozen=True, kw_only=True):
    place: str
    """`stream@version`."""
    kind: str
    """order, missing, extra, decision, arguments, result, verdict or nondeterminism."""
    finding: str
    """Its class of drift, as in `mz replay`."""
    risk: str
    recorded: str | None
    """Type of the recorded event; null: none."""
    produced: str | None
    """Type of the event that today's code produces; null: none."""
    differences: tuple[FieldShape, ...]
    note: str | None
    explained: str | None
    """Id of the intended change of mz that is the reason."""


class CauseShape(Shape, frozen=True, kw_only=True):
    """Divergences with one reason."""

    kind: str
    recorded: str | None
    produced: str | None
    fields: tuple[str, ...]
    places: tuple[str, ...]


class LeftShape(Shape, frozen=True, kw_only=True):
    """What was taken from the record and not computed again, or could not be judged."""

    what: str
    times: int


class StreamShape(Shape, frozen=True, kw_only=True):
    stream: str
    events: int
    compared: int
    """Intents and derived events that were held against today's code."""
    first: str | None
    """Place of the first divergence; null: none."""
    divergences: int
    unfollowed: int
    """Events after a divergence of which nothing can be said."""


class PastRun(Shape, frozen=True, kw_only=True):
    exit: int
    run: str
    core: str
    """Version of mz that started the run."""
    streams: tuple[StreamShape, ...]
    divergences: tuple[DivergenceShape, ...]
    causes: tuple[CauseShape, ...]
    explained: tuple[DivergenceShape, ...]
    left: tuple[LeftShape, ...]


class BrokenShape(Shape, frozen=True, kw_only=True):
    rule: str
    path: str
    line: int | None
    message: str | None


class JudgementShape(Shape, frozen=True, kw_only=True):
    """An artifact that today's rules judge otherwise."""

    run: str
    feature: str
    place: str
    """`stream@version` of the verdict of then."""
    phase: str
    artifact: str
    path: str | None
    """Null: it was the agent's reply."""
    rules: str
    """Name of today's rule set."""
    was: str
    """valid or invalid."""
    now: str
    broken: tuple[BrokenShape, ...]
    """By today's rules; where it is valid today, what was broken then."""


class JudgeResult(Shape, frozen=True, kw_only=True):
    exit: int
    runs: tuple[str, ...]
    artifacts: int
    """Judged again, refused attempts included."""
    differing: tuple[JudgementShape, ...]
    left: tuple[LeftShape, ...]
