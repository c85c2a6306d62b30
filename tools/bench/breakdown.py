"""Where the CPU time of a run goes: to which processes, and within `mz` itself to which functions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tools.bench import profiled
from tools.bench.noop import find_compiler
from tools.bench.overhead import FEATURES, RECORDED, STAND_INS, Bench, Replayed

FUNCTIONS_MAX = 30


class Function(msgspec.Struct, frozen=True):
    """As `profiled` tells it; seconds of CPU, without and with what it calls."""

    file: str
    line: int
    name: str
    calls: int
    own: float
    cumulative: float


class Profile(msgspec.Struct, frozen=True):
    own: float
    """CPU seconds of the process itself, the profiler's included."""
    children: float
    functions: tuple[Function, ...]


class Share(msgspec.Struct, frozen=True):
    """What one kind of work took, for each feature."""

    what: str
    calls: float | None
    """None: it is no process, or one for all features."""
    seconds: float
    part: float
    """Of the whole run, from 0 to 1."""


class Breakdown(msgspec.Struct, frozen=True):
    shares: tuple[Share, ...]
    """The largest first."""
    functions: tuple[Function, ...]
    """Of ours, those that take most with what they call; the largest first."""


def breakdown(path: Path, mz: Path, *, features: int = FEATURES) -> Breakdown:
    """Measures a run, records and replays its calls, and profiles another; `path` is an empty directory."""
    bench = Bench(path, mz, features, find_compiler())
    bench.record()
    bench.loop()
    seconds = bench.run((mz, "run"))
    report = path / "profile.json"
    bench.run((sys.executable, profiled.__file__, report, mz, "run"))
    profile = msgspec.json.decode(report.read_bytes(), type=Profile)
    shares = sorted(split(seconds, profile.children, bench.replayed(), features), key=lambda share: -share.seconds)
    return Breakdown(tuple(shares), top(profile.functions))


def split(seconds: float, children: float, loop: Replayed, features: int) -> Iterator[Share]:
    """`seconds` of a whole run without a profiler, of which `children` went to other processes. The bare loop says what
    the recorded programs take; what is left of the children are the guards around agents and commands, and the git
    processes that stay, for one of which the loop starts others."""

    def share(what: str, calls: float | None, took: float) -> Share:
        return Share(what, calls, took / features, took / seconds)

    once = {kind: took for kind, took in loop.seconds.items() if kind not in STAND_INS}
    for kind, took in once.items():
        yield share(kind, loop.calls[kind] / features, took)
    guarded = sum(loop.calls.get(name, 0) for name in RECORDED if name != "git")
    yield share("guards of agents and commands", guarded / features, children - sum(once.values()))
    yield share("mz itself", None, seconds - children)


def top(functions: tuple[Function, ...]) -> tuple[Function, ...]:
    """Of our own modules only."""
    ours = (function for function in functions if "/mz_" in function.file)
    return tuple(sorted(ours, key=lambda item: -item.cumulative)[:FUNCTIONS_MAX])
