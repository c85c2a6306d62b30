"""Sessions as files, so that a later call can continue them.

One file per session, `<state>/mz/anthropic/<id>.json`, readable by its owner only; it holds the messages sent to the
API."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec

from mz_engine.agents.anthropic_api.model import Block, Failure, block_signals

SESSION_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,127}")
RETENTION_SECONDS = 30 * 24 * 3600
"""Sessions not continued for this long are deleted."""


class StoredMessage(TypedDict):
    role: Literal["user", "assistant"]
    content: list[Any]


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal[1]
    cwd: str
    messages: list[StoredMessage]


_decoder = msgspec.json.Decoder(StoredSession)


class SessionStore:
    """The stored sessions of one user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check_unused(self, session: str) -> None:
        """Check that a new session may use the id. Raises Failure if it is invalid or in use."""
        if os.path.lexists(self._path(session)):
            raise Failure("session_taken", f"session id {session} is already in use")

    def load(self, session: str, cwd: str) -> list[Block]:
        """Load the messages so far. Raises Failure if there are none, or they belong to another directory."""
        missing = f"no conversation found with the session id {session}"
        try:
            stored = _decoder.decode(self._path(session).read_bytes())
        except FileNotFoundError:
            raise Failure("session_missing", missing) from None
        except (OSError, ValueError, RecursionError) as error:
            raise Failure("session_missing", f"{missing} that can be read: {error}") from None
        if stored.cwd != cwd:
            raise Failure("session_missing", f"{missing} for {cwd}: it belongs to {stored.cwd}")
        return [{"role": message["role"], "content": message["content"]} for message in stored.messages]

    def save(self, session: str, cwd: str, messages: list[Block]) -> None:
        """Store all messages, atomically. Raises OSError."""
        path = self._path(session)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = json.dumps({"format": 1, "cwd": cwd, "messages": messages}).encode()
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with block_signals():
            file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(file, "wb") as stream:
                stream.write(data)
            partial.replace(path)

    def delete_old(self) -> None:
        """Delete sessions not continued for a month. Best effort."""
        try:
            for path in self._folder.iterdir():
                if time.time() - path.lstat().st_mtime > RETENTION_SECONDS:
                    path.unlink()
        except OSError:
            return

    def _path(self, session: str) -> Path:
        if not SESSION_ID.fullmatch(session):
            raise Failure("session_missing", f"no conversation found: {session[:80]!r} is no session id")
        return self._folder / f"{session}.json"


def session_directory() -> Path:
    """Return the directory of this user's sessions."""
    import platformdirs  # Imported late: not needed for the first line.

    return Path(platformdirs.user_state_dir("mz", appauthor=False)) / "anthropic"
