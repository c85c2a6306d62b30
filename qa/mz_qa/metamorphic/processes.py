"""Adapter: plays a sample of variants by processes: real spawns, pipes, limits and kills, in the replay of today.

Each is a cassette of its own on the disk, with one feature. It is played in a process of its own, so that one that
hangs can be ended.
"""

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
"""For one variant; it takes a few."""


def play_sample(
    cassette: Cassette, project: Path, environment: Mapping[str, str], today: datetime
) -> tuple[Outcome, ...]:
    """What becomes of the sample's variants of one call. Raises WorldMissing and MzError as a replay does; empty where
    no recording tells how a call goes well."""
    one = _sampled(cassette)
    if one is None:
        return ()
    with tempfile.TemporaryDirectory(prefix="mz-variants-", ignore_cleanup_errors=True) as name:
        job = Job(path="", project=str(project), environment=dict(environment), today=today)
        return tuple(_outcomes(cassette, one, Path(name), job))


def _sampled(cassette: Cassette) -> Taken | None:
    """The first call of a feature, if it went well; of the shortest feature that builds on no other."""
    calls = Counter(one.recording.identity.feature for one in cassette.taken)
    free = [item.feature for item in cassette.manifest.world.items if not item.depends_on and calls[item.feature]]
    if not free:
        return None
    shortest = min(free, key=lambda feature: calls[feature])
    one = next(one for one in cassette.taken if one.recording.identity.feature == shortest)
    well = succeeds(cassette.manifest.agent, content(one, "stdout"))
    return one if well and one.recording.outcome == "replied" else None


def _outcomes(cassette: Cassette, one: Taken, place: Path, job: Job) -> Iterator[Outcome]:
    feature = one.recording.identity.feature
    recorded = cassette.stories.get(feature)
    pool = _pool()
    try:
        for variant in paced(one):
            well = bool(succeeds(cassette.manifest.agent, variant.stdout)) and variant.ours is None
            folder, made = place / variant.name, altered(cassette, variant)
            write_copy(made if well else _unanswered(made), folder)
            done = pool.submit(played, str(folder), job)
            try:
                story = parse_story(done.result(SECONDS_MAX)[feature])
            except TimeoutError:
                _kill(pool, done)
                pool = _pool()
                yield _outcome(variant, "", ("it does not come to rest",))
                continue
            usual = end_of(parse_story(recorded)) if recorded else end_of(story)
            yield _outcome(variant, end_of(story), violations(variant, well, story, usual))
    finally:
        pool.shutdown()


def _unanswered(cassette: Cassette) -> Cassette:
    """What people said was about what is not asked now."""
    world = replace(cassette.manifest.world, said=())
    return cassette._replace(manifest=replace(cassette.manifest, world=world))


def _outcome(variant: Variant, end: str, found: tuple[str, ...]) -> Outcome:
    identity = variant.identity
    return Outcome(
        feature=identity.feature, call=identity.name, variant=variant.name, how="process", end=end, violations=found
    )


def played(path: str, job: Job) -> dict[str, bytes]:
    """The stories of a cassette as it is played now; runs in a process of its own."""
    return dict(perform(load_part(Path(path)), job).stories)


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def _kill(pool: ProcessPoolExecutor, done: Future[dict[str, bytes]]) -> None:
    """Ends what hangs, with its process."""
    done.cancel()
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)
