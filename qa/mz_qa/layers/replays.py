"""Layer 7: replays of recordings with the current code.

Every cassette is replayed through the current pipeline and parsers; for some, variants of their calls are played too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mz_engine.errors import MzError
from mz_recordings.cassette import Cassette
from mz_recordings.files.library import CassetteUnusable, load
from mz_recordings.findings import Finding
from mz_recordings.playing.fleet import environment_of
from mz_recordings.recording.scratch import WorldMissing

from mz_qa.layers.drifting import ABOUT_ARTIFACTS, drifted, told
from mz_qa.layers.facts import Checked, Project, Remark, Said
from mz_qa.metamorphic.play import play_variants

VARIED_MAX = 40
"""Total of recordings with variants, smallest cassettes first; one cassette is always played."""
VIOLATIONS_MAX = 10
NOT_OFFLINE = "the network was not blocked: network namespaces do not work here"


def check(project: Project) -> Iterator[Said]:
    """Replay all cassettes, also if some are unreadable. Layer 3 reports findings about recorded artifacts."""
    if not project.cassettes:
        return
    played, library_findings = drifted(project, played=True)
    yield from library_findings
    matching: list[Path] = []
    for result in played:
        path = Path(result.path)
        outputs = tuple(told(project, path, result.findings))
        if path in project.cassettes:  # The library's noise.yaml may have findings too.
            yield Checked("cassettes")
            yield Checked("recordings", result.played)
            matching += [path] if all(isinstance(output, Remark) for output in outputs) else []
        yield from (
            output for output in outputs if not (isinstance(output, Finding) and output.kind in ABOUT_ARTIFACTS)
        )
    if not all(result.offline for result in played):
        yield Remark(NOT_OFFLINE)
    cassettes = {path: cassette for path in matching if (cassette := readable(path))}
    for path in sample(cassettes):
        yield from varied(project, path, cassettes[path])


def readable(path: Path) -> Cassette | None:
    """Load a cassette; None if unreadable, which the replay has reported."""
    try:
        return load(path)
    except CassetteUnusable:
        return None


def sample(cassettes: dict[Path, Cassette]) -> Iterator[Path]:
    """Yield cassettes, the smallest first, until there are enough recordings."""
    remaining = VARIED_MAX
    for at, path in enumerate(sorted(cassettes, key=lambda path: (len(cassettes[path].taken), str(path)))):
        remaining -= len(cassettes[path].taken)
        if remaining >= 0 or at == 0:
            yield path


def varied(project: Project, path: Path, cassette: Cassette) -> Iterator[Said]:
    """Play every variant of every call; each must end in a named state and never in a false success."""
    try:
        outcomes = play_variants(cassette, project.root, environment_of(project.environment))
    except (WorldMissing, MzError):
        return  # The replay has reported it.
    yield Checked("variants", len(outcomes))
    violating = [outcome for outcome in outcomes if outcome.violations]
    findings = tuple(
        Finding(
            kind="VARIANT", what=f"{outcome.variant} ({outcome.how}): {'; '.join(outcome.violations)}",
            feature=outcome.feature, call=outcome.call, cause=outcome.variant, mend="report it with the cassette",
        )
        for outcome in violating[:VIOLATIONS_MAX]
    )  # fmt: skip
    yield from told(project, path, findings)
    if len(violating) > VIOLATIONS_MAX:
        yield Remark(f"{project.shown(path)}: {len(violating) - VIOLATIONS_MAX} more variants with violations")
