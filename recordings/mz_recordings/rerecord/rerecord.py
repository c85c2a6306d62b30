"""Re-recording of a cassette: the real agent replies to its calls again, in a scratch repository below `.mz`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Set
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace
from mz_engine.agents.registry import all_adapters
from mz_engine.decide.caller import planned_calls
from mz_engine.effects.call import REPLY_TOKENS
from mz_engine.git.repository import branch_commit
from mz_engine.model.pins import Pins, encode_pins
from mz_engine.model.pipeline import AgentUse
from mz_engine.pricing.budget_charge import known_cost
from mz_engine.pricing.estimate import OUTPUT_SHARE_PERCENT, Estimate, baseline_tokens
from mz_engine.pricing.table import GenaiPrices
from mz_engine.processes.supervise import can_run_offline
from mz_engine.run.plan import check_agent, check_commands, find_agent, model_of
from mz_engine.run.ports import SystemClock
from mz_engine.run.routing import without_agents
from mz_engine.run.settings import load_config
from mz_engine.secrets import project_secrets
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.redaction.redactor import Secrets

from mz_recordings.cassette.files import load, write_copy
from mz_recordings.cassette.model import BUILDER, Cassette, Identity, Provenance, RecordedCall
from mz_recordings.cassette.repository import unpack
from mz_recordings.cassette.trace import trace_events
from mz_recordings.findings.model import Finding
from mz_recordings.record.obstacles import ExcludedFeature
from mz_recordings.record.recorder import NothingToRecord, RecordedRun, RecordSources, SecretInRecording, record_run
from mz_recordings.replay.accept import prune
from mz_recordings.replay.compare import ReplayOutcome, compare_replay
from mz_recordings.replay.driver import start_run
from mz_recordings.replay.ports import ReplayFolders
from mz_recordings.replay.project import current_project
from mz_recordings.replay.replay import ReplayJob, run_replay
from mz_recordings.rerecord.driver import LiveEnvironment, RunControl, RunEnd, drive_run
from mz_recordings.rerecord.plan import CallSelection, RepeatedCall, ReplayedCassette, affected_features, plan_calls
from mz_recordings.rerecord.workspace import (
    BLOBS,
    LOG,
    RerecordWorkspace,
    begin_attempt,
    collect_paid,
    weakest_provenance,
)

RECORDED, PAID = "recorded", "paid"
"""Names of the sources of replies."""
NOT_STOPPED = "it did not stop"


class RerecordChoices(msgspec.Struct, frozen=True, kw_only=True):
    """What a person chooses."""

    selection: CallSelection = CallSelection()
    agent: str | None = None
    """Agent to use; None: the cassette's own."""
    provenance: Provenance = "live"
    """Provenance of its replies."""
    prune: bool = False
    """True: remove unused recordings."""


class RerecordJob(RerecordChoices, frozen=True, kw_only=True):
    """Options for re-recording one cassette."""

    path: str
    project: str
    """Project whose pipelines and settings are used."""
    environment: dict[str, str]
    """The caller's full environment: the real agent needs its login."""
    now: datetime
    """With a time zone."""


class RerecordPlan(NamedTuple):
    """Plan of a re-recording, before any cost."""

    old: Cassette
    """As stored in the library."""
    cassette: Cassette
    """The same, without unused recordings if they are to be removed."""
    pins: Pins
    calls: tuple[RepeatedCall, ...]
    findings: tuple[Finding, ...]
    """Findings of its replay."""
    paid: Cassette
    """Paid replies of an earlier attempt."""


class RerecordResult(NamedTuple):
    run_end: RunEnd
    live_calls: tuple[str, ...] = ()
    """Calls to which the real agent replied."""
    served_calls: tuple[str, ...] = ()
    """Calls that recordings served."""
    kept_features: tuple[str, ...] = ()
    """Features whose new recordings are in `cassette`."""
    dropped_features: tuple[ExcludedFeature, ...] = ()
    used_up_features: tuple[str, ...] = ()
    """Features whose paid replies are no longer useful: not those that are dropped only because others are."""
    cassette: Cassette | None = None
    """None: nothing new to keep."""
    paid_replies: int = 0
    """Number of paid replies that are kept for the next attempt."""
    denied_keys: tuple[str, ...] = ()
    """Keys of commands that tried to access the network."""


