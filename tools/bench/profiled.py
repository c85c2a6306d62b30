"""Runs a Python program under a profiler that sees every thread, by CPU time: waiting costs nothing. A script.

    profiled.py REPORT PROGRAM [ARG ...]

REPORT is told, as JSON, the CPU seconds of the process itself and of its children, and for each function its file,
name, number of calls, and CPU seconds without and with what it calls. The profiler itself about doubles the time.
"""

from __future__ import annotations

import atexit
import cProfile
import json
import pstats
import resource
import runpy
import sys
import threading
import time
from pathlib import Path

Profiles = list[cProfile.Profile]


def main(report: str, program: str, *arguments: str) -> None:
    profiles: Profiles = []
    install(profiles)
    sys.argv = [program, *arguments]
    own = begin(profiles)
    atexit.register(lambda: Path(report).write_text(json.dumps(totals(profiles))))  # After the program's own handlers.
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        own.disable()


def begin(profiles: Profiles) -> cProfile.Profile:
    """Profiles the calling thread from now on."""
    profile = cProfile.Profile(time.thread_time)
    profiles.append(profile)
    profile.enable()
    return profile


def install(profiles: Profiles) -> None:
    """From now on each new thread is profiled too, from its first step to its last."""
    run = threading.Thread.run

    def profiled(thread: threading.Thread) -> None:
        profile = begin(profiles)
        try:
            run(thread)
        finally:
            profile.disable()

    setattr(threading.Thread, "run", profiled)  # noqa: B010  # mypy takes the plain assignment for a mistake


def totals(profiles: Profiles) -> dict[str, object]:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    stats = pstats.Stats(*profiles).stats  # type: ignore[attr-defined]
    functions = [
        {"file": file, "line": line, "name": name, "calls": calls, "own": own_seconds, "cumulative": whole_seconds}
        for (file, line, name), (_, calls, own_seconds, whole_seconds, _) in stats.items()
    ]
    return {
        "own": own.ru_utime + own.ru_stime,
        "children": children.ru_utime + children.ru_stime,
        "functions": functions,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
