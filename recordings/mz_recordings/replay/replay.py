"""Replay of a cassette through the current pipeline, in a scratch repository with the network blocked, and of many in
several processes."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from datetime import datetime
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path

import msgspec
from msgspec.structs import replace
from mz_engine.agents.registry import all_adapters
from mz_engine.decoding.quantity import decode_quantity, encode_quantity
from mz_engine.decoding.text_file import read_text
from mz_engine.errors.diagnostics import MzError, SourceLocation
from mz_engine.git.repository import branch_commit
from mz_engine.model.config import FILE_NAME, Budget, Config
from mz_engine.model.pins import Pins
from mz_engine.pipelines.load import PIPELINES_FOLDER, load_pipeline, load_valid_pipeline_files
from mz_engine.processes.supervise import can_run_offline
from mz_engine.run.plan import known_names
from mz_engine.run.settings import load_config
from mz_engine.secrets import project_secrets
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.call import AgentRequested
from mz_events.names import feature_stream, parse_path
from mz_events.redaction.redactor import Secrets
from mz_events.store import Store

from mz_recordings.cassette.files import (
    CassetteChanged,
    CassetteUnreadable,
    NewerFormat,
    digest,
    load,
    overwrite,
    seal_of,
    write_copy,
)
from mz_recordings.cassette.model import (
    FIXTURE_KEYS,
    MANIFEST,
    TIME_FORMAT,
    Cassette,
    Identity,
    Item,
    Manifest,
    identity_of,
)
from mz_recordings.cassette.repository import FixtureUnavailable, unpack
from mz_recordings.cassette.trace import encode_trace, feature_trace
from mz_recordings.findings.location import add_locations
from mz_recordings.findings.model import RERECORD_ALL, Finding, ReplayResult
from mz_recordings.replay.accept import accept_differences, new_secrets, prune
from mz_recordings.replay.compare import ReplayOutcome, compare_replay, count_accepted
from mz_recordings.replay.driver import ReplayCoordinator, drive, start_run
from mz_recordings.replay.ports import ReplayEnvironment, ReplayFolders


class ReplayJob(msgspec.Struct, frozen=True, kw_only=True):
    """One cassette to replay."""

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


def replay_cassette(job: ReplayJob) -> tuple[ReplayResult, ReplayOutcome | None]:
    """Replay a cassette; return the result, and the outcome if a replay was possible. Never raises for the content of a
    cassette, a pipeline or a fixture."""
    started, path = time.monotonic(), Path(job.path)
    result = ReplayResult(path=job.path, name=path.name, offline=can_run_offline())
    outcome = None
    try:
        cassette = load(path)
        result = replace(
            result,
            name=cassette.manifest.name,
            provenance=cassette.manifest.provenance,
            recordings=len(cassette.calls),
            accepted_replies=count_accepted(cassette),
        )
        outcome = run_replay(cassette, job)
        overridden = overridden_settings(Path(job.project), job.environment, cassette.manifest)
        result = replace(
            result,
            overridden_settings=overridden,
            calls_replayed=len(outcome.mismatches),
            calls=tuple(call.identity.path for call in cassette.calls),
            trace_digests={feature: digest(trace) for feature, trace in outcome.traces.items()},
            traces_compared=len(cassette.traces),
            findings=compare_replay(cassette, outcome, job.today),
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
    """Return the finding that no replay was possible."""
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
    pins = replay_pins(Path(job.project), job.environment, cassette.manifest, job.features_parallel)
    with tempfile.TemporaryDirectory(prefix="mz-replay-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        scratch = ReplayFolders(folder, job.environment, can_run_offline(), Path(job.project))
        heads = unpack(cassette, scratch.root, scratch.command_environment)
        # Use a copy of what was verified: the cassette may change or disappear during the replay.
        write_copy(cassette, folder / "cassette")
        base = branch_commit(scratch.root, cassette.manifest.fixture.base, scratch.command_environment)
        with SqliteStore(folder / "log" / "mz.db") as store:
            blobs = FileBlobs(folder / "log" / "blobs")
            environment = ReplayEnvironment(scratch, cassette, folder / "cassette", pins.config, blobs)
            fixture, played = cassette.manifest.fixture, environment.agents.mismatches
            try:
                start_run(cassette, _order(cassette, job.seed), pins, store, environment, base, heads)
                coordinator = ReplayCoordinator(fixture, pins, store, environment)
                drive(
                    coordinator,
                    environment,
                    fixture.hints,
                    calls_made=lambda: len(played),
                    was_resumed=lambda feature: len(played) < len(cassette.calls),
                )
            finally:
                environment.stop.set()
            return _outcome(cassette, pins, store, environment)


def _order(cassette: Cassette, seed: int | None) -> tuple[Item, ...]:
    items = list(cassette.manifest.fixture.items)
    if seed is not None:
        random.Random(seed).shuffle(items)
        items = [replace(item, priority=0) for item in items]
    return tuple(items)


def _outcome(cassette: Cassette, pins: Pins, store: Store, environment: ReplayEnvironment) -> ReplayOutcome:
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


# the current project --------------------------------------------------------------------------------------------------
REPOSITORY_SETTINGS = ("base", "branch_prefix")
"""Settings of the recorded repository, which a replay need not match."""


def replay_pins(project: Path, environment: Mapping[str, str], manifest: Manifest, parallel: int) -> Pins:
    """Return the pins of a replay: the current pipeline with the cassette's name, of the project or else of `mz`, and
    the current settings except those of the fixture.

    Raises MzError, and FixtureUnavailable if this `mz` does not know the fixture's settings or its agent.
    """
    loaded = load_config(project, environment, {"agent": manifest.agent})
    if manifest.agent not in all_adapters(loaded.config.agents):
        message = f"it was recorded with the agent {manifest.agent!r}, which neither this mz has nor mz.yaml describes"
        raise FixtureUnavailable(message)
    config, material = replay_config(loaded.config, manifest, parallel), load_valid_pipeline_files(project)
    name = manifest.pipeline
    if loaded.config.pipeline != name and loaded.origins["pipeline"] != "default":
        configured_pipeline = load_pipeline(loaded.config.pipeline, project)[0].pipeline
        name = loaded.config.pipeline if configured_pipeline == manifest.pipeline else name
    pipeline, _ = load_pipeline(name, project, known_names(config, material))
    return Pins(pipeline=pipeline, rules=material.rules, templates=material.templates, config=config)


def replay_config(config: Config, manifest: Manifest, parallel: int) -> Config:
    """Return the settings with those of the fixture, without side effects outside the machine and without a budget."""
    fixture_settings = {key: value for key, value in manifest.fixture.config.items() if key in FIXTURE_KEYS}
    try:
        fixture_config = msgspec.convert(fixture_settings, Config, dec_hook=decode_quantity)
        for path in (*fixture_config.workspace.copy, *fixture_config.workspace.keep_ignored):
            parse_path(path)
    except ValueError as error:
        raise FixtureUnavailable(f"this mz does not know the settings of its fixture: {error}") from error
    # Commands that only the current settings have belong to new gates.
    fixture_config = replace(fixture_config, commands={**config.commands, **fixture_config.commands})
    return replace(
        config,
        **{key: getattr(fixture_config, key) for key in fixture_settings},
        parallel_max=parallel,
        budget=Budget(),
        pull_requests=replace(config.pull_requests, strategy="none"),
    )


def overridden_settings(project: Path, environment: Mapping[str, str], manifest: Manifest) -> tuple[str, ...]:
    """Return names of settings, such as `commands.test`, whose value in `mz.yaml` a replay ignores in favour of the
    fixture's. Raises MzError."""
    current_settings = msgspec.to_builtins(
        load_config(project, environment, {"agent": manifest.agent}).config, enc_hook=encode_quantity
    )
    fixture_config = msgspec.convert(manifest.fixture.config, Config, dec_hook=decode_quantity)
    fixture_settings = msgspec.to_builtins(fixture_config, enc_hook=encode_quantity)
    names: list[str] = []
    for key in FIXTURE_KEYS:
        recorded_value, current_value = fixture_settings[key], current_settings[key]
        if key in REPOSITORY_SETTINGS or key not in manifest.fixture.config:
            continue
        if isinstance(recorded_value, dict) and isinstance(current_value, dict):
            names += [f"{key}.{name}" for name in recorded_value if recorded_value[name] != current_value.get(name)]
        elif recorded_value != current_value:
            names.append(key)
    return tuple(names)


