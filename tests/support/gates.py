"""Projects for a gate to look at, and what its layers say of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from mz_qa.gate.run import load_project
from mz_qa.results import CheckedItem, LayerOutput, Project, Remark
from mz_recordings.findings.model import Finding


def project_of(root: Path, *cassettes: Path) -> Project:
    """The project there, with its library or these cassettes."""
    return load_project(root, os.environ, cassettes, 1, datetime.now(UTC), lambda words: None)


def findings(said: Iterable[LayerOutput]) -> list[Finding]:
    return [one for one in said if isinstance(one, Finding)]


def remarks(said: Iterable[LayerOutput]) -> list[str]:
    return [one.text for one in said if isinstance(one, Remark)]


def checked(said: Iterable[LayerOutput]) -> dict[str, int]:
    """How many of each kind were looked at."""
    counts: dict[str, int] = {}
    for one in said:
        if isinstance(one, CheckedItem):
            counts[one.kind] = counts.get(one.kind, 0) + one.count
    return counts
