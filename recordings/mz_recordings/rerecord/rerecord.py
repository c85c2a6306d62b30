"""Re-recording of a cassette: the real agent replies to its calls again, in a scratch repository below `.mz`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace
from mz_engine.adapters.git_repository import branch_commit
from mz_engine.adapters.known_secrets import known_secrets
from mz_engine.adapters.machine import SystemClock
from mz_engine.adapters.prices import GenaiPrices
from mz_engine.agents.registry import adapters
from mz_engine.agents.supervise import offline_works
from mz_engine.configfile import load_config
from mz_engine.effects.call import REPLY_TOKENS
from mz_engine.estimate import OUTPUT_SHARE_PERCENT, Estimate, baseline
from mz_engine.pins import Pins, encode_pins
from mz_engine.pipelines.definition import Phase
from mz_engine.preflight import check_agent, check_commands, known_agent
from mz_engine.pricing.worst import worst_of
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite import SqliteStore
from mz_events.redact import Secrets

from mz_recordings.cassette import BUILDER, Cassette, Identity, Provenance, Taken
from mz_recordings.drift.outputs import result_of
from mz_recordings.files.library import load, write_copy
from mz_recordings.findings import Finding
from mz_recordings.playing.compare import Happened, judge
from mz_recordings.playing.drive import begin
from mz_recordings.playing.renew import drop_unused
from mz_recordings.playing.replay import Job, perform
from mz_recordings.playing.stage import Scratch
from mz_recordings.playing.today import pins_of
from mz_recordings.recording.record import NothingToRecord, RecordedRun, SecretInRecording, record_run
from mz_recordings.recording.scratch import unpack
from mz_recordings.recording.sources import sources_of
from mz_recordings.rerecord.drive import Ended, Reins, Tell, drive
from mz_recordings.rerecord.keep import Dropped, Sourced, merged, settled, sound, weakest
from mz_recordings.rerecord.place import BLOBS, LOG, Workplace, begin_attempt, gather
from mz_recordings.rerecord.plan import Planned, Seen, Wish, concerned, plan
from mz_recordings.rerecord.stage import Live, Shelf

RECORDED, PAID = "recorded", "paid"
"""Names of the sources of replies."""
NOT_AT_REST = "it did not stop"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Options for re-recording one cassette."""

    path: str
    project: str
    """Project whose pipelines and settings are used."""
    environment: dict[str, str]
    """The caller's full environment: the real agent needs its login."""
    today: datetime
    """With a time zone."""
    wish: Wish
    agent: str = ""
    """Agent to use; empty: the cassette's own."""
    provenance: Provenance = "live"
    """Provenance of its replies."""
    prune: bool = False
    """True: remove unused recordings."""


class Prepared(NamedTuple):
    """Plan of a re-recording, before any cost."""

    old: Cassette
    """As stored in the library."""
    cassette: Cassette
    """The same, without unused recordings if they are to be removed."""
    pins: Pins
    planned: tuple[Planned, ...]
    findings: tuple[Finding, ...]
    """Findings of its replay."""
    paid: Cassette
    """Paid replies of an earlier attempt."""


class Outcome(NamedTuple):
    """Result of a re-recording."""

    ended: Ended
    called: tuple[str, ...] = ()
    """Calls to which the real agent replied."""
    served: tuple[str, ...] = ()
    """Calls that recordings served."""
    kept: tuple[str, ...] = ()
    """Features whose new recordings are in `cassette`."""
    dropped: tuple[Dropped, ...] = ()
    used_up: tuple[str, ...] = ()
    """Features whose paid replies are no longer useful: not those that are dropped only because others are."""
    cassette: Cassette | None = None
    """None: nothing new to keep."""
    safe: int = 0
    """Number of paid replies that are kept for the next attempt."""
    denied: tuple[str, ...] = ()
    """Keys of commands that tried to access the network."""


