"""The process that drives a run: takes the lock, reads backlog and settings once, starts or resumes, and drives.

with RunProcess(root, environment, observe) as process:
    process.start(flags, only) or process.resume(run)
    process.drive()
"""

from __future__ import annotations

import errno
import secrets as dice
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout
from msgspec.structs import replace
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.run import RunForked, RunStarted
from mz_events.names import Digest, FeatureId, RunId, feature_stream, inbox_stream, run_stream
from mz_events.redact import Secrets
from mz_events.store import Append, StoreUnusable
from mz_projections.run import RunState, over

from mz_engine.adapters.git_repository import branch_commit
from mz_engine.adapters.known_secrets import known_secrets
from mz_engine.adapters.machine import Machine, SystemClock
from mz_engine.configfile import load_config
from mz_engine.coordinator import Coordinator
from mz_engine.decide.run import Watch
from mz_engine.errors import MzError
from mz_engine.fork import Change, beginning, changed, settled
from mz_engine.home import BLOBS, HOME, LOCK, LOG
from mz_engine.pins import Pins, decode_pins, encode_pins
from mz_engine.planning import Plan, find_run, make_plan, unfinished
from mz_engine.preflight import check_agents, check_commands, check_delivery
from mz_engine.runner import Coordinating, FeatureRun, Observer
from mz_engine.scheduler import Scheduler
from mz_engine.version import VERSION
from mz_engine.watch import Noticed, look

UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES})


def new_run_id() -> RunId:
    """Return a random id that is short enough to type."""
    return RunId(f"r{dice.token_hex(4)}")


def stopped_by(error: StoreUnusable | OSError, run: str) -> Exception:
    """Return an MzError for a disk that is full or read-only; any other error is a bug and returned unchanged."""
    if isinstance(error, OSError) and error.errno not in UNWRITABLE:
        return error
    cause = str(error) if isinstance(error, StoreUnusable) else f"{error.filename or 'the disk'}: {error.strerror}"
    hint = f"all recorded events are safe; free disk space, then: mz resume {run}"
    return MzError("MZ1006", f"run {run} had to stop: {cause}", hint=hint)


