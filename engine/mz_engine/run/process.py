"""The process that drives a run: takes the lock, reads backlog and settings once, starts or resumes, and drives.

with RunProcess(root, environment, observe) as process:
    process.start(flags, only) or process.resume(run)
    process.drive()
"""

from __future__ import annotations

import errno
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout
from msgspec.structs import replace
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.delivery import MergeRequested
from mz_events.catalog.run import (
    BranchAdopted,
    CommandsChanged,
    CyclesAllowed,
    RunClosing,
    RunFinished,
    RunForked,
    RunStarted,
)
from mz_events.names import PROJECT_STREAM, Digest, FeatureId, RunId, feature_stream, run_stream
from mz_events.redaction.redactor import Secrets
from mz_events.store import Append, StoreUnusable
from mz_projections.read_models.store import ReadModelStore
from mz_projections.run.fold import DELIVERED_OUTCOMES, RunState, fold_run

from mz_engine.decide.items import newest_head, own_texts
from mz_engine.decide.run import cancelled_features, current_limits
from mz_engine.effects.commands import base_commands
from mz_engine.errors.diagnostics import Diagnostic, MzError
from mz_engine.git.process import STORAGE_ERRORS
from mz_engine.git.repository import branch_commit
from mz_engine.model.pins import Commands, Pins, decode_commands, decode_pins, encode_pins
from mz_engine.paths import BLOBS_FOLDER, LOCK_FILE, LOG_FILE, MZ_FOLDER, READ_MODELS_FILE
from mz_engine.ports import StorageFailed
from mz_engine.processes.container import isolation_levels
from mz_engine.processes.environment import remove_abandoned_scratch
from mz_engine.run.base import base_problem, base_warnings, drive_base_test
from mz_engine.run.coordinator import Coordinator
from mz_engine.run.feature_loop import FeatureLoop, Observer, RunSide
from mz_engine.run.fork import FORK_SETTINGS, ForkChange, fork_point, forked_pins, initial_appends
from mz_engine.run.plan import PREREQUISITES, RunPlan, check_isolation, find_unfinished_run, make_plan, reply_provenance
from mz_engine.run.ports import SystemClock, SystemPorts
from mz_engine.run.scheduler import Scheduler
from mz_engine.run.seals import Sealer
from mz_engine.run.settings import kept_settings, load_config
from mz_engine.run.spending_record import open_record
from mz_engine.secrets import project_secrets
from mz_engine.version import VERSION

UNWRITABLE = STORAGE_ERRORS | {errno.EACCES}
STORAGE_ERROR = "MZ1006"
STORAGE_FAILURES = (StoreUnusable, OSError, StorageFailed)


def new_run_id() -> RunId:
    """Return a random id that is short enough to type."""
    return RunId(f"r{secrets.token_hex(4)}")


def storage_error(error: StoreUnusable | OSError | StorageFailed, run: str) -> Exception:
    """Return an MzError for a disk that is full, read-only or failing. Any other error is a bug, returned unchanged."""
    if isinstance(error, OSError) and error.errno not in UNWRITABLE:
        return error
    cause = f"{error.filename or 'the disk'}: {error.strerror}" if isinstance(error, OSError) else str(error)
    hint = f"all recorded events are safe; free disk space, or repair what failed, then: mz resume {run}"
    return MzError(STORAGE_ERROR, f"run {run} had to stop: {cause}", hint=hint)


def check_cycles(pins: Pins, cycles: int | None) -> None:
    """Raise MzError (MZ1002) if cycles are to be limited and the pipeline has none."""
    if cycles is not None and pins.pipeline.cycle is None:
        name = pins.pipeline.pipeline
        raise MzError("MZ1002", f"the pipeline {name} has no cycles", hint="leave `--cycles` out")


