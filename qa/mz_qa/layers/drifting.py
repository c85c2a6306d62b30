"""Adapter: the project's cassettes against today, without what its `noise.yaml` says may differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace
from mz_recordings.cassette import MANIFEST
from mz_recordings.drift.known import Known, Unsound, read_known
from mz_recordings.drift.noisefile import NAME
from mz_recordings.drift.run import check_today
from mz_recordings.files.library import is_cassette
from mz_recordings.findings import Finding, Played, risk_of
from mz_recordings.grouping import ended
from mz_recordings.playing.fleet import environment_of
from mz_recordings.playing.replay import Job

from mz_qa.layers.facts import Project, Remark, Said

ABOUT_ARTIFACTS = ("POLICY", "ARTIFACT")


def drifted(project: Project, *, played: bool) -> tuple[tuple[Played, ...], tuple[Finding, ...]]:
    """What each cassette came to, and what is wrong with what the library knows of noise and streams. With `played`,
    each goes through today's pipeline too."""
    known, wrong = known_of(project)
    whole = set(project.cassettes) == set(cassettes_of(known.library))
    found = check_today(
        tuple(jobs(project)), known, static=not played, whole=whole, workers=project.workers,
        tell=lambda one: project.say(ended(one, project.shown(Path(one.path)))),
    )  # fmt: skip
    return found.played, wrong


def cassettes_of(library: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in library.iterdir() if is_cassette(path))) if library.is_dir() else ()


def known_of(project: Project) -> tuple[Known, tuple[Finding, ...]]:
    """What the library knows; what of it is unusable counts for nothing, and is a finding."""
    config = project.config
    known, wrong = read_known(project.root / config.recordings, config.agents, project.today.date())
    return known, tuple(_wrong(project, one, project.shown(known.library / NAME)) for one in wrong)


def _wrong(project: Project, one: Unsound, file: str) -> Finding:
    return Finding(
        kind="PIPELINE", what=one.what.replace(f"{project.root}/", ""), cause=one.refusal,
        file=file if one.code == "MZ6020" else "", mend=f"mz explain {one.code}",
    )  # fmt: skip


def jobs(project: Project) -> Iterator[Job]:
    number = max(1, len(project.cassettes))
    for path in project.cassettes:
        yield Job(
            path=str(path),
            project=str(project.root),
            environment=environment_of(project.environment),
            parallel=max(1, project.workers // number),
            today=project.today,
        )


def told(project: Project, path: Path, found: Sequence[Finding]) -> Iterator[Said]:
    """With the place and the path of the cassette in them; those of low risk are remarks, as for `mz drift`."""
    shown = project.shown(path)
    for one in found:
        file = one.file or (f"{shown}/{MANIFEST}" if is_cassette(path) else shown)
        what = one.what.replace(str(path), shown)
        if risk_of(one) == "low" and not (one.kind == "UNUSED" and is_cassette(path)):
            yield Remark(f"{shown}: {one.kind}: {what}")
        else:
            yield replace(one, mend=one.mend.replace("{cassette}", project.typed(path)), what=what, file=file)
