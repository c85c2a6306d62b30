"""`python -m tools.bench history`: both sides replay as many steps, and what parts from the record is no
measurement. Nothing is timed. The reference takes seconds to load: only tests that need it do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.call import AgentRequested

from tools.bench import historic
from tools.bench.answers import PHASES

MZ = Path(sys.executable).with_name("mz")
WITHOUT = """
import sys
sys.modules["temporalio"] = None
from tools.bench.__main__ import main
main(["history", "--quick"])
"""


@pytest.mark.slow
def test_the_reference_replays_a_history_of_so_many_activities() -> None:
    from temporalio.api.enums.v1 import EventType
    from temporalio.api.history.v1 import History

    from tools.bench import activities

    history = activities.recorded(7)
    kinds = [event.event_type for event in History.FromString(history).events]
    assert kinds.count(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED) == 7
    assert len(kinds) == 1 + 3 + 7 * 6 + 1
    activities.replay(history)
    activities.replay(history, sandboxed=False)


@pytest.mark.slow
@pytest.mark.parametrize("sandboxed", [True, False])
def test_the_reference_refuses_a_history_that_another_workflow_made(sandboxed: bool) -> None:
    from temporalio.api.enums.v1 import EventType
    from temporalio.api.history.v1 import History
    from temporalio.workflow import NondeterminismError

    from tools.bench import activities

    history = History.FromString(activities.recorded(3))
    scheduled = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    first = next(event for event in history.events if event.event_type == scheduled)
    first.activity_task_scheduled_event_attributes.activity_type.name = "other"
    with pytest.raises(NondeterminismError):
        activities.replay(history.SerializeToString(), sandboxed=sandboxed)


def test_rates_are_held_against_the_reference_with_its_sandbox() -> None:
    rates = {"recomputed": 200.0, "decided": 800.0, "sandboxed": 40.0, "unsandboxed": 80.0}
    recomputed, decided = historic.figures(rates, "temporalio")
    assert (recomputed.ratio, recomputed.goal, recomputed.better, recomputed.met) == (5.0, 10.0, "higher", False)
    assert (decided.ratio, decided.goal, decided.met) == (20.0, 20.0, True)
    assert recomputed.reference == "temporalio (without its sandbox: 80)"


@pytest.mark.slow
def test_work_is_done_once_and_measured() -> None:
    done: list[int] = []

    def work() -> None:
        done.append(sum(range(200_000)))

    assert historic.cpu_rate(5, work) > 0
    assert len(done) == 1


@pytest.mark.slow
def test_without_the_reference_nothing_is_measured_and_the_missing_package_is_named() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 11, ended.stderr
    assert "error[MZ1004]" in ended.stderr
    assert "hint: run `make dev`, which installs it" in ended.stderr
    assert "measuring" not in ended.stderr


@pytest.mark.slow
def test_a_real_run_is_replayed_as_recorded_(tmp_path: Path) -> None:
    with historic.Replays(tmp_path, MZ, 1, None) as replays:
        assert replays.calls == len(PHASES)
        assert replays.past() > 10 * replays.calls
        assert replays.decide() > 5 * replays.calls, "several actions a call"
        with SqliteStore(tmp_path / "project" / ".mz" / "mz.db", read_only=True) as store:
            calls = [recorded for recorded in store.read_all() if isinstance(recorded.event, AgentRequested)]
        assert len(calls) == replays.calls, "as many steps as the reference has"
        replays.reference()
