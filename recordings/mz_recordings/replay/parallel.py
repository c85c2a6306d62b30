"""Replay of many cassettes, each in its own process if there are several workers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path

from msgspec.structs import replace
from mz_engine.secrets import project_secrets
from mz_events.redaction.redactor import Secrets

from mz_recordings.cassette.files import CassetteUnreadable, is_cassette, list_cassettes, load, overwrite, seal_of
from mz_recordings.cassette.model import TIME_FORMAT
from mz_recordings.findings.model import ReplayResult
from mz_recordings.replay.accept import accept_differences, new_secrets, prune
from mz_recordings.replay.replay import ReplayJob, replay_cassette, replay_error_finding


def find_cassettes(roots: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the cassettes at these paths, each a cassette or a library, without duplicates."""
    groups = [(root,) if is_cassette(root) else list_cassettes(root) for root in roots]
    return tuple(dict.fromkeys(path for group in groups for path in group))


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
    if workers == 1 or len(jobs) == 1:
        results = []
        for job in jobs:
            results.append(replay_and_update(job))
            report(results[-1])
        return tuple(results)
    results_by_path: dict[str, ReplayResult] = {}
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn")) as pool:
        try:
            for future in as_completed([pool.submit(replay_and_update, job) for job in jobs]):
                result = future.result()
                results_by_path[result.path] = result
                report(result)
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
        return _update(job, seal_of(Path(job.path)))
    except CassetteUnreadable as error:
        return ReplayResult(path=job.path, name=Path(job.path).name, findings=(replay_error_finding(error),))


def _update(job: ReplayJob, seal: str) -> ReplayResult:
    """Raises CassetteUnreadable if another process changed the cassette in the meantime."""
    result, outcome = replay_cassette(job)
    if outcome is None:
        return result
    folder = Path(job.path)
    cassette, changes = load(folder), list[str]()
    before = cassette
    if job.prune:
        cassette, step_changes = prune(cassette, outcome, result.findings)
        changes += step_changes
    if job.accept:
        cassette, step_changes = accept_differences(
            cassette, outcome, job.accept, job.reason, job.today.strftime(TIME_FORMAT)
        )
        changes += step_changes
    if not changes:
        return result
    secrets = Secrets(project_secrets(Path(job.project), job.environment))
    if leak_findings := new_secrets(before, cassette, secrets):
        return replace(result, findings=(*leak_findings, *result.findings))
    overwrite(cassette, folder, seal)
    updated, _ = replay_cassette(replace(job, accept=(), prune=False))
    return replace(updated, changes=tuple(changes))
