"""Pure: what is kept of features that were driven anew, and the cassette that comes of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, get_args

from msgspec.structs import replace

from mz_recordings.cassette import Cassette, Identity, Provenance, Taken
from mz_recordings.findings import Finding, FindingKind

DELIVERED = "delivered"
RESTS = {
    "feature.delivered": DELIVERED,
    "feature.failed": "failed",
    "feature.cancelled": "given up",
    "feature.held": "held",
    "human.requested": "waiting for a person",
}
"""By the last event of its kind in a story: how the feature came to rest."""
GOES_ON = frozenset({"feature.hold-released", "human.answered", "feature.retried"})
WORTH: tuple[Provenance, ...] = get_args(Provenance)
"""The most first."""


def weakest(*claims: Provenance) -> Provenance:
    """What can be said of all of them, at least one."""
    return max(claims, key=WORTH.index)


class Dropped(NamedTuple):
    """A feature whose old recordings stay."""

    feature: str
    why: str


def rest_of(story: bytes) -> tuple[str, str]:
    """How a feature came to rest, and for what; two empty strings where it had not."""
    for raw in reversed(story.splitlines()):
        line = json.loads(raw)
        if line["type"] in GOES_ON:
            break
        if line["type"] in RESTS:
            told = (line.get(name) for name in ("ask", "hold", "code"))
            return RESTS[line["type"]], " ".join(str(each) for each in told if each)
    return "", ""


def sound(recorded: bytes | None, now: bytes | None, left_out: str) -> str:
    """Empty where the feature came to the rest that it had when it was recorded, or was delivered; else why its new
    recordings are worth nothing. Without a recorded story it has to be delivered."""
    if now is None:
        return left_out or "it was not begun"
    rest, before = rest_of(now), rest_of(recorded) if recorded is not None else (DELIVERED, "")
    if rest[0] == DELIVERED or rest == before:
        return ""
    return f"it was {_words(before)} when it was recorded, and now it is {_words(rest)}"


def _words(rest: tuple[str, str]) -> str:
    state, why = rest
    return f"{state} ({why})" if why else state or "at work"


def settled(
    old: Cassette, found: Mapping[str, str], unchanged: Collection[str], whole: bool
) -> tuple[tuple[str, ...], tuple[Dropped, ...]]:
    """Which features' new recordings are kept. `found`: by feature that was driven, why not, or nothing. A feature goes
    with what it builds on and what builds on it, unless nothing changed in it. `whole`: all or none."""
    dropped = {feature: why for feature, why in found.items() if why}
    for _ in found:
        for item in old.manifest.world.items:
            for lower, upper in ((other, item.feature) for other in item.depends_on):
                for lost, other in ((lower, upper), (upper, lower)):
                    apart = lost in unchanged or lost not in dropped or other not in found
                    if not apart and not (lost == upper and lower in unchanged):
                        dropped.setdefault(other, f"it goes with {lost}, whose recordings stay as they are")
    if whole and dropped:
        first = next(iter(dropped))
        dropped = {feature: dropped.get(feature) or f"all or none, and not {first}" for feature in found}
    kept = tuple(feature for feature in found if feature not in dropped)
    return kept, tuple(Dropped(feature, why) for feature, why in dropped.items())


class Sourced(NamedTuple):
    """Where the answers of a run came from."""

    recorded: frozenset[Identity]
    """Served from the cassette itself."""
    paid: Mapping[Identity, Taken]
    """Served from what an unfinished attempt had paid."""


def merged(old: Cassette, new: Cassette, kept: Collection[str], sourced: Sourced, provenance: Provenance) -> Cassette:
    """The old cassette with the new recordings and stories of these features. The world stays, but for what people had
    to say in them. Never claims more than is true of each of its answers."""
    before = {one.recording.identity: one for one in old.taken}

    def origin(one: Taken) -> Taken:
        identity = one.recording.identity
        return before[identity] if identity in sourced.recorded else sourced.paid.get(identity, one)

    renewed = tuple(origin(one) for one in new.taken if one.recording.identity.feature in kept)
    stay = tuple(one for one in old.taken if one.recording.identity.feature not in kept)
    fresh = any(one is not before.get(one.recording.identity) for one in renewed)
    aged = bool(stay) or any(one is before.get(one.recording.identity) for one in renewed)
    worth = (*((provenance,) if fresh else ()), *((old.manifest.provenance,) if aged or not fresh else ()))
    stories = {**old.stories, **{feature: told for feature, told in new.stories.items() if feature in kept}}
    said = (
        *(one for one in old.manifest.world.said if one.feature not in kept),
        *(one for one in new.manifest.world.said if one.feature in kept),
    )
    manifest = replace(
        old.manifest,
        agent=new.manifest.agent,
        mz=new.manifest.mz,
        provenance=weakest(*worth),
        stories={feature: hashlib.sha256(told).hexdigest() for feature, told in stories.items()},
        world=replace(old.manifest.world, said=said),
        evidence=new.manifest.evidence,
    )
    return old._replace(manifest=manifest, taken=(*stay, *renewed), stories=stories)


def classes(findings: Iterable[Finding]) -> tuple[FindingKind, ...]:
    """The classes of drift between two cassettes, each once."""
    return tuple(dict.fromkeys(finding.kind for finding in findings))
