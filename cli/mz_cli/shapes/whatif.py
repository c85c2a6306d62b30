"""Facts: the shapes of the JSON about what would have been: variants of recordings, and faults put into them."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class BrokenVariant(Shape, frozen=True, kw_only=True):
    """A variant for which something does not hold."""

    feature: str
    call: str | None
    """The recording, such as `code.a2`; null where the features were at work in another order."""
    variant: str
    how: str
    """`memory`, `crash` (mz was killed during the call, and found the output afterwards) or `process`."""
    end: str | None
    """Null: it has no name."""
    violations: tuple[str, ...]


class VariedCassette(Shape, frozen=True, kw_only=True):
    path: str
    played: int
    """Variants."""
    ends: dict[str, int]
    """How many ended in which state, such as `waiting (recording-missing)`."""
    broken: tuple[BrokenVariant, ...]


class VariantsResult(Shape, frozen=True, kw_only=True):
    exit: int
    cassettes: tuple[VariedCassette, ...]


class InjectResult(Shape, frozen=True, kw_only=True):
    exit: int
    path: str
    call: str
    """Feature and recording, such as `alpha/code.U1`."""
    fault: str
    what: str
    """What the agent does."""
    did: tuple[str, ...]
    """What the pipeline did about it, in order."""
    end: str | None
    """The state in which the feature ended; null: it has no name."""
