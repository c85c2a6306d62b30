"""Result of `mz drift` for `--json`."""

from __future__ import annotations

from mz_recordings.drift.noise import WHY, Noise
from mz_recordings.drift.run import Drifted
from mz_recordings.findings import Risk

from mz_cli.driftpage import classes
from mz_cli.findingshape import finding_shape
from mz_cli.shapes.drift import BaselineShape, DriftedCassette, DriftResult, NoiseShape, RefusalShape


def document(
    drifted: Drifted, ended: int, fail_on: Risk, against: str, baselines: tuple[BaselineShape, ...] = ()
) -> DriftResult:
    """Return the JSON document. `baselines`: those that were written."""
    return DriftResult(
        exit=ended,
        fail_on=fail_on,
        against=against,
        classes=classes(drifted, fail_on),
        cassettes=tuple(
            DriftedCassette(
                path=cassette.path,
                name=cassette.name,
                provenance=cassette.provenance or None,
                recordings=cassette.recordings,
                played=cassette.played,
                findings=tuple(finding_shape(finding, cassette.path) for finding in cassette.findings),
            )
            for cassette in drifted.played
        ),
        hidden=drifted.quiet,
        noise=tuple(_noise(entry, count) for entry, count in drifted.hidden),
        learned=tuple(_noise(entry, 0) for entry in drifted.learned),
        refused=tuple(
            RefusalShape(name=refusal.name, what=refusal.what, why=WHY[refusal.name]) for refusal in drifted.refused
        ),
        baselines=baselines,
    )


def _noise(entry: Noise, hides: int) -> NoiseShape:
    return NoiseShape(
        kind=entry.kind,
        path=entry.path,
        within=entry.within,
        reason=entry.reason,
        cassette=entry.cassette,
        until=entry.until.isoformat() if entry.until else None,
        hides=hides,
    )
