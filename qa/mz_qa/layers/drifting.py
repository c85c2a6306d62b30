"""Adapter: the project's cassettes against today, without what its `noise.yaml` says may differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace
from mz_recordings.cassette import MANIFEST
from mz_recordings.drift.noisefile import NAME, NoiseUnusable, read_noise
from mz_recordings.drift.run import Known, check_today, refused_entries
from mz_recordings.files.library import is_cassette
from mz_recordings.findings import Finding, Played, risk_of
from mz_recordings.playing.fleet import environment_of
from mz_recordings.playing.replay import Job
from mz_recordings.wire.files import FOLDER, BaselineUnusable, built_in_place, load_baselines

from mz_qa.layers.facts import Project, Remark, Said

ABOUT_ARTIFACTS = ("POLICY", "ARTIFACT")


def drifted(project: Project, *, played: bool) -> tuple[tuple[Played, ...], tuple[Finding, ...]]:
    """What each cassette came to, and what is wrong with what the library knows of noise and streams. With `played`,
    each goes through today's pipeline too."""
    known, wrong = known_of(project)
    whole = set(project.cassettes) == set(cassettes_of(known.library))
    found = check_today(
        tuple(jobs(project)), known, static=not played, whole=whole, workers=project.workers,
        tell=lambda one: report(project, one),
    )  # fmt: skip
    return found.played, wrong


def cassettes_of(library: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in library.iterdir() if is_cassette(path))) if library.is_dir() else ()


def known_of(project: Project) -> tuple[Known, tuple[Finding, ...]]:
    """What the library knows; what of it is unusable counts for nothing, and is a finding."""
    library, today = project.root / project.config.recordings, project.today.date()
    known = Known(library=library, noise=(), baselines={}, today=today)
    wrong: list[Finding] = []
    file = project.shown(library / NAME)
    try:
        noise = read_noise(library)
        refused = refused_entries(noise, today)
        known = replace(known, noise=() if refused else noise)
        for at, one in refused:
            what = f"entry {at} ({one.what}) is refused: {one.name}: {one.why}"
            wrong.append(Finding(kind="PIPELINE", what=what, cause=one.name, file=file, mend="mz explain MZ6020"))
    except NoiseUnusable as error:
        wrong.append(Finding(kind="PIPELINE", what=_relative(project, error), file=file, mend="mz explain MZ6020"))
    try:
        known = replace(known, baselines=load_baselines((built_in_place(), library / FOLDER)))
    except BaselineUnusable as error:
        wrong.append(Finding(kind="PIPELINE", what=_relative(project, error), mend="mz explain MZ6021"))
        known = replace(known, baselines=load_baselines((built_in_place(),)))
    return known, tuple(wrong)


def _relative(project: Project, error: Exception) -> str:
    return str(error).replace(f"{project.root}/", "")


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


def report(project: Project, one: Played) -> None:
    """A word on a cassette as it ends."""
    verdict = "as recorded" if not one.findings else ", ".join(sorted({each.kind for each in one.findings}))
    project.say(f"{project.shown(Path(one.path))}: {verdict} ({one.duration_ms / 1000:.1f} s)")


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