def project_texts(project: Path, cassette: Path) -> dict[str, str]:
    """Return the texts that findings can point at, by path relative to the project: settings, pipelines, templates,
    rule sets, and the manifest of a cassette within the project. UnreadableFileError files are left out."""
    texts: dict[str, str] = {}
    patterns = ("*.yaml", "rules/*.yaml", "templates/**/*.j2")
    pipeline_files = sorted(path for pattern in patterns for path in (project / PIPELINES_FOLDER).glob(pattern))
    for path in (project / FILE_NAME, *pipeline_files, cassette / MANIFEST):
        with suppress(MzError, ValueError):
            name = path.absolute().relative_to(project.absolute()).as_posix()
            texts[name] = read_text(path, name)
    return texts


# many cassettes -------------------------------------------------------------------------------------------------------
def bundled_library() -> Path:
    """Return the folder of the cassettes that are part of `mz`."""
    return Path(str(files("mz_recordings"))) / "bundled"


def shuffled(paths: tuple[Path, ...], seed: int | None) -> tuple[Path, ...]:
    """Return the cassettes in an order that depends on the seed; unchanged without one."""
    order = list(paths)
    if seed is not None:
        random.Random(seed).shuffle(order)
    return tuple(order)


def without_git_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without git's variables."""
    return {name: value for name, value in environment.items() if not name.startswith("GIT_")}


