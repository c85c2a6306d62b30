"""`mz rewards` and the record `reward` of `mz show`."""

from __future__ import annotations

from pathlib import Path

import msgspec
from mz_engine.artifacts.load import load_rules
from mz_engine.model.config import Config
from mz_engine.model.pins import Pins, encode_pins
from mz_engine.pipelines.load import built_in_rewards, load_pipeline

from tests.cli.drive import Mz
from tests.cli.stored_run import StoredRun


def pinned(rewards: str | None = None) -> bytes:
    """Pins of a run of `agentswe`, with these rewards."""
    pipeline, _ = load_pipeline("agentswe", Path())
    definition = built_in_rewards()[rewards] if rewards else None
    return encode_pins(Pins(pipeline=pipeline, rules=load_rules(), templates={}, config=Config(), rewards=definition))


def test_each_feature_has_its_scores_with_reasons(home: Path, mz: Mz) -> None:
    run = StoredRun(home).begin("login", "audit", "later", pins=pinned("agentswe"))
    run.deliver("login")
    run.wait("audit")
    run.close()
    lines = mz("rewards").out.splitlines()
    assert lines[1] == "login\tcomposite\t+1\t5 of +1, 3 of unknown; no command verified it"
    assert "login\tphase prd\t-\treworked: sections" in lines
    assert "audit\tphase prd\t-\tasked: agent-blocker" in lines
    assert "audit\tphase_discipline\t0\t1 offence: forbidden changes and denied commands" in lines
    document = msgspec.json.decode(mz("rewards", "--json").out)
    assert (document["rewards"], document["version"]) == ("agentswe", 1)
    assert [feature["feature"] for feature in document["features"]] == ["login", "audit"]
    shown = msgspec.json.decode(mz("show", "audit", "--artifact", "reward", "--json").out)
    assert {**document["features"][1], "schema": "mz.show-reward/1"} == shown
    assert "phase_discipline: 0  1 offence" in mz("show", "audit", "--artifact", "reward").out


def test_without_rewards_only_the_health_of_phases_is_known(stored_run: StoredRun, mz: Mz) -> None:
    stored_run.close()
    lines = mz("rewards").out.splitlines()
    reason = "unknown: the run's pipeline names no `rewards`"
    assert lines[1] == f"login\tcomposite\t-\t{reason}"
    assert mz("show", "later", "--artifact", "reward").out == f"composite: -  {reason}\n"


def test_metrics_and_health_are_those_of_the_log(home: Path, mz: Mz) -> None:
    run = StoredRun(home).begin("login", "audit", pins=pinned("agentswe"))
    run.deliver("login")
    assert (mz("health").exit, mz("health").out) == (0, "problem\tsubject\ttext\n")
    run.wait("audit")
    run.close()
    result = mz("health")
    assert (result.exit, result.out.splitlines()[1:]) == (
        1, [f"question\t{run.run}/audit\twaits for a person: agent-blocker"]
    )  # fmt: skip
    lines = mz("metrics").out.splitlines()
    assert "human_escalation_rate\tall\trate\t0.5\t2" in lines
    assert "composite_trend\t1 to 2 back\tmean\t1\t1" in lines
    document = msgspec.json.decode(mz("metrics", "--json").out)
    assert (document["features"], [metric["number"] for metric in document["metrics"]]) == (2, list(range(1, 12)))
