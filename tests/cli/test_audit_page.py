"""docs/audit.md explains every word that the commands use."""

from __future__ import annotations

import re
from typing import get_args

from mz_cli.common.verification import IntegrityFindingKind
from mz_projections.audit.model import FAULT_KINDS, GapKind
from mz_projections.cost.totals import GroupBy
from mz_projections.feature.calls import CallOutcome

from tests.support.tree import ROOT

PAGE = (ROOT / "docs" / "audit.md").read_text()


def explained(first: str) -> set[str]:
    """The words in the first column of the table with this heading."""
    table = PAGE.partition(f"| {first} | |\n|---|---|\n")[2].partition("\n\n")[0]
    return {word for row in table.splitlines() for word in re.findall(r"`([\w-]+)`", row.split("|")[1])}


def test_call_outcomes() -> None:
    assert explained("outcome of a call") == set(get_args(CallOutcome))


def test_gaps() -> None:
    assert explained("fault") == FAULT_KINDS
    assert explained("remark") == set(get_args(GapKind)) - FAULT_KINDS


def test_findings() -> None:
    assert explained("finding") == set(get_args(IntegrityFindingKind))


def test_ways_of_adding_up() -> None:
    assert f"`--by {'|'.join(get_args(GroupBy))}`" in PAGE
