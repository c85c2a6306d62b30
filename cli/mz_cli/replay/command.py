"""Command `mz replay`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace
from mz_engine.errors.diagnostics import Exit, MzError
from mz_engine.git.repository import run_git_as_user
from mz_recordings.cassette.files import find_cassettes
from mz_recordings.findings.model import (
    ACCEPTABLE,
    FindingKind,
    ReplayFigures,
    ReplayResult,
    group_results,
    verdict_line,
)
from mz_recordings.replay.replay import ReplayJob, replay_all, sampled, shuffled, without_git_variables

from mz_cli.app.context import find_root
from mz_cli.app.help import command, format_options, jobs_option, message_option
from mz_cli.common.recording import display_path, library_path
from mz_cli.replay.faults import bundled_cassettes, bundled_project, replay_fault, replay_variants
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
from mz_cli.terminal.table import write_output
from mz_cli.terminal.text import Line, Span, count_noun

NETWORK_WARNING = (
    "warning: network-not-denied: this system has no network namespaces, so agents and commands only get a proxy "
    "address that leads nowhere"
)

FOR_CASSETTES = (
    "paths", "jobs", "shuffle", "accept", "reason", "prune", "real", "sample", "keep", "variants", "inject", "bundled",
)  # fmt: skip
"""Options that past runs do not accept."""
VERDICT_EXITS = (Exit.OK, Exit.DRIFT, Exit.RECORDING)
"""Exit codes of `--bisect` other than 125. Git takes 0 for good, 125 for "cannot be tested", other codes up to 127 for
bad, and aborts at any above; so everything that is no verdict must be 125. Of errors `run_guarded` makes it."""
NOT_CAUSED_BY_COMMITS: tuple[FindingKind, ...] = ("EXPIRED", "COPIED")
"""Findings that no commit causes: time has passed, or the replies never were the agent's."""


class ReplayedCassette(ReplayFigures, frozen=True, kw_only=True):
    reason: str  # Without a default, an empty text is not written as null.
    findings: tuple[ReplayFinding, ...]


