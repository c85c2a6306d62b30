"""JSON documents about variants of recordings and injected faults."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class BrokenVariant(Shape, frozen=True, kw_only=True):
    """A variant that violates an invariant."""

    feature: str
    call: str | None
    """The recording, such as `code.a2`; null if only the order of the features was changed."""
    variant: str
    how: str
    """`memory`, `crash` (mz was killed during the call and found the output afterwards) or `process`."""
    end: str | None
    """State at the end; null: unnamed."""
    violations: tuple[str, ...]


class VariedCassette(Shape, frozen=True, kw_only=True):
    path: str
    played: int
    """Number of variants played."""
    ends: dict[str, int]
    """Number of variants by final state, such as `waiting (recording-missing)`."""
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
    """Behaviour of the agent with the fault."""
    did: tuple[str, ...]
    """Reactions of the pipeline, in order."""
    end: str | None
    """Final state of the feature; null: unnamed."""
