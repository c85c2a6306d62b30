"""Replay of many cassettes, each in its own process if there are several workers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path

from msgspec.structs import replace
from mz_engine.adapters.known_secrets import known_secrets
from mz_events.redact import Secrets

from mz_recordings.cassette import STAMP
from mz_recordings.files.library import CassetteUnusable, cassettes, is_cassette, load, renew, seal_of
from mz_recordings.findings import Played
from mz_recordings.playing.leaking import leaking
from mz_recordings.playing.renew import accept, drop_unused
from mz_recordings.playing.replay import Job, play, unplayable


def find(places: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the cassettes at these paths, each a cassette or a library, without duplicates."""
    found = [(place,) if is_cassette(place) else cassettes(place) for place in places]
    return tuple(dict.fromkeys(path for paths in found for path in paths))


def bundled() -> Path:
    """Return the folder of the cassettes that are part of `mz`."""
    return Path(str(files("mz_recordings"))) / "bundled"


def shuffled(paths: tuple[Path, ...], seed: int | None) -> tuple[Path, ...]:
    """Return the cassettes in an order that depends on the seed; unchanged without one."""
    found = list(paths)
    if seed is not None:
        random.Random(seed).shuffle(found)
    return tuple(found)


def environment_of(outside: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without git's variables."""
    return {name: value for name, value in outside.items() if not name.startswith("GIT_")}


def play_all(jobs: tuple[Job, ...], workers: int, tell: Callable[[Played], None]) -> tuple[Played, ...]:
    """Replay all jobs; call `report` after each one. Results are in the order of the jobs."""
    if workers == 1 or len(jobs) == 1:
        results = []
        for job in jobs:
            results.append(settle(job))
            tell(results[-1])
        return tuple(results)
    results_by_path: dict[str, Played] = {}
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn")) as pool:
        try:
            for done in as_completed([pool.submit(settle, job) for job in jobs]):
                played = done.result()
                results_by_path[played.path] = played
                tell(played)
        except BaseException:
            # Do not wait for jobs that have not started.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tuple(results_by_path[job.path] for job in jobs)


def settle(job: Job) -> Played:
    """Replay a cassette; if the job updates it and something changed, write it and replay it again."""
    if not (job.accept or job.update_unused):
        return play(job)[0]
    try:
        return _settle(job, seal_of(Path(job.path)))
    except CassetteUnusable as error:
        return Played(path=job.path, name=Path(job.path).name, findings=(unplayable(error),))


def _settle(job: Job, seal: str) -> Played:
    """Raises CassetteUnreadable if another process changed the cassette in the meantime."""
    result, happened = play(job)
    if happened is None:
        return result
    place = Path(job.path)
    cassette, said = load(place), list[str]()
    old = cassette
    if job.update_unused:
        cassette, told = drop_unused(cassette, happened, result.findings)
        said += told
    if job.accept:
        cassette, told = accept(cassette, happened, job.accept, job.reason, job.today.strftime(STAMP))
        said += told
    if not said:
        return result
    known = Secrets(known_secrets(Path(job.project), job.environment))
    if leaks := leaking(old, cassette, known):
        return replace(result, findings=(*leaks, *result.findings))
    if kept := renew(cassette, place, seal):
        said.append(f"backup: {kept}")
    again, _ = play(replace(job, accept=(), update_unused=False))
    return replace(again, renewed=tuple(said))
