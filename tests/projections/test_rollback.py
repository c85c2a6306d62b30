"""All projections agree on what a rollback supersedes, and on money."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_events.catalog.base import Event
from mz_events.store import Recorded
from mz_projections.audit.auditor import audit
from mz_projections.cost.totals import priced_calls, spending, totals
from mz_projections.feature.calls import paid_calls
from mz_projections.feature.state import superseded_phases
from mz_projections.views.run import run_view
from mz_qa.layers.formats import read_log

from tests.support.tree import ROOT

LOGS = sorted((ROOT / "qa/mz_qa/fixtures/logs").glob("*/log.jsonl"))
PHASES = ("plan", "code", "review")


@pytest.mark.parametrize(
    ("target", "units", "superseded"),
    [
        ("plan", (), ("plan", "code", "review")), ("code", (), ("code", "review")), ("code", ("u1",), ("review",)),
        ("review", ("u1",), ()), ("ship", (), ()), ("ship", ("u1",), ()),
    ],
)  # fmt: skip
def test_phases_since_the_target_are_superseded(
    target: str, units: tuple[str, ...], superseded: tuple[str, ...]
) -> None:
    assert superseded_phases(PHASES, target, units) == superseded


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_status_cost_and_audit_show_the_same_money(path: Path) -> None:
    events: tuple[Recorded[Event], ...] = read_log(path.read_bytes())
    run = next(recorded.stream for recorded in events if recorded.stream.count("/") == 1).removeprefix("run/")
    view, calls = run_view(run, events), paid_calls(events)
    report = audit(run, events, None)
    assert report.spending.total == spending(priced_calls(calls), "run").total == totals(calls)
    for feature, audited in zip(view.features, report.features, strict=True):
        of_feature = totals(call for call in calls if call.feature == feature.feature)
        assert audited.spending.total == of_feature
        assert (feature.computed_nanousd, feature.reported_nanousd, feature.estimated_nanousd) == (
            of_feature.computed_nanousd, of_feature.reported_nanousd, of_feature.estimated_nanousd,
        )  # fmt: skip
