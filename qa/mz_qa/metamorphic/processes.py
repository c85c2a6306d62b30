"""Plays a sample of variants with real processes: spawns, pipes, limits and kills, through the normal replay.

Each variant is a cassette on disk with one feature, replayed in a separate process, so that a hanging one can be
killed."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path

from msgspec.structs import replace
from mz_recordings.cassette import Cassette, Taken
from mz_recordings.files.library import load_part, write_copy
from mz_recordings.playing.replay import Job, perform
from mz_recordings.whatif.variants import Variant, altered, content, paced

from mz_qa.metamorphic.properties import Outcome, end_of, parse_story, succeeds, violations

SECONDS_MAX = 180
"""Time limit for one variant; it takes a few seconds."""


def play_sample(
    cassette: Cassette, project: Path, environment: Mapping[str, str], today: datetime
) -> tuple[Outcome, ...]:
    """Play the variants of one call; empty if no recorded call succeeded. Raises WorldMissing and MzError like a
    replay."""
    recorded_call = _sampled(cassette)
    if recorded_call is None:
        return ()
    with tempfile.TemporaryDirectory(prefix="mz-variants-", ignore_cleanup_errors=True) as name:
        job = Job(path="", project=str(project), environment=dict(environment), today=today)
        return tuple(_outcomes(cassette, recorded_call, Path(name), job))


def _sampled(cassette: Cassette) -> Taken | None:
    """Choose the first call of the shortest feature without dependencies; None if it failed."""
    calls = Counter(call.recording.identity.feature for call in cassette.taken)
    candidates = [item.feature for item in cassette.manifest.world.items if not item.depends_on and calls[item.feature]]
    if not candidates:
        return None
    shortest = min(candidates, key=lambda feature: calls[feature])
    call = next(call for call in cassette.taken if call.recording.identity.feature == shortest)
    succeeded = succeeds(cassette.manifest.agent, content(call, "stdout"))
    return call if succeeded and call.recording.outcome == "replied" else None


def _outcomes(cassette: Cassette, recorded_call: Taken, root: Path, job: Job) -> Iterator[Outcome]:
    feature = recorded_call.recording.identity.feature
    recorded_trace = cassette.stories.get(feature)
    pool = _pool()
    try:
        for variant in paced(recorded_call):
            succeeded = bool(succeeds(cassette.manifest.agent, variant.stdout)) and variant.ours is None
            folder, altered_cassette = root / variant.name, altered(cassette, variant)
            write_copy(altered_cassette if succeeded else _unanswered(altered_cassette), folder)
            future = pool.submit(played, str(folder), job)
            try:
                trace = parse_story(future.result(SECONDS_MAX)[feature])
            except TimeoutError:
                _kill(pool, future)
                pool = _pool()
                yield _outcome(variant, "", ("it does not stop",))
                continue
            usual = end_of(parse_story(recorded_trace)) if recorded_trace else end_of(trace)
            yield _outcome(variant, end_of(trace), violations(variant, succeeded, trace, usual))
    finally:
        pool.shutdown()


def _unanswered(cassette: Cassette) -> Cassette:
    """Remove the decisions of people, which do not apply to a failing variant."""
    fixture = replace(cassette.manifest.world, said=())
    return cassette._replace(manifest=replace(cassette.manifest, world=fixture))


def _outcome(variant: Variant, end: str, violated: tuple[str, ...]) -> Outcome:
    identity = variant.identity
    return Outcome(
        feature=identity.feature, call=identity.name, variant=variant.name, how="process", end=end, violations=violated
    )


def played(path: str, job: Job) -> dict[str, bytes]:
    """Replay a cassette and return its traces; runs in a separate process."""
    return dict(perform(load_part(Path(path)), job).stories)


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def _kill(pool: ProcessPoolExecutor, future: Future[dict[str, bytes]]) -> None:
    """Kill a hanging replay and its process."""
    future.cancel()
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)
