"""Pure: the tokens of each agent call, entry by entry as its agent told them, for whoever prices them anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.call import ReplyRead, Usage
from mz_events.envelope import Recorded

from mz_projections.readmodel import Key, ReadModel


class CallTokens(msgspec.Struct, frozen=True, gc=False):
    """As the newest reading of the reply has it."""

    key: str
    usage: tuple[Usage, ...]


def evolve(find: Callable[[Key], CallTokens | None], recorded: Recorded[Event]) -> CallTokens | None:
    """The row of the call whose reply was read."""
    event = recorded.event
    if recorded.copied or not isinstance(event, ReplyRead):
        return None
    return CallTokens(event.ref.key, event.usage)


def tokens(events: Iterable[Recorded[Event]]) -> dict[str, tuple[Usage, ...]]:
    """By key of the call."""
    rows = (evolve(lambda _: None, recorded) for recorded in events)
    return {row.key: row.usage for row in rows if row is not None}


TOKENS = ReadModel(name="tokens", row=CallTokens, key=("key",), types=(ReplyRead,), evolve=evolve)
"""Over all runs: one row a call whose reply was read."""
