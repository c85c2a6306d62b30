"""Selection of the features whose new recordings are kept, and the resulting cassette."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, get_args

from msgspec.structs import replace

from mz_recordings.cassette.model import Cassette, Identity, Provenance, RecordedCall
from mz_recordings.findings.model import Finding, FindingKind
from mz_recordings.record.fixture import ExcludedFeature

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
PROVENANCES_BEST_FIRST: tuple[Provenance, ...] = get_args(Provenance)
"""Best provenance first."""


def weakest_provenance(*provenances: Provenance) -> Provenance:
    """Return the weakest of one or more provenances."""
    return max(provenances, key=PROVENANCES_BEST_FIRST.index)


def stop_of_trace(trace: bytes) -> tuple[str, str]:
    """Return how a feature stopped, and why; two empty strings if it did not."""
    for raw in reversed(trace.splitlines()):
        line = json.loads(raw)
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
    new_stop, recorded_stop = (
        stop_of_trace(new_trace),
        stop_of_trace(recorded_trace) if recorded_trace is not None else (DELIVERED, ""),
    )
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
            for dependency, dependent in ((related, item.feature) for related in item.depends_on):
                for dropped_feature, related in ((dependency, dependent), (dependent, dependency)):
                    is_independent = (
                        dropped_feature in unchanged or dropped_feature not in dropped or related not in rejections
                    )
                    if not is_independent and not (dropped_feature == dependent and dependency in unchanged):
                        dropped.setdefault(
                            related,
                            f"it depends on, or is needed by, {dropped_feature}, whose recordings stay unchanged",
                        )
    if all_or_none and dropped:
        first = next(iter(dropped))
        dropped = {
            feature: dropped.get(feature) or f"all features are kept together, and {first} is not kept"
            for feature in rejections
        }
    kept = tuple(feature for feature in rejections if feature not in dropped)
    return kept, tuple(ExcludedFeature(feature, reason) for feature, reason in dropped.items())


class CallOrigin(NamedTuple):
    """Sources of a run's replies."""

    recorded: frozenset[Identity]
    """Served from the cassette itself."""
    paid: Mapping[Identity, RecordedCall]
    """Served from the paid replies of an unfinished attempt."""


def merge_recordings(
    old: Cassette, new: Cassette, kept: Collection[str], origins: CallOrigin, provenance: Provenance
) -> Cassette:
    """Return the old cassette with the new recordings and traces of these features. The fixture stays, except for their
    recorded decisions. The provenance is never better than that of each reply."""
    old_calls = old.by_identity()

    def origin(call: RecordedCall) -> RecordedCall:
        identity = call.identity
        return old_calls[identity] if identity in origins.recorded else origins.paid.get(identity, call)

    new_calls = tuple(origin(call) for call in new.calls if call.identity.feature in kept)
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


def finding_kinds(findings: Iterable[Finding]) -> tuple[FindingKind, ...]:
    """Return the kinds of the findings, each once."""
    return tuple(dict.fromkeys(finding.kind for finding in findings))
