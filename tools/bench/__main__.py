"""Command `python -m tools.bench`: benchmarks of `mz`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import msgspec
from mz_cli.app.failures import run_guarded
from mz_cli.app.help import command
from mz_cli.terminal.console import print_note
from mz_cli.terminal.table import Table, columns, print_table
from mz_engine.errors.diagnostics import MzError

from tools.bench.figure import Figure, document, number

HISTORY = "history"
NAMES = (
    *("import", "overhead", "changes", "redaction", "store", "startup", "transport", "library", HISTORY, "transcripts"),
    *("pricing", "simulation", "sandbox"),
)
"""In the order of `all`. The kernel counts the memory of this process as that of those it starts, so `import`, which
measures memory, comes first."""
ALL = "all"
NOTHING = "Nothing was measured."
QUICK_FEATURES, QUICK_EVENTS, QUICK_RECORDINGS = 1, 5_000, 12
QUICK_LINES = 2_000
QUICK_FILES = 100
QUICK_MEGABYTES, QUICK_SESSIONS = 10, 40


@command(
    "bench",
    examples=(
        ("python -m tools.bench startup", "how long the cheapest commands take"),
        ("python -m tools.bench all --out figures.json", "all benchmarks, also as JSON; takes some minutes"),
        ("python -m tools.bench overhead --profile", "the CPU time of a run by process and function"),
    ),
    next_command="docs/figures.md explains what is measured, and shows figures.",
)
@click.argument("name", type=click.Choice([*NAMES, ALL]))
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the figures to this file, as one object with the schema mz.bench/1.",
)
@click.option(
    "--path",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory for scratch files, which decides the measured disk. [default: the temporary directory]",
)
@click.option("--quick", is_flag=True, help="Small sizes and one round: a smoke test.")
@click.option("--profile", is_flag=True, help="With `overhead`: show a profile instead of figures.")
def bench(name: str, out: Path | None, path: Path | None, quick: bool, profile: bool) -> None:
    """Benchmark mz against references measured in the same run.

    NAME is `overhead` (CPU seconds per feature, with an agent that does no work), `changes` (a reply that changes
    20,000 files), `redaction` (agent output), `store` (appending, reading, rebuilding), `startup` (the cheapest
    commands), `transport` (a recorded call through the whole pipeline), `library` (10,000 recordings, two at a time),
    `history` (a past run through the current code, against Temporal's replayer), `transcripts` (reading agents' output
    files), `import` (a gigabyte of sessions into the user log), `pricing` (cost of requests, against the price table's
    own code), `simulation` (runs with faults by seed), `sandbox` (what isolation costs), or `all`. No agent is called
    and the network is not used. A missed goal is reported and does not change the exit code.
    """
    if profile and (name != "overhead" or out):
        raise click.UsageError("--profile goes with `overhead`, and without --out")
    if out is not None:
        write(out, ())
    mz = installed_mz()
    if name in (HISTORY, ALL):
        check_reference()
    with tempfile.TemporaryDirectory(prefix="mz-bench-", dir=path) as scratch:
        scratch_folder = Path(scratch).resolve()
        if profile:
            print_profile(scratch_folder, mz, quick)
            return
        figures: list[Figure] = []
        for benchmark in NAMES if name == ALL else (name,):
            print_note(f"measuring: {benchmark}")
            (scratch_folder / benchmark).mkdir()
            figures += MEASURES[benchmark](scratch_folder / benchmark, mz, quick)
    if out is not None:
        write(out, tuple(figures))
    print_table(table(tuple(figures)))


def measure_overhead(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
    from tools.bench.overhead import FEATURES, ROUNDS, overhead

    return overhead(folder, mz, features=QUICK_FEATURES if quick else FEATURES, rounds=1 if quick else ROUNDS)


def measure_changes(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
    from tools.bench.changes import FILES, ROUNDS, changes

    return changes(folder, files=QUICK_FILES if quick else FILES, rounds=1 if quick else ROUNDS)


def measure_redaction(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
    from tools.bench.redaction import MEGABYTES, ROUNDS, redaction

    return redaction(megabytes=1 if quick else MEGABYTES, rounds=1 if quick else ROUNDS)


def measure_store(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
    from tools.bench.store import EVENTS, ROUNDS, store

    return store(folder, events=QUICK_EVENTS if quick else EVENTS, rounds=1 if quick else ROUNDS)


def measure_startup(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
    from tools.bench.startup import EVENTS, ROUNDS, startup

    return startup(folder, mz, events=QUICK_EVENTS if quick else EVENTS, rounds=1 if quick else ROUNDS)


def measure_transport(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
    from tools.bench.replays import FEATURES, ROUNDS, transport

    return transport(folder, mz, features=QUICK_FEATURES if quick else FEATURES, rounds=1 if quick else ROUNDS)


def measure_library(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
    from tools.bench.replays import RECORDINGS, library

    return library(folder, mz, recordings=QUICK_RECORDINGS if quick else RECORDINGS)


def measure_history(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
    from tools.bench.historic import FEATURES, ROUNDS, history

    return history(folder, mz, features=QUICK_FEATURES if quick else FEATURES, rounds=1 if quick else ROUNDS)


def measure_transcripts(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
    from tools.bench.transcripts import LINES, ROUNDS, transcripts

    return transcripts(lines=QUICK_LINES if quick else LINES, rounds=1 if quick else ROUNDS)


def measure_import(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
    from tools.bench.importing import MEGABYTES, ROUNDS, YEAR, importing

    if quick:
        return importing(folder, mz, megabytes=QUICK_MEGABYTES, rounds=1, year=QUICK_SESSIONS, small_files=QUICK_FILES)
    return importing(folder, mz, megabytes=MEGABYTES, rounds=ROUNDS, year=YEAR)


def measure_pricing(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
    from tools.bench.pricing import REFERENCES, REQUESTS, ROUNDS, pricing

    if quick:
        return pricing(requests_count=QUICK_LINES, references_count=QUICK_LINES // 20, rounds=1)
    return pricing(requests_count=REQUESTS, references_count=REFERENCES, rounds=ROUNDS)


def measure_simulation(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
    from tools.bench.simulating import SEEDS, simulation

    return simulation(seeds=QUICK_RECORDINGS if quick else SEEDS)


def measure_sandbox(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
    from tools.bench.sandbox import sandbox

    return sandbox(folder, calls=QUICK_RECORDINGS, sizes=(QUICK_FILES,), rounds=1) if quick else sandbox(folder)


MEASURES: dict[str, Callable[[Path, Path, bool], tuple[Figure, ...]]] = {
    "overhead": measure_overhead,
    "changes": measure_changes,
    "redaction": measure_redaction,
    "store": measure_store,
    "startup": measure_startup,
    "transport": measure_transport,
    "library": measure_library,
    "history": measure_history,
    "transcripts": measure_transcripts,
    "import": measure_import,
    "pricing": measure_pricing,
    "simulation": measure_simulation,
    "sandbox": measure_sandbox,
}


def installed_mz() -> Path:
    """Return the installed `mz`: the running one, or the one beside this Python. Raises MzError (MZ1004)."""
    for candidate in (Path(sys.argv[0]).absolute(), Path(sys.executable).with_name("mz")):
        if candidate.name == "mz" and candidate.is_file():
            return candidate
    raise MzError("MZ1004", "no `mz` beside this Python", hint="install mz-engine, then use its `mz`")


def check_reference() -> None:
    """Check that the reference of `history` is installed. Raises MzError (MZ1004)."""
    from tools.bench.historic import ReferenceMissing, temporal

    try:
        temporal()
    except ReferenceMissing as error:
        raise MzError("MZ1004", str(error), hint="run `make dev`, which installs it") from error


def write(out: Path, figures: tuple[Figure, ...]) -> None:
    """Write the figures as JSON. Raises MzError (MZ1006)."""
    try:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(document(figures)), indent=2) + b"\n")
    except OSError as error:
        message = f"{out} cannot be written: {error.strerror}"
        raise MzError("MZ1006", message, hint="choose another file with --out") from error


def table(figures: tuple[Figure, ...]) -> Table:
    rows = tuple(
        (
            figure.name, number(figure.value), figure.unit, figure.reference, number(figure.reference_value),
            f"{figure.ratio:.2f}", f"{'>=' if figure.better == 'higher' else '<='} {figure.goal:.2f}",
            "met" if figure.met else "missed",
        )
        for figure in figures
    )  # fmt: skip
    heads = columns("figure", ">value", "unit", "reference", ">reference value", ">ratio", ">goal", "result")
    return Table(columns=heads, rows=rows, empty=NOTHING)


def print_profile(folder: Path, mz: Path, quick: bool) -> None:
    """Print two tables: processes, and functions of `mz` itself."""
    from tools.bench.breakdown import FUNCTIONS_MAX, breakdown
    from tools.bench.overhead import FEATURES

    profile = breakdown(folder, mz, features=QUICK_FEATURES if quick else FEATURES)
    shares = tuple(
        (share.what, "-" if share.calls is None else f"{share.calls:.1f}", f"{share.seconds:.3f}", f"{share.part:.0%}")
        for share in profile.shares
    )
    print_table(
        Table(columns=columns("process", ">calls/feature", ">CPU s/feature", ">share"), rows=shares, empty=NOTHING)
    )
    functions = tuple(
        (
            f"{function.file.rpartition('/mz_')[2].removesuffix('.py')}.{function.name}",
            f"{function.calls:,}",
            f"{function.own:.3f}",
            f"{function.cumulative:.3f}",
        )
        for function in profile.functions
    )
    print_note(
        f"\nThe {FUNCTIONS_MAX} most expensive functions of mz, including callees; the profiler doubles their time:"
    )
    heads = columns("function", ">calls", ">own CPU s", ">total CPU s")
    print_table(Table(columns=heads, rows=functions, empty=NOTHING))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, and end the process with its exit code."""
    command_line = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run_guarded(lambda: run_command(command_line), command_line))


def run_command(arguments: list[str]) -> object:
    """Run the command line; return the command's result."""
    with bench.make_context("python -m tools.bench", arguments) as context:
        return bench.invoke(context)


if __name__ == "__main__":
    main()