class Session:
    """One process in one repository. Call `start`, `fork` or `resume` first, then `drive`."""

    def __init__(self, root: Path, environment: Mapping[str, str], see: Observer) -> None:
        self.root, self.environment, self.see = root, environment, see
        self.clock = SystemClock()
        self._open = ExitStack()
        self._scheduler: Scheduler | None = None
        self._machine: Machine | None = None
        self.coordinator: Coordinator | None = None

    def __enter__(self) -> Session:
        home = self.root / HOME
        try:
            home.mkdir(exist_ok=True)
            (home / ".gitignore").write_text("*\n")
        except OSError as error:
            raise MzError(
                "MZ1006", f"{home}: {error.strerror}", hint="mz keeps its log there; make it writable"
            ) from None
        lock = FileLock(home / LOCK, timeout=0)
        try:
            self._open.enter_context(lock)
        except Timeout:
            hint = "wait for it, or stop it with Ctrl-C; see `mz status`"
            raise MzError("MZ5002", "another mz process drives a run in this repository", hint=hint) from None
        self.store = self._open.enter_context(SqliteStore(home / LOG))
        self.blobs = FileBlobs(home / BLOBS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    # starting ---------------------------------------------------------------------------------------------------------
    def begin(self, flags: Mapping[str, object], only: tuple[str, ...]) -> Plan:
        """Start a run, or add to the unfinished one of the same pipeline and base.

        If the backlog has nothing to do, no run starts and `coordinator` stays None. Raises MzError.
        """
        plan = make_plan(self.root, self.environment, flags, only, self.store, self._put)
        waiting = unfinished(self.store)
        if waiting is not None:
            self._add(waiting, plan)
            return plan
        base_commit = branch_commit(self.root, plan.base, self.environment)
        if not plan.taken.added:
            return plan
        self._prepare(plan.pins)
        run = new_run_id()
        started = RunStarted(
            run=run,
            pipeline=plan.pins.pipeline.pipeline,
            base=plan.base,
            base_commit=base_commit,
            pins=self.blobs.put(encode_pins(plan.pins)),
            core=VERSION,
        )
        self._append(run, 0, (started, *plan.taken.skipped, *plan.taken.added))
        self._take_up(run, plan.pins)
        return plan

    def _add(self, waiting: RunState, plan: Plan) -> None:
        """Add the new items of the backlog to the unfinished run, under the pins of that run."""
        started = waiting.started
        assert started is not None
        if (started.pipeline, started.base) != (plan.pins.pipeline.pipeline, plan.base):
            raise MzError(
                "MZ5003",
                f"unfinished run {started.run} has pipeline {started.pipeline} and base {started.base}",
                hint=f"continue it with `mz resume {started.run}`, or cancel it with `mz cancel {started.run}`",
            )
        skipped = [item for item in plan.taken.skipped if item.feature not in waiting.skipped]
        self._append(started.run, waiting.version, (*skipped, *plan.taken.added))
        self.resume(started.run)

    def fork(self, source: str, feature: str, at: int, change: Change) -> RunForked:
        """Start a run that continues a feature of another run from version `at` of its stream.

        If a call was in progress there, the fork begins at the last version before it. Raises MzError, CannotFork, and
        BlobMissing if the source was erased.
        """
        original = find_run(self.store, source)
        if original is None or original.started is None or feature not in original.tracks:
            raise MzError("MZ5001", f"run {source} has no feature {feature!r}", hint=f"mz status {source}")
        source_pins, run = decode_pins(self.blobs.get(original.started.pins)), new_run_id()
        events = tuple(self.store.read(feature_stream(source, feature)))
        version, state = settled(events, source_pins, at)
        pins = changed(source_pins, state, change, run)
        self._prepare(pins)
        started = replace(original.started, run=run, pins=self.blobs.put(encode_pins(pins)), core=VERSION)
        forked = RunForked(source=original.started.run, feature=FeatureId(feature), version=version)
        appends = beginning(started, forked, original.tracks[feature].item, events, pins)
        for recorded in self.store.append(appends, self.clock.now_us()):
            self.see(recorded)
        self._take_up(run, pins)
        return forked

    def resume(self, run: str | None) -> None:
        """Resume a run, with its pins; only the budget is read from the settings again.

        Raises MzError; MZ5001 if there is no unfinished run.
        """
        state = find_run(self.store, run) if run else unfinished(self.store)
        if state is None or state.started is None or self._over(state):
            raise MzError("MZ5001", "there is no run to resume", hint="`mz status` shows the newest run")
        pins = decode_pins(self.blobs.get(state.started.pins))
        self._prepare(pins)
        coordinator = self._take_up(state.started.run, pins)
        with suppress(MzError):  # The run has its pins, so settings that are invalid now do not matter.
            coordinator.set_budget(load_config(self.root, self.environment, {}).config.budget)
        coordinator.resume()

    def _over(self, state: RunState) -> bool:
        assert state.started is not None
        inbox = inbox_stream(state.started.run)
        return over(state, dict(self.store.streams(inbox)).get(inbox, 0))

    def _prepare(self, pins: Pins) -> None:
        """Check that a run has everything it needs, before anything is written or paid. Raises MzError."""
        check_agents(pins.config, self.environment)
        check_commands(self.root, pins.config, self.environment)
        self._machine = Machine(self.root, pins.config, self.store, self.blobs, self.environment)
        check_delivery(self._machine.workspace, pins.config, self.environment)

    def _put(self, text: str) -> Digest:
        return self.blobs.put(self._secrets.redact(text).encode())

    @cached_property
    def _secrets(self) -> Secrets:
        return Secrets(known_secrets(self.root, self.environment))

    def _append(self, run: str, version: int, events: tuple[Event, ...]) -> None:
        if events:
            for recorded in self.store.append([Append(run_stream(run), version, events)], self.clock.now_us()):
                self.see(recorded)

    def _take_up(self, run: RunId, pins: Pins) -> Coordinator:
        self.coordinator = Coordinator(run, pins, self.store, self.clock, self.see)
        return self.coordinator

    # driving ----------------------------------------------------------------------------------------------------------
    def drive(self) -> RunState:
        """Drive the run until it is idle, finished, halted or interrupted. Raises the exception of a failed thread."""
        coordinator, machine = self.coordinator, self._machine
        assert coordinator is not None
        assert machine is not None

        def start_loop(feature: FeatureId, run_side: Coordinating) -> FeatureRun:
            return FeatureRun(coordinator.run, feature, coordinator.pins, self.store, machine, run_side, self.see)

        def poll(question: Watch) -> Noticed | None:
            return look(question, coordinator.state, coordinator.pins, self.store, machine)

        self._scheduler = Scheduler(coordinator, start_loop, poll)
        try:
            self._scheduler.run()
        except (StoreUnusable, OSError) as error:
            raise stopped_by(error, coordinator.run) from error
        return coordinator.state

    def stop(self) -> None:
        """Stop after the current actions."""
        if self._scheduler is not None:
            self._scheduler.stop()

    def pause(self) -> None:
        """Pause after the current actions."""
        if self._scheduler is not None:
            self._scheduler.pause(True)

    def unpause(self) -> None:
        """Continue after a pause."""
        if self._scheduler is not None:
            self._scheduler.pause(False)

    def kill(self) -> None:
        """Kill every agent and command now; their outcomes are reconciled at the next resume."""
        if self._machine is not None:
            self._machine.kill.set()