class ReplayReport(Shape, frozen=True, kw_only=True):
    exit: int
    cassettes: tuple[ReplayedCassette, ...]


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command line, except for its output."""

    paths: tuple[Path, ...]
    jobs: int | None
    shuffle: int | None
    accept: tuple[str, ...]
    reason: str | None
    prune: bool
    real: bool
    sample: int
    keep: bool
    run: str | None
    recheck_rules: bool
    bisect: bool
    variants: bool
    inject: str | None
    bundled: bool

    def has_any(self, *names: str) -> bool:
        return any(getattr(self, name) for name in names)


@command(
    "replay",
    examples=(
        ("mz replay", "every cassette of the library, through the current pipeline"),
        ("mz replay recordings/rollback -j 4", "one cassette, four features at a time"),
        ("mz replay -j 2 --junit junit.xml --html replay.html", "in CI: reports for tools and for people"),
        ('mz replay --accept PROMPT -m "clearer wording"', "keep the replies to prompts that you changed"),
        ("mz replay recordings/whole --variants", "would the pipeline accept any failure as a success?"),
        ("mz replay recordings/whole --inject alpha/code=rate-limit", "how would the pipeline react?"),
        ("mz replay --keep", "execute everything, and keep the results of commands: later replays take no time"),
        ("mz replay --run r4f1", "a past run through the current code"),
        ("git bisect run mz replay --bisect", "which commit changed a prompt?"),
    ),
    next_command="`mz record` records a run again when the old replies are no longer useful.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@jobs_option("Number of parallel replays. [default: processors]")
@click.option("--shuffle", metavar="SEED", type=int, help="Shuffle cassettes and features with this seed.")
@click.option("--accept", metavar="KIND", type=click.Choice(ACCEPTABLE), multiple=True,
              help="Accept differences of this kind and keep the replies; repeatable.")  # fmt: skip
@message_option("reason", "Reason why the old replies are still valid; stored with them.")
@click.option("--prune", is_flag=True, help="Remove unused recordings.")
@click.option("--real", is_flag=True, help="Execute everything: stand-ins, git, every command.")
@click.option("--sample", metavar="N", type=click.IntRange(min=0), default=0,
              help="Replay N cassettes as with --real; the commit chooses which. [default: 0]")  # fmt: skip
@click.option("--keep", is_flag=True, help="Execute everything, and keep the results of commands for later replays.")
@format_options("Print one object with the schema mz.replay/1.")
@report_options
@click.option("--run", metavar="RUN", help="Replay a past run of the log through the current code.")
@click.option("--recheck-rules", is_flag=True, help="Recheck artifacts of RUN, or of all runs, with current rules.")
@click.option("--bisect", is_flag=True, help="Use exit codes for git bisect run: 125 for all but verdicts.")
@click.option("--variants", is_flag=True, help="Replay every possible ending of every call.")
@click.option("--inject", metavar="CALL=FAULT",
              help="Make one call, such as alpha/code, fail first; see the faults with --bundled.")  # fmt: skip
@click.option("--bundled", is_flag=True, help="Replay the cassettes of mz: the demo's, and the faults.")
def replay(as_json: bool, reports: ReportOptions, **values: Any) -> int:
    """Replay recordings through the current pipeline, offline and free.

    Runs the current pipeline, rules, templates, settings and parsers in memory. Only agents' replies are recorded, and
    the results of commands, used while command, tree and environment are the same; other commands are executed, with
    the network cut off. With --real, everything runs in a scratch repository with processes. Each difference is
    reported with the command that fixes it. PATH is a cassette or a folder of cassettes (default: the library). Exits
    with 3 for drift, 4 for a missing, unused, untrue or expired recording, 6 for an attempt to use the network.
    """
    options = ReplayOptions(**values)
    if options.recheck_rules or options.run is not None:
        flag = "--recheck-rules" if options.recheck_rules else "--run"
        if options.has_any(*FOR_CASSETTES):
            raise click.UsageError(f"{flag} replays runs of the log: it accepts no PATH and no option for cassettes")
        from mz_cli.replay.past_runs import recheck_past_runs, replay_past_run

        reports.check()
        if options.recheck_rules:
            return recheck_past_runs(options.run, as_json, reports)
        return replay_past_run(options.run, options.bisect, as_json, reports)
    if options.bundled and options.has_any("paths", "accept", "prune", "keep"):
        raise click.UsageError("--bundled replays the cassettes of mz and changes nothing: it accepts no PATH")
    if not options.variants and options.inject is None:
        return _replay_cassettes(options, as_json, reports)
    flag = "--variants" if options.variants else "--inject"
    if (
        options.has_any("shuffle", "accept", "reason", "prune", "bisect", "real", "sample", "keep")
        or reports.files
        or reports.github
    ):
        raise click.UsageError(f"{flag} writes no report and updates nothing: leave out the other options")
    if options.variants and options.inject is not None:
        raise click.UsageError("--variants and --inject exclude each other")
    projects = cassette_projects(options)
    if options.inject is not None:
        return replay_fault(projects, options.inject, as_json)
    return replay_variants(projects, as_json)


def cassette_projects(options: ReplayOptions) -> dict[Path, Path]:
    if options.bundled:
        return {path: bundled_project(path) for path in bundled_cassettes()}
    root = find_root(Path.cwd())
    return dict.fromkeys(require_cassettes(root, options.paths), root)


def _replay_cassettes(options: ReplayOptions, as_json: bool, reports: ReportOptions) -> int:
    if bool(options.accept) != bool(options.reason and options.reason.strip()):
        raise click.UsageError("--accept and -m go together: say why the old replies are still valid")
    reports.check()
    projects, workers, seed = cassette_projects(options), options.jobs or os.cpu_count() or 1, options.shuffle
    order = {path: projects[path] for path in shuffled(tuple(projects), seed)}
    real = frozenset(order) if options.real else sampled_cassettes(order, options.sample)
    replays = tuple(
        replace(
            job,
            seed=seed,
            accept=options.accept,
            reason=options.reason or "",
            prune=options.prune,
            real=path in real,
            keep=options.keep,
        )
        for path, job in zip(order, replay_jobs(order, workers), strict=True)
    )
    position = {display_path(path): at for at, path in enumerate(projects)}
    with reports.text_stream() as stream:
        results = replay_all(replays, workers, lambda result: print_progress(result, len(replays)))
        results = tuple(sorted(results, key=lambda result: position[result.path]))
        results = failing_by_commit(results) if options.bisect else results
        if not all(result.offline for result in results):
            print_note(NETWORK_WARNING)
        exit_code = replay_exit(results, options.bisect)
        cassettes = tuple(
            shape_of(ReplayedCassette, result, findings=finding_shapes(result.findings, result.path))
            for result in results
        )
        report = ReplayReport(exit=int(exit_code), cassettes=cassettes)
        write_output(stream, as_json, "replay", report, render_text(results))
    root = Path.cwd() if options.bundled else find_root(Path.cwd())
    reports.write("mz replay", replay_suites(results, root), exit_code)
    return int(exit_code)


def require_cassettes(root: Path, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the cassettes at the paths, or of the library. Raises MzError (MZ6001) for a path without one."""
    folders = paths or (library_path(root),)
    for folder in folders:
        if not find_cassettes((folder,)):
            if paths and not folder.exists():
                hint = "mz recordings list shows the cassettes of the library"
                raise MzError("MZ6001", f"{display_path(folder)} does not exist", hint=hint)
            message = f"no cassette in {display_path(folder)}"
            raise MzError("MZ6001", message, hint="record a run first: mz run && mz record")
    return find_cassettes(folders)


