"""Facts: the items of a backlog, whatever source they came from."""

from __future__ import annotations

from enum import Enum, IntEnum

import msgspec
from mz_events.names import FeatureId


class ItemStatus(Enum):
    """What its source says of an item. Only `BACKLOG` is worked on."""

    BACKLOG = "backlog"
    IN_PROGRESS = "in-progress"
    """Somebody else has it in hand."""
    DONE = "done"
    BLOCKED = "blocked"


class Priority(IntEnum):
    """Smaller comes first."""

    HIGH = 0
    MEDIUM = 1
    LOW = 2
    NONE = 3


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A feature as a person asked for it; its text is not yet screened."""

    id: FeatureId
    title: str
    """One line, without control characters; not empty."""
    body: str
    """Markdown without the heading, the meta lines and HTML comments; may be empty."""
    status: ItemStatus = ItemStatus.BACKLOG
    priority: Priority = Priority.NONE
    depends_on: tuple[FeatureId, ...] = ()
    """As declared, each once, in the order of the text; every one is an item of the same backlog."""
    labels: tuple[str, ...] = ()
    order: int
    """Position in the source, from 0."""
    source: str
    """Where it stands: `file#id`."""
    line: int
    """Of its heading, from 1."""
