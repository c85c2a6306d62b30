"""What a replay costs: the calls of recorded features through today's whole pipeline, against bare spawns of
the same stand-in with the same inputs. What is recorded are the features of `overhead`, whose agent does no work."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.processes.environment import INHERITED_VARIABLES
from mz_recordings.cassette.files import load, write_copy
from mz_recordings.cassette.model import Cassette, Identity, RecordedCall
from mz_recordings.cassette.placeholders import MachineValues, expand
from mz_recordings.cassette.repository import unpack
from mz_recordings.replay.stand_in import install

from tools.bench.clock import alternate, cpu_seconds
from tools.bench.figure import Figure, compare
from tools.bench.noop import find_compiler
from tools.bench.overhead import Bench

FEATURES = 5
ROUNDS = 3
RECORDINGS = 10_000
RECORDINGS_REAL = 100
WORKERS = 2
RATIO_MAX = 2.0
RATE_MIN = 200.0
"""Recordings a second in memory."""
SESSION = "00000000-0000-4000-8000-000000000000"


class Spawn(NamedTuple):
    """One call of the stand-in, ready to be made."""

    argv: tuple[str, ...]
    directory: Path
    stdin: Path
    environment: dict[str, str]


class Replays:
    """A place for one measurement: a project with a recorded run, and stand-ins outside of any pipeline."""

    def __init__(self, folder: Path, mz: Path, features: int, compiler: str | None) -> None:
        self._place, self._mz = folder, mz
        self._bench = Bench(folder / "recorded", mz, features, compiler or find_compiler())
        self._bench.run((mz, "run"))
        self.path = folder / "cassette"
        self._call("record", "--to", str(self.path), "--provenance", "documented")
        self.cassette = load(self.path)
        install(folder / "bin", self.path, ("claude",), INHERITED_VARIABLES.pattern)

    def library(self, recordings: int, folder: str = "library") -> Path:
        """A folder of cassettes with so many recordings, or a few more; each is the recorded one by another name."""
        library = self._place / folder
        for number in range(-(-recordings // len(self.cassette.calls))):
            name = f"copy-{number:04}"
            manifest = replace(self.cassette.manifest, name=name)
            library.mkdir(exist_ok=True)
            write_copy(self.cassette._replace(manifest=manifest), library / name)
        return library

    def replay(self, path: Path, workers: int, *options: str) -> float:
        """CPU seconds of `mz replay`. Raises RuntimeError unless everything is as recorded."""
        return self._call("replay", str(path), "-j", str(workers), *options)

    def _call(self, *args: str) -> float:
        environment, log = self._bench.environment(), self._place / "mz.log"
        return cpu_seconds((self._mz, *args), self._bench.root, environment, log)

    # without mz -------------------------------------------------------------------------------------------------------
    def prepare(self) -> tuple[Spawn, ...]:
        """Every call of the cassette: in a directory that holds what the call began with."""
        bare = self._place / "bare"
        shutil.rmtree(bare, ignore_errors=True)
        bare.mkdir()
        unpack(self.cassette, bare / "base", self._bench.environment())
        spawns = tuple(self._spawns(bare))
        if len(spawns) != len(self.cassette.calls):
            raise RuntimeError(f"only {len(spawns)} of {len(self.cassette.calls)} calls follow each other")
        return spawns

    def _spawns(self, bare: Path) -> Iterator[Spawn]:
        """Each feature begins at the base; every call begins with what the one before it left."""
        for feature in self.cassette.traces:
            before, patch = bare / "base", b""
            for call in self._in_order(feature):
                root = bare / f"{feature}-{call.recording.identity.phase}"
                directory = root / ".mz" / "worktrees" / self.cassette.manifest.fixture.run / feature
                shutil.copytree(before, directory, symlinks=True)
                if patch:
                    self._git(directory, patch)
                yield self._spawn(call, root, directory)
                before, patch = directory, _content(call, "patch")

    def _in_order(self, feature: str) -> Iterator[RecordedCall]:
        """The calls of a feature by their trees: several may have begun in one second."""
        own = [call for call in self.cassette.calls if call.recording.identity.feature == feature]
        by_tree = {item.recording.tree_before: item for item in own}
        tree = self.cassette.manifest.fixture.base_tree
        while recorded := by_tree.get(tree):
            yield recorded
            tree = recorded.recording.tree_after

    def _spawn(self, call: RecordedCall, root: Path, directory: Path) -> Spawn:
        texts = {
            name: value for name, value in self._bench.environment().items() if INHERITED_VARIABLES.fullmatch(name)
        }
        environment = {**texts, "MZ_KEY": key_of(self.cassette, call.recording.identity)}
        environment["PATH"] = os.pathsep.join((str(self._place / "bin"), environment["PATH"]))
        home = environment["HOME"]
        places = MachineValues(str(directory), str(root), home, Path(home).name, SESSION)
        stdin = root / "prompt"
        stdin.write_bytes(expand(_content(call, "prompt"), places))
        argv = tuple(word.replace("<SESSION>", SESSION) for word in call.recording.argv)
        return Spawn((str(self._place / "bin" / argv[0]), *argv[1:]), directory, stdin, environment)

    def _git(self, directory: Path, patch: bytes) -> None:
        command = ["git", "apply", "--binary", "--whitespace=nowarn", "-"]
        subprocess.run(command, cwd=directory, env=self._bench.environment(), input=patch, check=True)

    def bare(self) -> float:
        """CPU seconds of all calls, one after the other."""
        return sum(served(spawn) for spawn in self.prepare())

    def bare_rate(self, workers: int) -> float:
        """Calls a second, so many at a time."""
        spawns = self.prepare()
        with ThreadPoolExecutor(workers) as pool:
            begun = time.perf_counter()
            list(pool.map(served, spawns))
            return len(spawns) / (time.perf_counter() - begun)

    def library_rate(self, library: Path, recordings: int, workers: int, *options: str) -> float:
        """Recordings a second, through the whole pipeline."""
        begun = time.perf_counter()
        self.replay(library, workers, *options)
        return recordings / (time.perf_counter() - begun)


def served(spawn: Spawn) -> float:
    """CPU seconds of one call, its children included. Raises RuntimeError where it was not served: it would be no
    reference."""
    with open(spawn.stdin, "rb") as prompt, open(spawn.stdin.with_name("out"), "w+b") as out:
        process = subprocess.Popen(
            spawn.argv, cwd=spawn.directory, env=spawn.environment, stdin=prompt, stdout=out, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            out.seek(0)
            text = out.read().decode("utf-8", "replace")[-2000:]
            raise RuntimeError(f"the stand-in ended with {process.returncode}: {text}")
    return usage.ru_utime + usage.ru_stime


def key_of(cassette: Cassette, identity: Identity) -> str:
    """What the engine calls this call."""
    unit, run = identity.unit or "-", cassette.manifest.fixture.run
    text = f"{identity.feature}/{identity.phase}/{unit}/{identity.iteration}/{identity.attempt}"
    return f"{run}/{text}/agent.{identity.role}"


def _content(call: RecordedCall, kind: str) -> bytes:
    return next((call.contents[file.name] for file in call.recording.files if file.kind == kind), b"")


def transport(
    folder: Path, mz: Path, *, features: int = FEATURES, rounds: int = ROUNDS, compiler: str | None = None
) -> tuple[Figure, ...]:
    """CPU seconds per call of one cassette, with processes; `path` is an empty directory, `mz` the program."""
    replays = Replays(folder, mz, features, compiler)
    calls = len(replays.cassette.calls)
    values = alternate(rounds, {"mz": lambda: replays.replay(replays.path, 1, "--real"), "bare": replays.bare})
    value, reference = values["mz"] / calls, values["bare"] / calls
    what = "the bare stand-in"
    return (compare("transport.call", value, "CPU s/call", what, reference, at_most=RATIO_MAX),)


def library(
    path: Path, mz: Path, *, recordings: int = RECORDINGS, rounds: int = 1, compiler: str | None = None
) -> tuple[Figure, ...]:
    """Recordings a second of a library, several at a time; `path` is an empty directory, `mz` the program."""
    replays = Replays(path, mz, 1, compiler)
    folder, real = replays.library(recordings), replays.library(min(recordings, RECORDINGS_REAL), "real")
    calls = len(replays.cassette.calls)
    number, real_number = calls * len(list(folder.iterdir())), calls * len(list(real.iterdir()))
    candidates = {
        "memory": lambda: replays.library_rate(folder, number, WORKERS),
        "real": lambda: replays.library_rate(real, real_number, WORKERS, "--real"),
        "bare": lambda: replays.bare_rate(WORKERS),
    }
    values = alternate(rounds, candidates)
    what = f"the bare stand-in, {WORKERS} at a time"
    return (
        compare("library.recordings", values["memory"], "recordings/s", "what was aimed at", RATE_MIN, at_least=1.0),
        compare("library.memory", values["memory"], "recordings/s", "mz replay --real", values["real"], at_least=20.0),
        compare("library.real", values["real"], "recordings/s", what, values["bare"], at_least=1 / RATIO_MAX),
    )