# preparation ----------------------------------------------------------------------------------------------------------
def prepare_rerecord(job: RerecordJob, workspace: RerecordWorkspace) -> RerecordPlan:
    """Replay the cassette and plan the agent's calls. Raises CassetteUnusable, WorldMissing and MzError."""
    project, environment, now = Path(job.project), job.environment, job.now
    old = load(Path(job.path))
    agent = job.agent or old.manifest.agent
    config = load_config(project, environment, {"agent": agent}).config
    if job.agent:
        find_agent(agent, config.agents)
    workers = config.parallel_max
    pins = current_project(project, environment, replace(old.manifest, agent=agent), workers).pins
    if job.agent:  # It replies to all calls.
        pins = replace(pins, config=replace(pins.config, routing=without_agents(pins.config.routing)))
    replay = run_replay(
        old,
        ReplayJob(path=job.path, project=job.project, environment=environment, features_parallel=workers, today=now),
    )
    findings = compare_replay(old, replay, now)
    cassette = prune(old, replay, findings)[0] if job.prune else old
    paid = collect_paid(workspace, old, environment, project)
    replayed = ReplayedCassette(replay, findings, now, agent, frozenset(paid.by_identity()))
    calls = plan_calls(cassette, job.selection, replayed, CallEstimates(cassette, replay, pins).estimate)
    return RerecordPlan(old, cassette, pins, calls, findings, paid)


def check_installed(job: RerecordJob, plan: RerecordPlan) -> None:
    """Check that everything that the agent and the commands need is installed. Calls no model. Raises MzError (MZ1004,
    MZ1005)."""
    config, pipeline = plan.pins.config, plan.pins.pipeline
    calls = (planned for phase, use in pipeline.calls for planned in planned_calls(config, pipeline, phase, use))
    for agent in dict.fromkeys(agent for agent, _ in calls):
        check_agent(agent, config, job.environment)
    check_commands(Path(job.project), config, job.environment)


class CallEstimates:
    """Estimates of calls: recorded usage of the same model, else the engine's baseline for the phase."""

    def __init__(self, cassette: Cassette, replay: ReplayOutcome, pins: Pins) -> None:
        self._is_live, self._replay, self._pins = cassette.manifest.provenance == "live", replay, pins
        self._adapters = all_adapters(pins.config.agents)
        self._prices, self._now_us = GenaiPrices(pins.config.prices), SystemClock().now_us()

    def estimate(self, identity: Identity, recorded_call: RecordedCall | None) -> Estimate:
        """Return the estimate of a call, the dearest that routes of units allow. Unpriced models have no amount."""
        phase = next((candidate for candidate in self._pins.pipeline.phases if candidate.phase == identity.phase), None)
        request, config, pipeline = self._replay.requests.get(identity), self._pins.config, self._pins.pipeline
        use = None if phase is None else phase.agent if identity.role == BUILDER else phase.agent_review
        planned = planned_calls(config, pipeline, phase, use) if phase and use else ((config.agent, AgentUse().tier),)
        possible = [(agent, model_of(config, agent, tier)) for agent, tier in planned]
        agent, model = (request.agent, request.model) if request else max(possible, key=self._price_of_million)
        adapter = self._adapters[agent]
        if self._is_live and recorded_call is not None and recorded_call.recording.model == model:
            reading = adapter.parse_output(recorded_call.result())
            if reading.usage:
                price = self._prices.price(reading.usage, self._now_us)
                cost = known_cost(reading, price) if price.nanousd is not None else None
                return Estimate(tokens=sum(usage.input + usage.output for usage in reading.usage), nanousd=cost)
        prompt = recorded_call.content("prompt").decode("utf-8", "replace") if recorded_call else ""
        prompt_tokens = request.estimated_tokens - REPLY_TOKENS if request else adapter.estimate_tokens(prompt)
        tokens = prompt_tokens + (baseline_tokens(phase) if phase is not None else 0)
        output_tokens = tokens * OUTPUT_SHARE_PERCENT // 100
        nanousd = self._prices.estimate(model, tokens - output_tokens, output_tokens, self._now_us)
        return Estimate(tokens=tokens, nanousd=nanousd)

    def _price_of_million(self, choice: tuple[str, str]) -> float:
        price = self._prices.estimate(choice[1], 800_000, 200_000, self._now_us)
        return math.inf if price is None else price


# the run --------------------------------------------------------------------------------------------------------------
def run_rerecord(
    job: RerecordJob, plan: RerecordPlan, workspace: RerecordWorkspace, control: RunControl
) -> RerecordResult:
    """Run the affected features and select which to keep. Nothing is written to the library. Raises WorldMissing,
    SecretInRecording, and any error of a thread; paid replies are stored even then."""
    secrets = Secrets(project_secrets(Path(job.project), job.environment))
    if names := secrets.names_in(encode_pins(plan.pins)):
        raise SecretInRecording("the input to record (settings, pipeline, templates)", names)
    paid = begin_attempt(workspace, plan.paid, job.provenance)
    try:
        outcome = _run(job, plan._replace(paid=paid), workspace, control)
    finally:
        still_paid = collect_paid(workspace, plan.old, job.environment, Path(job.project))
    return outcome._replace(paid_replies=len(still_paid.calls))


