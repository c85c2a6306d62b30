"""Names from files by others, sanitised for the log. An invalid name becomes a digest of itself."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache, partial

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+@-]{0,127}\Z")
MODEL = re.compile(r"[A-Za-z0-9<][A-Za-z0-9._:+@/\[\]<>-]{0,127}\Z")
LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:+@/-]{0,95}\Z")
"""Without spaces: with them it may be free text."""
LENGTH_MAX = 256
"""Longer texts are no names, and are not cached."""
CACHED_NAMES_MAX = 4096
"""Cache size; the same few names repeat."""
DIGEST_DIGITS = 32
WORKTREE = "/.mz/worktrees/"


def _sanitize(pattern: re.Pattern[str], text: str) -> str:
    return _sanitize_short(pattern, text) if len(text) < LENGTH_MAX else f"sha256-{_digest(text)}"


@lru_cache(CACHED_NAMES_MAX)
def _sanitize_short(pattern: re.Pattern[str], text: str) -> str:
    return text if not text or pattern.match(text) else f"sha256-{_digest(text)}"


sanitize_name = partial(_sanitize, NAME)
"""Return a sanitised session id, version or agent; empty stays empty."""
sanitize_model = partial(_sanitize, MODEL)
sanitize_label = partial(_sanitize, LABEL)
"""Return a sanitised tool, subagent or line type."""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_DIGITS]


def request_key(agent: str, id_: str) -> str:
    """Return the key of a request, equal for every occurrence: 32 hexadecimal digits."""
    return _digest(f"{agent}\0{id_}")


def project_of(directory: str) -> str:
    """Return the repository of a run's worktree, else the directory itself."""
    return directory.partition(WORKTREE)[0]
