"""Sessions as files, so that a later call can continue them.

One file per session, `<state>/mz/anthropic/<id>.json`, readable by its owner only; it holds the messages sent to the
API."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

from mz_engine.agents.anthropic_api.model import Block, Failure
from mz_engine.agents.anthropic_api.output import block_signals

FORMAT = 1
SESSION_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,127}")
RETENTION_SECONDS = 30 * 24 * 3600
"""Sessions not continued for this long are deleted."""


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
            stored = json.loads(self._path(session).read_bytes())
        except FileNotFoundError:
            raise Failure("session_missing", missing) from None
        except (OSError, ValueError, RecursionError) as error:
            raise Failure("session_missing", f"{missing} that can be read: {error}") from None
        if not _is_valid(stored):
            raise Failure("session_missing", f"{missing} that can be read: its file has another form")
        if stored["cwd"] != cwd:
            raise Failure("session_missing", f"{missing} for {cwd}: it belongs to {stored['cwd']}")
        messages: list[Block] = stored["messages"]
        return messages

    def save(self, session: str, cwd: str, messages: list[Block]) -> None:
        """Store all messages, atomically. Raises OSError."""
        path = self._path(session)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = json.dumps({"format": FORMAT, "cwd": cwd, "messages": messages}).encode()
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


def _is_valid(stored: object) -> bool:
    if not isinstance(stored, dict) or stored.get("format") != FORMAT or not isinstance(stored.get("cwd"), str):
        return False
    messages = stored.get("messages")
    return isinstance(messages, list) and all(
        isinstance(message, dict)
        and message.get("role") in ("user", "assistant")
        and isinstance(message.get("content"), list)
        for message in messages
    )
