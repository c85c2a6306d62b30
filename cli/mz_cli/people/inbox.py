"""Post messages to a run's inbox: answers, retries, cancellations, pauses.

Any process may append; only the process that drives the run reads, and records the outcome in the run's own stream.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from mz_engine.errors.diagnostics import MzError
from mz_engine.git.repository import run_git_as_user
from mz_engine.model.pins import Commands, decode_commands
from mz_engine.paths import LOG_FILE, MZ_FOLDER
from mz_engine.ports import RepositoryUnusable
from mz_engine.run.settings import load_config
from mz_engine.secrets import project_secrets
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.run import InboxRead, RunResumed, RunStarted, Verdict
from mz_events.codec import type_of
from mz_events.names import Digest, inbox_stream, run_stream
from mz_events.redaction.redactor import Secrets
from mz_events.store import Append, Recorded, VersionConflict
from mz_projections.run.fold import fold_run
from mz_projections.views.messages import Kind, message_kind

from mz_cli.app.context import ProjectLog, is_process_running
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.table import print_output
from mz_cli.terminal.text import single_line, strip_escapes

READ_WAIT_SECONDS = 3.0
"""Time that a command waits for the run process to read its messages; that polls twice a second."""
POLL_SECONDS = 0.05
NAME_MAX = 200
"""Characters of a person's name."""
REJECTION_TEXT: dict[Kind, str] = {
    "answer": "the question is no longer open: it was answered, or the feature ended",
    "retry": "the feature is running again, or never started",
    "revision": "the feature is not delivered",
    "cancel": "it ended already",
    "pause": "the run is already stopping",
    "resume": "the run is no longer paused",
}
"""Reason for which a process rejects a message."""


class MessageResult(Shape, frozen=True, kw_only=True):
    """A message for a run: `mz review approve|reject|answer --json`, `mz retry --json`, `mz pause --json`."""

    run: str
    feature: str | None
    kind: str
    verdict: str | None
    phase: str | None
    event_ref: str | None
    """Address of the message, `inbox/<run>@version`; null: no message was needed."""
    process_running: bool
    """A process is running the run; otherwise the message waits for `mz resume`."""
    message_read: bool
    """That process has read the message."""
    resume: str
    """Command that continues the run if no process is running it."""


class PostedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """State of posted messages when a command ends."""

    run: str
    event_refs: tuple[str, ...]
    """Addresses of the messages, `inbox/<run>@version`."""
    process_running: bool
    """A process is running the run; otherwise the messages wait for `mz resume`."""
    messages_read: bool
    """That process has read the messages; without one, `mz cancel` has carried them out."""
    resume: str
    """Command that continues the run if no process is running it."""


