"""Read the backlog file of a repository."""

from __future__ import annotations

import os
from pathlib import Path

from mz_engine.backlog.item import BacklogItem
from mz_engine.backlog.markdown import parse_backlog
from mz_engine.decoding.text_file import read_text
from mz_engine.errors.diagnostics import MzError, SourceLocation

BACKLOG_BYTES_MAX = 16_000_000


def read_backlog(root: Path, name: str) -> tuple[BacklogItem, ...]:
    """Return the items of the Markdown backlog `name`, a path relative to `root`. Raises MzError: MZ2001 to MZ2008 for
    the file, MZ40nn for its content."""
    if not os.path.lexists(root / name):
        hint = "run `mz init` to create it, or set `backlog:` in mz.yaml to another file"
        raise MzError("MZ2001", "the backlog file does not exist", hint=hint, location=SourceLocation(name))
    return parse_backlog(read_text(root / name, name, BACKLOG_BYTES_MAX), name)