def _run(job: RerecordJob, plan: RerecordPlan, workspace: RerecordWorkspace, control: RunControl) -> RerecordResult:
    cassette, pins, environment = plan.cassette, plan.pins, job.environment
    fixture = cassette.manifest.fixture
    features = affected_features(cassette, {call.identity.feature for call in plan.calls})
    scratch = ReplayFolders(workspace.run, environment, can_run_offline(), Path(job.project)).create()
    heads = unpack(cassette, scratch.root, scratch.command_environment)
    copy = workspace.run / "cassette"
    write_copy(cassette, copy)
    base = branch_commit(scratch.root, fixture.base, scratch.command_environment)
    repeated = frozenset(call.identity for call in plan.calls if call.reasons)
    served = cassette._replace(calls=tuple(call for call in cassette.calls if call.identity not in repeated))
    recording_sources = {PAID: (plan.paid, workspace.paid), RECORDED: (served, copy)}
    with SqliteStore(workspace.run / LOG) as store:
        blobs = FileBlobs(workspace.run / BLOBS)
        sources = RecordSources(scratch.root, environment, store, blobs, Path(job.project))
        live = LiveEnvironment(scratch, recording_sources, pins, blobs, environment, Path(job.project), sources.tree_id)
        items = tuple(item for item in fixture.items if item.feature in features)
        try:
            start_run(cassette, items, pins, store, live, base, heads)
            run_end = drive_run(cassette, pins, store, live, control)
        finally:
            live.stop.set()
        chosen = live.agents.sources
        outcome = RerecordResult(
            run_end,
            tuple(call.path for call in chosen if call in live.agents.live_calls),
            tuple(call.path for call, source in chosen.items() if source),
            denied_keys=tuple(sorted(live.network_attempts.counts_by_key)),
        )
        if run_end.stop_reason:
            return outcome
        try:
            recorded_run = record_run(
                sources, fixture.run, name=cassette.manifest.name, provenance=job.provenance, template="-"
            )
        except NothingToRecord as error:
            recorded_run = RecordedRun(cassette._replace(calls=(), traces={}), error.unrecordable)
    return _keep_features(job, plan, features, recorded_run, chosen, outcome)


def _keep_features(
    job: RerecordJob,
    plan: RerecordPlan,
    features: tuple[str, ...],
    recorded_run: RecordedRun,
    sources: dict[Identity, str],
    outcome: RerecordResult,
) -> RerecordResult:
    old, new = plan.cassette, recorded_run.cassette
    left_out_reasons = {left_out.feature: left_out.reason for left_out in recorded_run.unrecordable}
    rejections = {
        feature: rejection_reason(
            old.traces.get(feature), new.traces.get(feature), left_out_reasons.get(feature, NOT_STOPPED)
        )
        for feature in features
    }
    recorded_calls, paid_calls = old.by_identity(), plan.paid.by_identity()
    recorded = {call: recorded_calls[call] for call, source in sources.items() if source == RECORDED}
    paid = {call: paid_calls[call] for call, source in sources.items() if source == PAID}
    unchanged = frozenset(feature for feature in features if _is_unchanged(old, new, feature, recorded.keys()))
    kept, dropped = kept_features(old, rejections, unchanged, all_or_none=new.manifest.agent != old.manifest.agent)
    changed_features = tuple(feature for feature in kept if feature not in unchanged)
    dropped_with_others = {call.feature for call in dropped if not rejections[call.feature]}
    driven = {call.feature for call in sources}
    used_up = tuple(feature for feature in features if feature in driven and feature not in dropped_with_others)
    outcome = outcome._replace(kept_features=changed_features, dropped_features=dropped, used_up_features=used_up)
    if not changed_features:
        return outcome
    provenance = weakest_provenance(job.provenance, *([plan.paid.manifest.provenance] if paid else []))
    return outcome._replace(cassette=merge_recordings(old, new, changed_features, {**paid, **recorded}, provenance))


def _is_unchanged(old: Cassette, new: Cassette, feature: str, served: Set[Identity]) -> bool:
    old_calls, new_calls = (
        {call.identity for call in cassette.calls if call.identity.feature == feature} for cassette in (old, new)
    )
    return old_calls == new_calls <= served and old.traces.get(feature) == new.traces.get(feature)


