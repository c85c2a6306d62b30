"""Pure: what a replay says about a cassette: what drifted, what was not there, what nobody asked for."""

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
"""How long an answer that predates its prompt is believed, in a cassette without a `max_age`."""
DIFF_LINES_MAX = 40
EFFECT = re.compile(r"[^/]+/([^/]+)/([^/]+)/([^/]+)/\d+/\d+/((?:agent|gate|prepare)\..+)", re.DOTALL)
"""The key of what takes place in a phase: feature, phase, unit, effect."""


class Happened(NamedTuple):
    """What one replay came to."""

    played: Mapping[Identity, Noted]
    missed: tuple[Identity, ...]
    requests: Mapping[Identity, AgentRequested]
    """What each call was asked with."""
    stories: Mapping[str, bytes]
    """By feature."""
    denied: Mapping[str, int]
    """By MZ_KEY, how often it tried to reach the network."""
    pins: Pins
    """Today's."""


def judge(cassette: Cassette, happened: Happened, today: datetime) -> tuple[Finding, ...]:
    """Every finding, the gravest kind of each feature first told."""
    found = [
        *by_itself(cassette, today),
        *_network(happened),
        *_drifted(cassette, happened),
        *_missing(cassette, happened),
    ]
    other = tuple(_events(cassette, happened, cut_short(cassette, happened)))
    unused = tuple(_unused(cassette, happened, _behind(cassette, _stopped(happened))))
    return (*found, *other, *unused)


def cut_short(cassette: Cassette, happened: Happened) -> frozenset[str]:
    """Features that did not come to what was recorded of them, for want of an answer or since they ask for less, and
    what builds on them: their stories end early, so they say nothing and are worth nothing."""
    waits = _behind(cassette, _stopped(happened))
    left = (one.recording.identity for one in cassette.taken if one.recording.identity not in happened.played)
    return frozenset(_behind(cassette, waits | {identity.feature for identity in left}))


def _stopped(happened: Happened) -> set[str]:
    """Features in which a call could not be answered."""
    unfit = {each.feature for each, noted in happened.played.items() if noted.tree or noted.refused is not None}
    return unfit | {identity.feature for identity in happened.missed}


def by_itself(cassette: Cassette, today: datetime) -> tuple[Finding, ...]:
    """What a cassette says by itself: whether its answers are worth something, and not too old, and whether there is
    anything to compare verdicts with."""
    return (*_worthless(cassette), *_untold(cassette), *_expired(cassette, today))


def counted(cassette: Cassette) -> int:
    """Answers that predate their prompt."""
    return sum(one.recording.accepted is not None for one in cassette.taken)


# what the cassette says by itself -------------------------------------------------------------------------------------
def _worthless(cassette: Cassette) -> Iterator[Finding]:
    if not cassette.taken:
        yield Finding(kind="MISSING", what="the cassette holds no recording", mend=NEW)
    if cassette.manifest.provenance == "seeded":
        what = f"its answers were copied from another agent: {cassette.manifest.agent} never gave them"
        yield Finding(kind="SEEDED", what=what, mend=ALL)


def _untold(cassette: Cassette) -> Iterator[Finding]:
    """Without its story a feature's calls are compared, and nothing that was decided on them."""
    items = cassette.manifest.world.items
    untold = [item.feature for item in items if item.feature not in cassette.stories]
    if untold:
        which = "recorded" if len(untold) == len(items) else f"{len(untold)} of {len(items)} features were recorded"
        what = f"{which} without a story: no verdict can be compared"
        detail = tuple(f"  {feature}" for feature in untold[:DIFF_LINES_MAX])
        yield Finding(kind="MISSING", what=what, cause="story", detail=detail, mend=ACCEPT % "EVENT")


def _expired(cassette: Cassette, today: datetime) -> Iterator[Finding]:
    limit = cassette.manifest.max_age_days
    old = [one.recording for one in cassette.taken if expires(one.recording, limit, today)]
    if old:
        first = min(old, key=lambda one: one.recorded_at)
        days = f"{limit} days" if limit is not None else f"{ACCEPTED_DAYS} days after their prompts were renewed"
        what = f"{len(old)} of {len(cassette.taken)} recordings are older than they may be ({days})"
        detail = (f"  the oldest: {first.identity.path}, recorded {first.recorded_at}",)
        yield Finding(kind="STALE", what=what, detail=detail, mend=EXPIRED)


def expires(recording: Recording, max_age_days: int | None, today: datetime) -> bool:
    """Whether an answer is too old to be believed."""
    if max_age_days is not None:
        return parse_time(recording.recorded_at) + timedelta(days=max_age_days) < today
    accepted = recording.accepted
    return accepted is not None and parse_time(accepted.at) + timedelta(days=ACCEPTED_DAYS) < today


# what went in ---------------------------------------------------------------------------------------------------------
def _network(happened: Happened) -> Iterator[Finding]:
    for key, times in sorted(happened.denied.items()):
        feature, place, effect = effect_of(key)
        who = f"{effect} in {place}" if place else f"the set-up command `{' '.join(effect.split())}`"
        what = f"{who} tried to reach the network ({times} times at least), and was not let through"
        mend = "make the command work offline, then: mz replay {cassette}"
        yield Finding(
            kind="NETWORK", what=what, feature=feature, call=place, cause=effect if place else "setup", mend=mend
        )