def replay_jobs(projects: Mapping[Path, Path], workers: int) -> tuple[ReplayJob, ...]:
    today, environment = datetime.now(UTC), without_git_variables(os.environ)
    return tuple(
        ReplayJob(
            path=display_path(path),
            project=str(project),
            environment=environment,
            features_parallel=max(1, workers // len(projects)),
            today=today,
        )
        for path, project in projects.items()
    )


def sampled_cassettes(projects: Mapping[Path, Path], number: int) -> frozenset[Path]:
    """Return the cassettes to replay with processes, chosen by the commit of the first project."""
    if not number:
        return frozenset()
    done = run_git_as_user(next(iter(projects.values())), os.environ, "rev-parse", "HEAD")
    return sampled(tuple(projects), number, done.text)


def print_progress(result: ReplayResult, cassette_count: int) -> None:
    """Print the result of one of several cassettes when it ends."""
    if cassette_count > 1:
        print_note(verdict_line(result, result.path))


def failing_by_commit(results: Sequence[ReplayResult]) -> tuple[ReplayResult, ...]:
    """Return the results with only those findings failing that a commit can cause."""
    return with_failing(results, lambda finding: finding.kind not in NOT_CAUSED_BY_COMMITS)


def replay_exit(results: Sequence[ReplayResult], bisect: bool = False) -> Exit:
    """Return the worst exit code of the failing findings; with `bisect`, limited to codes that git accepts."""
    code = results_exit(results, bisect)
    return clamp_exit(code) if bisect else code


def clamp_exit(code: int) -> Exit:
    """Return verdicts unchanged, anything else as 125."""
    return Exit(code) if code in VERDICT_EXITS else Exit.NOT_COMPARABLE


# for people -----------------------------------------------------------------------------------------------------------
def render_text(results: Sequence[ReplayResult]) -> Iterator[Line]:
    """Yield findings by cause, the worst first, then the summary."""
    for cassette in results:
        yield from ((Span(f"{cassette.path}: {update}"),) for update in cassette.changes)
    for group in group_results(results):
        yield from group_lines(group)
        yield ()
    for cassette in results:
        if cassette.overridden_settings:
            settings = ", ".join(cassette.overridden_settings)
            yield (Span(f"{cassette.path}: using the cassette's settings instead of mz.yaml for: {settings}", "dim"),)
    for reason, number in Counter(cassette.reason for cassette in results if cassette.reason).items():
        yield (Span(f"{count_noun(number, 'cassette')} replayed for real: {reason}", "dim"),)
    yield (Span(summary(results)),)


def summary(results: Sequence[ReplayResult]) -> str:
    """Return in one line what was replayed, and the verdict."""
    played = count_noun(sum(cassette.calls_replayed for cassette in results), "recording")
    online = sorted({kind for cassette in results for kind in cassette.online})
    offline = f"network cut off except from {' and '.join(online)}" if online else "network cut off"
    offline = offline if all(cassette.offline for cassette in results) else "network not cut off"
    parts = [count_noun(len(results), "cassette"), f"{played} replayed", *_effects(results), offline]
    if accepted := sum(cassette.accepted_replies for cassette in results):
        parts.append(f"{accepted} {'reply' if accepted == 1 else 'replies'} accepted for changed prompts")
    findings = len(group_results(results))
    verdict = f"differs from the recording: {count_noun(findings, 'finding')}" if findings else "matches the recording"
    return f"{', '.join(parts)}: {verdict}"


def _effects(results: Sequence[ReplayResult]) -> Iterator[str]:
    """Yield what was answered from the record, and what was executed."""
    if answered := sum(cassette.commands_answered for cassette in results):
        yield f"{count_noun(answered, 'command')} answered"
    if executed := sum(cassette.commands_executed for cassette in results):
        yield f"{count_noun(executed, 'command')} executed"
    if real := sum(not cassette.in_memory and bool(cassette.calls) for cassette in results):
        yield f"{count_noun(real, 'cassette')} for real"
