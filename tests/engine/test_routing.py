"""Who is called: by flag, mz.yaml, routing.yaml and pipeline; for phases and for units; and what is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from mz_engine.decide.caller import caller, route_of
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Config, Route, RouteChoice, Routing
from mz_engine.model.pins import Pins, encode_pins
from mz_engine.model.pipeline import Escalation
from mz_engine.pipelines.load import load_pipeline
from mz_engine.run.plan import load_sources
from mz_engine.run.proposals import proposed_routing, routed_now
from mz_engine.run.routing import merge_routing, without_agents
from mz_engine.run.settings import load_config
from mz_events.adapters.memory import MemoryBlobs, MemoryStore
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.feature import PhaseCompleted, PhaseStarted, UnitCompleted, UnitStarted
from mz_events.catalog.memory import RouteProposal, RoutingProposed
from mz_events.catalog.run import RunStarted
from mz_events.catalog.validation import Unit
from mz_events.names import BUILDER, PROJECT_STREAM, FeatureId, RunId, feature_stream, run_stream
from mz_events.store import Append
from mz_projections.feature.calls import paid_calls
from mz_projections.feature.state import InPhase
from mz_projections.rewards.facts import CellFacts, FeatureFacts, PhaseFacts, fold_facts
from mz_projections.views.timeline import describe
from mz_qa.simulation import trial
from mz_recordings.rerecord.driver import RunControl
from mz_recordings.rerecord.plan import CallSelection, CallSelector
from mz_recordings.rerecord.rerecord import RerecordJob, check_installed, prepare_rerecord, run_rerecord
from mz_recordings.rerecord.workspace import lock_workspace

from tests.support import driving
from tests.support.samples import sample
from tests.support.steps import OPENED, UNITS, accepted, ref, state_after
from tests.support.tree import AGENT_STATE
from tests.support.workshop import TODAY, Copy, Workshop

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
    assert route_of(Config(routing=routing), phase, "judge", unit) == RouteChoice(), "a reviewer has routes of its own"


def test_a_reviewer_is_routed_for_itself() -> None:
    own = {"code": Route(agent="codex", tier="mid", agent_review=RouteChoice(tier="premium"))}
    learned = {"code": Route(agent_review=RouteChoice(agent="gemini", tier="cheap"))}
    merged = Config(routing=merge_routing(own, learned))
    assert route_of(merged, "code", "judge") == RouteChoice(agent="gemini", tier="premium")
    assert merged.called_agents == ("claude-code", "codex", "gemini")
    assert route_of(Config(routing=without_agents(merged.routing)), "code", "judge") == RouteChoice(tier="premium")


def test_the_request_says_which_tier_was_called_and_why() -> None:
    """Of a builder whom a condition raises, of one whom routing names, and of a reviewer."""
    base = trial.pins(trial.trial_config(failover=("two",)))
    review = RouteChoice(agent="two", tier="cheap")
    routing = {"build": Route(tier="cheap", agent_review=review), "ship": Route(agent="two")}
    plan, build, ship = base.pipeline.phases
    assert build.agent is not None
    raised = replace(build.agent, escalate=(Escalation(to="premium", rolled_back=1),))
    pipeline = replace(base.pipeline, phases=(plan, replace(build, agent=raised), ship))
    pins = replace(base, pipeline=pipeline, config=replace(base.config, routing=routing))
    world = driving.new_world()
    trial.begin(world, pins, {"a": ()})
    driving.deliver(world, pins, 1)
    stream = list(world.store.read(feature_stream(trial.RUN, FeatureId("a"))))
    requests = [item.event for item in stream if isinstance(item.event, AgentRequested)]
    assert {(r.ref.phase, r.ref.role, r.ref.iteration, r.agent, r.tier, r.escalated_by) for r in requests} == {
        ("plan", "builder", 1, "simulated", "", ""),
        ("build", "builder", 1, "simulated", "cheap", ""),
        ("build", "builder", 2, "simulated", "premium", "rolled_back"),
        ("build", "reviewer", 1, "two", "cheap", ""),
        ("build", "reviewer", 2, "two", "cheap", ""),
        ("ship", "builder", 1, "two", "", ""),
    }
    facts = fold_facts(stream)
    assert facts is not None
    assert facts.cells["build/u1"].tier == "cheap"
    assert [(call.tier, call.role) for call in paid_calls(stream)][2:4] == [("cheap", "builder"), ("cheap", "builder")]


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
        ("mz.yaml", "routing:\n  code: {agent_review: {tier: mid}}\n",
         "mz.yaml:2:10 MZ2013 `routing.code.agent_review`: there is no reviewer of `code`"),
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


def delivered(agent: str, run: str, count: int, sent_back: bool) -> list[FeatureFacts]:
    cells = {"code/": CellFacts(agent=agent, accepted=True, sent_back=sent_back, nanousd=5)}
    facts = FeatureFacts(run, "", "delivered", phases={"code": PhaseFacts()}, cells=cells)
    return [replace(facts, feature=f"{agent}{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("bad", "routing", "expected"),
    [
        (20, {}, ("codex", "mid")),
        (20, {"code": Route(agent="codex")}, None),
        (19, {}, None),
        (20, {"code": Route(tier="premium")}, None),
    ],
)
def test_a_run_proposes_what_was_better_than_its_own_routing(
    bad: int, routing: Routing, expected: tuple[str, str] | None
) -> None:
    """From fifty delivered features on; a tier that nothing recorded is that of the run that made the call."""
    pipeline = load_pipeline("monozukuri", Path("/nowhere"))[0]
    pins = Pins(pipeline=pipeline, rules={}, templates={}, config=Config(routing=routing))
    store, blobs = MemoryStore(), MemoryBlobs()
    earlier = encode_pins(replace(pins, config=Config()))
    started = replace(sample(RunStarted), run=RunId("r0"), pins=blobs.put(earlier))
    store.append([Append(run_stream("r0"), 0, (started,))], 1)
    rows = delivered("claude-code", "r0", bad, sent_back=True) + delivered("codex", "r0", 30, sent_back=False)
    rows += [replace(row, is_fork=True) for row in delivered("aider", "r0", 9, sent_back=False)]
    proposed = proposed_routing(rows, store, blobs, "r1", pins)
    if expected is None:
        assert proposed is None
    else:
        proposal = RouteProposal(phase="code", agent=expected[0], tier=expected[1])
        assert proposed == RoutingProposed(run=RunId("r1"), proposals=(proposal,))


def test_a_proposal_is_compared_with_the_agent_that_is_really_called() -> None:
    """Which with `independence: agent` did not build what it checks; so do units with a route of their own."""
    pipeline = load_pipeline("agentswe", Path("/nowhere"))[0]
    routing = {"verification": Route(units={"type": {"auth": RouteChoice(tier="premium")}})}
    routed = routed_now(Config(failover=("codex",), independence="agent", routing=routing), pipeline)
    assert routed["implementation", ""] == ("claude-code", "cheap")
    assert routed["verification", ""] == ("codex", "mid")
    assert routed["verification", "type=auth"] == ("codex", "premium")
    of_one = routed_now(Config(independence="agent"), pipeline)
    assert of_one["verification", ""] == ("claude-code", "mid"), "such a run does not start"


@pytest.mark.slow
def test_a_proposal_is_recorded_when_a_run_has_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = Workshop(tmp_path)
    counted: list[int] = []

    def propose(rows: tuple[FeatureFacts, ...], log: object, blobs: object, run: str, pins: object) -> RoutingProposed:
        counted.append(len(rows))
        return RoutingProposed(run=RunId(run), proposals=(RouteProposal(phase="write", agent="codex", tier="mid"),))

    monkeypatch.setattr("mz_engine.run.proposals.proposed_routing", propose)
    run = workshop.run()
    with SqliteStore(workshop.root / ".mz" / "mz.db", read_only=True) as store:
        (recorded,) = store.read(PROJECT_STREAM)
    assert recorded.event == propose((), None, None, run, None)
    assert counted == [2, 0], "once, not where a person is asked"
    assert describe(recorded.event) == "write: codex mid"


SIGNER = """#!/bin/sh
cat > /dev/null
echo "$MZ_KEY" >> {log}
mkdir -p letters
echo '# Letter, signed by another program' > "letters/$(echo "$MZ_KEY" | cut -d/ -f2).md"
echo Done.
"""
SIGNER_SETTINGS = """\
agents:
  signer: {command: [signer], version: [], ends: {exits: [0]}}
