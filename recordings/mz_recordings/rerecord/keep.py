"""Selection of the features whose new recordings are kept, and the resulting cassette."""

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
    "feature.cancelled": "cancelled",
    "feature.held": "held",
    "human.requested": "waiting for a person",
}
"""Description of a stopped feature, by the last event of these types in its trace."""
GOES_ON = frozenset({"feature.hold-released", "human.answered", "feature.retried"})
WORTH: tuple[Provenance, ...] = get_args(Provenance)
"""Best provenance first."""


def weakest(*claims: Provenance) -> Provenance:
    """Return the weakest of one or more provenances."""
    return max(claims, key=WORTH.index)


class Dropped(NamedTuple):
    """A feature whose old recordings stay."""

    feature: str
    why: str


def rest_of(story: bytes) -> tuple[str, str]:
    """Return how a feature stopped, and why; two empty strings if it did not."""
    for raw in reversed(story.splitlines()):
        line = json.loads(raw)
        if line["type"] in GOES_ON:
            break
        if line["type"] in RESTS:
            told = (line.get(name) for name in ("ask", "hold", "code"))
            return RESTS[line["type"]], " ".join(str(each) for each in told if each)
    return "", ""


def sound(recorded: bytes | None, now: bytes | None, left_out: str) -> str:
    """Return an empty string if the feature stopped as in the recorded run, or was delivered; else the reason why its
    new recordings are not kept. Without a recorded trace it must be delivered."""
    if now is None:
        return left_out or "it did not start"
    rest, before = rest_of(now), rest_of(recorded) if recorded is not None else (DELIVERED, "")
    if rest[0] == DELIVERED or rest == before:
        return ""
    return f"it was {_words(before)} in the recording, but is {_words(rest)} now"


def _words(rest: tuple[str, str]) -> str:
    state, why = rest
    return f"{state} ({why})" if why else state or "unfinished"


def settled(
    old: Cassette, found: Mapping[str, str], unchanged: Collection[str], whole: bool
) -> tuple[tuple[str, ...], tuple[Dropped, ...]]:
    """Return the features whose new recordings are kept, and the dropped ones. `rejections` has, for each feature that
    ran, the reason against its recordings, or an empty string. Features are kept or dropped together with their
    dependencies and dependents, unless nothing changed in them. `all_or_none`: keep all or none."""
    dropped = {feature: why for feature, why in found.items() if why}
    for _ in found:
        for item in old.manifest.world.items:
            for lower, upper in ((other, item.feature) for other in item.depends_on):
                for lost, other in ((lower, upper), (upper, lower)):
                    apart = lost in unchanged or lost not in dropped or other not in found
                    if not apart and not (lost == upper and lower in unchanged):
                        dropped.setdefault(
                            other, f"it depends on, or is needed by, {lost}, whose recordings stay unchanged"
                        )
    if whole and dropped:
        first = next(iter(dropped))
        dropped = {
            feature: dropped.get(feature) or f"all features are kept together, and {first} is not kept"
            for feature in found
        }
    kept = tuple(feature for feature in found if feature not in dropped)
    return kept, tuple(Dropped(feature, why) for feature, why in dropped.items())


class Sourced(NamedTuple):
    """Sources of a run's replies."""

    recorded: frozenset[Identity]
    """Served from the cassette itself."""
    paid: Mapping[Identity, Taken]
    """Served from the paid replies of an unfinished attempt."""


def merged(old: Cassette, new: Cassette, kept: Collection[str], sourced: Sourced, provenance: Provenance) -> Cassette:
    """Return the old cassette with the new recordings and traces of these features. The fixture stays, except for their
    recorded decisions. The provenance is never better than that of each reply."""
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
    """Return the kinds of the findings, each once."""
    return tuple(dict.fromkeys(finding.kind for finding in findings))