# preparation ----------------------------------------------------------------------------------------------------------
def prepare(order: Order, place: Workplace) -> Prepared:
    """Replay the cassette and plan the agent's calls. Raises CassetteUnusable, WorldMissing and MzError."""
    path, project = Path(order.path), Path(order.project)
    old = load(path)
    agent = order.agent or old.manifest.agent
    config = load_config(project, order.environment, {"agent": agent}).config
    if order.agent:
        known_agent(agent, config.agents)
    parallel = config.parallel_max
    manifest = replace(old.manifest, agent=agent)
    pins = pins_of(project, order.environment, manifest, parallel)
    job = Job(
        path=order.path, project=order.project, environment=order.environment, parallel=parallel, today=order.today
    )
    happened = perform(old, job)
    findings = judge(old, happened, order.today)
    cassette = drop_unused(old, happened, findings)[0] if order.prune else old
    paid = gather(place, old, order.environment, project)
    seen = Seen(happened, findings, order.today, agent, frozenset(one.recording.identity for one in paid.taken))
    guesses = Guesses(cassette, happened, pins)
    return Prepared(old, cassette, pins, plan(cassette, order.wish, seen, guesses.of), findings, paid)


def check(order: Order, prepared: Prepared) -> None:
    """Check that everything that the agent and the commands need is installed. Calls no model. Raises MzError (MZ1004,
    MZ1005)."""
    check_agent(prepared.pins.config.agent, order.environment, prepared.pins.config.agents)
    check_commands(Path(order.project), prepared.pins.config, order.environment)


class Guesses:
    """Estimates of calls: recorded usage of the same model, else the engine's baseline for the phase."""

    def __init__(self, cassette: Cassette, happened: Happened, pins: Pins) -> None:
        self._live, self._happened, self._pins = cassette.manifest.provenance == "live", happened, pins
        self._adapter, self._prices = adapters(pins.config.agents)[pins.config.agent], GenaiPrices(pins.config.prices)
        self._now_us = SystemClock().now_us()

    def of(self, identity: Identity, taken: Taken | None) -> Estimate:
        """Return the estimate of a call; `recorded_call` is its recording, if any. Unpriced models have no amount."""
        phase = next((one for one in self._pins.pipeline.phases if one.phase == identity.phase), None)
        request = self._happened.requests.get(identity)
        model = request.model if request else self._model(identity, phase)
        if self._live and taken is not None and taken.recording.model == model:
            recorded = self._as_recorded(taken)
            if recorded is not None:
                return recorded
        words = taken.contents.get(f"{identity.name}.prompt.md", b"").decode("utf-8", "replace") if taken else ""
        asked = request.estimated_tokens - REPLY_TOKENS if request else self._adapter.estimate_tokens(words)
        tokens = asked + (baseline(phase) if phase is not None else 0)
        output = tokens * OUTPUT_SHARE_PERCENT // 100
        return Estimate(tokens=tokens, nanousd=self._prices.estimate(model, tokens - output, output, self._now_us))

    def _model(self, identity: Identity, phase: Phase | None) -> str:
        use = None if phase is None else phase.agent if identity.role == BUILDER else phase.review
        tier = use.tier if use is not None else "mid"
        return getattr(self._pins.config.models, tier) or self._adapter.capabilities().models[tier]

    def _as_recorded(self, taken: Taken) -> Estimate | None:
        reading = self._adapter.parse_output(result_of(taken))
        if not reading.usage:
            return None
        price = self._prices.price(reading.usage, self._now_us)
        nanousd = None if price.nanousd is None else worst_of(reading, price)
        return Estimate(tokens=sum(each.input + each.output for each in reading.usage), nanousd=nanousd)


# the run --------------------------------------------------------------------------------------------------------------
def carry_out(
    order: Order, prepared: Prepared, place: Workplace, budget_nanousd: int | None, tell: Tell, reins: Reins
) -> Outcome:
    """Run the affected features and select which to keep. Nothing is written to the library. Raises WorldMissing,
    SecretInRecording, and any error of a thread; paid replies are stored even then."""
    known = Secrets(known_secrets(Path(order.project), order.environment))
    if names := known.scan(encode_pins(prepared.pins)):
        raise SecretInRecording("the input to record (settings, pipeline, templates)", names)
    paid = begin_attempt(place, prepared.paid, order.provenance)
    try:
        outcome = _run(order, prepared._replace(paid=paid), place, budget_nanousd, tell, reins)
    except BaseException:
        gather(place, prepared.old, order.environment, Path(order.project))
        raise
    safe = gather(place, prepared.old, order.environment, Path(order.project))
    return outcome._replace(safe=len(safe.taken))


