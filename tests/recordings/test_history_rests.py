"""Where a feature came to rest, today's core has nothing to do either."""

from __future__ import annotations

import pytest
from mz_engine.decide.actions import Action, Work
from mz_engine.decide.feature import decide_feature
from mz_engine.model.pins import Pins
from mz_events.catalog.run import FeatureOutcome, FeatureStopped
from mz_projections.feature.state import Ended, Held, State, Waiting
from mz_qa.simulation import trial
from mz_recordings.past_runs import replay as core
from mz_recordings.past_runs.replay import RunStreamReplay, feature_stops, replay_run

from tests.support.pasts import Past, edited, index_of, trial_past


@pytest.fixture(scope="module")
def past() -> Past:
    return trial_past()


@pytest.mark.parametrize(
    ("state", "places"), [(Waiting, {"a": [125]}), (Held, {"a": [31, 180], "b": [125], "c": [125]})]
)
@pytest.mark.slow
def test_code_that_does_not_wait_any_more_is_found(
    past: Past, state: type[State], places: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        core,
        "decide_feature",
        lambda now, pins: Work.CHECK_CHANGES if isinstance(now, state) else decide_feature(now, pins),
    )
    history = replay_run(past.world.store, trial.RUN, past.means)
    assert sorted(item.event_ref for item in history.divergences) == sorted(
        f"run/r1/{name}@{version}" for name, versions in places.items() for version in versions
    )
    assert {(divergence.kind, divergence.recorded) for divergence in history.divergences} == {
        ("decision", "feature.stopped")
    }
    assert "the current code continues with: check changes" in history.divergences[0].note


def test_code_that_does_not_end_any_more_is_found_where_the_stream_ends(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        core,
        "decide_feature",
        lambda now, pins: Work.CHECK_CHANGES if isinstance(now, Ended) else decide_feature(now, pins),
    )
    history = replay_run(past.world.store, trial.RUN, past.means)
    assert [divergence.event_ref for divergence in history.divergences] == [
        "run/r1/a@185",
        "run/r1/b@130",
        "run/r1/c@130",
    ]


def test_code_that_breaks_off_where_it_rested_is_found(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaking(now: State, pins: Pins) -> Action | None:
        return decide_feature(now, pins) if not isinstance(now, Ended) else 1 // 0  # type: ignore[return-value]

    monkeypatch.setattr(core, "decide_feature", breaking)
    result = replay_run(past.world.store, trial.RUN, past.means).divergences
    assert [divergence.kind for divergence in result] == ["failure"] * 3
    assert "ZeroDivisionError" in result[0].note


@pytest.mark.parametrize("gone", [1, 2, 3, 5])
def test_a_stream_that_ends_before_its_feature_rested_is_found(past: Past, gone: int) -> None:
    streams = {name: past.stream(name) for name in "abc"}
    replayed = RunStreamReplay(past.run(), past.pins, {**streams, "a": streams["a"][:-gone]}).run()
    (divergence,) = [item for item in replayed.divergences if item.recorded == "feature.stopped"]
    assert (divergence.event_ref, divergence.kind) == ("run/r1@63", "missing")
    assert f"run/r1/a ends at event {185 - gone}, but the feature stopped at 185" in divergence.note


def test_a_rest_that_was_brought_about_from_outside_asks_nothing_of_the_core(past: Past) -> None:
    """A run that was stopped, or a call that was lost: the feature had something to do."""
    at = index_of(past.run(), FeatureStopped)
    stopped = edited(past.run(), at, version=100, status=FeatureOutcome.INTERRUPTED)
    assert feature_stops(stopped)["a"].keys() == {125, 180, 185}