# what is kept ---------------------------------------------------------------------------------------------------------
DELIVERED = "delivered"
STOP_DESCRIPTIONS = {
    "feature.delivered": DELIVERED,
    "feature.failed": "failed",
    "feature.cancelled": "cancelled",
    "feature.held": "held",
    "human.requested": "waiting for a person",
}
"""Description of a stopped feature, by the last event of these types in its trace."""
CONTINUING_EVENTS = frozenset({"feature.hold-released", "human.answered", "feature.retried"})


def stop_of_trace(trace: bytes) -> tuple[str, str]:
    """Return how a feature stopped, and why; two empty strings if it did not."""
    for line in reversed(tuple(trace_events(trace))):
        if line["type"] in CONTINUING_EVENTS:
            break
        if line["type"] in STOP_DESCRIPTIONS:
            details = (line.get(name) for name in ("question_kind", "hold", "code"))
            return STOP_DESCRIPTIONS[line["type"]], " ".join(str(detail) for detail in details if detail)
    return "", ""


def rejection_reason(recorded_trace: bytes | None, new_trace: bytes | None, left_out: str) -> str:
    """Return an empty string if the feature stopped as in the recorded run, or was delivered; else the reason why its
    new recordings are not kept. Without a recorded trace it must be delivered."""
    if new_trace is None:
        return left_out or "it did not start"
    new_stop = stop_of_trace(new_trace)
    recorded_stop = stop_of_trace(recorded_trace) if recorded_trace is not None else (DELIVERED, "")
    if new_stop[0] == DELIVERED or new_stop == recorded_stop:
        return ""
    return f"it was {_stop_text(recorded_stop)} in the recording, but is {_stop_text(new_stop)} now"


def _stop_text(stop: tuple[str, str]) -> str:
    state, reason = stop
    return f"{state} ({reason})" if reason else state or "unfinished"


def kept_features(
    old: Cassette, rejections: Mapping[str, str], unchanged: Collection[str], all_or_none: bool
) -> tuple[tuple[str, ...], tuple[ExcludedFeature, ...]]:
    """Return the features whose new recordings are kept, and the dropped ones. `rejections` has, for each feature that
    ran, the reason against its recordings, or an empty string. Features are kept or dropped together with their
    dependencies and dependents, unless nothing changed in them. `all_or_none`: keep all or none."""
    dropped = {feature: reason for feature, reason in rejections.items() if reason}
    for _ in rejections:
        for item in old.manifest.fixture.items:
            for dependency in (other for other in item.depends_on if other not in unchanged):
                for cause, other in ((dependency, item.feature), (item.feature, dependency)):
                    if cause in dropped and cause not in unchanged and other in rejections:
                        reason = f"it depends on, or is needed by, {cause}, whose recordings stay unchanged"
                        dropped.setdefault(other, reason)
    if all_or_none and dropped:
        first = next(iter(dropped))
        dropped = {
            feature: dropped.get(feature) or f"all features are kept together, and {first} is not kept"
            for feature in rejections
        }
    kept = tuple(feature for feature in rejections if feature not in dropped)
    return kept, tuple(ExcludedFeature(feature, reason) for feature, reason in dropped.items())


def merge_recordings(
    old: Cassette, new: Cassette, kept: Collection[str], served: Mapping[Identity, RecordedCall], provenance: Provenance
) -> Cassette:
    """Return the old cassette with the new recordings and traces of these features; the calls that a recording served
    stay as they were. The fixture stays, except for their recorded decisions. The provenance is never better than that
    of each reply."""
    old_calls = old.by_identity()
    new_calls = tuple(served.get(call.identity, call) for call in new.calls if call.identity.feature in kept)
    unchanged_calls = tuple(call for call in old.calls if call.identity.feature not in kept)
    has_new = any(call is not old_calls.get(call.identity) for call in new_calls)
    has_old = bool(unchanged_calls) or any(call is old_calls.get(call.identity) for call in new_calls)
    provenances = (*((provenance,) if has_new else ()), *((old.manifest.provenance,) if has_old or not has_new else ()))
    traces = {**old.traces, **{feature: trace for feature, trace in new.traces.items() if feature in kept}}
    decisions = (
        *(call for call in old.manifest.fixture.decisions if call.feature not in kept),
        *(call for call in new.manifest.fixture.decisions if call.feature in kept),
    )
    manifest = replace(
        old.manifest,
        agent=new.manifest.agent,
        mz=new.manifest.mz,
        provenance=weakest_provenance(*provenances),
        traces={feature: hashlib.sha256(trace).hexdigest() for feature, trace in traces.items()},
        fixture=replace(old.manifest.fixture, decisions=decisions),
        evidence=new.manifest.evidence,
    )
    return old._replace(manifest=manifest, calls=(*unchanged_calls, *new_calls), traces=traces)
