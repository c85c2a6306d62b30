"""Replay of a cassette through the current pipeline, in a scratch repository with the network blocked, and of many in
several processes."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import datetime
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import msgspec
from msgspec.structs import replace
from mz_engine.errors.diagnostics import MzError, SourceLocation
from mz_engine.git.repository import branch_commit
from mz_engine.model.pins import Pins
from mz_engine.processes.supervise import can_run_offline
from mz_engine.secrets import project_secrets
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.memory import MemoryStore
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.call import AgentRequested
from mz_events.names import Commit, feature_stream
from mz_events.redaction.redactor import Secrets
from mz_events.store import Store

from mz_recordings.cassette.files import (
    CassetteChanged,
    CassetteUnreadable,
    NewerFormat,
    digest,
    digest_of,
    load,
    overwrite,
    write_copy,
)
from mz_recordings.cassette.model import TIME_FORMAT, Cassette, Identity, RecordedCommand, identity_of
from mz_recordings.cassette.repository import FixtureUnavailable, unpack
from mz_recordings.cassette.trace import encode_trace, feature_trace
from mz_recordings.findings.location import add_locations
from mz_recordings.findings.model import RERECORD_ALL, Finding, ReplayResult
from mz_recordings.replay.accept import accept_differences, new_secrets, prune
from mz_recordings.replay.commands import answers, recorded_commands
from mz_recordings.replay.compare import ReplayOutcome, compare_replay, describe_cassette, incomplete_features
from mz_recordings.replay.driver import ReplayCoordinator, drive, start_run
from mz_recordings.replay.memory import MemoryPorts
from mz_recordings.replay.memory_objects import NotInMemory
from mz_recordings.replay.ports import ReplayEnvironment, ReplayFolders
from mz_recordings.replay.project import current_project, project_texts

T = TypeVar("T")
NOT_KEPT = "results of commands cannot be kept: no network namespaces here, or commands leave files for later ones"


class ReplayJob(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    project: str
    """Path of the project with the current pipelines and settings."""
    environment: dict[str, str]
    features_parallel: int = 1
    """Number of features that run at the same time."""
    seed: int | None = None
    """Shuffles the features; None: order of the backlog."""
    today: datetime
    """Current time with its zone, for the age of recordings."""
    accept: tuple[str, ...] = ()
    """Finding kinds whose new inputs are accepted while the replies are kept."""
    reason: str = ""
    prune: bool = False
    """Remove unused recordings."""
    real: bool = False
    """Execute every agent's stand-in, command and git operation as a process."""
    keep: bool = False
    """Write the results of executed commands into the cassette."""
    command_id: str = ""
    """Jobs with the same id, of one command, read the project once; empty: it is read again."""


def replay_cassette(job: ReplayJob) -> tuple[ReplayResult, ReplayOutcome | None]:
    """Replay a cassette; return the result, and the outcome if a replay was possible. Never raises for the content of a
    cassette, a pipeline or a fixture."""
    started, path = time.monotonic(), Path(job.path)
    result = ReplayResult(path=job.path, name=path.name, offline=can_run_offline())
    outcome = None
    try:
        cassette = load(path, evidence=False)
        result = describe_cassette(result, cassette)
        outcome = run_replay(cassette, job)
        if any(mismatch.prompt is not None for mismatch in outcome.mismatches.values()):
            cassette = load(path)  # Its evidence tells what changed.
        result = replace(
            result,
            overridden_settings=outcome.overridden_settings,
            calls_replayed=len(outcome.mismatches),
            calls=tuple(call.identity.path for call in cassette.calls),
            trace_digests={feature: digest(trace) for feature, trace in outcome.traces.items()},
            traces_compared=len(cassette.traces),
            findings=compare_replay(cassette, outcome, job.today),
            in_memory=outcome.in_memory,
            reason=outcome.reason,
            commands_answered=outcome.commands_answered,
            commands_executed=outcome.commands_executed,
            online=outcome.pins.config.sandbox.online_in_replays if outcome.commands_executed else (),
        )
    except (CassetteUnreadable, FixtureUnavailable, MzError) as error:
        result = replace(result, findings=(replay_error_finding(error),))
    duration_ms = int((time.monotonic() - started) * 1000)
    result = with_locations(result, Path(job.project))
    return replace(result, duration_ms=duration_ms), outcome


def with_locations(result: ReplayResult, project: Path) -> ReplayResult:
    """Return the result with the project file of each finding."""
    if all(finding.file for finding in result.findings):
        return result
    project_root, cassette_path = project.resolve(), Path(os.path.realpath(result.path))
    relative = cassette_path.relative_to(project_root).as_posix() if cassette_path.is_relative_to(project_root) else ""
    findings = add_locations(result.findings, project_texts(project_root, cassette_path), relative)
    return replace(result, findings=findings)


