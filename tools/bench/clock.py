"""Measures. Whole processes by what the kernel says they used, loops by the clock.

Candidates take turns, so that a machine that slows down slows all of them; the median of the rounds counts.
"""

from __future__ import annotations

import gc
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median


def alternate(rounds: int, candidates: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Measures each candidate in turn, A B A B ..., and returns the median of each over the rounds."""
    result: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, measure in candidates.items():
            result[name].append(measure())
    return {name: median(values) for name, values in result.items()}


def rate(count: int, work: Callable[[], object]) -> float:
    """How many of `count` things a second the work gets through. Garbage of whoever came before is not its burden."""
    gc.collect()
    begun = time.perf_counter()
    work()
    return count / (time.perf_counter() - begun)


def cpu_seconds(argv: Sequence[str | Path], cwd: Path, environment: Mapping[str, str], log: Path) -> float:
    """User and system time of a process and of all descendants that were waited for; it must end with 0.

    What it says goes to the file `log`, which the RuntimeError for any other end quotes.
    """
    with open(log, "wb") as log_file:
        process = subprocess.Popen(
            argv, cwd=cwd, env=dict(environment), stdin=subprocess.DEVNULL, stdout=log_file, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        text = log.read_text("utf-8", "replace")[-2000:]
        raise RuntimeError(f"{argv[0]} ended with {process.returncode}: {text}")
    return usage.ru_utime + usage.ru_stime
