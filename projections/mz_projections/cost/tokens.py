"""Token usage of each agent call as reported, for repricing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.call import ReplyParsed, Usage
from mz_events.envelope import Recorded

from mz_projections.read_models.model import Key, ReadModel


class CallTokens(msgspec.Struct, frozen=True, gc=False):
    """From the last parsing of the reply."""

    key: str
    usage: tuple[Usage, ...]


def evolve(find: Callable[[Key], CallTokens | None], recorded: Recorded[Event]) -> CallTokens | None:
    """Return the row of the call whose reply was parsed."""
    event = recorded.event
    if recorded.is_forked_copy or not isinstance(event, ReplyParsed):
        return None
    return CallTokens(event.ref.key, event.usage)


def usage_by_call(events: Iterable[Recorded[Event]]) -> dict[str, tuple[Usage, ...]]:
    """Return the usage by key of the call."""
    rows = (evolve(lambda _: None, recorded) for recorded in events)
    return {row.key: row.usage for row in rows if row is not None}


TOKENS = ReadModel(name="tokens", row=CallTokens, key=("key",), types=(ReplyParsed,), evolve=evolve)
"""Over all runs: one row per parsed call."""
