"""The bench of simulated runs."""

from __future__ import annotations

import pytest
from mz_qa import simulate

from tools.bench.simulating import SEEDS_A_MINUTE, simulation


def test_it_is_measured() -> None:
    (figure,) = simulation(seeds=3)
    assert (figure.name, figure.reference_value, figure.better) == ("simulation.seeds", SEEDS_A_MINUTE, "higher")
    assert figure.value > 0


def test_seeds_that_fail_have_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate.run_seed, "__defaults__", (lambda world: 1 / 0,))
    with pytest.raises(RuntimeError, match=r"seeds \[0\] fail"):
        simulation(seeds=1)
