"""Comparison of the traces of two recordings, without fields that replies of a model never share: text, tokens, ids."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from mz_recordings.cassette.model import Cassette, Identity
from mz_recordings.drift.model import Difference
from mz_recordings.findings.model import Finding, FindingKind, rerecord_call, rerecord_feature
from mz_recordings.replay.compare import trace_divergences

EventJson = dict[str, Any]
IGNORED_FIELDS = frozenset(
    {
        "prompt", "estimated_tokens", "estimated_nanousd", "model", "agent", "template", "full_prompt",
        "prompt_tokens", "full_prompt_tokens", "counted_tokens",
        "usage", "reported_nanousd", "parser",
        "digest", "report", "note", "title", "body", "detail",
        "message", "files", "insertions", "deletions", "changed_paths", "changes",
        "passed", "failed", "signature", "line", "retry_after_seconds", "bad_lines",
    }
)  # fmt: skip
"""Fields that prompts, settings, artifacts, patches and tokens cover, and numbers that follow from text."""


def trace_differences(
    old: Cassette, new: Cassette, unpaired: Collection[Identity], features_ended_differently: Collection[str]
) -> Iterator[Difference]:
    """Yield the differences between the traces of each feature, except consequences of reported differences.

    `unpaired`: calls of only one recording; `features_ended_differently`: features with a call that ended differently.
    """
    for feature in sorted(old.traces.keys() & new.traces.keys()):
        for divergence in trace_divergences(
            _comparable_trace(old.traces[feature]), _comparable_trace(new.traces[feature])
        ):
            calls = [
                call
                for line in (divergence.difference.recorded, divergence.difference.produced)
                if (call := _call_of_event(line))
            ]
            if divergence.kind == "TRACE" and (
                feature in features_ended_differently or any(_is_among(call, feature, unpaired) for call in calls)
            ):
                continue
            yield Difference(
                _trace_finding(feature, divergence.kind, divergence.description, divergence.difference.lines(), calls)
            )
    for feature in sorted(old.traces.keys() ^ new.traces.keys()):
        side = "the old" if feature in old.traces else "the new"
        message = f"only {side} recording has a trace of {feature}"
        yield Difference(Finding(kind="TRACE", message=message, feature=feature, fix=rerecord_feature(feature)))


def _trace_finding(
    feature: str, kind: FindingKind, description: str, detail: tuple[str, ...], calls: list[Identity]
) -> Finding:
    name = calls[0].name if calls else ""
    fix = rerecord_call(calls[0]) if calls else rerecord_feature(feature)
    fix = fix if not calls else rerecord_call(msgspec.structs.replace(calls[0], feature=feature))
    return Finding(
        kind=kind, message=f"the trace of {feature} {description}", feature=feature, call=name, detail=detail, fix=fix
    )


def _comparable_trace(trace: bytes) -> bytes:
    lines = (_comparable_event(json.loads(raw)) for raw in trace.splitlines())
    return b"".join(msgspec.json.encode(line, order="deterministic") + b"\n" for line in lines)


def _comparable_event(line: EventJson) -> EventJson:
    kind = line.get("type")
    ignored = IGNORED_FIELDS - {"passed", "files"} if kind in ("gate.checked", "artifact.parsed") else IGNORED_FIELDS
    # All fields of a parsed artifact count: the files of a unit are those that it may change.
    ignored_inside = frozenset[str]() if kind == "artifact.parsed" else IGNORED_FIELDS
    return {name: _comparable_value(name, value, ignored_inside) for name, value in line.items() if name not in ignored}


def _comparable_value(name: str, value: Any, ignored: frozenset[str]) -> Any:
    if name == "key" and isinstance(value, str):
        return value.partition("/")[2]
    if isinstance(value, dict):
        return {key: _comparable_value(key, inner, ignored) for key, inner in value.items() if key not in ignored}
    if isinstance(value, list):
        return [_comparable_value("", inner, ignored) for inner in value]
    return value


def _call_of_event(line: EventJson | None) -> Identity | None:
    """Return the call that an event concerns."""
    ref = (line or {}).get("ref")
    if not isinstance(ref, dict):
        return None
    return Identity(
        pipeline="", feature="", phase=ref["phase"], unit=ref["unit"], iteration=ref["iteration"],
        attempt=ref["attempt"], role=ref["role"],
    )  # fmt: skip


def _is_among(call: Identity, feature: str, calls: Collection[Identity]) -> bool:
    return any((other.feature, other.name) == (feature, call.name) for other in calls)


def templates_of(cassette: Cassette) -> Mapping[Identity, str]:
    """Return the template of each call's prompt, as far as the traces name it."""
    templates = {}
    for feature, trace in cassette.traces.items():
        for raw in trace.splitlines():
            line = json.loads(raw)
            if line["type"] == "agent.requested" and (call := _call_of_event(line)):
                pipeline = cassette.manifest.pipeline
                templates[msgspec.structs.replace(call, pipeline=pipeline, feature=feature)] = str(
                    line.get("template", "")
                )
    return templates
