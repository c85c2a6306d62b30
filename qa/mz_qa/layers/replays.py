"""Adapter: layer 7: recordings against today.

Every cassette is played through today's pipeline; today's parsers read what it holds; and of some it is found out what
would have become of them had their calls ended otherwise.
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
"""Recordings whose variants are played in all; the smallest cassettes come first, one is always played."""
VIOLATIONS_MAX = 10
NOT_OFFLINE = "the network was not cut off: there is no network namespace here"


def check(project: Project) -> Iterator[Said]:
    """Whatever an unusable cassette hides is its own finding; the others are played all the same. What today's rules
    say of recorded artifacts, the layer of artifacts tells."""
    if not project.cassettes:
        return
    played, wrong = drifted(project, played=True)
    yield from wrong
    sound: list[Path] = []
    for one in played:
        path = Path(one.path)
        said = tuple(told(project, path, one.findings))
        if path in project.cassettes:  # The library's noise.yaml has findings too.
            yield Checked("cassettes")
            yield Checked("recordings", one.played)
            sound += [path] if all(isinstance(each, Remark) for each in said) else []
        yield from (each for each in said if not (isinstance(each, Finding) and each.kind in ABOUT_ARTIFACTS))
    if not all(one.offline for one in played):
        yield Remark(NOT_OFFLINE)
    known = {path: cassette for path in sound if (cassette := readable(path))}
    for path in sample(known):
        yield from varied(project, path, known[path])


def readable(path: Path) -> Cassette | None:
    """None: the replay has said why."""
    try:
        return load(path)
    except CassetteUnusable:
        return None


def sample(known: dict[Path, Cassette]) -> Iterator[Path]:
    """Of those that play as recorded the smallest first, until there are enough recordings."""
    left = VARIED_MAX
    for at, path in enumerate(sorted(known, key=lambda path: (len(known[path].taken), str(path)))):
        left -= len(known[path].taken)
        if left >= 0 or at == 0:
            yield path


def varied(project: Project, path: Path, cassette: Cassette) -> Iterator[Said]:
    """Each call ends in each way that is known of agents; whatever comes of it has a name, and is no false success."""
    try:
        outcomes = play_variants(cassette, project.root, environment_of(project.environment))
    except (WorldMissing, MzError):
        return  # The replay has said why.
    yield Checked("variants", len(outcomes))
    broken = [outcome for outcome in outcomes if outcome.violations]
    found = tuple(
        Finding(
            kind="VARIANT", what=f"{one.variant} ({one.how}): {'; '.join(one.violations)}", feature=one.feature,
            call=one.call, cause=one.variant, mend="report it, with the cassette",
        )
        for one in broken[:VIOLATIONS_MAX]
    )  # fmt: skip
    yield from told(project, path, found)
    if len(broken) > VIOLATIONS_MAX:
        yield Remark(f"{project.shown(path)}: {len(broken) - VIOLATIONS_MAX} more variants are not met as they must be")
