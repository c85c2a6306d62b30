"""Who is called: by flag, mz.yaml, routing.yaml and pipeline; for phases and for units; and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.decide.caller import caller, route_of
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Config, Route, RouteChoice, Routing
from mz_engine.run.plan import load_sources
from mz_engine.run.routing import merge_routing
from mz_engine.run.settings import load_config
from mz_events.catalog.feature import PhaseCompleted, PhaseStarted, UnitCompleted, UnitStarted
from mz_events.catalog.validation import Unit
from mz_events.names import BUILDER
from mz_projections.feature.state import InPhase
from mz_qa.simulation import trial

from tests.support.steps import OPENED, UNITS, accepted, ref, state_after

AUTH = Unit(id="u1", fields={"type": "auth"})
OWN = {"code": Route(agent="codex", units={"type": {"auth": RouteChoice(tier="premium")}})}
LEARNED = {
    "code": Route(agent="gemini", tier="mid", units={"type": {"auth": RouteChoice(agent="aider", tier="cheap")}}),
    "test": Route(tier="cheap"),
}


@pytest.mark.parametrize(
    ("routing", "phase", "unit", "expected"),
    [
        ({}, "code", None, (None, None)),
        (OWN, "code", None, ("codex", None)),
        (OWN, "code", AUTH, ("codex", "premium")),
        (OWN, "code", Unit(id="u2", fields={"type": "x"}), ("codex", None)),
        (LEARNED, "code", AUTH, ("aider", "cheap")),
        (merge_routing(OWN, LEARNED), "code", None, ("codex", "mid")),
        (merge_routing(OWN, LEARNED), "code", AUTH, ("codex", "premium")),
        (merge_routing(OWN, LEARNED), "test", AUTH, (None, "cheap")),
        (merge_routing({}, OWN), "code", AUTH, ("codex", "premium")),
    ],
)
def test_the_route_of_a_call(
    routing: Routing, phase: str, unit: Unit | None, expected: tuple[str | None, str | None]
) -> None:
    choice = route_of(Config(routing=routing), phase, BUILDER, unit)
    assert (choice.agent, choice.tier) == expected
    assert route_of(Config(routing=routing), phase, "judge", unit) == RouteChoice()


def in_build() -> InPhase:
    """In the phase `build`, whose units an artifact of `plan` lists."""
    plan = (PhaseStarted(phase="plan", iteration=1), UnitStarted(phase="plan", unit="", iteration=1))
    done = (UnitCompleted(phase="plan", unit=""), PhaseCompleted(phase="plan"))
    build = (
        PhaseStarted(phase="build", iteration=1, units=("u1",)),
        UnitStarted(phase="build", unit="u1", iteration=1),
    )
    listed = tuple(replace(unit, fields={"type": "auth"}) for unit in UNITS)
    state = state_after(*OPENED, *plan, *accepted(ref("plan"), plan=listed), *done, *build)
    assert isinstance(state, InPhase)
    return state


@pytest.mark.parametrize(
    ("routing", "replaced", "expected"),
    [
        ({}, {}, "simulated mid"),
        ({"build": Route(agent="codex", tier="cheap")}, {}, "codex cheap"),
        ({"build": Route(agent="codex")}, {"codex": "simulated"}, "simulated mid"),
        ({"build": Route(agent="codex")}, {"simulated": "two"}, "codex mid"),
        ({"build": Route(units={"type": {"auth": RouteChoice(agent="aider", tier="premium")}})}, {}, "aider premium"),
        ({"plan": Route(agent="codex")}, {"simulated": "two"}, "two mid"),
    ],
)
def test_the_caller(routing: Routing, replaced: dict[str, str], expected: str) -> None:
    state, pins = in_build(), trial.pins()
    state = replace(state, progress=replace(state.progress, replaced_agents=replaced))
    pins = replace(pins, config=replace(pins.config, routing=routing, failover=("two",)))
    assert state.unit_run is not None
    call = caller(pins, state, state.unit_run, pins.pipeline.find_phase("build"), BUILDER)
    assert f"{call.agent} {call.tier}" == expected


def write(root: Path, name: str, text: str) -> None:
    (root / name).write_text(text)


def test_a_flag_comes_before_mz_yaml_and_this_before_what_was_learned(tmp_path: Path) -> None:
    write(tmp_path, "mz.yaml", "routing: {code: {agent: codex}}\n")
    write(tmp_path, "routing.yaml", "routing: {code: {agent: gemini, tier: cheap}}\n")
    config = load_config(tmp_path, {}, {}).config
    assert (config.routing["code"], config.called_agents) == (
        Route(agent="codex", tier="cheap"), ("claude-code", "codex")
    )  # fmt: skip
    flagged = load_config(tmp_path, {}, {"agent": "aider"}).config
    assert (flagged.routing["code"], flagged.called_agents) == (Route(tier="cheap"), ("aider",))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("mz.yaml", "routing:\n  cod: {agent: codex}\n", "mz.yaml:2:3 MZ2013 `routing.cod`: there is no phase"),
        ("mz.yaml", "routing:\n  code: {agent: codx}\n", "mz.yaml:2:17 MZ2013 `routing.code.agent`: there is no "),
        ("routing.yaml", "routing:\n  code: {units: {type: {auth: {agent: x}}}}\n",
         "routing.yaml:2:39 MZ2013 `routing.code.units.type.auth.agent`: there is no agent `x`"),
        ("routing.yaml", "routing:\n  code: {tier: best}\n", "routing.yaml:2:16 MZ20"),
        ("mz.yaml", "routing:\n  code: {colour: red}\n", "mz.yaml:2:10 MZ20"),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_refused_with_its_location(tmp_path: Path, name: str, text: str, expected: str) -> None:
    write(tmp_path, name, text)
    with pytest.raises(MzError) as error:
        load_sources(tmp_path, {}, load_config(tmp_path, {}, {}), needs_backlog=False)
    (problem,) = error.value.diagnostics
    assert f"{problem.location} {problem.code} {problem.message}".startswith(expected)
