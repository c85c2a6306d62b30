"""Comparison of the traces of two recordings, without fields that replies of a model never share: text, tokens, ids."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from mz_recordings.cassette import Cassette, Identity
from mz_recordings.drift.difference import Difference
from mz_recordings.findings import Finding, FindingKind
from mz_recordings.mending import again, again_feature
from mz_recordings.playing.parting import partings

Line = dict[str, Any]
ELSEWHERE = frozenset(
    {
        "prompt", "estimated_tokens", "estimated_nanousd", "model", "agent", "template", "whole",
        "prompt_tokens", "whole_tokens", "counted",
        "usage", "reported_nanousd", "parser",
        "digest", "report", "note", "title", "body", "detail",
        "message", "files", "insertions", "deletions", "touched", "changes",
        "passed", "failed", "signature", "line", "retry_after_seconds", "bad_lines",
    }
)  # fmt: skip
"""Fields that prompts, settings, artifacts, patches and tokens cover, and numbers that follow from text."""


def of_stories(
    old: Cassette, new: Cassette, only: Collection[Identity], ended: Collection[str]
) -> Iterator[Difference]:
    """Yield the differences between the traces of each feature, except consequences of reported differences.

    `unpaired`: calls of only one recording; `features_ended_differently`: features with a call that ended differently.
    """
    for feature in sorted(old.stories.keys() & new.stories.keys()):
        for parting in partings(_plain(old.stories[feature]), _plain(new.stories[feature])):
            calls = [call for line in (parting.where.recorded, parting.where.produced) if (call := _call(line))]
            if parting.kind == "EVENT" and (feature in ended or any(_among(call, feature, only) for call in calls)):
                continue
            yield Difference(_finding(feature, parting.kind, parting.what, parting.where.lines(), calls))
    for feature in sorted(old.stories.keys() ^ new.stories.keys()):
        only_in = "the old" if feature in old.stories else "the new"
        what = f"only {only_in} recording has a trace of {feature}"
        yield Difference(Finding(kind="EVENT", what=what, feature=feature, mend=again_feature(feature)))


def _finding(feature: str, kind: FindingKind, what: str, detail: tuple[str, ...], calls: list[Identity]) -> Finding:
    name = calls[0].name if calls else ""
    mend = again(calls[0]) if calls else again_feature(feature)
    mend = mend if not calls else again(msgspec.structs.replace(calls[0], feature=feature))
    return Finding(
        kind=kind, what=f"the trace of {feature} {what}", feature=feature, call=name, detail=detail, mend=mend
    )


def _plain(told: bytes) -> bytes:
    lines = (_without(json.loads(raw)) for raw in told.splitlines())
    return b"".join(msgspec.json.encode(line, order="deterministic") + b"\n" for line in lines)


def _without(line: Line) -> Line:
    kind = line.get("type")
    drop = ELSEWHERE - {"passed", "files"} if kind in ("gate.checked", "artifact.parsed") else ELSEWHERE
    # All fields of a parsed artifact count: the files of a unit are those that it may change.
    within = frozenset[str]() if kind == "artifact.parsed" else ELSEWHERE
    return {name: _inner(name, value, within) for name, value in line.items() if name not in drop}


def _inner(name: str, value: Any, drop: frozenset[str]) -> Any:
    if name == "key" and isinstance(value, str):
        return value.partition("/")[2]
    if isinstance(value, dict):
        return {key: _inner(key, inner, drop) for key, inner in value.items() if key not in drop}
    if isinstance(value, list):
        return [_inner("", inner, drop) for inner in value]
    return value


def _call(line: Line | None) -> Identity | None:
    """Return the call that an event concerns."""
    ref = (line or {}).get("ref")
    if not isinstance(ref, dict):
        return None
    return Identity(
        pipeline="", feature="", phase=ref["phase"], unit=ref["unit"], iteration=ref["iteration"],
        attempt=ref["attempt"], role=ref["role"],
    )  # fmt: skip


def _among(call: Identity, feature: str, known: Collection[Identity]) -> bool:
    return any((one.feature, one.name) == (feature, call.name) for one in known)


def templates_of(cassette: Cassette) -> Mapping[Identity, str]:
    """Return the template of each call's prompt, as far as the traces name it."""
    found = {}
    for feature, told in cassette.stories.items():
        for raw in told.splitlines():
            line = json.loads(raw)
            if line["type"] == "agent.requested" and (call := _call(line)):
                pipeline = cassette.manifest.pipeline
                found[msgspec.structs.replace(call, pipeline=pipeline, feature=feature)] = str(line.get("template", ""))
    return found
