"""Result of `mz drift` for `--json`."""

from __future__ import annotations

from mz_recordings.drift.noise import REJECTION_REASONS, NoiseEntry
from mz_recordings.drift.run import LibraryDrift
from mz_recordings.findings import Risk

from mz_cli.driftpage import drift_classes
from mz_cli.findingshape import finding_shape
from mz_cli.shapes.drift import BaselineShape, DriftedCassette, DriftResult, NoiseShape, RejectedNoise


def drift_result(
    drift: LibraryDrift, exit_code: int, fail_on: Risk, against: str, baselines: tuple[BaselineShape, ...] = ()
) -> DriftResult:
    """Return the JSON document. `baselines`: those that were written."""
    return DriftResult(
        exit=exit_code,
        fail_on=fail_on,
        against=against,
        classes=drift_classes(drift, fail_on),
        cassettes=tuple(
            DriftedCassette(
                path=cassette.path,
                name=cassette.name,
                provenance=cassette.provenance or None,
                recordings=cassette.recordings,
                played=cassette.calls_replayed,
                findings=tuple(finding_shape(finding, cassette.path) for finding in cassette.findings),
            )
            for cassette in drift.results
        ),
        hidden=drift.hidden_count,
        noise=tuple(_noise_shape(entry, count) for entry, count in drift.matched_entries),
        learned=tuple(_noise_shape(entry, 0) for entry in drift.proposed),
        refused=tuple(
            RejectedNoise(name=refusal.name, what=refusal.subject, why=REJECTION_REASONS[refusal.name]) for refusal in drift.rejections
        ),
        baselines=baselines,
    )


def _noise_shape(entry: NoiseEntry, hidden_count: int) -> NoiseShape:
    return NoiseShape(
        kind=entry.kind,
        path=entry.path,
        within=entry.within,
        reason=entry.reason,
        cassette=entry.cassette,
        until=entry.until.isoformat() if entry.until else None,
        hides=hidden_count,
    )
