"""Plan of a re-recording: which calls of a cassette the agent repeats, why, and which others follow from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import msgspec
from mz_engine.pricing.estimate import Estimate

from mz_recordings.cassette.model import Cassette, Identity, RecordedCall
from mz_recordings.findings.model import Finding
from mz_recordings.replay.compare import ReplayOutcome, is_expired

REPEATABLE_KINDS = ("PROMPT", "CONFIG", "FILES", "STREAM")
"""Findings that a new reply may fix. The others concern the interpretation of the same reply: they can be accepted."""
REQUESTED, OTHER_AGENT = "REQUESTED", "OTHER_AGENT"


class CallSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Names calls as `[RUN/]FEATURE[/PHASE[#ATTEMPT]]`; None: any."""

    run: str | None = None
    """Run that was recorded."""
    feature: str
    phase: str | None = None
    attempt: int | None = None

    def matches(self, run: str, identity: Identity) -> bool:
        pairs = (
            (self.run, run),
            (self.feature, identity.feature),
            (self.phase, identity.phase),
            (self.attempt, identity.attempt),
        )
        return all(wanted in (None, actual) for wanted, actual in pairs)

    def __str__(self) -> str:
        name = "/".join(part for part in (self.run, self.feature, self.phase) if part)
        return f"{name}#{self.attempt}" if self.attempt else name


class CallSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's selection of calls. If empty: calls that changed, expired, or were never recorded."""

    selectors: tuple[CallSelector, ...] = ()
    """Only the calls that one of these names; empty: all."""
    changed: bool = False
    expired: bool = False
    new: bool = False
    everything: bool = False

    def selects_reason(self, reason: str) -> bool:
        """Return True if a call is to be repeated for this reason."""
        if reason == OTHER_AGENT:
            return True
        if not (self.changed or self.expired or self.new or self.everything):
            return reason == REQUESTED if self.selectors else reason != REQUESTED
        selected_by_reason = {
            "MISSING": self.new,
            "EXPIRED": self.expired,
            "COPIED": self.expired,
            REQUESTED: self.everything,
        }
        return selected_by_reason.get(reason, self.changed)


class RepeatedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the agent will, or probably will, repeat."""

    identity: Identity
    reasons: tuple[str, ...] = ()
    """Finding kinds, EXPIRED, COPIED, MISSING; REQUESTED: selected by the caller; OTHER_AGENT: another agent is to
    reply."""
    follows: str = ""
    """The call, or the feature, whose new reply probably changes this call's prompt; empty: repeated for its own
    reasons."""
    is_paid: bool = False
    """True if an unfinished attempt has a paid reply."""
    estimate: Estimate


class ReplayedCassette(NamedTuple):
    """Result of a replay of the cassette through the current pipeline."""

    replay: ReplayOutcome
    findings: tuple[Finding, ...]
    today: datetime
    agent: str
    """Agent to use."""
    paid: frozenset[Identity]


EstimateCall = Callable[[Identity, RecordedCall | None], Estimate]


def plan_calls(
    cassette: Cassette, selection: CallSelection, replayed: ReplayedCassette, estimate_call: EstimateCall
) -> tuple[RepeatedCall, ...]:
    """Return the planned calls, feature by feature, in order of the calls. Empty: nothing is to be repeated."""
    reasons_by_call = rerecord_reasons(cassette, replayed)
    all_of_them = replayed.agent != cassette.manifest.agent
    selected: dict[Identity, tuple[str, ...]] = {}
    for call, call_reasons in reasons_by_call.items():
        reasons = tuple(reason for reason in call_reasons if selection.selects_reason(reason))
        is_named = any(selector.matches(cassette.manifest.fixture.run, call) for selector in selection.selectors)
        if reasons and (all_of_them or is_named or not selection.selectors):
            selected[call] = reasons
    recordings = cassette.by_identity()
    rows: list[RepeatedCall] = []
    for feature in affected_features(cassette, {call.feature for call in selected}):
        for identity, causes, follows in _call_rows(cassette, replayed, feature, selected, reasons_by_call):
            is_paid = identity in replayed.paid
            estimate = Estimate(tokens=0, nanousd=0) if is_paid else estimate_call(identity, recordings.get(identity))
            rows.append(
                RepeatedCall(identity=identity, reasons=causes, follows=follows, is_paid=is_paid, estimate=estimate)
            )
    return tuple(rows)


def rerecord_reasons(cassette: Cassette, replayed: ReplayedCassette) -> dict[Identity, tuple[str, ...]]:
    """Return all reasons for a new reply, by call; `REQUESTED` is the weakest."""
    drifted = defaultdict[tuple[str, str], list[str]](list)
    for finding in replayed.findings:
        if finding.kind in REPEATABLE_KINDS:
            drifted[finding.feature, finding.call].append(finding.kind)
    by_call: dict[Identity, tuple[str, ...]] = {}
    manifest = cassette.manifest
    for recorded in cassette.calls:
        identity = recorded.identity
        call_reasons = dict.fromkeys(drifted[identity.feature, identity.name])
        if is_expired(recorded.recording, manifest.max_age_days, replayed.today):
            call_reasons["EXPIRED"] = None
        if manifest.provenance == "copied":
            call_reasons["COPIED"] = None
        if replayed.agent != manifest.agent:
            call_reasons[OTHER_AGENT] = None
        by_call[identity] = (*call_reasons, REQUESTED)
    return by_call | dict.fromkeys(replayed.replay.missing_calls, ("MISSING", REQUESTED))


def affected_features(cassette: Cassette, features: Iterable[str]) -> tuple[str, ...]:
    """Return the features, their dependencies and dependents, in backlog order."""
    fixture = cassette.manifest.fixture
    affected = fixture.dependencies(fixture.dependents(features))
    return tuple(item.feature for item in fixture.items if item.feature in affected)


def _call_rows(
    cassette: Cassette,
    replayed: ReplayedCassette,
    feature: str,
    selected: dict[Identity, tuple[str, ...]],
    reasons_by_call: dict[Identity, tuple[str, ...]],
) -> Iterator[tuple[Identity, tuple[str, ...], str]]:
    """Yield the calls of a feature that runs again: the selected ones, those that differ from the recording, and all
    after them."""
    features = {call.feature for call in selected}
    dependencies = cassette.manifest.fixture.dependencies([feature])[1:]
    source = next((other for other in dependencies if other in features), "")
    calls = [call.identity for call in cassette.calls if call.identity.feature == feature]
    missed = [call for call in replayed.replay.missing_calls if call.feature == feature]
    index = 1 + max((index for index, call in enumerate(calls) if call in replayed.replay.mismatches), default=-1)
    order = (*calls[:index], *missed, *calls[index:])  # Missing calls follow the last played one.
    for identity in order:
        forced = tuple(
            reason for reason in reasons_by_call.get(identity, ()) if reason in (*REPEATABLE_KINDS, "MISSING")
        )
        call_reasons = selected.get(identity) or forced
        if call_reasons or source:
            causes = tuple(reason for reason in call_reasons if reason != REQUESTED or len(call_reasons) == 1)
            yield identity, causes, "" if call_reasons else source
            source = source or identity.path
    if any(identity.feature == feature for identity in replayed.replay.missing_calls):
        last, phases_done = order[-1], {identity.phase for identity in order}
        for phase in replayed.replay.pins.pipeline.phases:
            if phase.agent is not None and phase.phase not in phases_done:
                yield Identity(pipeline=last.pipeline, feature=feature, phase=phase.phase), (), last.path
