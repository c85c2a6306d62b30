"""Simulated runs through faults by seed: the invariants hold, and each of them finds a bug that is put there for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import pytest
from mz_engine.effects import call, validation
from mz_engine.ports import PullRequest, RepositoryUnusable
from mz_engine.run import coordinator
from mz_engine.run.coordinator import Coordinator
from mz_events.adapters.memory import MemoryStore
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallOverBudget, CallReserved
from mz_events.catalog.validation import GateChecked
from mz_qa.simulate import main, run_seed, run_seeds
from mz_qa.simulation.faults import RATES, FaultyWorld, simulate
from mz_qa.simulation.world import SimulatedAgents, SimulatedForge, SimulatedWorkspace

from tests.support.examples import first_of_each

SEEDS = 400
"""About twenty seconds of one processor."""
SOUGHT = 600
"""Seeds in which a bug must show."""


def test_few_seeds_hold() -> None:
    results = list(run_seeds(range(12), 1))
    assert [result.failure for result in results if result.failure] == []
    assert sum(result.steps for result in results) > 1_000


@pytest.mark.slow
def test_many_seeds_hold_and_every_fault_happens() -> None:
    results = list(run_seeds(range(SEEDS), 2))
    assert [(result.seed, result.failure) for result in results if result.failure] == []
    happened = sum((Counter(result.faults) for result in results), Counter[str]())
    assert happened.keys() == RATES.keys()


def test_a_seed_decides_everything() -> None:
    logs = []
    for _ in range(2):
        world = FaultyWorld(3)
        simulate(world)
        logs.append(list(world.store.log))
    assert logs[0] == logs[1]
    assert logs[0]


# bugs -----------------------------------------------------------------------------------------------------------------
def loses_replies(self: SimulatedAgents, key: str) -> None:
    return None


def gives_up_without_git(*arguments: Any) -> Generator[Any, Any, Any]:
    """As it was: a reply whose tree git could not capture was a failed call."""
    try:
        return (yield from capture_worktree(*arguments))
    except RepositoryUnusable:
        return None


capture_worktree = call._capture_worktree


def forgets_pull_requests(self: SimulatedForge, branch: str, key: str) -> PullRequest | None:
    return None


def passes_gates(**fields: Any) -> GateChecked:
    return GateChecked(**{**fields, "passed": True, "violations": ()})


def grants_everything(state: object, call: CallOverBudget, *others: object) -> Event:
    return CallReserved(feature=call.feature, key=call.key, nanousd=call.nanousd, tokens=call.tokens)


def keeps_stray_files(self: SimulatedWorkspace, worktree: object, tree: Any, before: object, revert: object) -> object:
    return tree


def appends_twice(self: MemoryStore, added: list[Any]) -> None:
    add(self, added)
    if added and added[0].stream.count("/") == 2 and len(self.log) % 50 == 0:
        self.log.append(self.log[-1])
        self._streams[added[0].stream].append(added[-1])


add = MemoryStore._add


def hears_nobody(self: Coordinator) -> None:
    """Messages are read for ever and never accepted."""


@pytest.mark.parametrize(
    ("owner", "name", "bug", "finding", "first"),
    first_of_each(
        [
            (SimulatedAgents, "salvage", loses_replies, "the whole reply of", 0),
            (call, "_capture_worktree", gives_up_without_git, "the whole reply of", 0),
            (validation, "GateChecked", passes_gates, "without passing its gates", 0),
            (coordinator, "reserve_money", grants_everything, "over the budget", 0),
            (SimulatedForge, "find", forgets_pull_requests, "opened twice", 88),
            (SimulatedWorkspace, "revert_paths", keeps_stray_files, "with a forbidden change", 0),
            (MemoryStore, "_add", appends_twice, "folds to another state", 0),
            (Coordinator, "read_inbox", hears_nobody, "more and more processes", 0),
        ],
        lambda _: None,
    ),
)
def test_a_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, bug: Callable[..., object], finding: str, first: int
) -> None:
    monkeypatch.setattr(owner, name, bug)
    failures = (run_seed(seed).failure for seed in range(first, first + SOUGHT))
    assert finding in next(filter(None, failures), "")


# the command ----------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_failure_names_seed_commit_and_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SimulatedAgents, "salvage", loses_replies)
    assert main(["--seeds", "15", "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    match = re.search(r"seed (\d+) at commit ([0-9a-f]{40}(-dirty)?|unknown): Violation: the whole reply of", printed)
    assert match
    assert f"repeat: python -m mz_qa.simulate --seeds 1 --seed {match[1]}\n" in printed
    assert main(["--seeds", "1", "--seed", match[1], "--jobs", "1"]) == 1
    assert "1 seed," in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--seeds", "--jobs"])
def test_no_seeds_are_no_success(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    for number in ("0", "-3", "many"):
        with pytest.raises(SystemExit, match="2"):
            main([option, number])
        assert option in capsys.readouterr().err.splitlines()[-1]


def test_the_command_runs_in_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--seed", "40", "--jobs", "2"]) == 0
    assert re.search(r"3 seeds, .* 0 failed \(.* seeds a minute\)", capsys.readouterr().out)
