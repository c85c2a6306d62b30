"""Budgets over the runs of two repositories of one user: the day is shared, and a resume with more goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.drive import Result, fork
from tests.support import preloaded
from tests.support.workshop import Workshop

pytestmark = pytest.mark.slow

ONE_CALL = {"alpha.write.1.1": {"write": {"notes/alpha.md": "# Alpha\nThis is long enough.\n"}}}
SIGNED = {**ONE_CALL, "alpha.sign.1.1": {"write": {"letters/alpha.md": "# Letter\nabout alpha\n"}}}
SETTINGS = 'budget: {call: "0.05", day: "0.08", feature_tokens: 1000000}\n'


def mz(workshop: Workshop, data: Path, *arguments: str, code: int = 0, **more: str) -> Result:
    own = {"MZ_DATA": str(data), "NO_COLOR": "1", **more}
    environment = {**workshop.environment, **preloaded.read_at_start(os.environ), **own}
    result = fork(workshop.root, arguments, environment)
    assert result.exit == code, result
    return result


def test_the_day_is_shared_by_two_repositories(tmp_path: Path) -> None:
    """Each call costs a cent and reserves five; both features take two calls."""
    data = tmp_path / "data"
    first, second = (Workshop(tmp_path / name, SIGNED, settings=SETTINGS) for name in ("one", "two"))
    mz(first, data, "run", "--feature", "alpha", code=21)
    assert "$0.05 per call" in mz(second, data, "run", "--dry-run", "--feature", "alpha").out
    plan = json.loads(mz(second, data, "run", "--dry-run", "--json").out)
    assert plan["budget"].endswith("$0.08 per day ($0.06 left), 1,000,000 tokens per feature")
    mz(second, data, "run", "--feature", "alpha", MZ_BUDGET_DAY="0.075", code=22)
    (feature,) = json.loads(mz(second, data, "status", "--json").out)["features"]
    assert feature["hold"] == "budget"
    text = "budget.day: $0.03 of $0.075 used, and the next call reserves $0.05; it fits at "
    assert feature["over_budget"].startswith(text)
    (question,) = json.loads(mz(second, data, "review", "list", "--json").out)["questions"]
    assert question["text"].startswith(text)
    checks = {check["name"]: check for check in json.loads(mz(second, data, "doctor", "--json").out)["checks"]}
    assert "$0.08 per day ($0.05 left)" in checks["budget"]["summary"]
    mz(second, data, "resume", MZ_BUDGET_DAY="0.075", code=22)
    mz(second, data, "resume", code=21)
    events = [json.loads(line) for line in mz(second, data, "log", "--json").out.splitlines()]
    assert [e["event"]["day_nanousd"] for e in events if e.get("type") == "budget.changed"] == [80_000_000]
    lines = [
        json.loads(line) for file in data.glob("spending/*.jsonl") for line in file.read_text().split("\n") if line
    ]
    assert sum(line["nanousd"] for line in lines if line["charged"]) == 40_000_000
