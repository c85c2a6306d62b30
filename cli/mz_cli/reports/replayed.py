"""Results of `mz replay` as suites of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mz_recordings.findings import Played

from mz_cli.reports.facts import Suite


def suites_of(results: Iterable[Played], relative: Callable[[str], str]) -> tuple[Suite, ...]:
    """Return a suite per cassette, with a case per recording and per feature trace. `relative` maps cassette paths to
    project-relative ones."""
    return tuple(
        Suite(
            name=played.name,
            path=relative(played.path),
            seconds=played.duration_ms / 1000,
            findings=played.findings,
            facts=tuple(_facts(played)),
            cases=(*played.calls, *played.stories),
        )
        for played in results
    )


def _facts(played: Played) -> Iterator[tuple[str, str]]:
    if played.provenance:
        yield "provenance", played.provenance
    yield "recordings", str(played.recordings)
    yield "played", str(played.played)
    if played.predates:
        yield "replies accepted for changed prompts", str(played.predates)
    yield "network", "cut off" if played.offline else "not cut off"
    for feature, digest in played.stories.items():
        yield f"log digest of {feature}", digest
    if played.held:
        yield "settings from the cassette instead of mz.yaml", ", ".join(played.held)
    for words in played.renewed:
        yield "updated", words