def replay_error_finding(error: CassetteUnreadable | FixtureUnavailable | MzError) -> Finding:
    if isinstance(error, MzError):
        location = error.location or SourceLocation("")
        message = f"the current pipeline or settings are invalid: {error.diagnostics[0].message}"
        detail = tuple(f"  {line}" for line in str(error).splitlines())
        fix = "fix them, then: mz replay {cassette}"
        return Finding(kind="PIPELINE", message=message, detail=detail, fix=fix, file=location.file, line=location.line)
    fix = RERECORD_ALL
    if isinstance(error, NewerFormat):
        fix = "use the mz that wrote it, or a newer mz"
    elif isinstance(error, CassetteChanged):
        fix = "mz replay {cassette}"
    elif isinstance(error, CassetteUnreadable):
        fix = "git restore {cassette}"
    return Finding(kind="UNREADABLE", message=str(error), fix=fix)


def run_replay(cassette: Cassette, job: ReplayJob) -> ReplayOutcome:
    """Perform the replay. Raises FixtureUnavailable, and MzError for the current pipeline."""
    manifest, project, outcome, reason = cassette.manifest, Path(job.project), None, ""
    pins, overridden = current_project(project, job.environment, manifest, job.features_parallel, job.command_id)
    if not job.real:
        try:
            outcome = _replay_in_memory(cassette, job, pins)
        except NotInMemory as obstacle:
            reason = str(obstacle)
    outcome = outcome or _replay_with_processes(cassette, job, pins)
    return outcome._replace(overridden_settings=overridden, reason=reason)


def _replay_in_memory(cassette: Cassette, job: ReplayJob, pins: Pins) -> ReplayOutcome:
    """Raises NotInMemory."""
    folder = Path(tempfile.gettempdir()).resolve() / f"mz-replay-{token_hex(6)}"
    folders = ReplayFolders(folder, job.environment, can_run_offline(), Path(job.project))
    store = MemoryStore()
    try:
        ports = MemoryPorts(cassette, folders, pins.config)
    except (IndexError, KeyError, RecursionError) as error:
        raise NotInMemory("its repository is damaged") from error
    try:
        _drive(cassette, job, pins, store, ports, ports.workspace.base, ports.workspace.heads, threads=False)
        return _outcome(cassette, pins, store, ports)._replace(
            commands_answered=ports.executor.answered, commands_executed=ports.executor.executed, in_memory=True
        )
    except RecursionError as error:
        raise NotInMemory("its directories are too deep") from error
    finally:
        ports.stop.set()
        shutil.rmtree(folder, ignore_errors=True)


def _replay_with_processes(cassette: Cassette, job: ReplayJob, pins: Pins) -> ReplayOutcome:
    with tempfile.TemporaryDirectory(prefix="mz-replay-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        folders = ReplayFolders(folder, job.environment, can_run_offline(), Path(job.project)).create()
        environment = folders.command_environment
        heads = unpack(cassette, folders.root, environment)
        # Use a copy of what was verified: the cassette may change or disappear during the replay.
        write_copy(cassette, folder / "cassette")
        base = branch_commit(folders.root, cassette.manifest.fixture.base, environment)
        with SqliteStore(folder / "log" / "mz.db") as store:
            blobs = FileBlobs(folder / "log" / "blobs")
            ports = ReplayEnvironment(folders, cassette, folder / "cassette", pins.config, blobs)
            try:
                _drive(cassette, job, pins, store, ports, base, heads, threads=True)
            finally:
                ports.stop.set()
            runs, denied = ports.workspace.command_runs, ports.network_attempts.counts_by_key
            commands: tuple[RecordedCommand, ...] | None = None
            if can_run_offline() and not ports.workspace.keeps_files:
                commands = recorded_commands(runs, folders.root, environment, denied, pins.config)
            return _outcome(cassette, pins, store, ports)._replace(commands_executed=len(runs), commands=commands)


def _drive(
    cassette: Cassette,
    job: ReplayJob,
    pins: Pins,
    store: Store,
    ports: MemoryPorts | ReplayEnvironment,
    base: Commit,
    heads: dict[str, Commit],
    threads: bool,
) -> None:
    fixture, played = cassette.manifest.fixture, ports.agents.mismatches
    items = shuffled(fixture.items, job.seed)
    if job.seed is not None:
        items = tuple(replace(item, priority=0) for item in items)
    start_run(cassette, items, pins, store, ports, base, heads)
    drive(
        ReplayCoordinator(fixture, pins, store, ports),
        ports,
        fixture,
        calls_made=lambda: len(played),
        was_resumed=lambda feature: len(played) < len(cassette.calls),
        threads=threads,
    )


def _outcome(
    cassette: Cassette, pins: Pins, store: Store, environment: MemoryPorts | ReplayEnvironment
) -> ReplayOutcome:
    fixture = cassette.manifest.fixture
    requests: dict[Identity, AgentRequested] = {}
    traces: dict[str, bytes] = {}
    for item in fixture.items:
        events = [recorded.event for recorded in store.read(feature_stream(fixture.run, item.feature))]
        traces[item.feature] = encode_trace(feature_trace(events))
        for event in events:
            if isinstance(event, AgentRequested):
                requests[identity_of(cassette.manifest.pipeline, item.feature, event.ref)] = event
    agents = environment.agents
    return ReplayOutcome(
        dict(agents.mismatches),
        tuple(agents.missing_calls),
        requests,
        traces,
        dict(environment.network_attempts.counts_by_key),
        pins,
    )


# many cassettes -------------------------------------------------------------------------------------------------------
def bundled_library() -> Path:
    """Return the folder of the cassettes that are part of `mz`."""
    return Path(str(files("mz_recordings"))) / "bundled"


def shuffled(entries: tuple[T, ...], seed: int | None) -> tuple[T, ...]:
    """Return the entries in an order that depends on the seed; unchanged without one."""
    order = list(entries)
    if seed is not None:
        random.Random(seed).shuffle(order)
    return tuple(order)


def sampled(paths: Collection[Path], number: int, commit: str) -> frozenset[Path]:
    """Return the cassettes to replay with processes: other ones for each commit of the project, in time all."""
    order = sorted(paths, key=lambda path: digest(f"{commit}/{path.name}".encode()))
    return frozenset(order[:number])


def without_git_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("GIT_")}


