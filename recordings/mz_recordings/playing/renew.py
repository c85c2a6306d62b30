"""Updates of a cassette: new inputs accepted with the replies kept, or unused recordings removed."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import msgspec
from msgspec.structs import replace
from mz_engine.pins import encode_pins

from mz_recordings.cassette import Accepted, Cassette, Recording, StoredFile, Taken
from mz_recordings.findings import Finding, Noted
from mz_recordings.playing.compare import Happened, cut_short
from mz_recordings.playing.parting import partings
from mz_recordings.recording.scrub import Places, scrub
from mz_recordings.recording.story import as_asked

WENT_IN = ("PROMPT", "CONFIG")
"""Kinds whose acceptance is noted in the recordings; the others change the trace only."""


def accept(
    cassette: Cassette, happened: Happened, kinds: Collection[str], reason: str, at: str
) -> tuple[Cassette, tuple[str, ...]]:
    """Accept differences of these kinds (`findings.ACCEPTABLE`); return the cassette and descriptions of the changes.

    A trace is replaced if all kinds of its differences are accepted, and never if the replay ended early. `at`: UTC,
    `2026-11-21T10:28:00Z`.
    """
    said: list[str] = []
    taken = tuple(
        _renewed(one, happened, kinds, Accepted(what=_sorted(kinds), reason=reason, at=at)) for one in cassette.taken
    )
    changed = [new.recording.identity.path for old, new in zip(cassette.taken, taken, strict=True) if old is not new]
    if changed:
        said.append(f"accepted new inputs, kept the replies: {', '.join(changed)}")
    stories, ends_early = dict(cassette.stories), cut_short(cassette, happened)
    for feature, told in happened.stories.items():
        recorded = cassette.stories.get(feature)
        if feature not in ends_early and _told_anew(recorded, told, kinds):
            stories[feature] = told
            said.append(f"updated the trace of {feature}")
        elif changed and recorded is not None:
            stories[feature] = as_asked(recorded, told)
    if not said:
        return cassette, ()
    evidence = msgspec.json.decode(encode_pins(happened.pins), type=dict[str, object])
    manifest = replace(cassette.manifest, stories=_digests(stories), evidence=evidence)
    return cassette._replace(manifest=manifest, taken=taken, stories=stories), tuple(said)


def _told_anew(recorded: bytes | None, told: bytes, kinds: Collection[str]) -> bool:
    if recorded is None:
        return "EVENT" in kinds
    if recorded == told:
        return False
    return "EVENT" in kinds if not (found := _classes(recorded, told)) else found <= set(kinds)


def _classes(recorded: bytes, told: bytes) -> set[str]:
    return {parting.kind for parting in partings(as_asked(recorded, told), told)}


def _sorted(kinds: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(kind for kind in kinds if kind in WENT_IN))


def _renewed(one: Taken, happened: Happened, kinds: Collection[str], accepted: Accepted) -> Taken:
    identity = one.recording.identity
    noted, request = happened.played.get(identity), happened.requests.get(identity)
    if noted is None or request is None or noted.tree is not None or noted.refused is not None:
        return one
    made = one
    if "PROMPT" in kinds and noted.prompt is not None:
        made = _with_prompt(made, noted.prompt)
    if "CONFIG" in kinds and (noted.argv is not None or noted.environment is not None):
        made = made._replace(recording=_with_settings(made, noted, request.model))
    return one if made is one else made._replace(recording=replace(made.recording, accepted=accepted))


def _with_prompt(one: Taken, prompt: str) -> Taken:
    data = scrub(prompt.encode(), (Places(),))
    old = one.recording.find("prompt")
    assert old is not None
    new = StoredFile(kind="prompt", name=old.name, sha256=hashlib.sha256(data).hexdigest())
    files = tuple(new if file is old else file for file in one.recording.files)
    return Taken(replace(one.recording, files=files), {**one.contents, old.name: data})


def _with_settings(one: Taken, noted: Noted, model: str) -> Recording:
    recording = one.recording
    environment = tuple(sorted({*recording.environment, *(noted.environment or ())}))
    return replace(recording, argv=noted.argv or recording.argv, environment=environment, model=model)


def drop_unused(
    cassette: Cassette, happened: Happened, findings: tuple[Finding, ...]
) -> tuple[Cassette, tuple[str, ...]]:
    """Return the cassette without recordings that the findings report as unused, and descriptions of the changes."""
    features = {finding.feature for finding in findings if finding.kind == "UNUSED"}
    gone = {
        one.recording.identity
        for one in cassette.taken
        if one.recording.identity.feature in features and one.recording.identity not in happened.played
    }
    if not gone:
        return cassette, ()
    taken = tuple(one for one in cassette.taken if one.recording.identity not in gone)
    names = ", ".join(sorted(identity.path for identity in gone))
    return cassette._replace(taken=taken), (f"removed {len(gone)} unused recordings: {names}",)


def _digests(stories: dict[str, bytes]) -> dict[str, str]:
    return {feature: hashlib.sha256(told).hexdigest() for feature, told in stories.items()}
