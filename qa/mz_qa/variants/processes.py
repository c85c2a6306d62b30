"""Plays a sample of variants with real processes: spawns, pipes, limits and kills, through the normal replay.

Each variant is a cassette on disk with one feature, replayed in a separate process, so that a hanging one can be
killed."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace
from mz_recordings.cassette.files import load_without_traces, write_copy
from mz_recordings.cassette.model import Cassette, RecordedCall
from mz_recordings.faults.variants import Variant, process_variants, with_variant
from mz_recordings.replay.replay import ReplayJob, run_replay

from mz_qa.timeout import TimeLimitExceeded, call_with_timeout
from mz_qa.variants.properties import VariantOutcome, end_state, parse_trace, succeeds, violations

TIMEOUT_SECONDS = 180
"""Time limit for one variant; it takes a few seconds."""


def play_sample(
    cassette: Cassette, project: Path, environment: Mapping[str, str], today: datetime
) -> tuple[VariantOutcome, ...]:
    """Play the variants of one call; empty if no recorded call succeeded. Raises WorldMissing and MzError like a
    replay."""
    recorded_call = _choose_call(cassette)
    if recorded_call is None:
        return ()
    with tempfile.TemporaryDirectory(prefix="mz-variants-", ignore_cleanup_errors=True) as name:
        job = ReplayJob(path="", project=str(project), environment=dict(environment), today=today)
        return tuple(_outcomes(cassette, recorded_call, Path(name), job))


def _choose_call(cassette: Cassette) -> RecordedCall | None:
    """Choose the first call of the shortest feature without dependencies; None if it failed."""
    calls = Counter(call.recording.identity.feature for call in cassette.calls)
    candidates = [
        item.feature for item in cassette.manifest.fixture.items if not item.depends_on and calls[item.feature]
    ]
    if not candidates:
        return None
    shortest = min(candidates, key=lambda feature: calls[feature])
    call = next(call for call in cassette.calls if call.recording.identity.feature == shortest)
    succeeded = succeeds(cassette.manifest.agent, call.content("stdout"))
    return call if succeeded and call.recording.outcome == "replied" else None


def _outcomes(cassette: Cassette, recorded_call: RecordedCall, root: Path, job: ReplayJob) -> Iterator[VariantOutcome]:
    feature = recorded_call.recording.identity.feature
    recorded_trace = cassette.traces.get(feature)
    for variant in process_variants(recorded_call):
        succeeded = bool(succeeds(cassette.manifest.agent, variant.stdout)) and variant.ended_by_mz is None
        folder, altered_cassette = root / variant.name, with_variant(cassette, variant)
        write_copy(altered_cassette if succeeded else _without_decisions(altered_cassette), folder)
        try:
            trace = parse_trace(call_with_timeout(TIMEOUT_SECONDS, replay_traces, str(folder), job)[feature])
        except TimeLimitExceeded:
            yield _outcome(variant, "", ("it does not stop",))
            continue
        usual = end_state(parse_trace(recorded_trace)) if recorded_trace else end_state(trace)
        yield _outcome(variant, end_state(trace), violations(variant, succeeded, trace, usual))


def _without_decisions(cassette: Cassette) -> Cassette:
    """Remove the decisions of people, which do not apply to a failing variant."""
    fixture = replace(cassette.manifest.fixture, decisions=())
    return cassette._replace(manifest=replace(cassette.manifest, fixture=fixture))


def _outcome(variant: Variant, end: str, violated: tuple[str, ...]) -> VariantOutcome:
    identity = variant.identity
    return VariantOutcome(
        feature=identity.feature, call=identity.name, variant=variant.name, mode="process", end=end, violations=violated
    )


def replay_traces(path: str, job: ReplayJob) -> dict[str, bytes]:
    """Replay a cassette and return its traces; runs in a separate process."""
    return dict(run_replay(load_without_traces(Path(path)), job).traces)