def replay_all(
    jobs: tuple[ReplayJob, ...], workers: int, report: Callable[[ReplayResult], None]
) -> tuple[ReplayResult, ...]:
    """Replay all jobs; call `report` after each one. Results are in the order of the jobs."""
    results_by_path: dict[str, ReplayResult] = {}
    command_id = token_hex(8)
    jobs = tuple(replace(job, command_id=command_id) for job in jobs)

    def add(result: ReplayResult) -> None:
        results_by_path[result.path] = result
        report(result)

    if workers == 1 or len(jobs) == 1:
        for job in jobs:
            add(replay_and_update(job))
    else:
        can_fork = sys.platform == "linux" and threading.active_count() == 1  # Else a fork may wait for a lock forever.
        context = get_context("fork" if can_fork else "forkserver")
        context.set_forkserver_preload([__name__])
        with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=context) as pool:
            try:
                for future in as_completed([pool.submit(replay_and_update, job) for job in jobs]):
                    add(future.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # Do not wait for jobs that have not started.
                raise
    return tuple(results_by_path[job.path] for job in jobs)


def replay_and_update(job: ReplayJob) -> ReplayResult:
    """Replay a cassette; if the job updates it and something changed, write it and replay it again."""
    if not (job.accept or job.prune or job.keep):
        return replay_cassette(job)[0]
    try:
        return _update(job)
    except (CassetteUnreadable, OSError) as error:
        if isinstance(error, OSError):
            error = CassetteUnreadable(Path(job.path), f"cannot be written: {error.strerror}")
        return ReplayResult(path=job.path, name=Path(job.path).name, findings=(replay_error_finding(error),))


def _update(job: ReplayJob) -> ReplayResult:
    """Raises CassetteUnreadable if another process changed the cassette in the meantime."""
    expected_digest = digest_of(Path(job.path))
    result, outcome = replay_cassette(replace(job, real=True) if job.keep else job)
    if outcome is None:
        return result
    folder = Path(job.path)
    before = load(folder)
    pruned, removals = prune(before, outcome, result.findings) if job.prune else (before, ())
    at = job.today.strftime(TIME_FORMAT)
    cassette, acceptances = accept_differences(pruned, outcome, job.accept, job.reason, at)
    commands = outcome.commands
    if commands is not None and incomplete_features(before, outcome):
        commands = tuple(answers((*(cassette.commands or ()), *commands)).values())
    if job.keep and commands != cassette.commands:
        text = NOT_KEPT if commands is None else f"kept the results of {len(commands)} commands"
        cassette, acceptances = cassette._replace(commands=commands), (*acceptances, text)
    if cassette is before:
        return result
    secrets = Secrets(project_secrets(Path(job.project), job.environment))
    if leak_findings := tuple(new_secrets(before, cassette, secrets)):
        return replace(result, findings=(*leak_findings, *result.findings))
    overwrite(cassette, folder, expected_digest)
    if cassette._replace(commands=None) == before._replace(commands=None):
        findings = tuple(finding for finding in result.findings if finding.kind != "COMMAND")
        return replace(result, findings=findings, changes=(*removals, *acceptances))
    updated, _ = replay_cassette(replace(job, accept=(), prune=False, keep=False))
    return replace(updated, changes=(*removals, *acceptances))