class RunProcess:
    """One process in one repository. Call `start`, `fork` or `resume` first, then `drive`."""

    scheduler: Scheduler
    """From then on; also to stop or pause the run."""
    _machine: SystemPorts
    _sealer: Sealer

    def __init__(self, root: Path, environment: Mapping[str, str], observe: Observer) -> None:
        self.root, self.environment, self.observe = root, environment, observe
        self.provenance = ""
        """Origin of the agents' replies, if the caller knows better than their variables."""
        self.loop_type: Callable[..., FeatureLoop] = FeatureLoop
        """Makes the loops of features, from the arguments of `FeatureLoop`."""
        self.clock = SystemClock()
        self._resources = ExitStack()
        self.coordinator: Coordinator | None = None
        self._warnings: tuple[Diagnostic, ...] = ()

    def __enter__(self) -> RunProcess:
        mz_folder = self.root / MZ_FOLDER
        try:
            mz_folder.mkdir(exist_ok=True)
            (mz_folder / ".gitignore").write_text("*\n")
        except OSError as error:
            hint = "mz keeps its log there; make it writable"
            raise MzError("MZ1006", f"{mz_folder}: {error.strerror}", hint=hint) from None
        lock = FileLock(mz_folder / LOCK_FILE, timeout=0)
        try:
            self._resources.enter_context(lock)
        except Timeout:
            hint = "wait for it, or stop it with Ctrl-C; see `mz status`"
            raise MzError("MZ5002", "another mz process drives a run in this repository", hint=hint) from None
        remove_abandoned_scratch(self.root)
        self.store = self._resources.enter_context(SqliteStore(mz_folder / LOG_FILE))
        self.blobs = FileBlobs(mz_folder / BLOBS_FOLDER)
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()

    # starting ---------------------------------------------------------------------------------------------------------
    def start(
        self, flags: Mapping[str, object], only: tuple[str, ...], is_new: bool = False, cycles: int | None = None
    ) -> RunPlan:
        """Start a run, or add to the unfinished one, unless it `is_new`, under its pins. Without anything to do, no run
        starts and `coordinator` stays None. Raises MzError."""
        plan = make_plan(self.root, self.environment, flags, only, self.store, self._put_text, is_new=is_new)
        check_cycles(plan.pins, cycles)
        if plan.unfinished is not None:
            unfinished, started = plan.unfinished, plan.unfinished.started
            assert started is not None
            skipped = [item for item in plan.intake.skipped if item.feature not in unfinished.skipped]
            self.resume(started.run)
            assert self.coordinator is not None
            if events := (*skipped, *plan.intake.added):  # Last: a run that cannot be resumed stays as it is.
                self.coordinator.append(events)
            return plan
        base_commit = branch_commit(self.root, plan.base, self.environment)
        config = replace(plan.pins.config, request=self._secrets.redact(plan.pins.config.request))
        plan = replace(plan, pins=replace(plan.pins, config=config))
        if not plan.intake.added and not own_texts(plan.pins):
            return plan
        self._check_prerequisites(plan.pins)
        run = new_run_id()
        for text in own_texts(plan.pins):
            self.blobs.put(text.encode())
        pipeline, pins = plan.pins.pipeline.pipeline, self.blobs.put(encode_pins(plan.pins))
        started = RunStarted(
            run=run,
            pipeline=pipeline,
            base=plan.base,
            base_commit=base_commit,
            pins=pins,
            mz_version=VERSION,
            provenance=self._provenance(plan.pins),
            isolation=isolation_levels(plan.pins.config),
            integration=plan.integration,
        )
        self._append(Append(run_stream(run), 0, (started, *plan.intake.skipped, *plan.intake.added)))
        self._create_coordinator(run, plan.pins)
        return plan

    def fork(self, source: str, feature: str, at_version: int, change: ForkChange) -> RunForked:
        """Start a run that continues a feature of another run from this version of its stream, or the last one before a
        call in progress. Raises MzError, CannotFork, and BlobMissing if the source was erased."""
        original = fold_run(self.store.read(run_stream(source)))
        if original.started is None or feature not in original.tracks:
            raise MzError("MZ5001", f"run {source} has no feature {feature!r}", hint=f"mz status {source}")
        source_pins, run = decode_pins(self.blobs.get(original.started.pins)), new_run_id()
        events = tuple(self.store.read(feature_stream(source, feature)))
        version, state = fork_point(events, source_pins, at_version)
        pins = forked_pins(source_pins, state, change, run)
        self._check_prerequisites(pins)
        started = replace(
            original.started,
            run=run,
            pins=self.blobs.put(encode_pins(pins)),
            mz_version=VERSION,
            provenance=self._provenance(pins),
            isolation=isolation_levels(pins.config),
        )
        forked = RunForked(source=original.started.run, feature=FeatureId(feature), version=version)
        self._append(*initial_appends(started, forked, original.tracks[feature].item, events, pins))
        self._create_coordinator(run, pins)
        return forked

    def resume(self, run: str | None, is_given_up: bool = False) -> None:
        """Resume a run, with its pins; only budget, commands, set-up and what these need are read from the settings
        again. Raises MzError; MZ5001 if no run is unfinished, MZ5021 if its integration branch lost what it merged. A
        run that `is_given_up` needs neither that branch nor agents and programs."""
        state, started, pins = self._unfinished_run(run)
        if state.commands is not None:
            pins = decode_commands(self.blobs.get(state.commands)).apply(pins)
        config, commands = None, Commands.of(pins.config)
        try:
            loaded = load_config(self.root, self.environment, {})
            config, commands = loaded.config, Commands.of(loaded.config)
            kept = replace(commands.apply(pins).config, budget=config.budget)
            self._warnings = tuple(kept_settings(started.run, kept, loaded, FORK_SETTINGS if state.fork else ()))
        except MzError as error:  # The run has its pins.
            self._warnings = tuple(replace(diagnostic, severity="warning") for diagnostic in error.diagnostics)
        corrected = commands.apply(pins)
        self._check_prerequisites(corrected, is_given_up)
        coordinator = self._create_coordinator(started.run, corrected)
        if config is not None:
            coordinator.set_budget(config.budget)
        if corrected.config != pins.config:
            changes = self._put_text("\n".join(commands.changes_from(Commands.of(pins.config))))
            coordinator.append((CommandsChanged(commands=self.blobs.put(encode_pins(commands)), changes=changes),))
        if not is_given_up:
            self._adopt_commits(coordinator)
        coordinator.resume(self._provenance(corrected), isolation_levels(corrected.config))

    def _adopt_commits(self, coordinator: Coordinator) -> None:
        """Record commits of people on top of the run's integration branch, once each merge into it has its outcome.
        Raises MzError (MZ5021) if it lacks what the run merged into it."""
        started, workspace = coordinator.state.started, self._machine.workspace
        if started is None or not started.integration:
            return
        own = newest_head(coordinator.state, coordinator.pins, started.integration)
        now = workspace.target_head(None, started.integration)
        if own is None or now == own or (now is None and coordinator.state.closing is not None):
            return  # An end that was interrupted may have deleted the branch.
        if now is None or not workspace.contains(now, own):
            state = f"is at {now[:8]}, without" if now else "is gone, with"
            hint = (
                f"`git branch -f {started.integration} {own[:12]}` brings it back, `git revert` on it leaves work out"
            )
            hint += f"; or `mz cancel {started.run}`"
            raise MzError("MZ5021", f"{started.integration} {state} what run {started.run} merged", hint=hint)
        merges = (  # Of which a killed process did not record the outcome.
            recorded.event
            for feature, track in coordinator.state.tracks.items()
            if track.admitted and not track.has_ended
            for recorded in deque(self.store.read(feature_stream(coordinator.run, feature)), maxlen=1)
            if isinstance(recorded.event, MergeRequested)
        )
        if all(merge.branch != started.integration for merge in merges):
            coordinator.append((BranchAdopted(branch=started.integration, commit=now),))

    def allow_cycles(self, cycles: int) -> None:
        """Record that the run may go through so many more cycles. Raises MzError (MZ1002) if it has none."""
        assert self.coordinator is not None
        check_cycles(self.coordinator.pins, cycles)
        self.coordinator.append((CyclesAllowed(until=self.coordinator.state.cycle + cycles),))

    def close(self, run: str, how: Literal["finish", "cancel"], person: str) -> None:
        """Resume the run and record that a person ends it, unless it is ending so already. Raises MzError; MZ5020 if
        the pipeline has no item for that."""
        pins = self._unfinished_run(run)[2]
        if pins.pipeline.kind_from(how) is None:
            hint = f"`mz resume {run}` continues it, `mz cancel {run}` gives it up"
            raise MzError("MZ5020", f"run {run} ends when its items have ended", hint=hint)
        self.resume(run)
        assert self.coordinator is not None
        closing = self.coordinator.state.closing
        if closing is None or closing.how != how:
            self.coordinator.append((RunClosing(how=how, actor=self._put_text(person)),))

    def record_cancellations(self, run: str) -> None:
        """Let the features of a run at rest record the cancellations in its inbox; nothing else starts or continues.
        Raises MzError, MZ5001 if the run is finished."""
        _, started, pins = self._unfinished_run(run)
        self._machine = SystemPorts(self.root, pins.config, self.store, self.blobs, self.environment)
        coordinator = self._create_coordinator(started.run, pins)
        coordinator.begins_cycles = False
        coordinator.read_inbox()
        try:
            for feature in cancelled_features(coordinator.state):
                feature_loop = FeatureLoop(run, feature, pins, self.store, self._machine, coordinator, self.observe)
                while feature_loop.step():
                    pass
                coordinator.worker_stopped(feature_loop)
        except STORAGE_FAILURES as error:
            raise storage_error(error, run) from error
        if coordinator.state.all_ended and isinstance(action := coordinator.decide(), RunFinished):
            coordinator.record_end(action)

    def _unfinished_run(self, run: str | None) -> tuple[RunState, RunStarted, Pins]:
        """Return the run, how it was started, and the pins of its start. Raises MzError (MZ5001)."""
        state = find_unfinished_run(self.store, run)
        if state is None or state.started is None:
            problem = "there is no run to resume" if run is None else f"run {run} is finished"
            hint = f"`mz status{f' {run}' if run else ''}` shows it; `mz run` starts another"
            raise MzError("MZ5001", problem, hint=hint)
        return state, state.started, decode_pins(self.blobs.get(state.started.pins))

    def _check_prerequisites(self, pins: Pins, is_given_up: bool = False) -> None:
        """Check that a run has everything it needs, before anything is written or paid. Raises MzError."""
        for check in (check_isolation,) if is_given_up else PREREQUISITES:
            check(self.root, pins.config, self.environment)
        self._machine = SystemPorts(self.root, pins.config, self.store, self.blobs, self.environment)
        self._sealer = Sealer(self.root, self.store, pins.config, self.environment)
        self._machine.forge.seal = self._sealer.note_delivery

    def _provenance(self, pins: Pins) -> str:
        return self.provenance or reply_provenance(pins.config, self.environment)

    def _put_text(self, text: str) -> Digest:
        return self.blobs.put(self._secrets.redact(text).encode())

    @cached_property
    def _secrets(self) -> Secrets:
        return Secrets(project_secrets(self.root, self.environment))

    def _append(self, *appends: Append) -> None:
        for recorded in self.store.append(appends, self.clock.now_us()):
            self.observe(recorded)

    def _create_coordinator(self, run: RunId, pins: Pins) -> Coordinator:
        machine = self._machine
        self.coordinator = coordinator = Coordinator(run, pins, self.store, self.clock, self.observe)
        if self.provenance in ("", "live"):  # Recordings cost nothing.
            coordinator.spending = open_record(self.environment, str(self.root), pins.config.budget)

        def start_loop(feature: FeatureId, run_side: RunSide) -> FeatureLoop:
            budget = current_limits(coordinator.state, pins)
            current = replace(pins, config=replace(pins.config, budget=budget))
            return self.loop_type(run, feature, current, self.store, machine, run_side, self.observe)

        self.scheduler = Scheduler(coordinator, start_loop, lambda poll: coordinator.poll_forge(poll, machine))
        return coordinator

    # driving ----------------------------------------------------------------------------------------------------------
    def drive(self, warn: Callable[[Diagnostic], None] = lambda warning: None) -> RunState:
        """Test the base, then drive the run until it is idle, finished, halted or interrupted. Raises MzError if the
        commands cannot be used, and the exception of a failed thread."""
        assert self.coordinator is not None
        for warning in self._warnings:
            warn(warning)
        try:
            if self.coordinator.state.needs_base_test:
                self._test_base(self.coordinator, warn)
            self.scheduler.run()
            self._seal(self.coordinator, warn)
            if self.coordinator.state.finished:
                self._machine.workspace.close_checkouts(self.coordinator.run)
                self._propose_routing(self.coordinator)
        except STORAGE_FAILURES as error:
            raise storage_error(error, self.coordinator.run) from error
        return self.coordinator.state

    def _propose_routing(self, coordinator: Coordinator) -> None:
        """Record what the log proposes to route differently; a fork, which is not counted, proposes nothing."""
        from mz_projections.rewards.facts import FACTS  # A run starts faster without them.

        from mz_engine.run.proposals import proposed_routing

        if coordinator.state.fork is not None:
            return
        with ReadModelStore(self.root / MZ_FOLDER / READ_MODELS_FILE, self.store, (FACTS,)) as views:
            views.refresh()
            rows = views.rows(FACTS)
        proposed = proposed_routing(rows, self.store, self.blobs, coordinator.run, coordinator.pins)
        if proposed is not None:
            self.store.append([Append(PROJECT_STREAM, None, (proposed,))], self.clock.now_us())

    def _seal(self, coordinator: Coordinator, warn: Callable[[Diagnostic], None]) -> None:
        """Seal the log in notes of what was delivered."""
        stops = [track.last_stop for track in coordinator.state.tracks.values() if track.last_stop is not None]
        heads = [stop.head for stop in stops if stop.head is not None and stop.status in DELIVERED_OUTCOMES]
        if heads and (problem := self._sealer.note(coordinator.run, heads, push=True)[1]):
            hint = f"`mz seal {coordinator.run}` writes a seal to keep elsewhere"
            warn(Diagnostic(severity="warning", code="MZ5014", message=f"the seal of the log: {problem}", hint=hint))

    def _test_base(self, coordinator: Coordinator, warn: Callable[[Diagnostic], None]) -> None:
        """Test the base once per run, before anything is paid; not to end a run by an item without commands. Raises
        MzError (MZ1008, MZ2018)."""
        started, pins, events = coordinator.state.started, coordinator.pins, list[Event]()
        if started is None or not (pins.config.workspace.setup or any(base_commands(pins))):
            return
        self.scheduler.take_turn(coordinator.read_inbox)  # A person may have ended the run.
        closing = coordinator.state.closing
        last = pins.pipeline.kind_from(closing.how) if closing else None
        if last and not any(base_commands(replace(pins, pipeline=pins.pipeline.of_kind(last.kind)))):
            return

        def append(new: tuple[Event, ...]) -> None:
            events.extend(new)
            self.scheduler.take_turn(partial(coordinator.append, new))

        def is_stopping() -> bool:  # A pause does not count: the features must not start without the results.
            return self.scheduler.stop_requested or self.scheduler.failure is not None

        drive_base_test(started.run, started.base_commit, pins, self._machine, append, is_stopping)
        resume, restart = f"mz resume {started.run}", f"mz cancel {started.run} && mz run"
        if problem := base_problem(events, self.blobs, self.root, self.environment, resume, restart):
            raise problem
        for warning in base_warnings(events, self.blobs, pins):
            warn(warning)

    def kill(self) -> None:
        """Kill every agent and command now; their outcomes are reconciled at the next resume."""
        self._machine.kill.set()
