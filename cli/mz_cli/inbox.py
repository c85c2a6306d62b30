"""Adapter: what people leave for a run: answers, retries, cancellations, pauses. Anyone may append; only the process
that works on the run reads, and says in the run's own stream what it made of it."""

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
"""How long a command waits for the run's process to take what it left; that looks twice a second."""
POLL_SECONDS = 0.05
NAME_MAX = 200
"""Characters of a person's name."""
TOO_LATE: dict[Kind, str] = {
    "answer": "the question is gone: somebody else was first, or the feature ended",
    "retry": "the feature does not rest any more, or it was never begun",
    "cancel": "it is over already",
    "pause": "the run is coming to rest already",
    "resume": "the run is not paused any more",
}
"""Why a process refuses a message, in words."""


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What became of messages, as far as it is known when a command ends."""

    run: str
    places: tuple[str, ...]
    held: bool
    """A process works on the run."""
    taken: bool
    """It has taken them all."""

    @property
    def resume(self) -> str:
        return f"mz resume {self.run}"


def leave(
    log: Reading, run: str, write: Callable[[], Sequence[Event]], patience_seconds: float = TAKING_SECONDS
) -> Left:
    """Leaves messages, and sees what the run's process makes of them, if there is one.

    `write` looks at the run as it is now and says what to leave, or raises; it is asked again where somebody else left
    something meanwhile. Raises MzError (MZ5004) where the process refuses a message, and StoreUnusable."""
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
    """Whether the process takes the messages in time. Raises MzError (MZ5004) for one that it refuses."""
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
                why = f"run {run} did not take it: {TOO_LATE[kind]}"
                raise MzError("MZ5004", why, hint="`mz review show FEATURE` shows who was first; `mz status` the rest")
        if versions <= fates.keys() or time.monotonic() > deadline or not is_held(log.home):
            return versions <= fates.keys()
        time.sleep(POLL_SECONDS)


def holder(log: Reading) -> str | None:
    """The run that a process works on now: one holds the repository, and it took this run up last."""
    if not is_held(log.home):
        return None
    begun = tuple(log.store.read_types({type_of(RunStarted), type_of(RunResumed)}, 0, log.store.head()))
    return begun[-1].stream.removeprefix("run/") if begun else None


def left(log: Reading, run: str) -> tuple[Letter, ...]:
    """Everything that was left for the run, and what became of it."""
    return letters(log.store.read(inbox_stream(run)), log.store.read(run_stream(run)))


def keep(log: Reading, text: str | None) -> Digest | None:
    """What a person says, as a blob without secrets, escapes and blanks around it; None for nothing."""
    if text is None:
        return None
    harmless = Secrets(known_secrets(log.home, os.environ)).redact(clean(text).strip())
    return log.blobs.put(harmless.encode("utf-8", "replace"))


def who(log: Reading) -> Digest:
    """The blob with the name of the person at this terminal."""
    found = keep(log, name_of(log.home, os.environ.get("MZ_USER", "")))
    assert found is not None
    return found


def name_of(home: Path, given: str) -> str:
    """The name that is `given`; else `NAME <ADDRESS>` as git is configured; else the login."""
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
