"""What an import of agents' sessions costs: `mz import` of generated session files against nothing but msgspec
decoding of the same lines; its memory; a second one; many small files; and sums by day over a year of sessions.

All are processes of their own, measured by what the kernel says they used: CPU seconds, and memory at its highest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tools.bench.figure import Figure, compare
from tools.bench.sessions import session

MEGABYTES = 1000
ROUNDS = 3
YEAR = 2000
"""Sessions of a year, eight a working day."""
YEAR_TURNS = 20
SMALL_FILES, SMALL_TURNS = 6570, 4
"""300 MB in files of 45 kB."""
SMALL_SECONDS, SMALL_MEMORY_MB = 3.0, 100.0
RATIO_MIN, MEMORY_MB, AGAIN_SECONDS, DAYS_SECONDS = 0.3, 200.0, 2.0, 2.0
MB = 1_000_000
BARE = """
import sys
from pathlib import Path
import msgspec
decode = msgspec.json.Decoder().decode
for path in Path(sys.argv[1]).rglob("*.jsonl"):
    with open(path, "rb", buffering=1 << 18) as file:
        for line in file:
            decode(line)
"""


class Used(NamedTuple):
    """By a process."""

    seconds: float
    """User and system."""
    memory_mb: float
    """At its highest."""


def generate(path: Path, megabytes: float) -> float:
    """Session files of at least so many megabytes, below a directory for each project; how many they are."""
    size = number = 0
    while size < megabytes * MB:
        size += write(path, number)
        number += 1
    return size / MB


def write(folder: Path, number: int, turns: int | None = None) -> int:
    """One session's file; its bytes."""
    path = folder / f"project-{number % 12}" / f"{number:08x}-0000-4000-8000-{number:012x}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = session(number) if turns is None else session(number, turns)
    return path.write_bytes(b"".join(line + b"\n" for line in lines))


def used(argv: Sequence[str | Path], environment: Mapping[str, str], log: Path) -> Used:
    """Raises RuntimeError unless the process ends with 0."""
    with open(log, "wb") as log_file:
        process = subprocess.Popen(
            argv, env=dict(environment), stdin=subprocess.DEVNULL, stdout=log_file, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{argv[0]} ended with {process.returncode}: {log.read_text('utf-8', 'replace')[-2000:]}")
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


class Bench:
    """A place for one measurement."""

    def __init__(self, path: Path, mz: Path) -> None:
        self._place, self._mz = path, mz
        self._logs = 0

    def take(self, sessions: Path, data: Path) -> Used:
        """`mz import` into the log in `data`."""
        return self._mz_in(data, "import", str(sessions))

    def days(self, data: Path) -> Used:
        return self._mz_in(data, "cost", "--imported", "--by", "day")

    def bare(self, sessions: Path) -> Used:
        return used((sys.executable, "-c", BARE, sessions), os.environ, self._place / "bare.log")

    def fresh(self) -> Path:
        """A directory for a log that is not there yet."""
        self._logs += 1
        return self._place / f"data-{self._logs}"

    def _mz_in(self, data: Path, *args: str) -> Used:
        return used((self._mz, *args), {**os.environ, "MZ_DATA": str(data)}, self._place / "mz.log")


def importing(
    path: Path,
    mz: Path,
    megabytes: float = MEGABYTES,
    rounds: int = ROUNDS,
    year: int = YEAR,
    small_files: int = SMALL_FILES,
) -> tuple[Figure, ...]:
    """Raises RuntimeError where a command fails."""
    bench = Bench(path, mz)
    size = generate(path / "sessions", megabytes)
    imports, bare, again = list[Used](), list[Used](), list[Used]()
    for _ in range(rounds):
        data = bench.fresh()
        imports.append(bench.take(path / "sessions", data))
        bare.append(bench.bare(path / "sessions"))
        again.append(bench.take(path / "sessions", data))
    for number in range(year):
        write(path / "year", number, YEAR_TURNS)
    data = bench.fresh()
    bench.take(path / "year", data)
    days = [bench.days(data) for _ in range(rounds)]
    for number in range(small_files):
        write(path / "small", number, SMALL_TURNS)
    small = [bench.take(path / "small", bench.fresh()) for _ in range(rounds)]
    return (*figures(size, imports, bare, again, days, year), *small_figures(small, small_files))


def small_figures(small: Sequence[Used], files: int) -> tuple[Figure, ...]:
    """The median of the seconds, the most of the memory."""
    seconds, memory_mb = median(item.seconds for item in small), max(item.memory_mb for item in small)
    limit = f"limit, {files:,} files of 45 kB"
    return (
        compare("import.small", seconds, "CPU s", limit, SMALL_SECONDS, at_most=1.0),
        compare("import.small-memory", memory_mb, "MB", limit, SMALL_MEMORY_MB, at_most=1.0),
    )


def figures(
    size: float, imports: Sequence[Used], bare: Sequence[Used], again: Sequence[Used], days: Sequence[Used], year: int
) -> tuple[Figure, ...]:
    """Of `size` megabytes; medians of the rounds, but of memory the most."""

    def seconds(rounds: Sequence[Used]) -> float:
        return median(item.seconds for item in rounds)

    return (
        compare("import.rate", size / seconds(imports), "MB/CPU s", "msgspec decoding the lines", size / seconds(bare),
                at_least=RATIO_MIN),
        compare("import.memory", max(item.memory_mb for item in imports), "MB", "limit", MEMORY_MB, at_most=1.0),
        compare("import.again", seconds(again), "CPU s", "limit", AGAIN_SECONDS, at_most=1.0),
        compare("import.days", seconds(days), "CPU s", f"limit, over {year} sessions", DAYS_SECONDS, at_most=1.0),
    )  # fmt: skip
