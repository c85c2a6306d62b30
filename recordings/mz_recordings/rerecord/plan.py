"""Plan of a re-recording: which calls of a cassette the agent repeats, why, and which others follow from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from mz_engine.estimate import Estimate

from mz_recordings.cassette import BUILDER, Cassette, Identity, Taken
from mz_recordings.findings import Finding
from mz_recordings.playing.compare import Happened, expires

CHANGED = ("PROMPT", "CONFIG", "EFFECT", "WIRE")
"""Findings that a new reply may fix. The others concern the interpretation of the same reply: they can be accepted."""
ASKED, OTHER_AGENT = "ASKED", "AGENT"


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's selection of calls. If empty: calls that changed, expired, or were never recorded."""

    features: tuple[str, ...] = ()
    """Only these; empty: all."""
    phases: tuple[str, ...] = ()
    changed: bool = False
    expired: bool = False
    new: bool = False
    everything: bool = False

    def wants(self, why: str) -> bool:
        """Return True if a call is to be repeated for this reason."""
        if why == OTHER_AGENT:
            return True
        if not (self.changed or self.expired or self.new or self.everything):
            return why == ASKED if self.features or self.phases else why != ASKED
        wanted = {"MISSING": self.new, "STALE": self.expired, "SEEDED": self.expired, ASKED: self.everything}
        return wanted.get(why, self.changed)

    def covers(self, identity: Identity) -> bool:
        """Return True if the selection includes a call."""
        return (not self.features or identity.feature in self.features) and (
            not self.phases or identity.phase in self.phases
        )


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the agent will, or probably will, repeat."""

    identity: Identity
    why: tuple[str, ...] = ()
    """Finding kinds, STALE, SEEDED, MISSING; ASKED: selected by the caller; AGENT: another agent is to reply."""
    follows: str = ""
    """The call, or the feature, whose new reply probably changes this call's prompt; empty: repeated for its own
    reasons."""
    paid: bool = False
    """True if an unfinished attempt has a paid reply."""
    estimate: Estimate


class Seen(NamedTuple):
    """Result of a replay of the cassette through the current pipeline."""

    happened: Happened
    findings: tuple[Finding, ...]
    today: datetime
    agent: str
    """Agent to use."""
    paid: frozenset[Identity]


Guess = Callable[[Identity, Taken | None], Estimate]


def plan(cassette: Cassette, wish: Wish, seen: Seen, guess: Guess) -> tuple[Planned, ...]:
    """Return the planned calls, feature by feature, in order of the calls. Empty: nothing is to be repeated."""
    known = reasons(cassette, seen)
    all_of_them = seen.agent != cassette.manifest.agent
    chosen = {
        one: tuple(why for why in each if wish.wants(why))
        for one, each in known.items()
        if all_of_them or wish.covers(one)
    }
    chosen = {one: why for one, why in chosen.items() if why}
    taken = {one.recording.identity: one for one in cassette.taken}
    touched = {one.feature for one in chosen}
    rows: list[Planned] = []
    for feature in concerned(cassette, touched):
        for identity, causes, follows in _calls(cassette, seen, feature, chosen, known, touched):
            paid = identity in seen.paid
            estimate = Estimate(tokens=0, nanousd=0) if paid else guess(identity, taken.get(identity))
            rows.append(Planned(identity=identity, why=causes, follows=follows, paid=paid, estimate=estimate))
    return tuple(rows)


def reasons(cassette: Cassette, seen: Seen) -> dict[Identity, tuple[str, ...]]:
    """Return all reasons for a new reply, by call; `ASKED` is the weakest."""
    drifted: dict[tuple[str, str], list[str]] = {}
    for finding in seen.findings:
        if finding.kind in CHANGED and finding.call:
            drifted.setdefault((finding.feature, finding.call), []).append(finding.kind)
    found: dict[Identity, tuple[str, ...]] = {}
    manifest = cassette.manifest
    for one in cassette.taken:
        identity = one.recording.identity
        why = dict.fromkeys(drifted.get((identity.feature, identity.name), []))
        if expires(one.recording, manifest.max_age_days, seen.today):
            why["STALE"] = None
        if manifest.provenance == "seeded":
            why["SEEDED"] = None
        if seen.agent != manifest.agent:
            why[OTHER_AGENT] = None
        found[identity] = (*why, ASKED)
    return found | dict.fromkeys(seen.happened.missed, ("MISSING", ASKED))


def concerned(cassette: Cassette, touched: Iterable[str]) -> tuple[str, ...]:
    """Return the features, their dependencies and dependents, in backlog order."""
    items = cassette.manifest.world.items
    found = set(touched)
    for _ in items:
        found |= {item.feature for item in items if found & set(item.depends_on)}
    for _ in items:
        found |= {other for item in items if item.feature in found for other in item.depends_on}
    return tuple(item.feature for item in items if item.feature in found)


Row = tuple[Identity, tuple[str, ...], str]


def _calls(
    cassette: Cassette,
    seen: Seen,
    feature: str,
    chosen: dict[Identity, tuple[str, ...]],
    known: dict[Identity, tuple[str, ...]],
    touched: set[str],
) -> Iterator[Row]:
    """Yield the calls of a feature that runs again: the selected ones, those that differ from the recording, and all
    after them."""
    source = next((other for other in _below(cassette, feature) if other in touched), "")
    order = _order(cassette, seen, feature)
    for identity in order:
        forced = tuple(reason for reason in known.get(identity, ()) if reason in (*CHANGED, "MISSING"))
        why = chosen.get(identity) or forced
        if why or source:
            yield identity, tuple(reason for reason in why if reason != ASKED or len(why) == 1), "" if why else source
            source = source or identity.path
    if any(identity.feature == feature for identity in seen.happened.missed):
        last, been = order[-1], {identity.phase for identity in order}
        for phase in seen.happened.pins.pipeline.phases:
            if phase.agent is not None and phase.phase not in been:
                yield Identity(pipeline=last.pipeline, feature=feature, phase=phase.phase), (), last.path


def _below(cassette: Cassette, feature: str) -> tuple[str, ...]:
    """Return the dependencies of a feature, including indirect ones."""
    needs = {item.feature: item.depends_on for item in cassette.manifest.world.items}
    found = dict.fromkeys(needs.get(feature, ()))
    for _ in needs:
        found |= dict.fromkeys(other for each in tuple(found) for other in needs.get(each, ()))
    return tuple(found)


def _order(cassette: Cassette, seen: Seen, feature: str) -> tuple[Identity, ...]:
    """Return the feature's recordings in order of its trace; missing calls follow the last played one."""
    told = [
        _told(cassette.manifest.pipeline, feature, line["ref"])
        for line in map(json.loads, cassette.stories.get(feature, b"").splitlines())
        if line["type"] == "agent.requested"
    ]
    recorded = [one.recording.identity for one in cassette.taken if one.recording.identity.feature == feature]
    places = {one: at for at, one in enumerate(told)}
    order = sorted(recorded, key=lambda one: places.get(one, len(places)))
    missed = [one for one in seen.happened.missed if one.feature == feature]
    at = 1 + max((at for at, one in enumerate(order) if one in seen.happened.played), default=-1)
    return (*order[:at], *missed, *order[at:])


def _told(pipeline: str, feature: str, ref: dict[str, Any]) -> Identity:
    return Identity(
        pipeline=pipeline,
        feature=feature,
        phase=ref["phase"],
        unit=ref.get("unit", ""),
        iteration=ref.get("iteration", 1),
        attempt=ref.get("attempt", 1),
        role=ref.get("role", BUILDER),
    )
