"""Logs like those of real use, of any size: one run of the real engine over the built-in pipeline, in the
simulated world, told again and again under other names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import msgspec
from mz_engine.artifacts.load import load_rules
from mz_engine.model.config import Command, Config
from mz_engine.model.pins import Pins, encode_pins
from mz_engine.pipelines.load import load_pipeline
from mz_engine.ports import CallSpec
from mz_engine.prompts.render import load_templates
from mz_events.catalog.base import Event
from mz_events.catalog.run import ItemAdded, RunStarted
from mz_events.codec import CODEC
from mz_events.names import FeatureId, RunId, StreamId, run_stream
from mz_events.store import Append, Blobs, Store
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply, World

from tools.bench.answers import feature_names, files, repository

FEATURES = 20
"""Of each run."""
SEED = 7
FIRST = "r00000000"
BATCH = 500
"""Events an append; only for filling a log."""
START_US = 1_772_366_400_000_000
SPACING_US = 50_000


Entry = tuple[StreamId, Event]


class Past(msgspec.Struct, frozen=True):
    """One run: its events in the order of the log, and the texts that they cite."""

    entries: tuple[Entry, ...]
    blobs: tuple[bytes, ...]


def simulate(features: int = FEATURES) -> Past:
    """A run that delivers so many features, each phase at the first attempt."""
    names = feature_names(features)
    world = World(repository(names), _script, lambda command, tree: (0, "Ran 12 tests, OK"))
    pins = _pins()
    _begin(world, pins, names)
    drive_run(world, FIRST, pins, SEED)
    entries = tuple((recorded.stream, recorded.event) for recorded in world.store.log)
    return Past(entries, tuple(world.blobs.data_by_digest.values()))


def renamed_entry(past: Past, run: str) -> Iterator[Entry]:
    """The same under another run's id, which has as many characters."""
    old, new = FIRST.encode(), run.encode()
    assert len(old) == len(new), run
    for stream, event in past.entries:
        name, schema, payload = CODEC.encode(event)
        yield StreamId(stream.replace(FIRST, run)), CODEC.decode(name, schema, payload.replace(old, new), stream)


def log_entries(past: Past, first: int = 0) -> Iterator[Entry]:
    """Run after run without an end, with numbers from `first` on."""
    for number in count(first):
        yield from renamed_entry(past, f"r{number:08x}")


def fill(store: Store, blobs: Blobs, past: Past, events: int) -> int:
    """Appends at least so many events to an empty log, whole runs of them, and keeps the texts; returns how many."""
    for text in past.blobs:
        blobs.put(text)
    number = -(-events // len(past.entries)) * len(past.entries)
    entries = islice(log_entries(past), number)
    for filled in range(0, number, BATCH):
        appends = [Append(stream, None, (event,)) for stream, event in islice(entries, BATCH)]
        store.append(appends, START_US + filled * SPACING_US)
    return number


def _script(spec: CallSpec, tree: Files) -> ScriptedReply:
    phase = spec.key.split("/")[2]
    return ScriptedReply(files=dict(files(spec.worktree.feature, phase)), text=f"The phase {phase} is done.")


def _pins() -> Pins:
    config = Config(agent="simulated", autonomy="full_auto", commands={"test": Command(run="true")})
    pipeline, _ = load_pipeline(config.pipeline, Path("/nonexistent"))
    return Pins(pipeline=pipeline, rules=load_rules(), templates=load_templates(), config=config)


def _begin(world: World, pins: Pins, names: tuple[str, ...]) -> None:
    put = world.blobs.put
    started = RunStarted(
        run=RunId(FIRST), pipeline=pins.pipeline.pipeline, base="main", base_commit=world.base,
        pins=put(encode_pins(pins)), mz_version="bench",
    )  # fmt: skip
    added = [
        ItemAdded(feature=FeatureId(name), source=f"features.md#{name}", priority=3, order=order,
                  title=put(f"Add the file of {name}".encode()), body=put(f"{name} is missing.".encode()))
        for order, name in enumerate(names)
    ]  # fmt: skip
    world.store.append([Append(run_stream(FIRST), 0, (started, *added))], world.now_us)
