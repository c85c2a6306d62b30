"""Command `mz drift`."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource
from mz_recordings.drift.run import Drifted, compare_two
from mz_recordings.files.library import is_cassette
from mz_recordings.findings import RISKS, Risk
from mz_recordings.wire.files import FOLDER

from mz_cli.commands.replay import cassettes_at
from mz_cli.context import find_home
from mz_cli.driftdocument import document
from mz_cli.drifting import check_library, known_of, write_wires
from mz_cli.driftpage import exit_of, judged, page, summary, table
from mz_cli.help import command
from mz_cli.recording import shown
from mz_cli.render.console import answer, put_lines
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.styled import line_of
from mz_cli.reports.facts import ReportOptions
from mz_cli.reports.options import answering, check_reports, relative_to, report_options, write_reports
from mz_cli.reports.replayed import suites_of
from mz_cli.shapes.drift import BaselineShape

UNHEEDED = {
    "static": "--static", "workers": "-n", "fail_on": "--fail-on", "junit": "--junit", "sarif": "--sarif",
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
            'mz drift recordings/notes /tmp/notes-again --learn --reason "a live model"',
            "accept changed amounts and texts as noise",
        ),
    ),
    following="`mz replay --accept CLASS` accepts intended differences and keeps the replies.",
)
@click.argument("paths", metavar="[PATH]... | OLD NEW", nargs=-1, type=click.Path(path_type=Path))
@click.option("--static", is_flag=True, help="Do not replay; check only parsers, prices, rules, ages and streams.")
@click.option(
    "-n", "workers", metavar="N", type=click.IntRange(min=1), help="Number of parallel replays. [default: processors]"
)
@click.option(
    "--fail-on", metavar="RISK", type=click.Choice(RISKS), default="medium", show_default=True,
    help="Drift of lower risk is reported and does not fail: low, medium or high.",
)  # fmt: skip
@click.option("--learn", is_flag=True, help="Add possible noise to the library's noise.yaml, for review.")
@click.option("--update-wire", is_flag=True, help="Write the current stream shapes as new baselines; check nothing.")
@click.option(
    "--wire", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the project's baselines. [default: wire/ of the library]",
)  # fmt: skip
@click.option("--reason", metavar="TEXT", help="Reason, with --learn or --update-wire; stored with the entries.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.drift/1.")
@report_options
@click.pass_context
def drift(
    context: click.Context,
    paths: tuple[Path, ...],
    static: bool,
    workers: int | None,
    fail_on: Risk,
    learn: bool,
    update_wire: bool,
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
    _refuse_odd(context, learn, update_wire, reason)
    _refuse_unheeded(context, update_wire)
    check_reports(reports, as_json)
    home = find_home(Path.cwd())
    pair = len(paths) == 2 and all(is_cassette(path) for path in paths) and not update_wire
    if pair and (static or workers):
        raise click.UsageError("--static and -n cannot be used when two cassettes are compared", context)
    known = known_of(home, wire)
    if update_wire:
        folder = wire or known.library / FOLDER
        _tell_written(write_wires(cassettes_at(home, paths), known, folder, reason or ""), fail_on, as_json)
        return 0
    against = shown(paths[1]) if pair else "today"
    with answering(reports, as_json) as stream:
        if pair:
            drifted = compare_two(Path(shown(paths[0])), Path(shown(paths[1])), known, (reason or "") if learn else "")
        else:
            drifted = check_library(home, paths, known, static, workers, (reason or "") if learn else "")
        drifted = judged(drifted, fail_on)
        ended = exit_of((finding for one in drifted.played for finding in one.findings), fail_on)
        if as_json:
            show_document("drift", document(drifted, int(ended), fail_on, against))
        else:
            put_lines(stream, page(drifted, fail_on))
            if any(one.findings for one in drifted.played):
                show(table(drifted, fail_on), stream)
            put_lines(stream, (line_of(summary(drifted, fail_on, static, against)),))
    write_reports(reports, "mz drift", suites_of(drifted.played, relative_to(home)), ended, as_json)
    return int(ended)


def _refuse_odd(context: click.Context, learn: bool, update_wire: bool, reason: str | None) -> None:
    if learn and update_wire:
        raise click.UsageError("--learn and --update-wire cannot be combined", context)
    if (learn or update_wire) != bool(reason and reason.strip()):
        raise click.UsageError("--learn and --update-wire require --reason, and --reason requires one of them", context)


def _refuse_unheeded(context: click.Context, update_wire: bool) -> None:
    """Reject options without effect: writing baselines replays nothing and reports nothing."""
    given = [name for name in UNHEEDED if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if update_wire and given:
        flags = ", ".join(UNHEEDED[name] for name in given)
        raise click.UsageError(f"{flags}: no effect with --update-wire, which checks nothing", context)


def _tell_written(written: tuple[BaselineShape, ...], fail_on: Risk, as_json: bool) -> None:
    if as_json:
        show_document("drift", document(Drifted(played=()), 0, fail_on, "today", written))
        return
    for one in written:
        answer(
            f"{one.path}: of {one.agent} {one.version} {one.read} fields are read, {one.kept} kept, "
            f"{one.ignored} ignored, {one.absent} read but never seen"
        )
