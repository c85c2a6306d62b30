"""Command `mz drift`."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource
from mz_recordings.cassette.files import is_cassette
from mz_recordings.drift.run import LibraryDrift, compare_two
from mz_recordings.drift.stream_baselines import FOLDER
from mz_recordings.findings.model import RISKS, Risk

from mz_cli.app.context import find_home
from mz_cli.app.help import command, format_options, jobs_option, message_option
from mz_cli.check.drift import check_library, load_drift_library, write_baselines
from mz_cli.check.drift_text import drift_result, exit_of, render_text, summary, table, with_failures
from mz_cli.check.json import BaselineShape
from mz_cli.common.recording import display_path
from mz_cli.replay.command import require_cassettes
from mz_cli.reports.model import ReportOptions
from mz_cli.reports.options import check_reports, project_relative, report_options, text_stream, write_reports
from mz_cli.reports.replays import replay_suites
from mz_cli.terminal.console import print_line, write_lines
from mz_cli.terminal.json import print_document
from mz_cli.terminal.table import print_table
from mz_cli.terminal.width import styled_line

NO_EFFECT_WITH_BASELINES = {
    "static": "--static", "jobs": "-j", "fail_on": "--fail-on", "junit": "--junit", "sarif": "--sarif",
    "html": "--html", "github": "--github",
}  # fmt: skip
"""Options that have no effect when baselines are written."""


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
    next_command="`mz replay --accept CLASS` accepts intended differences and keeps the replies.",
)
@click.argument("paths", metavar="[PATH]... | OLD NEW", nargs=-1, type=click.Path(path_type=Path))
@click.option("--static", is_flag=True, help="Do not replay; check only parsers, prices, rules, ages and streams.")
@jobs_option("Number of parallel replays. [default: processors]")
@click.option(
    "--fail-on", metavar="RISK", type=click.Choice(RISKS), default="medium", show_default=True,
    help="Drift of lower risk is reported and does not fail: low, medium or high.",
)  # fmt: skip
@click.option(
    "--propose-noise", "propose_noise", is_flag=True,
    help="Add possible noise to the library's noise.yaml, for review.",
)  # fmt: skip
@click.option(
    "--update-baseline", is_flag=True,
    help="Write the current stream shapes as new baselines; check nothing.",
)  # fmt: skip
@click.option(
    "--wire", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the project's baselines. [default: wire/ of the library]",
)  # fmt: skip
@message_option("reason", "Reason, with --propose-noise or --update-baseline; stored with the entries.")
@format_options("Print one object with the schema mz.drift/1.")
@report_options
@click.pass_context
def drift(
    context: click.Context,
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
    class, a risk, and the command that fixes it. Exits with 3 for drift of a failing risk, 4 for missing, unused or
    expired recordings.
    """
    _check_reason(context, propose_noise, update_baseline, reason)
    _check_baseline_options(context, update_baseline)
    check_reports(reports, as_json)
    home = find_home(Path.cwd())
    compares_two = len(paths) == 2 and all(is_cassette(path) for path in paths) and not update_baseline
    if compares_two and (static or jobs):
        raise click.UsageError("--static and -j cannot be used when two cassettes are compared", context)
    drift_library = load_drift_library(home, wire)
    if update_baseline:
        folder = wire or drift_library.library / FOLDER
        _print_baselines(
            write_baselines(require_cassettes(home, paths), drift_library, folder, reason or ""), fail_on, as_json
        )
        return 0
    against = display_path(paths[1]) if compares_two else "today"
    with text_stream(reports, as_json) as stream:
        if compares_two:
            result = compare_two(
                Path(display_path(paths[0])),
                Path(display_path(paths[1])),
                drift_library,
                (reason or "") if propose_noise else "",
            )
        else:
            result = check_library(home, paths, drift_library, static, jobs, (reason or "") if propose_noise else "")
        result = with_failures(result, fail_on)
        exit_code = exit_of(
            (finding for cassette_result in result.results for finding in cassette_result.findings), fail_on
        )
        if as_json:
            print_document("drift", drift_result(result, int(exit_code), fail_on, against))
        else:
            write_lines(stream, render_text(result, fail_on))
            if any(cassette_result.findings for cassette_result in result.results):
                print_table(table(result, fail_on), stream)
            write_lines(stream, (styled_line(summary(result, fail_on, static, against)),))
    write_reports(reports, "mz drift", replay_suites(result.results, project_relative(home)), exit_code, as_json)
    return int(exit_code)


def _check_reason(context: click.Context, propose_noise: bool, update_baseline: bool, reason: str | None) -> None:
    if propose_noise and update_baseline:
        raise click.UsageError("--propose-noise and --update-baseline cannot be combined", context)
    if (propose_noise or update_baseline) != bool(reason and reason.strip()):
        raise click.UsageError("--propose-noise and --update-baseline require -m, and -m requires one of them", context)


def _check_baseline_options(context: click.Context, update_baseline: bool) -> None:
    """Reject options without effect: writing baselines replays nothing and reports nothing."""
    given_options = [
        name for name in NO_EFFECT_WITH_BASELINES if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if update_baseline and given_options:
        flags = ", ".join(NO_EFFECT_WITH_BASELINES[name] for name in given_options)
        raise click.UsageError(f"{flags}: no effect with --update-baseline, which checks nothing", context)


def _print_baselines(baselines: tuple[BaselineShape, ...], fail_on: Risk, as_json: bool) -> None:
    if as_json:
        print_document("drift", drift_result(LibraryDrift(results=()), 0, fail_on, "today", baselines))
        return
    for baseline in baselines:
        print_line(
            f"{baseline.path}: of {baseline.agent} {baseline.version} {baseline.read} fields are "
            f"read, {baseline.kept} kept, "
            f"{baseline.ignored} ignored, {baseline.absent} read but never seen"
        )
