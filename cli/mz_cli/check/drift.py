"""Command `mz drift`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
from msgspec.structs import replace
from mz_engine.errors.diagnostics import Exit, MzError
from mz_engine.run.settings import load_config
from mz_recordings.cassette.files import is_cassette, load
from mz_recordings.drift.noise import FILE_NAME, NoiseEntry, NoiseRejection
from mz_recordings.drift.run import LibraryDrift, LibraryKnowledge, check_current, compare_two, read_library
from mz_recordings.drift.stream_baselines import (
    CLI_PROVENANCES,
    FOLDER,
    Baselines,
    extend_baseline,
    observe_cassette,
    write_baseline,
)
from mz_recordings.drift.stream_shape import count_fields_by_use
from mz_recordings.findings.model import KIND_PROPERTIES, RISKS, Finding, Risk, group_results, risk_of

from mz_cli.app.context import find_root
from mz_cli.app.help import command, format_options, jobs_option, message_option
from mz_cli.common.recording import display_path, library_path, reject_unusable
from mz_cli.replay.command import print_progress, replay_jobs, require_cassettes
from mz_cli.reports.findings import (
    ReplayFinding,
    finding_shapes,
    group_lines,
    replay_suites,
    results_exit,
    with_failing,
)
from mz_cli.reports.options import ReportOptions, report_options
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.table import print_output, write_output
from mz_cli.terminal.text import Line, Span, count_noun, single_line, styled_line

REJECTED_MAX = 6
HINTS = {
    "MZ6020": "`mz help MZ6020` shows the format of an entry",
    "MZ6021": "restore it from git, or remove it and write it again",
}
"""By error code of a file that cannot be read."""


class DriftKind(Shape, frozen=True, kw_only=True):
    """Number of findings of one kind and one risk."""

    kind: str
    risk: str
    """low, medium or high."""
    exit: int
    """Exit code of the kind; 0 if its risk is below `fail_on`."""
    count: int


class DriftedCassette(Shape, frozen=True, kw_only=True):
    path: str
    """Path of the cassette, of the older one when two are compared; `noise.yaml` has findings too."""
    name: str
    provenance: str | None
    recordings: int
    calls_replayed: int
    """Number of replayed calls; 0 with `--static` and when two cassettes are compared."""
    findings: tuple[ReplayFinding, ...]


class NoiseShape(NoiseEntry, frozen=True, kw_only=True):
    """An entry of `noise.yaml`."""

    reason: str  # Required: entries without one are rejected.
    hidden_count: int
    """Number of differences that the entry helped to hide."""


class RejectedNoise(Shape, frozen=True, kw_only=True):
    """A difference that cannot be accepted as noise."""

    name: str
    """Such as STRUCTURAL_CHANGE or HIDES_VERDICT."""
    subject: str
    reason: str


class BaselineShape(Shape, frozen=True, kw_only=True):
    """A baseline of stream shapes that was written, with field counts."""

    path: str
    agent: str
    version: str
    read: int
    ignored: int
    absent: int
    """Fields that mz reads but never saw."""


class DriftResult(Shape, frozen=True, kw_only=True):
    exit: int
    fail_on: str
    """low, medium or high: drift of lower risk is reported and does not fail."""
    against: str
    """`today`, or the path of the newer of two cassettes."""
    kinds: tuple[DriftKind, ...]
    cassettes: tuple[DriftedCassette, ...]
    hidden_count: int
    """Number of differences hidden as noise."""
    noise: tuple[NoiseShape, ...]
    """Noise entries that hid a difference."""
    learned: tuple[NoiseShape, ...]
    rejected: tuple[RejectedNoise, ...]
    baselines: tuple[BaselineShape, ...]
    """Baselines written by `--update-baseline`, which checks nothing."""


@command(
    "drift",
    examples=(
        ("mz drift", "every cassette of the library, against the current code"),
        ("mz drift --static", "the same without replaying: milliseconds per cassette"),
        ("mz drift recordings/notes /tmp/notes-again", "two recordings of the same calls"),
        (
            'mz drift recordings/notes /tmp/notes-again --propose-noise -m "a live model"',
            "accept changed amounts and texts as noise",
        ),
    ),
    next_command="`mz replay --accept KIND` accepts intended differences and keeps the replies.",
)
@click.argument("paths", metavar="[PATH]... | OLD NEW", nargs=-1, type=click.Path(path_type=Path))
@click.option("--static", is_flag=True, help="Do not replay; check only parsers, prices, rules, ages and streams.")
@jobs_option("Number of parallel replays. [default: processors]")
@click.option(
    "--fail-on", metavar="RISK", type=click.Choice(RISKS), default="medium", show_default=True,
    help="Drift of lower risk is reported and does not fail: low, medium or high.",
)  # fmt: skip
@click.option("--propose-noise", is_flag=True, help="Add possible noise to the library's noise.yaml, for review.")
@click.option(
    "--update-baseline", is_flag=True, help="Write the current stream shapes as new baselines; check nothing."
)
@click.option(
    "--wire", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the project's baselines. [default: wire/ of the library]",
)  # fmt: skip
@message_option("reason", "Reason, with --propose-noise or --update-baseline; stored with the entries.")
@format_options("Print one object with the schema mz.drift/1.")
@report_options
def drift(
    paths: tuple[Path, ...],
    static: bool,
    jobs: int | None,
    fail_on: Risk,
    propose_noise: bool,
    update_baseline: bool,
    wire: Path | None,
    reason: str | None,
    as_json: bool,
    reports: ReportOptions,
) -> int:
    """Compare recordings with the current code, or with newer recordings.

    Checks each cassette with the current parsers, prices, rules and stream baselines, and replays it through the
    current pipeline. PATH is a cassette or a folder of cassettes (default: the library). Two cassettes are compared
    with each other: call by call, by prompt, settings, stream, artifact, files, tokens and verdicts. Each finding has a
    kind, a risk, and the command that fixes it. Exits with 3 for drift of a failing risk, 4 for missing, unused or
    expired recordings.
    """
    writes, noise_reason = propose_noise or update_baseline, (reason or "") if propose_noise else ""
    if propose_noise and update_baseline:
        raise click.UsageError("--propose-noise and --update-baseline cannot be combined")
    if writes != bool(reason and reason.strip()):
        raise click.UsageError("--propose-noise and --update-baseline require -m, and -m requires one of them")
    if update_baseline and (static or jobs or reports.files or reports.github):
        raise click.UsageError("--static, -j and reports: no effect with --update-baseline")
    reports.check()
    root = find_root(Path.cwd())
    drift_library = load_drift_library(root, wire)
    if update_baseline:
        folder = wire or drift_library.library / FOLDER
        baselines = write_baselines(require_cassettes(root, paths), drift_library, folder, reason or "")
        _print_baselines(baselines, fail_on, as_json)
        return 0
    compares_two = len(paths) == 2 and all(is_cassette(path) for path in paths)
    if compares_two and (static or jobs):
        raise click.UsageError("--static and -j cannot be used when two cassettes are compared")
    against = display_path(paths[1]) if compares_two else "today"
    with reports.text_stream() as stream:
        if compares_two:
            old, new = (Path(display_path(path)) for path in paths)
            result = compare_two(old, new, drift_library, noise_reason)
        else:
            result = check_library(root, paths, drift_library, static, jobs, noise_reason)
        result = with_failures(result, fail_on)
        exit_code = results_exit(result.results)
        lines = (*render_text(result), styled_line(summary(result, static, against)))
        write_output(stream, as_json, "drift", drift_result(result, int(exit_code), fail_on, against), lines)
    reports.write("mz drift", replay_suites(result.results, root), exit_code)
    return int(exit_code)


def with_failures(drift: LibraryDrift, fail_on: Risk) -> LibraryDrift:
    """Set on each finding whether it fails: not drift of a risk below `fail_on`; what prevents a comparison always
    does."""

    def fails(finding: Finding) -> bool:
        is_drift = KIND_PROPERTIES[finding.kind].exit is Exit.DRIFT
        return not is_drift or RISKS.index(risk_of(finding)) >= RISKS.index(fail_on)

    return replace(drift, results=with_failing(drift.results, fails))


# the library ----------------------------------------------------------------------------------------------------------
def load_drift_library(root: Path, baseline_folder: Path | None = None) -> LibraryKnowledge:
    """Load noise and baselines of the library. Raises MzError (MZ6020, MZ6021)."""
    library, described = library_path(root), load_config(root, os.environ, {}).config.agents
    drift_library, problems = read_library(library, described, datetime.now(UTC).date(), baseline_folder)
    if problems:
        first, rejected = problems[0], [problem for problem in problems if problem.rejection]
        prefix = f"{display_path(library / FILE_NAME)}: " if first.rejection else ""
        hint = f"{len(rejected)} entries are invalid; fix or remove them" if first.rejection else HINTS[first.code]
        raise MzError(first.code, f"{prefix}{first.message}", hint=hint)
    return replace(drift_library, library=Path(display_path(library)))


def check_library(
    root: Path, paths: tuple[Path, ...], drift_library: LibraryKnowledge, static: bool, workers: int | None, reason: str
) -> LibraryDrift:
    """Compare the cassettes at these paths, else the library, with the current code. Raises MzError (MZ6001)."""
    number = workers or os.cpu_count() or 1
    jobs = replay_jobs(dict.fromkeys(require_cassettes(root, paths), root), number)
    return check_current(
        jobs,
        drift_library,
        static=static,
        is_whole_library=not paths,
        workers=number,
        report=lambda played: print_progress(played, len(jobs)),
        reason=reason,
    )


def write_baselines(
    cassette_paths: tuple[Path, ...], drift_library: LibraryKnowledge, folder: Path, reason: str
) -> tuple[BaselineShape, ...]:
    """Extend and write the stream baselines of all agents and versions in these cassettes. Raises MzError (MZ6005)."""
    baselines: Baselines = drift_library.baselines
    grown_keys: dict[tuple[str, str], None] = {}
    for path in cassette_paths:
        with reject_unusable(path):
            cassette = load(path)
        if cassette.manifest.provenance not in CLI_PROVENANCES:
            print_note(
                f"{single_line(display_path(path))}: left out, because its streams are {cassette.manifest.provenance}"
            )
            continue
        for observed in observe_cassette(cassette, drift_library.agent_descriptions):
            key = observed.shape.agent, observed.shape.version
            if observed.shape.version:
                baselines = {**baselines, key: extend_baseline(baselines.get(key), observed.shape)}
                grown_keys[key] = None
    written = [(write_baseline(baselines[key], reason, folder), baselines[key]) for key in grown_keys]
    return tuple(
        shape_of(BaselineShape, shape, path=display_path(path), **count_fields_by_use(shape)) for path, shape in written
    )


def _print_baselines(baselines: tuple[BaselineShape, ...], fail_on: Risk, as_json: bool) -> None:
    lines = (
        f"{baseline.path}: of {baseline.agent} {baseline.version} {baseline.read} fields are read, "
        f"{baseline.ignored} ignored, {baseline.absent} read but never seen"
        for baseline in baselines
    )
    print_output(as_json, "drift", drift_result(LibraryDrift(results=()), 0, fail_on, "today", baselines), lines)


# for people -----------------------------------------------------------------------------------------------------------
def render_text(drift: LibraryDrift) -> Iterator[Line]:
    """Yield findings by cause, the worst first; then hidden, proposed and rejected noise."""
    for group in group_results(drift.results):
        yield from group_lines(group)
        yield ()
    for entry, count in drift.matched_entries:
        yield (Span(f"hidden as noise: {noise_text(entry)}, {count} times ({entry.reason})", "dim"),)
    for entry in drift.proposed:
        yield (Span(f"proposed noise: {noise_text(entry)}"),)
    rejections: dict[str, list[NoiseRejection]] = {}
    for rejection in drift.rejections:
        rejections.setdefault(rejection.name, []).append(rejection)
    for name, rejected in rejections.items():
        yield (Span(f"not noise: {name}", "bold"), Span(f" ({rejected[0].reason})"))
        yield from ((Span(f"  {rejection.subject}", "dim"),) for rejection in rejected[:REJECTED_MAX])
        if len(rejected) > REJECTED_MAX:
            yield (Span(f"  and {len(rejected) - REJECTED_MAX} more", "dim"),)


def noise_text(entry: NoiseEntry) -> str:
    within = f" within {entry.within}%" if entry.within is not None else ""
    return f"{entry.kind} {entry.path}{within} of {entry.cassette or 'all cassettes'}"


def summary(drift: LibraryDrift, static: bool, against: str) -> str:
    """Return in one line what was compared, and the verdict."""
    cassettes = [cassette for cassette in drift.results if cassette.name != FILE_NAME]
    recordings = sum(cassette.recordings for cassette in cassettes)
    mode = f"{sum(cassette.calls_replayed for cassette in cassettes)} replayed"
    if against != "today":
        mode = f"against {against}"
    elif static:
        mode = "not replayed"
    findings = [finding for cassette in drift.results for finding in cassette.findings]
    failing = sum(finding.fails for finding in findings)
    counts = Counter(risk_of(finding) for finding in findings)
    risks = ", ".join(f"{counts[risk]} {risk}" for risk in RISKS if counts[risk])
    number = count_noun(len(findings), "finding")
    verdict = f"{number} (risk: {risks}), {failing} of them fail" if findings else "no drift"
    hidden = f", {drift.hidden_count} hidden as noise" if drift.hidden_count else ""
    return f"{count_noun(len(cassettes), 'cassette')}, {count_noun(recordings, 'recording')}, {mode}: {verdict}{hidden}"


# for programs ---------------------------------------------------------------------------------------------------------
def drift_result(
    drift: LibraryDrift, exit_code: int, fail_on: Risk, against: str, baselines: tuple[BaselineShape, ...] = ()
) -> DriftResult:
    """Return the JSON document. `baselines`: those that were written."""
    return shape_of(
        DriftResult,
        drift,
        exit=exit_code,
        fail_on=fail_on,
        against=against,
        kinds=drift_kinds(drift),
        cassettes=tuple(
            shape_of(DriftedCassette, cassette, findings=finding_shapes(cassette.findings, cassette.path))
            for cassette in drift.results
        ),
        noise=tuple(shape_of(NoiseShape, entry, hidden_count=count) for entry, count in drift.matched_entries),
        learned=tuple(shape_of(NoiseShape, entry, hidden_count=0) for entry in drift.proposed),
        rejected=tuple(shape_of(RejectedNoise, rejection) for rejection in drift.rejections),
        baselines=baselines,
    )


def drift_kinds(drift: LibraryDrift) -> tuple[DriftKind, ...]:
    """Return kinds and risks with their numbers, in display order."""
    findings = (finding for group in group_results(drift.results) for _, finding in group.occurrences)
    counts = Counter((finding.kind, risk_of(finding), finding.fails) for finding in findings)
    return tuple(
        DriftKind(kind=kind, risk=risk, exit=int(KIND_PROPERTIES[kind].exit) if fails else 0, count=count)
        for (kind, risk, fails), count in counts.items()
    )
