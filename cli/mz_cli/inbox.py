"""Adapter: what people leave for a run: answers and cancellations. Anyone may append; only the run's process reads."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Sequence

from mz_engine.adapters.machine import secret_values
from mz_events.adapters.sqlite import SqliteStore
from mz_events.catalog.base import Event
from mz_events.names import Digest, inbox_stream
from mz_events.redact import Secrets
from mz_events.store import Append

from mz_cli.context import HOME, Reading


def leave(log: Reading, run: str, events: Sequence[Event]) -> tuple[str, ...]:
    """Appends the messages; returns their places. Raises StoreUnusable."""
    with SqliteStore(log.home / HOME / "mz.db") as store:
        append = Append(stream=inbox_stream(run), expected=None, events=tuple(events))
        return tuple(recorded.place for recorded in store.append([append], time.time_ns() // 1000))


def keep(log: Reading, text: str | None) -> Digest | None:
    """What a person says, as a blob without secrets; None for nothing."""
    if text is None:
        return None
    clean = Secrets(secret_values(os.environ)).redact(text)
    return log.blobs.put(clean.encode("utf-8", "replace"))


def who(log: Reading) -> Digest:
    """The blob with the name of the person at this terminal."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "unknown"
    return log.blobs.put(name.encode("utf-8", "replace"))
