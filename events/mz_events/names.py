"""The name types that events are made of, and their parsers.

Payloads contain names, digests, numbers and enums only; prose is always a blob. A name that passed these parsers is
safe as a branch, a file name and a trailer value.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath
from typing import NewType

RunId = NewType("RunId", str)
FeatureId = NewType("FeatureId", str)
StreamId = NewType("StreamId", str)
Digest = NewType("Digest", str)
"""sha256 of a blob's bytes, 64 lower-case hexadecimal digits."""
Commit = NewType("Commit", str)
"""A full git commit id, as printed by git."""
Path = NewType("Path", str)
"""Relative to the repository, normalised, `/` between parts, at most 255 bytes, never leaving the tree."""

BUILDER = "builder"
"""Role of a phase's own agent; any other role is a reviewer."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
PATH_BYTES_MAX = 255


class InvalidName(ValueError):
    """A name or path from outside that is not allowed in a payload; the message gives the reason."""


def digest_of(text: str) -> Digest:
    """Return the digest that storing the text as a blob gives."""
    return Digest(hashlib.sha256(text.encode()).hexdigest())


def parse_name(text: str) -> str:
    """Return the text if it is a legal feature, unit, artifact or phase name.

    Raises: InvalidName.
    """
    if NAME.match(text):
        return text
    raise InvalidName(
        f"{text[:80]!r} is not a name: use at most 64 letters, digits, `_` and `-`, beginning with a letter or digit"
    )


def parse_path(text: str) -> Path:
    """Return a path from an agent or a person, normalised (`./a//b` becomes `a/b`).

    Raises: InvalidName, also when the path leaves the tree or is below a `.git`, which no tree can hold.
    """
    if not text or "\0" in text or "\n" in text or text.startswith(("/", "~")):
        raise InvalidName(f"{text[:80]!r} is not a path inside the repository")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or ".git" in text.lower().split("/"):
        raise InvalidName(f"{text[:80]!r} is not a path inside the repository")
    path = str(PurePosixPath(*parts))
    try:
        size_bytes = len(path.encode())
    except UnicodeEncodeError:
        raise InvalidName(f"{text[:80]!r} is not UTF-8") from None
    if size_bytes > PATH_BYTES_MAX:
        raise InvalidName(f"{text[:80]!r}... is longer than {PATH_BYTES_MAX} bytes")
    return Path(path)


def run_stream(run: str) -> StreamId:
    return StreamId(f"run/{run}")


def feature_stream(run: str, feature: str) -> StreamId:
    return StreamId(f"run/{run}/{feature}")


def inbox_stream(run: str) -> StreamId:
    return StreamId(f"inbox/{run}")


def erasure_stream(run: str) -> StreamId:
    return StreamId(f"erased/{run}")


def tracker_stream(run: str) -> StreamId:
    return StreamId(f"tracker/{run}")


PROJECT_STREAM = StreamId("project/memory")
"""What people decide about the project's memory."""
USER_STREAM = StreamId("user/memory")
"""What people give to all projects; in the user's log."""


def is_of_run(stream: str, run: str) -> bool:
    """Return True for the streams of a run: its own, those of its features, its inbox, its erasures."""
    own = stream in (run_stream(run), inbox_stream(run), erasure_stream(run))
    return own or stream.startswith(feature_stream(run, ""))