routing: {sign: {agent: signer}}
"""


@pytest.mark.slow
def test_a_routed_agent_is_recorded_replayed_and_recorded_again(tmp_path: Path) -> None:
    settings = (
        "agents:\n  signer: {command: [signer], version: [], ends: {exits: [0]}}\nrouting: {sign: {agent: signer}}\n"
    )
    workshop = Workshop(tmp_path, settings=settings)
    log = tmp_path / "home" / AGENT_STATE / "signed"
    log.parent.mkdir(parents=True)
    program = tmp_path / "bin" / "signer"
    program.write_text(SIGNER.format(log=log))
    program.chmod(0o755)
    workshop.keep(workshop.record(workshop.run()).cassette)
    copy, signed = Copy(workshop.root), len(log.read_text().split())
    agents = {call.identity.phase: call.recording.agent for call in copy.cassette().calls}
    assert agents == {"write": "claude-code", "sign": "signer"}
    assert (copy.settle(keep=True).findings, copy.settle().findings) == ((), ())
    selection = CallSelection(selectors=(CallSelector(feature="beta", phase="sign"),))
    order = RerecordJob(
        path=str(copy.folder), project=str(copy.root), environment=workshop.environment, selection=selection, now=TODAY
    )
    with lock_workspace(copy.root, copy.folder) as workspace:
        other = prepare_rerecord(msgspec.structs.replace(order, agent="claude-code"), workspace)
        assert other.pins.config.routing == {"sign": Route()}
        prepared = prepare_rerecord(order, workspace)
        check_installed(order, prepared)
        result = run_rerecord(order, prepared, workspace, RunControl(None, lambda progress: None))
    assert result.live_calls == ("beta/sign",)
    assert len(log.read_text().split()) == signed + 1
    program.unlink()
    with pytest.raises(MzError, match="signer"):
        check_installed(order, prepared)
