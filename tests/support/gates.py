"""Projects for a gate to look at, and what its layers say of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from mz_qa.layers.run import load_project
from mz_qa.results import CheckedItem, LayerOutput, Project, Remark
from mz_recordings.findings.model import Finding


def project_of(root: Path, *cassettes: Path) -> Project:
    """The project there, with its library or these cassettes."""
    return load_project(root, os.environ, cassettes, 1, datetime.now(UTC), lambda args: None)


def findings(output: Iterable[LayerOutput]) -> list[Finding]:
    return [remark for remark in output if isinstance(remark, Finding)]


def remarks(output: Iterable[LayerOutput]) -> list[str]:
    return [remark.text for remark in output if isinstance(remark, Remark)]


def checked(output: Iterable[LayerOutput]) -> dict[str, int]:
    """How many of each kind were looked at."""
    counts: dict[str, int] = {}
    for remark in output:
        if isinstance(remark, CheckedItem):
            counts[remark.kind] = counts.get(remark.kind, 0) + remark.count
    return counts
