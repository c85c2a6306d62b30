"""A run that goes on from an event of another one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.decide.feature import decide_feature
from mz_engine.model.pins import Pins, decode_pins
from mz_engine.run.feature_loop import BEFORE_MESSAGES
from mz_engine.run.fork import FORK_SETTINGS, CannotFork, ForkChange, fork_point, forked_pins, next_phase, phase_start
from mz_engine.run.plan import find_unfinished_run
from mz_engine.run.process import RunProcess
from mz_engine.run.settings import kept_settings, load_config
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied, AgentRequested, CallReserved
from mz_events.catalog.feature import FeatureStarted, PhaseStarted
from mz_events.catalog.run import FeatureOutcome
from mz_events.names import feature_stream
from mz_events.store import Recorded
from mz_projections.feature.calls import paid_calls
from mz_projections.feature.state import NotStarted
from mz_projections.read_models.store import ReadModelStore
from mz_projections.run.delivered import DELIVERED, latest_deliveries
from mz_projections.run.fold import RunState
from mz_projections.views.run import run_view
from mz_qa.simulation import trial

from tests.support.pasts import Past, trial_past
from tests.support.workshop import SCRIPT, Workshop, clone

OTHER = {**SCRIPT, "alpha.sign.2.1": {"write": {"letters/alpha.md": "# Letter\nanother one, from the fork\n"}}}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workshop, str]:
    workshop = Workshop(tmp_path_factory.mktemp("fork"))
    return workshop, workshop.run()


@pytest.fixture(scope="module")
def past() -> Past:
    return trial_past()


@pytest.fixture
def session(done: tuple[Workshop, str]) -> Iterator[RunProcess]:
    workshop, _ = done
    with RunProcess(workshop.root, workshop.environment, lambda recorded: None) as session:
        yield session


def events_of(session: RunProcess, run: str, feature: str = "alpha") -> tuple[Recorded[Event], ...]:
    return tuple(session.store.read(feature_stream(run, feature)))


def pins_of(session: RunProcess, run: str) -> Pins:
    started = next(iter(session.store.read(f"run/{run}"))).event  # type: ignore[arg-type]
    return decode_pins(session.blobs.get(started.pins))  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_fork_goes_on_live_and_pays_only_for_itself(done: tuple[Workshop, str], session: RunProcess) -> None:
    workshop, run = done
    before = events_of(session, run)
    at = max(item.version for item in before if isinstance(item.event, PhaseStarted) and item.event.phase == "sign") - 1
    workshop.script.write_text(json.dumps(OTHER))
    forked = session.fork(run, "alpha", at, ForkChange(model="claude-opus-4-6"))
    state = session.drive()
    name = state.started.run if state.started else ""
    after = events_of(session, name)

    assert forked.version == at
    assert state.tracks["alpha"].last_stop is not None
    assert state.tracks["alpha"].last_stop.status is FeatureOutcome.WAITING  # The pipeline wants a person's word here.
    assert [entry.is_forked_copy for entry in after] == [single.version <= at for single in after]
    assert [element.causation for element in after[:at]] == [single.event_ref for single in before[:at]]
    calls = [single.event for single in after if isinstance(single.event, AgentRequested) and not single.is_forked_copy]
    assert [(call.ref.phase, call.ref.iteration, call.model) for call in calls] == [("sign", 2, "claude-opus-4-6")]
    assert calls[0].ref.key.startswith(f"{name}/alpha/sign/")

    paid = paid_calls(session.store.read_all())
    assert len({call.key for call in paid}) == len(paid)
    assert [call.phase for call in paid if call.run == name] == ["sign"]
    assert {call.run for call in paid} >= {run, name}
    view = run_view(name, sorted((*session.store.read(f"run/{name}"), *after), key=lambda recorded: recorded.position))  # type: ignore[arg-type]
    (feature,) = view.features
    assert (feature.input_tokens, len(feature.calls), len(feature.paid_calls)) == (100, 5, 1)
    assert view.committed_nanousd > 0


@pytest.mark.slow
def test_a_fork_has_branches_of_its_own_and_counts_for_nothing_else(
    done: tuple[Workshop, str], session: RunProcess
) -> None:
    workshop, run = done
    heads = workshop.repository.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads")
    with ReadModelStore(None, session.store, (DELIVERED,)) as views:
        views.refresh()
        deliveries = latest_deliveries(views.rows(DELIVERED))
    session.fork(run, "alpha", 1, ForkChange())
    state = session.drive()
    name = state.started.run if state.started else ""
    now = workshop.repository.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads")

    actual = set(now.splitlines()) - set(heads.splitlines())
    assert actual == {line for line in now.splitlines() if f"refs/heads/feat/fork-{name}/alpha " in line}
    assert set(heads.splitlines()) <= set(now.splitlines())
    assert find_unfinished_run(session.store) is None
    with ReadModelStore(None, session.store, (DELIVERED,)) as views:
        views.refresh()
        assert latest_deliveries(views.rows(DELIVERED)) == deliveries


def test_a_call_under_way_is_made_anew(past: Past) -> None:
    events, pins = past.stream(), past.pins
    for recorded in events:
        if isinstance(recorded.event, AgentRequested | AgentReplied):
            version, state = fork_point(events, pins, recorded.version)
            assert version < recorded.version
            assert not isinstance(decide_feature(state, pins), BEFORE_MESSAGES)
            assert not isinstance(events[version - 1].event, CallReserved)


def test_nothing_goes_on_from_where_nothing_is_to_be_done(past: Past) -> None:
    events, pins = past.stream(), past.pins
    with pytest.raises(CannotFork, match="had already ended"):
        fork_point(events, pins, len(events))
    with pytest.raises(CannotFork, match="had not started"):
        fork_point(events, pins, 0)


def test_a_fork_leaves_learnings_out_whoever_forks_it_again(past: Past) -> None:
    first = forked_pins(past.pins, NotStarted(), ForkChange(without=("L-1",)), "r1")
    assert forked_pins(first, NotStarted(), ForkChange(without=("L-2",)), "r2").without == ("L-1", "L-2")
    assert past.pins.without == ()


@pytest.mark.slow
def test_another_prompt_is_that_of_the_phase_that_goes_on(done: tuple[Workshop, str], session: RunProcess) -> None:
    workshop, run = done
    events, pins = events_of(session, run), pins_of(session, run)
    at = phase_start(events, "sign")
    assert at is not None
    _, state = fork_point(events, pins, at)
    assert next_phase(state, pins) == ("sign", False)
    made = forked_pins(pins, state, ForkChange(prompt="Sign {{ title }} differently."), "r0")
    assert [phase.prompt for phase in made.pipeline.phases] == ["write.md.j2", "fork.md.j2"]
    workshop.script.write_text(json.dumps(OTHER))
    session.fork(run, "alpha", at, ForkChange(prompt="Sign {{ title }} differently."))
    name = _run(session.drive())
    request = [recorded.event for recorded in events_of(session, name) if isinstance(recorded.event, AgentRequested)][
        -1
    ]
    prompt = session.blobs.get(request.prompt)
    without_memory = prompt.partition(b"\n## What earlier work taught")[0]  # Of earlier forks, if any ran.
    assert without_memory == b"Sign The first differently.\n"


def _run(state: RunState) -> str:
    assert state.started is not None
    return state.started.run


def test_what_a_fork_has_of_its_own_is_no_setting_that_it_keeps(past: Past, tmp_path: Path) -> None:
    loaded = load_config(tmp_path, {}, {})
    pins = replace(past.pins, config=loaded.config)
    forked = forked_pins(pins, NotStarted(), ForkChange(agent="codex", model="m"), "r9").config
    assert {warning.message.split("`")[1].split(":")[0] for warning in kept_settings("r9", forked, loaded)} == {
        "branch_prefix", "models.cheap", "models.mid", "models.premium",
    }  # fmt: skip
    assert not [*kept_settings("r9", forked, loaded, FORK_SETTINGS)]


def test_what_no_run_reads_may_change(tmp_path: Path) -> None:
    kept = load_config(tmp_path, {}, {}).config
    (tmp_path / "mz.yaml").write_text("sources: {tests: [check/]}\nspecs: {a: {files: [a.md]}}\n")
    assert not [*kept_settings("r9", kept, load_config(tmp_path, {}, {}))]


def test_what_is_changed_is_pinned(past: Past) -> None:
    events, pins = past.stream(), past.pins
    _, state = fork_point(events, pins, 1)
    same = forked_pins(pins, state, ForkChange(), "r0")
    assert same.templates == pins.templates
    without_requests = replace(pins.config.pull_requests, strategy="none")
    assert same.config == replace(pins.config, branch_prefix="feat/fork-r0", pull_requests=without_requests)
    other = forked_pins(pins, state, ForkChange(agent="other"), "r0")
    assert (other.config.agent, other.config.models.mid) == ("other", None)
    assert isinstance(events[0].event, FeatureStarted)


def test_a_fork_leaves_the_branches_and_tags_of_the_user_alone() -> None:
    pins = trial.pins()
    merging = replace(pins, pipeline=trial.with_merge(pins.pipeline))
    pipeline = forked_pins(merging, NotStarted(), ForkChange(), "r2").pipeline
    assert [phase.deliver for phase in pipeline.phases] == [(), (), ("merge_base",), ()]
    assert pipeline.ending == "done"


def test_every_version_can_be_forked_or_says_why(past: Past) -> None:
    events, pins = past.stream(), past.pins
    versions = [fork_point(events, pins, at)[0] for at in range(1, len(events))]
    assert versions == sorted(versions)
    assert all(version <= at for at, version in enumerate(versions, start=1))


@pytest.mark.slow
def test_a_fork_is_recorded_and_plays(tmp_path: Path) -> None:
    """What was copied is recorded as if it had happened in the fork."""
    workshop = Workshop(tmp_path)
    run = workshop.run()
    with RunProcess(workshop.root, workshop.environment, lambda recorded: None) as session:
        at = phase_start(events_of(session, run), "sign")
        assert at is not None
        session.fork(run, "alpha", at, ForkChange())
        name = _run(session.drive())
    workshop.keep(workshop.record(name).cassette)
    assert clone(workshop.root, tmp_path / "clone").settle().findings == ()
