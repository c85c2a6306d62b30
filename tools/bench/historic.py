"""What a history replay costs: a past run through today's core, in agent calls a second, against Temporal's
replayer over a workflow of as many activities. The run is a real one, of the features of `overhead`: its log and texts
are on the disk, its captured trees in git."""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

from mz_engine.agents.registry import built_in_adapters
from mz_engine.decide.feature import decide_feature
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.paths import BLOBS_FOLDER, LOG_FILE, MZ_FOLDER
from mz_engine.pricing.table import GenaiPrices
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import IntentEvent
from mz_events.codec import CODEC
from mz_events.names import feature_stream, run_stream
from mz_projections.feature.fold import evolve
from mz_projections.feature.state import NotStarted, State
from mz_recordings.past_runs.ports import ReplayInputs
from mz_recordings.past_runs.replay import load_pins, replay_run, run_started
from mz_recordings.record.learnings import known_hint

from tools.bench.answers import PHASES
from tools.bench.clock import alternate
from tools.bench.figure import Figure, compare, number
from tools.bench.noop import find_compiler
from tools.bench.overhead import Bench

FEATURES = 20
ROUNDS = 5
RECOMPUTED_MIN = 10.0
DECIDED_MIN = 20.0
TEMPORAL = "temporalio"
INTENTS = frozenset(kind for kind in CODEC.types.values() if issubclass(kind, IntentEvent))


class ReferenceMissing(Exception):
    """Temporal's library is not installed."""


class Replays:
    """A finished run, and the history of a workflow with as many steps."""

    def __init__(self, path: Path, mz: Path, features: int, compiler: str | None) -> None:
        self._temporal = temporal()
        self._bench = Bench(path, mz, features, compiler or find_compiler())
        self._bench.run((mz, "run"))
        self.calls = features * len(PHASES)
        self._history = self._temporal.recorded(self.calls)
        self._home = self._bench.root / MZ_FOLDER
        self._store = SqliteStore(self._home / LOG_FILE, read_only=True)
        (self._run,) = (name for name, _ in self._store.streams(run_stream("")) if name.count("/") == 1)
        self._adapters, self._prices = built_in_adapters(), GenaiPrices()

    def __enter__(self) -> Replays:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def past(self) -> int:
        """Replays the run: every stream read, decoded, decided on and compared; returns how many events were compared.
        Raises RuntimeError unless all is as recorded, and nothing was left out."""
        trees = GitWorkspace(self._bench.root, WorkspaceSettings(), self._bench.environment())
        blobs = FileBlobs(self._home / BLOBS_FOLDER)
        means = ReplayInputs(
            blobs=blobs, trees=trees,
            adapters=self._adapters, prices=self._prices, hints=partial(known_hint, self._store, blobs),
        )  # fmt: skip
        run_replay = replay_run(self._store, self._run.removeprefix(run_stream("")), means)
        left = {what: number for stream in run_replay.streams for what, number in stream.not_recomputed.items()}
        left.update((stream.missing_data, stream.not_compared) for stream in run_replay.streams if stream.missing_data)
        if run_replay.divergences or left:
            raise RuntimeError(f"the run is not as recorded: {run_replay.divergences[:3]} {left}")
        return sum(stream.compared for stream in run_replay.streams)

    def decide(self) -> int:
        """Read, decode and fold each feature's stream, and decide as often as the run did: before the first event of
        each action, all of whose events name the event that it was decided after, or the action's intent. Return how
        many decisions had an action. No text is read, and nothing is compared."""
        run = self._run.removeprefix(run_stream(""))
        pins = load_pins(FileBlobs(self._home / BLOBS_FOLDER), run_started(self._store, run))
        actions = 0
        for name, _ in self._store.streams(feature_stream(run, "")):
            state: State = NotStarted()
            decided_after, after_intent = "", False
            for recorded in self._store.read(name):
                if recorded.causation != decided_after:
                    decided_after = recorded.causation
                    if not after_intent:
                        actions += decide_feature(state, pins) is not None
                after_intent = recorded.event.__class__ in INTENTS
                state = evolve(state, recorded)
        return actions

    def reference(self, *, sandboxed: bool = True) -> None:
        self._temporal.replay(self._history, sandboxed=sandboxed)

    @property
    def name(self) -> str:
        return str(self._temporal.NAME)


def temporal() -> ModuleType:
    """The module that replays by Temporal. Raises ReferenceMissing."""
    try:
        from tools.bench import activities
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in (TEMPORAL, "google"):
            raise
        message = f"`history` is measured against Temporal's replayer, and there is no module {error.name}"
        raise ReferenceMissing(message) from error
    return activities


def history(
    path: Path, mz: Path, *, features: int = FEATURES, rounds: int = ROUNDS, compiler: str | None = None
) -> tuple[Figure, ...]:
    """Agent calls a second of CPU, against activities; `path` is an empty directory, `mz` the program. Raises
    ReferenceMissing before anything is done."""
    with Replays(path, mz, features, compiler) as replays:
        works: dict[str, Callable[[], object]] = {
            "recomputed": replays.past,
            "decided": replays.decide,
            "sandboxed": replays.reference,
            "unsandboxed": partial(replays.reference, sandboxed=False),
        }
        for work in works.values():
            work()
        result = alternate(rounds, {name: partial(cpu_rate, replays.calls, work) for name, work in works.items()})
        return figures(result, replays.name)


def figures(rates: dict[str, float], reference: str) -> tuple[Figure, ...]:
    """From steps a second of CPU: of the replay, and of the reference with its sandbox, which is its default, and
    without."""
    unit, against = "calls/CPU s", f"{reference} (without its sandbox: {number(rates['unsandboxed'])})"
    reference_rate = rates["sandboxed"]
    return tuple(
        compare(f"history.{name}", rates[name], unit, against, reference_rate, at_least=goal)
        for name, goal in (("recomputed", RECOMPUTED_MIN), ("decided", DECIDED_MIN))
    )


def cpu_rate(count: int, work: Callable[[], object]) -> float:
    """How many things a second the work gets through, which does `count` of them. Seconds of CPU: of all threads of
    this process, and of the processes that it starts and ends."""
    gc.collect()
    begun = _cpu_seconds()
    work()
    return count / (_cpu_seconds() - begun)


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in used)
