"""JSON documents of past-run replay: divergences from the current code, and verdicts of the current rules."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class FieldDifferenceShape(Shape, frozen=True, kw_only=True):
    """One field that differs from the recording."""

    field: str
    """Path within the event, such as `ref.attempt`."""
    recorded: str | None
    """As JSON; null: the field is missing."""
    produced: str | None
    lines: tuple[str, ...]
    """Diff of a text that the field cites: `-` recorded, `+` current."""


class DivergenceShape(Shape, frozen=True, kw_only=True):
    event_ref: str
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
    differences: tuple[FieldDifferenceShape, ...]
    note: str | None
    explained: str | None
    """Id of the intended change of mz that explains it."""


class CauseShape(Shape, frozen=True, kw_only=True):
    """Divergences with the same cause."""

    kind: str
    recorded: str | None
    produced: str | None
    fields: tuple[str, ...]
    event_refs: tuple[str, ...]


class UncheckedPart(Shape, frozen=True, kw_only=True):
    """Something that was read from the log instead of being recomputed, or could not be checked."""

    what: str
    times: int


class ComparedStream(Shape, frozen=True, kw_only=True):
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
    mz_version: str
    """Version of mz that started the run."""
    streams: tuple[ComparedStream, ...]
    divergences: tuple[DivergenceShape, ...]
    causes: tuple[CauseShape, ...]
    explained: tuple[DivergenceShape, ...]
    left: tuple[UncheckedPart, ...]


class RuleViolationShape(Shape, frozen=True, kw_only=True):
    rule: str
    path: str
    line: int | None
    message: str | None


class RuleChangeShape(Shape, frozen=True, kw_only=True):
    """An artifact on which the current rules reach another verdict."""

    run: str
    feature: str
    event_ref: str
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
    broken: tuple[RuleViolationShape, ...]
    """Rules broken now; for an artifact that is valid now, those broken then."""


class RecheckResult(Shape, frozen=True, kw_only=True):
    exit: int
    runs: tuple[str, ...]
    artifacts: int
    """Number of artifacts rechecked, including rejected attempts."""
    differing: tuple[RuleChangeShape, ...]
    left: tuple[UncheckedPart, ...]
