"""Facts: the shapes of the JSON about recordings that were made again."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class PlannedCall(Shape, frozen=True, kw_only=True):
    """A call that the agent was to answer again."""

    call: str
    """Feature and name, such as `login/code.a2`."""
    why: tuple[str, ...]
    """PROMPT, CONFIG, EFFECT, WIRE, STALE, SEEDED, MISSING; ASKED: named on the command line; AGENT: another agent is
    to answer."""
    follows: str | None
    """The call, or the feature, whose new answer probably changes what this one is asked."""
    paid: bool
    """An attempt that did not come to its end had its answer already."""
    estimated_tokens: int
    estimated_usd: str | None
    """Null: unpriced."""


class DroppedFeature(Shape, frozen=True, kw_only=True):
    """A feature whose old recordings stay."""

    feature: str
    why: str


class Difference(Shape, frozen=True, kw_only=True):
    """What the new cassette has otherwise than the old one."""

    kind: str
    """A class of drift, MISSING (only the new one makes the call) or UNUSED (only the old one)."""
    risk: str
    """low, medium or high."""
    what: str
    feature: str | None
    call: str | None
    detail: tuple[str, ...]
    """Lines: `-` old, `+` new."""


class RerecordedCassette(Shape, frozen=True, kw_only=True):
    path: str
    planned: tuple[PlannedCall, ...]
    called: tuple[str, ...]
    """Calls that the real agent answered."""
    served: tuple[str, ...]
    """Calls that recordings answered."""
    spent_usd: str
    """For the former: the higher of what the agent reported and what its tokens cost."""
    stopped: str | None
    """`interrupted`, `budget`, or the code of a problem that no further call could mend; null: it came to its end."""
    kept: tuple[str, ...]
    """Features whose new recordings are taken."""
    dropped: tuple[DroppedFeature, ...]
    differences: tuple[Difference, ...]
    refused: tuple[str, ...]
    """Classes of differences that nobody has accepted."""
    written: bool
    """The cassette holds the new recordings."""
    waits: str | None
    """Where the new cassette waits to be accepted."""
    backup: str | None
    """Where a copy is, had the cassette an older format."""
    helps: str | None
    """The command that goes on from here."""


class RerecordResult(Shape, frozen=True, kw_only=True):
    exit: int
    budget_usd: str | None
    cassettes: tuple[RerecordedCassette, ...]
