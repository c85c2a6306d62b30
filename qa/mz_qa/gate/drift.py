"""Comparison of the project's cassettes with the current code, minus the differences that its `noise.yaml` allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace
from mz_recordings.cassette.files import is_cassette
from mz_recordings.cassette.model import MANIFEST
from mz_recordings.drift.library import LibraryDefect, LibraryKnowledge, read_library
from mz_recordings.drift.noise import FILE_NAME
from mz_recordings.drift.run import check_current
from mz_recordings.findings.grouping import verdict_line
from mz_recordings.findings.model import Finding, ReplayResult, risk_of
from mz_recordings.replay.parallel import without_git_variables
from mz_recordings.replay.replay import ReplayJob

from mz_qa.results import LayerOutput, Project, Remark

ABOUT_ARTIFACTS = ("DECISION", "ARTIFACT")


def compare_cassettes(project: Project, *, replay: bool) -> tuple[tuple[ReplayResult, ...], tuple[Finding, ...]]:
    """Compare each cassette; also return findings about the library's noise and baseline files. With `played`, also
    replay each cassette through the current pipeline."""
    library, findings = project_library(project)
    is_full_library = set(project.cassettes) == set(cassettes_of(library.library))
    report = check_current(
        tuple(replay_jobs(project)),
        library,
        static=not replay,
        is_whole_library=is_full_library,
        workers=project.workers,
        report=lambda result: project.report_progress(verdict_line(result, project.display_path(Path(result.path)))),
    )
    return report.results, findings


def cassettes_of(library: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in library.iterdir() if is_cassette(path))) if library.is_dir() else ()


def project_library(project: Project) -> tuple[LibraryKnowledge, tuple[Finding, ...]]:
    """Read the library's noise and baselines; unusable entries are ignored and reported."""
    config = project.config
    library, problems = read_library(project.root / config.recordings, config.agents, project.now.date())
    return library, tuple(
        _problem_finding(project, problem, project.display_path(library.library / FILE_NAME)) for problem in problems
    )


def _problem_finding(project: Project, problem: LibraryDefect, file: str) -> Finding:
    return Finding(
        kind="PIPELINE", message=problem.message.replace(f"{project.root}/", ""), cause=problem.rejection,
        file=file if problem.code == "MZ6020" else "", fix=f"mz explain {problem.code}",
    )  # fmt: skip


def replay_jobs(project: Project) -> Iterator[ReplayJob]:
    number = max(1, len(project.cassettes))
    for path in project.cassettes:
        yield ReplayJob(
            path=str(path),
            project=str(project.root),
            environment=without_git_variables(project.environment),
            features_parallel=max(1, project.workers // number),
            today=project.now,
        )


def to_layer_output(project: Project, path: Path, findings: Sequence[Finding]) -> Iterator[LayerOutput]:
    """Add file and cassette path to findings; those of low risk become remarks, as in `mz drift`."""
    shown = project.display_path(path)
    for finding in findings:
        file = finding.file or (f"{shown}/{MANIFEST}" if is_cassette(path) else shown)
        message = finding.message.replace(str(path), shown)
        if risk_of(finding) == "low" and not (finding.kind == "UNUSED" and is_cassette(path)):
            yield Remark(f"{shown}: {finding.kind}: {message}")
        else:
            yield replace(
                finding, fix=finding.fix.replace("{cassette}", project.shell_path(path)), message=message, file=file
            )