def _run(
    order: Order, prepared: Prepared, place: Workplace, budget_nanousd: int | None, tell: Tell, reins: Reins
) -> Outcome:
    cassette, pins, outside = prepared.cassette, prepared.pins, order.environment
    world = cassette.manifest.world
    features = concerned(cassette, {one.identity.feature for one in prepared.planned})
    scratch = Scratch(place.run, outside, offline_works())
    heads = unpack(cassette, scratch.root, scratch.commands)
    copy = place.run / "cassette"
    write_copy(cassette, copy)
    scratch.hire(cassette, copy, pins.config)
    base = branch_commit(scratch.root, world.base, scratch.commands)
    never = frozenset(one.identity for one in prepared.planned if one.why)
    shelves = (
        Shelf(PAID, prepared.paid, place.paid, frozenset()),
        Shelf(RECORDED, cassette, copy, never),
    )
    with SqliteStore(place.run / LOG) as store:
        blobs = FileBlobs(place.run / BLOBS)
        sources = sources_of(scratch.root, outside, store, blobs, Path(order.project))
        live = Live(scratch, shelves, pins, blobs, outside, Path(order.project), sources.tree_id)
        items = tuple(item for item in world.items if item.feature in features)
        try:
            begin(cassette, items, pins, store, live, base, heads)
            ended = drive(cassette, pins, store, live, budget_nanousd, tell, reins)
        finally:
            live.kill.set()
        outcome = _counted(ended, live)
        if ended.stopped:
            return outcome
        try:
            made = record_run(
                sources, world.run, name=cassette.manifest.name, provenance=order.provenance, template="-"
            )
        except NothingToRecord as error:
            made = RecordedRun(cassette._replace(taken=(), stories={}), error.left_out)
    return _kept(order, prepared, features, made, live.agents.sources, outcome)


def _counted(ended: Ended, live: Live) -> Outcome:
    team = live.agents
    called = tuple(one.path for one, source in team.sources.items() if not source and one in team.called)
    served = tuple(one.path for one, source in team.sources.items() if source)
    return Outcome(ended, called, served, denied=tuple(sorted(live.denials.keys)))


def _kept(
    order: Order, prepared: Prepared, features: tuple[str, ...], made: RecordedRun, sources: dict[Identity, str],
    outcome: Outcome,
) -> Outcome:  # fmt: skip
    old, new = prepared.cassette, made.cassette
    left = {out.feature: out.why for out in made.left_out}
    found = {
        feature: sound(old.stories.get(feature), new.stories.get(feature), left.get(feature, NOT_AT_REST))
        for feature in features
    }
    served = frozenset(one for one, source in sources.items() if source == RECORDED)
    paid = {one.recording.identity: one for one in prepared.paid.taken if sources.get(one.recording.identity) == PAID}
    unchanged = frozenset(feature for feature in features if _as_it_was(old, new, feature, served))
    kept, dropped = settled(old, found, unchanged, whole=new.manifest.agent != old.manifest.agent)
    news = tuple(feature for feature in kept if feature not in unchanged)
    spared = {one.feature for one in dropped if not found[one.feature]}
    driven = {one.feature for one in sources}
    used_up = tuple(feature for feature in features if feature in driven and feature not in spared)
    outcome = outcome._replace(kept=news, dropped=dropped, used_up=used_up)
    if not news:
        return outcome
    worth = weakest(order.provenance, *([prepared.paid.manifest.provenance] if paid else []))
    return outcome._replace(cassette=merged(old, new, news, Sourced(served, paid), worth))


def _as_it_was(old: Cassette, new: Cassette, feature: str, served: frozenset[Identity]) -> bool:
    before, now = (frozenset(_calls(one, feature)) for one in (old, new))
    return before == now and now <= served and old.stories.get(feature) == new.stories.get(feature)


def _calls(cassette: Cassette, feature: str) -> Iterator[Identity]:
    return (one.recording.identity for one in cassette.taken if one.recording.identity.feature == feature)
