"""Findings of a replay: drift, missing recordings and unused ones."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from mz_engine.pins import Pins
from mz_events.catalog.call import AgentRequested

from mz_recordings.cassette import Cassette, Identity, Recording, Taken, parse_time
from mz_recordings.findings import Finding, Noted
from mz_recordings.mending import ACCEPT, ALL, EXPIRED, NEW, UPDATE_UNUSED, again
from mz_recordings.playing.parting import partings
from mz_recordings.recording.story import as_asked

ACCEPTED_DAYS = 90
"""Validity of a reply after its inputs were updated, in a cassette without `max_age_days`."""
DIFF_LINES_MAX = 40
EFFECT = re.compile(r"[^/]+/([^/]+)/([^/]+)/([^/]+)/\d+/\d+/((?:agent|gate|prepare)\..+)", re.DOTALL)
"""Key of an effect within a phase: feature, phase, unit, effect."""


class Happened(NamedTuple):
    """Outcome of one replay."""

    played: Mapping[Identity, Noted]
    missed: tuple[Identity, ...]
    requests: Mapping[Identity, AgentRequested]
    """Request of each call."""
    stories: Mapping[str, bytes]
    """Trace by feature."""
    denied: Mapping[str, int]
    """Attempts to reach the network, by MZ_KEY."""
    pins: Pins
    """Pins of the current project."""


def judge(cassette: Cassette, happened: Happened, today: datetime) -> tuple[Finding, ...]:
    """Return all findings of a replay."""
    stopped = _dependents(cassette, _stopped(happened))
    return (
        *by_itself(cassette, today),
        *_network(happened),
        *_drifted(cassette, happened),
        *_missing(cassette, happened),
        *_events(cassette, happened, cut_short(cassette, happened)),
        *_unused(cassette, happened, stopped),
    )


def cut_short(cassette: Cassette, happened: Happened) -> frozenset[str]:
    """Return features whose trace ends early, because a call had no reply or fewer calls were made, and their
    dependents. These traces are not compared."""
    stopped = _dependents(cassette, _stopped(happened))
    unused = (call.recording.identity for call in cassette.taken if call.recording.identity not in happened.played)
    return frozenset(_dependents(cassette, stopped | {identity.feature for identity in unused}))


def _stopped(happened: Happened) -> set[str]:
    """Return features with a call that got no reply."""
    unfit = {call.feature for call, noted in happened.played.items() if noted.tree or noted.refused is not None}
    return unfit | {identity.feature for identity in happened.missed}


def by_itself(cassette: Cassette, today: datetime) -> tuple[Finding, ...]:
    """Return the findings that need no replay: about provenance, missing traces and age."""
    return (*_worthless(cassette), *_untold(cassette), *_expired(cassette, today))


def counted(cassette: Cassette) -> int:
    """Return the number of replies that were kept when their inputs were updated."""
    return sum(call.recording.accepted is not None for call in cassette.taken)


# findings without a replay --------------------------------------------------------------------------------------------
# what the cassette says by itself -------------------------------------------------------------------------------------
def _worthless(cassette: Cassette) -> Iterator[Finding]:
    if not cassette.taken:
        yield Finding(kind="MISSING", what="the cassette has no recordings", mend=NEW)
    if cassette.manifest.provenance == "seeded":
        what = f"its replies were copied from another agent; {cassette.manifest.agent} never gave them"
        yield Finding(kind="SEEDED", what=what, mend=ALL)


def _untold(cassette: Cassette) -> Iterator[Finding]:
    """Yield a finding for features without a trace, whose decisions cannot be compared."""
    items = cassette.manifest.world.items
    untold = [item.feature for item in items if item.feature not in cassette.stories]
    if untold:
        which = "recorded" if len(untold) == len(items) else f"{len(untold)} of {len(items)} features recorded"
        what = f"{which} without a trace: their decisions cannot be compared"
        detail = tuple(f"  {feature}" for feature in untold[:DIFF_LINES_MAX])
        yield Finding(kind="MISSING", what=what, cause="story", detail=detail, mend=ACCEPT % "EVENT")


def _expired(cassette: Cassette, today: datetime) -> Iterator[Finding]:
    limit = cassette.manifest.max_age_days
    old = [call.recording for call in cassette.taken if expires(call.recording, limit, today)]
    if old:
        first = min(old, key=lambda recording: recording.recorded_at)
        days = f"{limit} days" if limit is not None else f"{ACCEPTED_DAYS} days after new inputs were accepted"
        what = f"{len(old)} of {len(cassette.taken)} recordings are older than allowed ({days})"
        detail = (f"  oldest: {first.identity.path}, recorded {first.recorded_at}",)
        yield Finding(kind="STALE", what=what, detail=detail, mend=EXPIRED)


def expires(recording: Recording, max_age_days: int | None, today: datetime) -> bool:
    """Return True if the recording is older than allowed."""
    if max_age_days is not None:
        return parse_time(recording.recorded_at) + timedelta(days=max_age_days) < today
    accepted = recording.accepted
    return accepted is not None and parse_time(accepted.at) + timedelta(days=ACCEPTED_DAYS) < today


# differences in the inputs --------------------------------------------------------------------------------------------
def _network(happened: Happened) -> Iterator[Finding]:
    for key, times in sorted(happened.denied.items()):
        feature, place, effect = effect_of(key)
        who = f"{effect} in {place}" if place else f"the setup command `{' '.join(effect.split())}`"
        what = f"{who} tried to reach the network (at least {times} times) and was blocked"
        mend = "make the command work offline, then: mz replay {cassette}"
        yield Finding(
            kind="NETWORK", what=what, feature=feature, call=place, cause=effect if place else "setup", mend=mend
        )


def effect_of(key: str) -> tuple[str, str, str]:
    """Return feature, phase with unit, and effect of a key. A set-up command has an empty phase and is the effect."""
    if found := EFFECT.fullmatch(key):
        feature, phase, unit, effect = found.groups()
        return feature, phase if unit == "-" else f"{phase} {unit}", effect
    _, feature, effect = (*key.split("/", 2), "", "")[:3]
    return feature, "", effect.removeprefix("setup/")


def _drifted(cassette: Cassette, happened: Happened) -> Iterator[Finding]:
    for one in cassette.taken:
        noted = happened.played.get(one.recording.identity)
        if noted is not None:
            request = happened.requests.get(one.recording.identity)
            yield from _noted(one, noted, request.template if request else "")


def _noted(one: Taken, noted: Noted, template: str) -> Iterator[Finding]:
    recording = one.recording
    feature, name = recording.identity.feature, recording.identity.name
    if noted.tree is not None:
        what = f"the call started from the tree {recording.tree_before[:12]}, and now starts from {noted.tree[:12]}"
        yield Finding(kind="EFFECT", what=what, feature=feature, call=name, mend=again(recording.identity))
    if noted.refused is not None:
        lines = tuple(f"  {line}" for line in noted.refused.splitlines()[:DIFF_LINES_MAX])
        what = "the agent's changes do not apply to the tree"
        mend = again(recording.identity)
        yield Finding(kind="EFFECT", what=what, feature=feature, call=name, detail=lines, mend=mend)
    if noted.argv is not None:
        detail = lines_of(recording.argv, noted.argv)
        what = "the agent is called with other arguments"
        yield Finding(
            kind="CONFIG",
            what=what,
            feature=feature,
            call=name,
            cause="arguments",
            detail=detail,
            mend=ACCEPT % "CONFIG",
        )
    if noted.environment is not None:
        detail = tuple(f"+ {variable}" for variable in noted.environment)
        what = "the agent sees other variables"
        yield Finding(
            kind="CONFIG", what=what, feature=feature, call=name, cause="environment", detail=detail,
            mend=ACCEPT % "CONFIG",
        )  # fmt: skip
    if noted.prompt is not None:
        file = recording.find("prompt")
        before = one.contents[file.name].decode("utf-8", "replace") if file else ""
        detail = lines_of(before.splitlines(), noted.prompt.splitlines())
        what = "the prompt differs from the recording"
        yield Finding(
            kind="PROMPT", what=what, feature=feature, call=name, cause=template, detail=detail, mend=ACCEPT % "PROMPT"
        )


def lines_of(recorded: Iterable[str], given: Iterable[str]) -> tuple[str, ...]:
    """Return the differing lines without headers, at most DIFF_LINES_MAX."""
    lines = list(difflib.unified_diff(list(recorded), list(given), lineterm="", n=1))[2:]
    more = len(lines) - DIFF_LINES_MAX
    return (*lines[:DIFF_LINES_MAX], *((f"... and {more} more lines",) if more > 0 else ()))


# missing and unused recordings ----------------------------------------------------------------------------------------
WEIGHTS = {"feature": 8, "phase": 8, "unit": 4, "role": 4, "iteration": 2, "attempt": 1}


def _missing(cassette: Cassette, happened: Happened) -> Iterator[Finding]:
    for identity in happened.missed:
        near = nearest(cassette, identity)
        detail = () if near is None else (_nearest_words(near, identity),)
        detail = (*_refusals(happened.stories.get(identity.feature, b""), identity), *detail)
        yield Finding(
            kind="MISSING",
            what="the current pipeline makes a call that was not recorded",
            feature=identity.feature,
            call=identity.name,
            detail=detail,
            mend=NEW,
        )


def _refusals(told: bytes, identity: Identity) -> Iterator[str]:
    """Yield the rules or the gate whose rejection caused the call."""
    rejections: tuple[str, ...] = ()
    for line in map(json.loads, told.splitlines()):
        ref = line.get("ref") or {}
        if line["type"] == "agent.requested" and (ref["phase"], ref["attempt"]) == (identity.phase, identity.attempt):
            break
        if line["type"] in ("artifact.validated", "gate.checked"):
            rules = (
                f"{violation['rule']} {violation.get('path', '')}".rstrip() for violation in line.get("violations", ())
            )
            rejections = tuple(dict.fromkeys(rules)) or (() if line.get("passed", True) else (line["gate"],))
    yield from (f"  caused by: {reason}" for reason in rejections[:DIFF_LINES_MAX])


def nearest(cassette: Cassette, wanted: Identity) -> Identity | None:
    """Return the recording whose identity shares most with the wanted one."""
    identities = [call.recording.identity for call in cassette.taken]
    score = {
        identity: sum(weight for field, weight in WEIGHTS.items() if getattr(identity, field) == getattr(wanted, field))
        for identity in identities
    }
    return max(identities, key=lambda identity: score[identity]) if identities else None


def _nearest_words(near: Identity, wanted: Identity) -> str:
    differing = [
        f"{field} {getattr(near, field) or '-'}" for field in WEIGHTS if getattr(near, field) != getattr(wanted, field)
    ]
    return f"  nearest: {near.path} ({', '.join(differing)})"


def _unused(cassette: Cassette, happened: Happened, waits: Collection[str]) -> Iterator[Finding]:
    """Yield unused recordings, except of features that stopped early."""
    by_feature: dict[str, list[Identity]] = {}
    for call in cassette.taken:
        by_feature.setdefault(call.recording.identity.feature, []).append(call.recording.identity)
    for feature, identities in by_feature.items():
        left = [identity for identity in identities if identity not in happened.played]
        if not left or feature in waits:
            continue
        part = "" if len(left) == len(identities) else f"; its first {len(identities) - len(left)} calls were replayed"
        what = f"{len(left)} of {len(identities)} recordings of {feature} are unused{part}"
        detail = tuple(f"  {identity.name}" for identity in left[:DIFF_LINES_MAX])
        yield Finding(kind="UNUSED", what=what, feature=feature, detail=detail, mend=UPDATE_UNUSED)


def _dependents(cassette: Cassette, stopped: set[str]) -> set[str]:
    """Return the features and everything that depends on them."""
    found = set(stopped)
    for _ in cassette.manifest.world.items:
        found |= {item.feature for item in cassette.manifest.world.items if found & set(item.depends_on)}
    return found


def _events(cassette: Cassette, happened: Happened, silent: Collection[str]) -> Iterator[Finding]:
    """Yield differences of traces that no changed request explains."""
    for feature, recorded in cassette.stories.items():
        told = happened.stories.get(feature, b"")
        for parting in () if feature in silent else partings(as_asked(recorded, told), told):
            at, detail = parting.where.at, parting.where.lines()
            yield Finding(
                kind=parting.kind,
                what=f"the trace of {feature} {parting.what} at event {at}",
                feature=feature,
                call=parting.call,
                detail=detail,
                mend=ACCEPT % parting.kind,
                line=at,
            )
