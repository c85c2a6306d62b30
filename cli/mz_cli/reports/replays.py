"""Results of `mz replay` as suites of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mz_recordings.findings.model import ReplayResult

from mz_cli.reports.model import Suite


def replay_suites(results: Iterable[ReplayResult], relative: Callable[[str], str]) -> tuple[Suite, ...]:
    """Return a suite per cassette, with a case per recording and per feature trace. `relative` maps cassette paths to
    project-relative ones."""
    return tuple(
        Suite(
            name=result.name,
            path=relative(result.path),
            seconds=result.duration_ms / 1000,
            findings=result.findings,
            properties=tuple(_properties(result)),
            cases=(*result.calls, *result.trace_digests),
        )
        for result in results
    )


def _properties(result: ReplayResult) -> Iterator[tuple[str, str]]:
    if result.provenance:
        yield "provenance", result.provenance
    yield "recordings", str(result.recordings)
    yield "played", str(result.calls_replayed)
    if result.accepted_replies:
        yield "replies accepted for changed prompts", str(result.accepted_replies)
    yield "network", "cut off" if result.offline else "not cut off"
    for feature, digest in result.trace_digests.items():
        yield f"log digest of {feature}", digest
    if result.overridden_settings:
        yield "settings from the cassette instead of mz.yaml", ", ".join(result.overridden_settings)
    for update in result.changes:
        yield "updated", update
