"""Drives runs through faults that seeds decide, and checks invariants after every step: `python -m mz_qa.simulate`.

The core is the real one; git, agents, commands, forge and clock are in memory. It needs mz's own repository, whose
pipeline `trial` has every mechanism. Exit code 1: an invariant does not hold."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pool

import msgspec

from mz_qa.simulation import trial
from mz_qa.simulation.faults import FaultyWorld, simulate
from mz_qa.simulation.world import Crash

SEEDS = 1000
SHOWN_MAX, TAIL = 5, 8
"""Failures that are printed, and the last events of each."""


class SeedResult(msgspec.Struct, frozen=True):
    seed: int
    faults: dict[str, int]
    steps: int
    failure: str = ""
    """What does not hold, and the last events; empty if everything held."""


def run_seed(seed: int, drive: Callable[[FaultyWorld], None] = simulate) -> SeedResult:
    """Simulate the run of one seed. An error of any kind is a failure."""
    world, failure = FaultyWorld(seed), ""
    try:
        drive(world)
    except (Crash, Exception) as error:
        events = (f"\n    {recorded.event_ref} {recorded.event!r}"[:200] for recorded in world.store.log[-TAIL:])
        failure = f"{type(error).__name__}: {error}{''.join(events)}"
    return SeedResult(seed, dict(world.counts), world.steps, failure)


def run_seeds(seeds: Sequence[int], workers: int) -> Iterator[SeedResult]:
    """Simulate runs in processes, if more than one works, and yield the results in the order of the seeds."""
    if workers <= 1:
        yield from map(run_seed, seeds)
    else:
        with Pool(workers) as pool:
            yield from pool.imap(run_seed, seeds, chunksize=16)


def commit_name() -> str:
    """Return the commit of mz's own repository, and whether files differ from it."""
    command = ["git", "-C", str(trial.ROOT), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    described = subprocess.run(command, capture_output=True, text=True, check=False)
    return described.stdout.strip() or "unknown"


def report(results: Sequence[SeedResult], seconds: float) -> str:
    """Return the failures, each with the command that repeats it, and a summary."""
    failed, commit = [result for result in results if result.failure], commit_name()
    lines = [
        f"seed {result.seed} at commit {commit}: {result.failure}\n"
        f"    repeat: python -m mz_qa.simulate --seeds 1 --seed {result.seed}"
        for result in failed[:SHOWN_MAX]
    ]
    faults = sum((Counter(result.faults) for result in results), Counter[str]())
    steps, seeds = sum(result.steps for result in results), f"{len(results):,} seed{'s' * (len(results) != 1)}"
    lines += [
        f"faults: {', '.join(f'{count:,} {name}' for name, count in sorted(faults.items()))}",
        f"{seeds}, {steps:,} steps, {faults.total():,} faults: {len(failed)} failed "
        f"({len(results) / seconds * 60:,.0f} seeds a minute)",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m mz_qa.simulate", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"number of seeds (default: {SEEDS})")
    parser.add_argument("--seed", type=int, default=0, help="the first one (default: 0)")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    options = parser.parse_args(arguments)
    if min(options.seeds, options.jobs) < 1:
        parser.error("--seeds and --jobs must be at least 1")
    started = time.monotonic()
    seeds = range(options.seed, options.seed + options.seeds)
    results = list(run_seeds(seeds, min(options.jobs, options.seeds)))
    sys.stdout.write(report(results, time.monotonic() - started) + "\n")
    return int(any(result.failure for result in results))


if __name__ == "__main__":
    sys.exit(main())
