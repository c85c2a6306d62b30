"""How many runs with faults by seed one processor simulates a minute, against what was aimed at: 1,000 on two."""

from __future__ import annotations

import time

from mz_qa.simulate import run_seeds

from tools.bench.figure import Figure, compare

SEEDS = 500
SEEDS_A_MINUTE = 500


def simulation(*, seeds: int) -> tuple[Figure, ...]:
    """Raises RuntimeError if a seed fails."""
    begun = time.process_time()
    failures = [result.seed for result in run_seeds(range(seeds), 1) if result.failure]
    a_minute = seeds / (time.process_time() - begun) * 60
    if failures:
        raise RuntimeError(f"seeds {failures} fail")
    return (
        compare("simulation.seeds", a_minute, "seeds/CPU min", "what was aimed at", SEEDS_A_MINUTE, at_least=1.0),
    )  # fmt: skip
