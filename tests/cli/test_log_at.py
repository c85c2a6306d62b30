"""`mz log --at`: the state as it was then, and which places there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from mz_cli.inspect.state_at import feature_state, run_state, state_at, state_rows
from mz_cli.terminal.json import plain_value
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallReserved, CallSettled
from mz_events.catalog.feature import (
    FeatureFailed,
    FeatureHeld,
    HumanRequested,
    PhaseStarted,
    QuestionKind,
    UnitStarted,
)
from mz_events.catalog.run import (
    Hold,
    ItemAdded,
    RunFinished,
    RunHalted,
    RunIdle,
    RunPaused,
    RunStarted,
    RunStopRequested,
)
from mz_events.names import FeatureId
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, decoded, on_terminal
from tests.cli.stored_run import RUN, StoredRun
from tests.support import steps
from tests.support.samples import sample, samples
from tests.support.steps import DIGEST

NEWER = "20260302-080000-ffff"


def at(mz: Mz, *args: str) -> Any:
    answer = mz("log", "--at", *args, "--json")
    assert answer.err == ""
    return decoded(answer)


def state(*events: Event) -> Any:
    recorded_events = steps.recorded(*events)
    result = state_at(recorded_events, len(recorded_events) + 1, "here", lambda _: "a text").feature
    return msgspec.to_builtins(plain_value(result))


BUILD = (*steps.planned(), PhaseStarted(phase="build", iteration=1, units=("u1", "u2")))
UNIT = (*BUILD, UnitStarted(phase="build", unit="u1", iteration=1))
CALL = steps.ref("build", unit="u1")


def test_a_feature_at_work() -> None:
    result = state(*UNIT, *steps.accepted(CALL), steps.gate("test", passed=False))
    assert (result["state"], result["phase"], result["unit"], result["done"]) == ("working", "build", "u1", ["plan"])
    assert result["attempts"] == [{"role": "builder", "attempt": 1, "rejected": 1, "failures": 0}]
    assert result["checked"] == {"test": False}
    assert result["units"] == ["u1", "u2"]
    assert [made["artifact"] for made in result["artifacts"]] == ["plan"]
    assert result["cost"]["calls"] == 2
    assert result["pending_outcome"] is None


def test_what_is_owed() -> None:
    assert state(*UNIT, steps.requested(CALL))["pending_outcome"] == "agent.requested"


def test_held_waiting_and_ended() -> None:
    held = state(*UNIT, FeatureHeld(hold=Hold.TIMER, until_us=0, code="rate-limit"))
    assert (held["state"], held["within"], held["hold"], held["until"]) == (
        "held", "working", "timer", "1970-01-01T00:00:00.000000Z")  # fmt: skip
    waits = state(*UNIT, HumanRequested(phase="build", unit="u1", question_kind=QuestionKind.BLOCKER, detail=DIGEST))
    assert (waits["state"], waits["question"]["question_kind"]) == ("waiting", "blocker")
    assert waits["question"]["detail"] == "a text"
    failed = state(*BUILD, FeatureFailed(code="no"))
    assert (failed["state"], failed["code"], failed["done"]) == ("failed", "no", ["plan"])
    assert (state(steps.STARTED)["state"], state(steps.STARTED)["branch"]) == ("opening", "feat/a")


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (None, "running"),
        (RunHalted(feature=FeatureId("a"), code="no-key"), "halted"),
        (RunStopRequested(), "stopped"),
        (RunPaused(actor=None), "paused"),
        (RunIdle(), "idle"),
        (RunFinished(), "finished"),
    ],
)
def test_a_run(event: Event | None, status: str) -> None:
    begun = (sample(RunStarted), sample(ItemAdded), *([event] if event else []))
    shape = run_state(steps.given_run(*begun))
    assert shape.status == status
    assert [track.state for track in shape.features] == ["queued"]


def test_money_of_a_run() -> None:
    a, item = FeatureId("a"), sample(ItemAdded)
    events = (sample(RunStarted), replace(item, feature=a),
              CallReserved(feature=a, key="1", nanousd=5_000_000), CallReserved(feature=a, key="2", nanousd=7_000_000),
              CallSettled(feature=a, key="1", nanousd=4_000_000))  # fmt: skip
    state = run_state(steps.given_run(*events))
    feature = state.features[0]
    amounts = state.committed_nanousd, feature.charged_nanousd, feature.reserved_nanousd
    assert amounts == (11_000_000, 4_000_000, 7_000_000)


@pytest.mark.parametrize("stream", ["run/r1/a", "run/r1"])
def test_any_event_may_come_first(stream: str) -> None:
    """Nothing that was ever recorded may keep people from looking."""
    for event in samples():
        events = steps.recorded(event, stream=stream)
        assert state_rows(state_at(events, 1, "here", lambda _: ""))
    assert feature_state(steps.state_after(), (), lambda _: "").state == "unborn"


# through the command --------------------------------------------------------------------------------------------------
def test_it_is_the_state_of_then(stored_run: StoredRun, mz: Mz) -> None:
    early, late = at(mz, "login@9"), at(mz, "login@43")
    assert (early["event_ref"], early["event"], early["newest"]) == (f"run/{RUN}/login@9", "artifact.validated", 43)
    assert early["feature"]["cost"]["calls"] == 1
    assert late["feature"]["cost"]["calls"] == 4
    assert (early["run"], late["run"]) == (None, None)
    assert at(mz, f"{RUN}@5")["run"]["features"][-1]["id"] == "later"
    assert len(at(mz, f"{RUN}@3")["run"]["features"]) == 2


def test_in_a_pipe_and_on_a_terminal(stored_run: StoredRun, mz: Mz,
                                     snapshot: SnapshotAssertion) -> None:  # fmt: skip
    assert mz("log", "--at", "login@9").out == snapshot
    shown = on_terminal(stored_run.home, "log", "--at", f"{RUN}@12", columns=80, env={"NO_COLOR": "1"})
    assert "\n".join(line.rstrip() for line in shown.splitlines()) == snapshot


def test_names_of_places(stored_run: StoredRun, mz: Mz) -> None:
    stored_run.close()
    newer = StoredRun(stored_run.home, run=NEWER).begin("login", "20260301").admit("login")
    newer.close()
    for args, text in (
        (("login@1",), f"run/{NEWER}/login@1"),
        ((RUN, "login@1"), f"run/{RUN}/login@1"),
        (("audit@1",), f"run/{RUN}/audit@1"),
        (("20260301-12@1",), f"run/{RUN}@1"),
        (("20260301-12/login@1",), f"run/{RUN}/login@1"),
        ((f"run/{RUN}@1",), f"run/{RUN}@1"),
        ((f"run/{RUN}/login@1",), f"run/{RUN}/login@1"),
    ):
        *chosen, wanted = args
        assert at(mz, wanted, *chosen)["event_ref"] == text


@pytest.mark.parametrize(
    ("folder", "exit_code", "message"),
    [
        ("login", 2, "'login' is not an event"),
        ("login@", 2, "is not an event"),
        ("login@0", 2, "versions count from 1"),
        ("login@-1", 2, "is not an event"),
        ("login@x", 2, "is not an event"),
        ("login@" + "9" * 5000, 2, "is not an event"),
        ("@3", 2, "is not an event"),
        ("login@99", 2, f"the newest is run/{RUN}/login@43"),
        ("later@1", 2, f"run/{RUN}/later has no events"),
        ("lgin@1", 10, "did you mean `login`?"),
        (f"inbox/{RUN}@1", 2, "it holds messages and has no state"),
        ("run/nope@1", 2, "there is no run or feature 'nope'"),
        (f"{RUN}/lgin@1", 10, "did you mean `login`?"),
        (f"{RUN}/a/b@1", 10, "has no feature 'a'"),
    ],
)
def test_places_that_are_not_there(stored_run: StoredRun, mz: Mz, folder: str, exit_code: int, message: str) -> None:
    answer = mz("log", "--at", folder)
    assert (answer.exit, answer.out) == (exit_code, "")
    assert message in answer.err


def test_a_state_is_no_list(stored_run: StoredRun, mz: Mz) -> None:
    for args in (("--all",), ("--follow",)):
        assert mz("log", "--at", "login@1", *args).exit == 2


def test_nothing_ran(home: Path, mz: Mz) -> None:
    assert mz("log", "--at", "login@1").exit == 2
