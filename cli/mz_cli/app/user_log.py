"""The user's log of imported sessions, which belongs to no repository.

It is in the platform's data directory (`$XDG_DATA_HOME/mz`, `~/.local/share/mz`), or in that of MZ_DATA.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

from mz_engine.errors.diagnostics import MzError
from mz_engine.paths import user_data_directory
from mz_events.adapters.sqlite_log import SqliteStore
from mz_projections.imported.model import ImportedSession
from mz_projections.imported.store import ImportedStore

from mz_cli.app.context import ProjectLog

LOG, VIEWS = "mz.db", "imported.sqlite"
PREFIX = "session/"
NAMED_MAX = 5
DIGEST_PREFIX = "sha256-"
"""Of ids that stand for longer ones."""
SHORT_ID_LENGTH = 8
"""Displayed characters of an id, unless more are needed to distinguish sessions."""


class ImportedLog(ProjectLog):
    """The user's log, open for reading, with its read models."""

    def __init__(self, folder: Path, store: SqliteStore, views: ImportedStore) -> None:
        super().__init__(folder, store, folder)
        self.views = views

    def find(self, prefix: str) -> str:
        """Return the stream of the session with this id (or agent/id) or unique prefix. Raises MzError (MZ5010)."""
        streams: list[str] = [stream for stream, _ in self.store.streams(PREFIX)]
        matching = [stream for stream in streams if prefix in _names(stream)]
        matching = matching or [
            stream for stream in streams if prefix and any(name.startswith(prefix) for name in _names(stream))
        ]
        if len(matching) == 1:
            return matching[0]
        problem = (
            f"{len(matching)} sessions begin with {prefix!r}" if matching else f"no session {prefix!r} was imported"
        )
        examples = ", ".join(stream.removeprefix(PREFIX) for stream in (matching or streams)[:NAMED_MAX])
        raise MzError("MZ5010", problem, hint=f"for example: {examples}; `mz cost --imported --by session` lists all")

    def short_names(self) -> dict[str, str]:
        """Return by stream the shortest prefix of the session's id that `find` accepts; agent/id if there is none."""
        return short_names([stream for stream, _ in self.store.streams(PREFIX)])

    def project(self, session: ImportedSession | None) -> str:
        """Return the working directory of the session; empty if unknown or erased."""
        return self.load_text(session.project) if session else ""


def _names(stream: str) -> tuple[str, str, str]:
    """Return the accepted names of a session: the stream, agent/id, id."""
    short = stream.removeprefix(PREFIX)
    return stream, short, short.partition("/")[2]


def _common_prefix_length(first: str, second: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def short_names(streams: Sequence[str]) -> dict[str, str]:
    """Return short names by stream, as `ImportedLog.short_names` does."""
    ordered = sorted((name, stream) for stream in streams for name in _names(stream))
    names: dict[str, str] = {}
    for at, (name, stream) in enumerate(ordered):
        _, qualified_name, session_id = _names(stream)
        if name != session_id:
            continue
        neighbours = ordered[max(at - 1, 0) : at] + ordered[at + 1 : at + 2]
        shared = max((_common_prefix_length(name, other) for other, _ in neighbours), default=0)
        length = max(SHORT_ID_LENGTH + len(DIGEST_PREFIX) * name.startswith(DIGEST_PREFIX), shared + 1)
        while name[length - 1 : length] == "-":
            length += 1
        names[stream] = name[:length] if shared < len(name) else qualified_name
    return names


@contextmanager
def open_imported_log() -> Iterator[ImportedLog]:
    """Open the user's log, and update its read models. Raises MzError (MZ5011) if nothing was imported."""
    folder = user_data_directory(os.environ)
    if not (folder / LOG).is_file():
        raise MzError(
            "MZ5011", f"nothing was imported yet: there is no log at {folder / LOG}",
            hint="`mz import` imports agents' session files; MZ_DATA names another directory",
        )  # fmt: skip
    with SqliteStore(folder / LOG, read_only=True) as store, ImportedStore(folder / VIEWS, store) as views:
        views.refresh()
        yield ImportedLog(folder, store, views)
