"""Layer 7: replays of recordings with the current code.

Every cassette is replayed through the current pipeline and parsers; for some, variants of their calls are played too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mz_engine.errors.diagnostics import MzError
from mz_recordings.cassette.files import CassetteUnreadable, load
from mz_recordings.cassette.model import Cassette
from mz_recordings.cassette.repository import FixtureUnavailable
from mz_recordings.findings.model import Finding
from mz_recordings.replay.parallel import without_git_variables

from mz_qa.gate.drift import ABOUT_ARTIFACTS, compare_cassettes, to_layer_output
from mz_qa.results import CheckedItem, LayerOutput, Project, Remark
from mz_qa.variants.play import play_variants

VARIED_RECORDINGS_MAX = 40
"""Total of recordings with variants, smallest cassettes first; one cassette is always played."""
VIOLATIONS_MAX = 10
NOT_OFFLINE = "the network was not blocked: network namespaces do not work here"


def check(project: Project) -> Iterator[LayerOutput]:
    """Replay all cassettes, also if some are unreadable. Layer 3 reports findings about recorded artifacts."""
    if not project.cassettes:
        return
    results, library_findings = compare_cassettes(project, replay=True)
    yield from library_findings
    matching: list[Path] = []
    for result in results:
        path = Path(result.path)
        outputs = tuple(to_layer_output(project, path, result.findings))
        if path in project.cassettes:  # The library's noise.yaml may have findings too.
            yield CheckedItem("cassettes")
            yield CheckedItem("recordings", result.calls_replayed)
            matching += [path] if all(isinstance(output, Remark) for output in outputs) else []
        yield from (
            output for output in outputs if not (isinstance(output, Finding) and output.kind in ABOUT_ARTIFACTS)
        )
    if not all(result.offline for result in results):
        yield Remark(NOT_OFFLINE)
    cassettes = {path: cassette for path in matching if (cassette := load_if_readable(path))}
    for path in choose_cassettes(cassettes):
        yield from check_variants(project, path, cassettes[path])


def load_if_readable(path: Path) -> Cassette | None:
    """Load a cassette; None if unreadable, which the replay has reported."""
    try:
        return load(path)
    except CassetteUnreadable:
        return None


def choose_cassettes(cassettes: dict[Path, Cassette]) -> Iterator[Path]:
    """Yield cassettes, the smallest first, until there are enough recordings."""
    remaining = VARIED_RECORDINGS_MAX
    for at, path in enumerate(sorted(cassettes, key=lambda path: (len(cassettes[path].calls), str(path)))):
        remaining -= len(cassettes[path].calls)
        if remaining >= 0 or at == 0:
            yield path


def check_variants(project: Project, path: Path, cassette: Cassette) -> Iterator[LayerOutput]:
    """Play every variant of every call; each must end in a named state and never in a false success."""
    try:
        outcomes = play_variants(cassette, project.root, without_git_variables(project.environment))
    except (FixtureUnavailable, MzError):
        return  # The replay has reported it.
    yield CheckedItem("variants", len(outcomes))
    violating = [outcome for outcome in outcomes if outcome.violations]
    findings = tuple(
        Finding(
            kind="VARIANT", message=f"{outcome.variant} ({outcome.mode}): {'; '.join(outcome.violations)}",
            feature=outcome.feature, call=outcome.call, cause=outcome.variant, fix="report it with the cassette",
        )
        for outcome in violating[:VIOLATIONS_MAX]
    )  # fmt: skip
    yield from to_layer_output(project, path, findings)
    if len(violating) > VIOLATIONS_MAX:
        yield Remark(f"{project.display_path(path)}: {len(violating) - VIOLATIONS_MAX} more variants with violations")
