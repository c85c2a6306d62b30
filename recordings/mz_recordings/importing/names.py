"""Pure: names out of files that others wrote, made fit for the log. What is no name becomes a digest of itself."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache, partial

from mz_events.names import StreamId

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+@-]{0,127}\Z")
MODEL = re.compile(r"[A-Za-z0-9<][A-Za-z0-9._:+@/\[\]<>-]{0,127}\Z")
LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:+@/-]{0,95}\Z")
"""Without spaces: what has them may be somebody's words."""
LENGTH_MAX = 256
"""No name is longer; what is longer need not be remembered."""
KNOWN = 4096
"""The same few names come again and again."""
DIGITS = 32
WORKTREE = "/.mz/worktrees/"


def name(text: str) -> str:
    """A session's id, a version, an agent; empty stays empty."""
    return _known_name(text) if len(text) < LENGTH_MAX else _fit(NAME, text)


def model(text: str) -> str:
    return _known_model(text) if len(text) < LENGTH_MAX else _fit(MODEL, text)


def label(text: str) -> str:
    """A tool, a sub-agent, a type of line."""
    return _known_label(text) if len(text) < LENGTH_MAX else _fit(LABEL, text)


def _fit(pattern: re.Pattern[str], text: str) -> str:
    if not text or pattern.match(text):
        return text
    return f"sha256-{_digest(text)}"


# One for each pattern: to look a pattern up takes longer than to look a name up.
_known_name, _known_model, _known_label = (lru_cache(KNOWN)(partial(_fit, each)) for each in (NAME, MODEL, LABEL))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def stream_of(agent: str, session: str) -> StreamId:
    """`session/<agent>/<id>`, both already names."""
    return StreamId(f"session/{agent}/{session}")


def request_key(agent: str, id_: str) -> str:
    """The same for every sighting of a request: 32 hexadecimal digits."""
    return _digest(f"{agent}\0{id_}")


def by_mz(directory: str) -> bool:
    """Whether the directory is a worktree of a run."""
    return WORKTREE in f"{directory}/"


def project_of(directory: str) -> str:
    """The repository that a worktree of a run belongs to; other directories are their own."""
    return directory.partition(WORKTREE)[0] if by_mz(directory) else directory
