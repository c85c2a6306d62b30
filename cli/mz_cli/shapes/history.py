"""JSON documents of past-run replay: divergences from the current code, and verdicts of the current rules."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class FieldShape(Shape, frozen=True, kw_only=True):
    """One field that differs from the recording."""

    field: str
    """Path within the event, such as `ref.attempt`."""
    recorded: str | None
    """As JSON; null: the field is missing."""
    produced: str | None
    lines: tuple[str, ...]
    """Diff of a text that the field cites: `-` recorded, `+` current."""


class DivergenceShape(Shape, frozen=True, kw_only=True):
    place: str
    """`stream@version`."""
    kind: str
    """order, missing, extra, decision, arguments, result, verdict or nondeterminism."""
    finding: str
    """Class of drift, as in `mz replay`."""
    risk: str
    recorded: str | None
    """Type of the recorded event; null: none."""
    produced: str | None
    """Type of the event that the current code produces; null: none."""
    differences: tuple[FieldShape, ...]
    note: str | None
    explained: str | None
    """Id of the intended change of mz that explains it."""


class CauseShape(Shape, frozen=True, kw_only=True):
    """Divergences with the same cause."""

    kind: str
    recorded: str | None
    produced: str | None
    fields: tuple[str, ...]
    places: tuple[str, ...]


class LeftShape(Shape, frozen=True, kw_only=True):
    """Something that was read from the log instead of being recomputed, or could not be checked."""

    what: str
    times: int


class StreamShape(Shape, frozen=True, kw_only=True):
    stream: str
    events: int
    compared: int
    """Number of intents and derived events compared with the current code."""
    first: str | None
    """First diverging event; null: none."""
    divergences: int
    unfollowed: int
    """Number of events after a divergence that cannot be compared."""


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
    """An artifact on which the current rules reach another verdict."""

    run: str
    feature: str
    place: str
    """`stream@version` of the recorded verdict."""
    phase: str
    artifact: str
    path: str | None
    """Null: the artifact is the agent's reply."""
    rules: str
    """Name of the current rule set."""
    was: str
    """valid or invalid."""
    now: str
    broken: tuple[BrokenShape, ...]
    """Rules broken now; for an artifact that is valid now, those broken then."""


class JudgeResult(Shape, frozen=True, kw_only=True):
    exit: int
    runs: tuple[str, ...]
    artifacts: int
    """Number of artifacts rechecked, including rejected attempts."""
    differing: tuple[JudgementShape, ...]
    left: tuple[LeftShape, ...]
