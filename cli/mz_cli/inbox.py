"""Post messages to a run's inbox: answers, retries, cancellations, pauses.

Any process may append; only the process that drives the run reads, and records the outcome in the run's own stream.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from mz_engine.adapters.git_repository import ask
from mz_engine.adapters.known_secrets import known_secrets
from mz_engine.errors import MzError
from mz_engine.home import HOME, LOG
from mz_engine.ports import RepositoryUnusable
from mz_events.adapters.sqlite import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.run import InboxTaken, RunResumed, RunStarted
from mz_events.codec import type_of
from mz_events.envelope import Recorded
from mz_events.names import Digest, inbox_stream, run_stream
from mz_events.redact import Secrets
from mz_events.store import Append, WrongVersion
from mz_projections.queue import KINDS, Kind, Letter, letters

from mz_cli.context import Reading, is_held
from mz_cli.render.text import clean, line

TAKING_SECONDS = 3.0
"""Time that a command waits for the run process to read its messages; that polls twice a second."""
POLL_SECONDS = 0.05
NAME_MAX = 200
"""Characters of a person's name."""
TOO_LATE: dict[Kind, str] = {
    "answer": "the question is no longer open: it was answered, or the feature ended",
    "retry": "the feature is running again, or never started",
    "cancel": "it ended already",
    "pause": "the run is already stopping",
    "resume": "the run is no longer paused",
}
"""Reason for which a process rejects a message."""


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """State of posted messages when a command ends."""

    run: str
    places: tuple[str, ...]
    held: bool
    """A process drives the run."""
    taken: bool
    """The process has read all messages."""

    @property
    def resume(self) -> str:
        return f"mz resume {self.run}"


def leave(
    log: Reading, run: str, write: Callable[[], Sequence[Event]], patience_seconds: float = TAKING_SECONDS
) -> Left:
    """Post messages, and wait until the run process has read them, if there is one.

    `make_events` returns the events for the current state of the run, or raises; it is called again if another process
    appended meanwhile. Raises MzError (MZ5004) if the process rejects a message, and StoreUnusable."""
    stream = inbox_stream(run)
    with SqliteStore(log.home / HOME / LOG) as store:
        while True:
            version = dict(log.store.streams(stream)).get(stream, 0)
            append = Append(stream=stream, expected=version, events=tuple(write()))
            try:
                recorded = store.append([append], time.time_ns() // 1000)
            except WrongVersion:
                continue
            break
    held = holder(log) == run
    taken = held and watch(log, run, recorded, patience_seconds)
    return Left(run=run, places=tuple(one.place for one in recorded), held=held, taken=taken)


def watch(log: Reading, run: str, messages: Sequence[Recorded[Event]], patience_seconds: float) -> bool:
    """Return True if the process reads the messages in time. Raises MzError (MZ5004) for a rejected one."""
    deadline, versions = time.monotonic() + patience_seconds, {message.version for message in messages}
    while True:
        news = log.store.read_types({type_of(InboxTaken)}, messages[-1].position, log.store.head())
        fates = {
            recorded.event.version: recorded.event
            for recorded in news
            if recorded.stream == run_stream(run) and isinstance(recorded.event, InboxTaken)
        }
        for version in versions & fates.keys():
            if not fates[version].accepted:
                kind = KINDS[type(next(message.event for message in messages if message.version == version))]
                why = f"run {run} rejected it: {TOO_LATE[kind]}"
                raise MzError("MZ5004", why, hint="see `mz review show FEATURE` and `mz status`")
        if versions <= fates.keys() or time.monotonic() > deadline or not is_held(log.home):
            return versions <= fates.keys()
        time.sleep(POLL_SECONDS)


def holder(log: Reading) -> str | None:
    """Return the run that a process drives now: the one started or resumed last, if a process holds the lock."""
    if not is_held(log.home):
        return None
    begun = tuple(log.store.read_types({type_of(RunStarted), type_of(RunResumed)}, 0, log.store.head()))
    return begun[-1].stream.removeprefix("run/") if begun else None


def left(log: Reading, run: str) -> tuple[Letter, ...]:
    """Return all messages in the run's inbox with their outcomes."""
    return letters(log.store.read(inbox_stream(run)), log.store.read(run_stream(run)))


def keep(log: Reading, text: str | None) -> Digest | None:
    """Store a person's text as a blob, stripped, without secrets and escapes; None stays None."""
    if text is None:
        return None
    harmless = Secrets(known_secrets(log.home, os.environ)).redact(clean(text).strip())
    return log.blobs.put(harmless.encode("utf-8", "replace"))


def who(log: Reading) -> Digest:
    """Store the user's name as a blob."""
    found = keep(log, name_of(log.home, os.environ.get("MZ_USER", "")))
    assert found is not None
    return found


def name_of(home: Path, given: str) -> str:
    """Return the chosen name; else git's `NAME <ADDRESS>`; else the login."""
    try:
        name, address = (ask(home, os.environ, "config", "--get", f"user.{part}").text for part in ("name", "email"))
    except RepositoryUnusable:
        name = address = ""
    known = line(given) or line(f"{name} <{address}>" if name and address else name or address)
    return known[:NAME_MAX] or login()


def login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
