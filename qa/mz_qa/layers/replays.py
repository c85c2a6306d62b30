"""Layer 7: recordings of agents' calls.

`mz check` replays the project's cassettes through the current pipeline and compares them with the current code. The
self-test plays the bundled recordings with every ending that a call can have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace
from mz_recordings.cassette.files import is_cassette, list_cassettes, load
from mz_recordings.cassette.model import MANIFEST
from mz_recordings.drift.noise import FILE_NAME
from mz_recordings.drift.run import LibraryKnowledge, check_current, read_library
from mz_recordings.findings.model import Finding, risk_of, verdict_line
from mz_recordings.replay.replay import ReplayJob, bundled_library, without_git_variables

from mz_qa.results import CheckedItem, LayerOutput, Project, Remark
from mz_qa.variants.play import play_variants

NOT_OFFLINE = "the network was not blocked: network namespaces do not work here"


def check(project: Project) -> Iterator[LayerOutput]:
    """Replay all cassettes, also if some are unreadable, and compare them minus the differences that the library's
    `noise.yaml` allows. Also reports unusable noise and baselines."""
    if not project.cassettes:
        return
    library, library_findings = read_project_library(project)
    yield from library_findings
    environment = without_git_variables(project.environment)
    features_parallel = max(1, project.workers // len(project.cassettes))
    jobs = tuple(
        ReplayJob(
            path=str(path), project=str(project.root), environment=environment,
            features_parallel=features_parallel, today=project.now,
        )
        for path in project.cassettes
    )  # fmt: skip
    report = check_current(
        jobs,
        library,
        static=False,
        is_whole_library=set(project.cassettes) == set(list_cassettes(library.library)),
        workers=project.workers,
        report=lambda result: project.report_progress(verdict_line(result, project.display_path(Path(result.path)))),
    )
    for result in report.results:
        path = Path(result.path)
        if path in project.cassettes:  # The library's noise.yaml may have findings too.
            yield CheckedItem("cassettes")
            yield CheckedItem("recordings", result.calls_replayed)
            yield CheckedItem("recorded artifacts", result.artifacts_checked)
        yield from to_layer_output(project, path, result.findings)
    if not all(result.offline for result in report.results):
        yield Remark(NOT_OFFLINE)


def read_project_library(project: Project) -> tuple[LibraryKnowledge, tuple[Finding, ...]]:
    """Read the library's noise and baselines; unusable entries are ignored and reported."""
    config = project.config
    library, problems = read_library(project.root / config.recordings, config.agents, project.now.date())
    noise_file = project.display_path(library.library / FILE_NAME)
    return library, tuple(
        Finding(
            kind="PIPELINE", message=problem.message.replace(f"{project.root}/", ""), cause=problem.rejection,
            file=noise_file if problem.code == "MZ6020" else "", fix=f"mz help {problem.code}",
        )
        for problem in problems
    )  # fmt: skip


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


def check_bundled(project: Project) -> Iterator[LayerOutput]:
    """Play every variant of every call of the recorded faults; each must end in a named state and never in a false
    success."""
    faults = bundled_library() / "faults"
    for path in list_cassettes(faults):
        outcomes = play_variants(load(path), faults / "project", without_git_variables(project.environment))
        yield CheckedItem("variants", len(outcomes))
        for outcome in outcomes:
            if outcome.violations:
                yield Finding(
                    kind="VARIANT", message=f"{outcome.variant} ({outcome.mode}): {'; '.join(outcome.violations)}",
                    feature=outcome.feature, call=outcome.call, cause=outcome.variant, fix="report it",
                )  # fmt: skip