def post_message(
    log: ProjectLog,
    run: str,
    make_events: Callable[[], Sequence[Event]],
    patience_seconds: float = READ_WAIT_SECONDS,
    beside: tuple[Append, ...] = (),
) -> PostedMessage:
    """Post messages, and wait until the run process has read them, if there is one.

    `make_events` returns the events for the current state of the run, or raises; it is called again if another process
    appended meanwhile. `beside` is appended with them, or not at all. Raises MzError (MZ5004) if the process rejects a
    message, and StoreUnusable."""
    stream = inbox_stream(run)
    recorded: Sequence[Recorded[Event]] | None = None
    with SqliteStore(log.root / MZ_FOLDER / LOG_FILE) as store:
        while recorded is None:
            version = dict(log.store.streams(stream)).get(stream, 0)
            append = Append(stream=stream, expected=version, events=tuple(make_events()))
            with suppress(VersionConflict):
                appended = store.append([append, *beside], time.time_ns() // 1000)
                recorded = [message for message in appended if message.stream == stream]
    running, refs = active_run(log) == run, tuple(message.event_ref for message in recorded)
    if running and keeps_commands(log, run):
        ways = f"for the corrected ones end it (Ctrl-C), then: mz resume {run}"
        print_note(f"the process of run {run} keeps the commands that it began with; {ways}")
    is_read, resume = running and wait_until_read(log, run, recorded, patience_seconds), f"mz resume {run}"
    return PostedMessage(run=run, event_refs=refs, process_running=running, messages_read=is_read, resume=resume)


def wait_until_read(log: ProjectLog, run: str, messages: Sequence[Recorded[Event]], patience_seconds: float) -> bool:
    """Return True if the process reads the messages in time. Raises MzError (MZ5004) for a rejected one."""
    deadline, versions = time.monotonic() + patience_seconds, {message.version for message in messages}
    while True:
        inbox_reads = log.store.read_types({type_of(InboxRead)}, messages[-1].position, log.store.head())
        outcomes = {
            recorded.event.version: recorded.event
            for recorded in inbox_reads
            if recorded.stream == run_stream(run) and isinstance(recorded.event, InboxRead)
        }
        for message in messages:
            if message.version in outcomes and not outcomes[message.version].accepted:
                reason = f"run {run} rejected it: {REJECTION_TEXT[message_kind(message.event)]}"
                raise MzError("MZ5004", reason, hint="see `mz review show FEATURE` and `mz status`")
        if versions <= outcomes.keys() or time.monotonic() > deadline or not is_process_running(log.root):
            return versions <= outcomes.keys()
        time.sleep(POLL_SECONDS)


def active_run(log: ProjectLog) -> str | None:
    """Return the run that a process drives now: the one started or resumed last, if a process holds the lock."""
    if not is_process_running(log.root):
        return None
    starts = tuple(log.store.read_types({type_of(RunStarted), type_of(RunResumed)}, 0, log.store.head()))
    return starts[-1].stream.removeprefix("run/") if starts else None


def keeps_commands(log: ProjectLog, run: str) -> bool:
    """Return True if a process drives the run with commands that were corrected since; only a resume adopts them."""
    state = fold_run(log.store.read(run_stream(run)))
    pins = log.load_pins(state.started.pins) if state.started and active_run(log) == run else None
    if pins is None:
        return False
    kept = decode_commands(log.blobs.get(state.commands)) if state.commands else Commands.of(pins.config)
    with suppress(MzError):  # A resume adopts nothing of settings with errors.
        return kept != Commands.of(load_config(log.root, os.environ, {}).config)
    return False


def store_text(log: ProjectLog, text: str) -> Digest:
    """Store a person's text as a blob, stripped, without secrets and escapes."""
    redacted = Secrets(project_secrets(log.root, os.environ)).redact(strip_escapes(text).strip())
    return log.blobs.put(redacted.encode("utf-8", "replace"))


def store_note(log: ProjectLog, note: str | None) -> Digest | None:
    """Store a note like a text; None stays None."""
    return None if note is None else store_text(log, note)


def store_user_name(log: ProjectLog) -> Digest:
    """Store the user's name as a blob."""
    return store_text(log, user_name(log.root, os.environ.get("MZ_USER", "")))


def user_name(root: Path, chosen: str) -> str:
    """Return the chosen name; else git's `NAME <ADDRESS>`; else the login."""
    name = address = ""
    with suppress(RepositoryUnusable):
        name, address = (
            run_git_as_user(root, os.environ, "config", "--get", f"user.{part}").text for part in ("name", "email")
        )
    name_text = single_line(chosen) or single_line(f"{name} <{address}>" if name and address else name or address)
    if name_text:
        return name_text[:NAME_MAX]
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return "unknown"


def print_posted(
    command: str, posted: PostedMessage, kind: Kind, action_text: str, as_json: bool, *,
    feature: str | None = None, verdict: Verdict | None = None, phase: str | None = None,
) -> None:  # fmt: skip
    """Print what was posted. `action_text`: the requested action."""
    result = shape_of(
        MessageResult,
        posted,
        feature=feature,
        kind=kind,
        verdict=verdict.value if verdict else None,
        phase=phase,
        event_ref=next(iter(posted.event_refs), None),
        message_read=posted.messages_read,
    )
    text = f"{action_text}; {posted_text(posted)}" if posted.event_refs else action_text
    print_output(as_json, command, result, [text])


def posted_text(posted: PostedMessage) -> str:
    if posted.messages_read:
        return f"the process of run {posted.run} has read it"
    if posted.process_running:
        return f"the process of run {posted.run} will read it soon"
    return f"no process is running run {posted.run}; continue it with\n  {posted.resume}"