def replay_all(
    jobs: tuple[ReplayJob, ...], workers: int, report: Callable[[ReplayResult], None]
) -> tuple[ReplayResult, ...]:
    """Replay all jobs; call `report` after each one. Results are in the order of the jobs."""
    results_by_path: dict[str, ReplayResult] = {}

    def add(result: ReplayResult) -> None:
        results_by_path[result.path] = result
        report(result)

    if workers == 1 or len(jobs) == 1:
        for job in jobs:
            add(replay_and_update(job))
    else:
        with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn")) as pool:
            try:
                for future in as_completed([pool.submit(replay_and_update, job) for job in jobs]):
                    add(future.result())
            except BaseException:
                # Do not wait for jobs that have not started.
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return tuple(results_by_path[job.path] for job in jobs)


def replay_and_update(job: ReplayJob) -> ReplayResult:
    """Replay a cassette; if the job updates it and something changed, write it and replay it again."""
    if not (job.accept or job.prune):
        return replay_cassette(job)[0]
    try:
        return _update(job)
    except CassetteUnreadable as error:
        return ReplayResult(path=job.path, name=Path(job.path).name, findings=(replay_error_finding(error),))


def _update(job: ReplayJob) -> ReplayResult:
    """Raises CassetteUnreadable if another process changed the cassette in the meantime."""
    seal = seal_of(Path(job.path))
    result, outcome = replay_cassette(job)
    if outcome is None:
        return result
    folder = Path(job.path)
    before = load(folder)
    pruned, removals = prune(before, outcome, result.findings) if job.prune else (before, ())
    at = job.today.strftime(TIME_FORMAT)
    cassette, acceptances = accept_differences(pruned, outcome, job.accept, job.reason, at)
    if cassette is before:
        return result
    secrets = Secrets(project_secrets(Path(job.project), job.environment))
    if leak_findings := tuple(new_secrets(before, cassette, secrets)):
        return replace(result, findings=(*leak_findings, *result.findings))
    overwrite(cassette, folder, seal)
    updated, _ = replay_cassette(replace(job, accept=(), prune=False))
    return replace(updated, changes=(*removals, *acceptances))
