"""Replay of one cassette through the current pipeline, in a scratch repository with the network blocked."""

from __future__ import annotations

import os
import random
import tempfile
import time
from datetime import datetime
from pathlib import Path

import msgspec
from mz_engine.adapters.git_repository import branch_commit
from mz_engine.agents.supervise import offline_works
from mz_engine.errors import MzError, Place, format_error
from mz_engine.pins import Pins
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite import SqliteStore
from mz_events.catalog.call import AgentRequested
from mz_events.names import feature_stream
from mz_events.store import Store

from mz_recordings.cassette import Cassette, Identity, Item, identity_of
from mz_recordings.files.library import CassetteChanged, CassetteUnusable, NewerFormat, digest, load, write_copy
from mz_recordings.findings import Finding, Played
from mz_recordings.locate import located
from mz_recordings.mending import ALL
from mz_recordings.playing.compare import Happened, counted, judge
from mz_recordings.playing.drive import begin, drive
from mz_recordings.playing.stage import Scratch, Stage
from mz_recordings.playing.today import held_settings, pins_of, texts_of
from mz_recordings.recording.scratch import WorldMissing, unpack
from mz_recordings.recording.story import story, write


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One cassette to replay."""

    path: str
    project: str
    """Path of the project with the current pipelines and settings."""
    environment: dict[str, str]
    parallel: int = 1
    """Number of features that run at the same time."""
    seed: int | None = None
    """Shuffles the features; None: order of the backlog."""
    today: datetime
    """Current time with its zone, for the age of recordings."""
    accept: tuple[str, ...] = ()
    """Finding kinds whose new inputs are accepted while the replies are kept."""
    reason: str = ""
    update_unused: bool = False
    """Remove unused recordings."""


def play(job: Job) -> tuple[Played, Happened | None]:
    """Replay a cassette; return the result, and the outcome if a replay was possible. Never raises for the content of a
    cassette, a pipeline or a fixture."""
    begun, path = time.monotonic(), Path(job.path)
    known = Played(path=job.path, name=path.name, offline=offline_works())
    happened = None
    try:
        cassette = load(path)
        known = msgspec.structs.replace(
            known,
            name=cassette.manifest.name,
            provenance=cassette.manifest.provenance,
            recordings=len(cassette.taken),
            predates=counted(cassette),
        )
        happened = perform(cassette, job)
        held = held_settings(Path(job.project), job.environment, cassette.manifest)
        known = msgspec.structs.replace(known, held=held)
        known = _judged(known, cassette, happened, job.today)
    except (CassetteUnusable, WorldMissing, MzError) as error:
        known = msgspec.structs.replace(known, findings=(unplayable(error),))
    took = int((time.monotonic() - begun) * 1000)
    known = placed(known, Path(job.project))
    return msgspec.structs.replace(known, duration_ms=took), happened


def _judged(known: Played, cassette: Cassette, happened: Happened, today: datetime) -> Played:
    return msgspec.structs.replace(
        known,
        played=len(happened.played),
        calls=tuple(one.recording.identity.path for one in cassette.taken),
        stories={feature: digest(told) for feature, told in happened.stories.items()},
        compared=len(cassette.stories),
        findings=judge(cassette, happened, today),
    )


def placed(known: Played, project: Path) -> Played:
    """Return the result with the project file of each finding."""
    if all(finding.file for finding in known.findings):
        return known
    here, there = project.resolve(), Path(os.path.realpath(known.path))
    relative = there.relative_to(here).as_posix() if there.is_relative_to(here) else ""
    found = located(known.findings, texts_of(here, there), relative)
    return msgspec.structs.replace(known, findings=found)


def unplayable(error: CassetteUnusable | WorldMissing | MzError) -> Finding:
    """Return the finding that no replay was possible."""
    if isinstance(error, MzError):
        place = error.place or Place("")
        what = f"the current pipeline or settings are invalid: {error.diagnostics[0].message}"
        detail = tuple(f"  {line}" for line in format_error(error).splitlines())
        mend = "fix them, then: mz replay {cassette}"
        return Finding(kind="PIPELINE", what=what, detail=detail, mend=mend, file=place.file, line=place.line or None)
    mend = ALL
    if isinstance(error, NewerFormat):
        mend = "use the mz that wrote it, or a newer mz"
    elif isinstance(error, CassetteChanged):
        mend = "mz replay {cassette}"
    elif isinstance(error, CassetteUnusable):
        mend = "git restore {cassette}"
    return Finding(kind="UNUSABLE", what=str(error), mend=mend)


def perform(cassette: Cassette, job: Job) -> Happened:
    """Perform the replay. Raises FixtureUnavailable, and MzError for the current pipeline."""
    pins = pins_of(Path(job.project), job.environment, cassette.manifest, job.parallel)
    with tempfile.TemporaryDirectory(prefix="mz-replay-", ignore_cleanup_errors=True) as name:
        place = Path(name).resolve()
        scratch = Scratch(place, job.environment, offline_works(), Path(job.project))
        heads = unpack(cassette, scratch.root, scratch.commands)
        # Use a copy of what was verified: the cassette may change or disappear during the replay.
        write_copy(cassette, place / "cassette")
        scratch.hire(cassette, place / "cassette", pins.config)
        base = branch_commit(scratch.root, cassette.manifest.world.base, scratch.commands)
        with SqliteStore(place / "log" / "mz.db") as store:
            stage = Stage(scratch, cassette, pins.config, FileBlobs(place / "log" / "blobs"))
            try:
                begin(cassette, _order(cassette, job.seed), pins, store, stage, base, heads)
                drive(cassette, pins, store, stage)
            finally:
                stage.kill.set()
            return _happened(cassette, pins, store, stage)


def _order(cassette: Cassette, seed: int | None) -> tuple[Item, ...]:
    items = list(cassette.manifest.world.items)
    if seed is not None:
        random.Random(seed).shuffle(items)
        items = [msgspec.structs.replace(item, priority=0) for item in items]
    return tuple(items)


def _happened(cassette: Cassette, pins: Pins, store: Store, stage: Stage) -> Happened:
    world = cassette.manifest.world
    requests: dict[Identity, AgentRequested] = {}
    stories: dict[str, bytes] = {}
    for item in world.items:
        events = [recorded.event for recorded in store.read(feature_stream(world.run, item.feature))]
        stories[item.feature] = write(story(events))
        for event in events:
            if isinstance(event, AgentRequested):
                requests[identity_of(cassette.manifest.pipeline, item.feature, event.ref)] = event
    crew = stage.agents
    return Happened(dict(crew.played), tuple(crew.missed), requests, stories, dict(stage.denials.keys), pins)
