"""Items of a backlog, from any source."""

from __future__ import annotations

from enum import Enum, IntEnum

import msgspec
from mz_events.names import FeatureId


class ItemStatus(Enum):
    """Status of an item in its source. Only `BACKLOG` is worked on."""

    BACKLOG = "backlog"
    IN_PROGRESS = "in-progress"
    """Somebody else works on it."""
    DONE = "done"
    BLOCKED = "blocked"


class Priority(IntEnum):
    """Smaller comes first."""

    HIGH = 0
    MEDIUM = 1
    LOW = 2
    NONE = 3


class BacklogItem(msgspec.Struct, frozen=True, kw_only=True):
    """A feature request, not yet screened for injections."""

    id: FeatureId
    title: str
    """One line, without control characters; not empty."""
    body: str
    """Markdown without the heading, the meta lines and HTML comments; may be empty."""
    status: ItemStatus = ItemStatus.BACKLOG
    priority: Priority = Priority.NONE
    depends_on: tuple[FeatureId, ...] = ()
    """As declared, each once, in the order of the text; all are items of the same backlog."""
    order: int
    """Position in the source, from 0."""
    source: str
    """`file#id`."""
    line: int
    """Line of its heading, from 1."""