def effect_of(key: str) -> tuple[str, str, str]:
    """Feature, place and effect of any key that a process was started with; a set-up command, which may hold anything,
    has no place and is the effect itself."""
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
        what = f"the call began from the tree {recording.tree_before[:12]}, and now from {noted.tree[:12]}"
        yield Finding(kind="EFFECT", what=what, feature=feature, call=name, mend=again(recording.identity))
    if noted.refused is not None:
        lines = tuple(f"  {line}" for line in noted.refused.splitlines()[:DIFF_LINES_MAX])
        what = "what the agent left cannot be put into the tree"
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
        what = "the prompt is another one"
        yield Finding(
            kind="PROMPT", what=what, feature=feature, call=name, cause=template, detail=detail, mend=ACCEPT % "PROMPT"
        )


def lines_of(recorded: Iterable[str], given: Iterable[str]) -> tuple[str, ...]:
    """What differs, without headers; bounded."""
    lines = list(difflib.unified_diff(list(recorded), list(given), lineterm="", n=1))[2:]
    more = len(lines) - DIFF_LINES_MAX
    return (*lines[:DIFF_LINES_MAX], *((f"... and {more} lines more",) if more > 0 else ()))


# what was not there, and what nobody asked for ------------------------------------------------------------------------
WEIGHTS = {"feature": 8, "phase": 8, "unit": 4, "role": 4, "iteration": 2, "attempt": 1}


def _missing(cassette: Cassette, happened: Happened) -> Iterator[Finding]:
    for identity in happened.missed:
        near = nearest(cassette, identity)
        detail = () if near is None else (_nearest_words(near, identity),)
        detail = (*_refusals(happened.stories.get(identity.feature, b""), identity), *detail)
        yield Finding(
            kind="MISSING",
            what="today's pipeline makes a call that was not recorded",
            feature=identity.feature,
            call=identity.name,
            detail=detail,
            mend=NEW,
        )


def _refusals(told: bytes, identity: Identity) -> Iterator[str]:
    """Which verdict of today's asked for the call, where one did."""
    refused: tuple[str, ...] = ()
    for line in map(json.loads, told.splitlines()):
        ref = line.get("ref") or {}
        if line["type"] == "agent.requested" and (ref["phase"], ref["attempt"]) == (identity.phase, identity.attempt):
            break
        if line["type"] in ("artifact.validated", "gate.checked"):
            rules = (f"{one['rule']} {one.get('path', '')}".rstrip() for one in line.get("violations", ()))
            refused = tuple(dict.fromkeys(rules)) or (() if line.get("passed", True) else (line["gate"],))
    yield from (f"  asked for by: {words}" for words in refused[:DIFF_LINES_MAX])


def nearest(cassette: Cassette, wanted: Identity) -> Identity | None:
    """The recording that shares most of the identity."""
    known = [one.recording.identity for one in cassette.taken]
    score = {
        one: sum(weight for field, weight in WEIGHTS.items() if getattr(one, field) == getattr(wanted, field))
        for one in known
    }
    return max(known, key=lambda one: score[one]) if known else None


def _nearest_words(near: Identity, wanted: Identity) -> str:
    differing = [
        f"{field} {getattr(near, field) or '-'}" for field in WEIGHTS if getattr(near, field) != getattr(wanted, field)
    ]
    return f"  nearest: {near.path} ({', '.join(differing)})"


def _unused(cassette: Cassette, happened: Happened, waits: Collection[str]) -> Iterator[Finding]:
    """Nothing is said of what a feature could not come to any more."""
    by_feature: dict[str, list[Identity]] = {}
    for one in cassette.taken:
        by_feature.setdefault(one.recording.identity.feature, []).append(one.recording.identity)
    for feature, identities in by_feature.items():
        left = [identity for identity in identities if identity not in happened.played]
        if not left or feature in waits:
            continue
        part = (
            "" if len(left) == len(identities) else f"; it was played up to there, {len(identities) - len(left)} calls"
        )
        what = f"{len(left)} of {len(identities)} recordings of {feature} were not asked for{part}"
        detail = tuple(f"  {identity.name}" for identity in left[:DIFF_LINES_MAX])
        yield Finding(kind="UNUSED", what=what, feature=feature, detail=detail, mend=UPDATE_UNUSED)


def _behind(cassette: Cassette, stopped: set[str]) -> set[str]:
    """Those, and what builds on them."""
    found = set(stopped)
    for _ in cassette.manifest.world.items:
        found |= {one.feature for one in cassette.manifest.world.items if found & set(one.depends_on)}
    return found


def _events(cassette: Cassette, happened: Happened, silent: Collection[str]) -> Iterator[Finding]:
    """Where the story parts from the recorded one, and nothing else says why."""
    for feature, recorded in cassette.stories.items():
        told = happened.stories.get(feature, b"")
        for parting in () if feature in silent else partings(as_asked(recorded, told), told):
            at, detail = parting.where.at, parting.where.lines()
            yield Finding(
                kind=parting.kind,
                what=f"the story of {feature} {parting.what} from its event {at} on",
                feature=feature,
                call=parting.call,
                detail=detail,
                mend=ACCEPT % parting.kind,
                line=at,
            )
