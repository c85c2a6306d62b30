"""Comparison of the project's cassettes with the current code, minus the differences that its `noise.yaml` allows."""

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
    """Compare each cassette; also return findings about the library's noise and baseline files. With `played`, also
    replay each cassette through the current pipeline."""
    library, findings = known_of(project)
    is_full_library = set(project.cassettes) == set(cassettes_of(library.library))
    report = check_today(
        tuple(jobs(project)), library, static=not played, whole=is_full_library, workers=project.workers,
        tell=lambda result: project.say(ended(result, project.shown(Path(result.path)))),
    )  # fmt: skip
    return report.played, findings


def cassettes_of(library: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in library.iterdir() if is_cassette(path))) if library.is_dir() else ()


def known_of(project: Project) -> tuple[Known, tuple[Finding, ...]]:
    """Read the library's noise and baselines; unusable entries are ignored and reported."""
    config = project.config
    library, problems = read_known(project.root / config.recordings, config.agents, project.today.date())
    return library, tuple(_wrong(project, problem, project.shown(library.library / NAME)) for problem in problems)


def _wrong(project: Project, problem: Unsound, file: str) -> Finding:
    return Finding(
        kind="PIPELINE", what=problem.what.replace(f"{project.root}/", ""), cause=problem.refusal,
        file=file if problem.code == "MZ6020" else "", mend=f"mz explain {problem.code}",
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


def told(project: Project, path: Path, findings: Sequence[Finding]) -> Iterator[Said]:
    """Add file and cassette path to findings; those of low risk become remarks, as in `mz drift`."""
    shown = project.shown(path)
    for finding in findings:
        file = finding.file or (f"{shown}/{MANIFEST}" if is_cassette(path) else shown)
        message = finding.what.replace(str(path), shown)
        if risk_of(finding) == "low" and not (finding.kind == "UNUSED" and is_cassette(path)):
            yield Remark(f"{shown}: {finding.kind}: {message}")
        else:
            yield replace(
                finding, mend=finding.mend.replace("{cassette}", project.typed(path)), what=message, file=file
            )
