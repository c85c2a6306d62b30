"""Adapter: `mz drift`."""

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
"""Options that mean nothing where baselines are written."""


@command(
    "drift",
    examples=(
        ("mz drift", "every cassette of the library, against today"),
        ("mz drift --static", "the same without playing them: milliseconds a cassette"),
        ("mz drift recordings/notes /tmp/notes-again", "two recordings of the same calls"),
        (
            'mz drift recordings/notes /tmp/notes-again --learn --reason "a live model"',
            "take amounts and words as noise",
        ),
    ),
    following="`mz replay --accept CLASS` keeps the answers of what is meant to be so.",
)
@click.argument("paths", metavar="[PATH]... | OLD NEW", nargs=-1, type=click.Path(path_type=Path))
@click.option("--static", is_flag=True, help="Play nothing: parsers, prices, rules, ages and streams only.")
@click.option(
    "-n", "workers", metavar="N", type=click.IntRange(min=1), help="How many at the same time. [default: processors]"
)
@click.option(
    "--fail-on", metavar="RISK", type=click.Choice(RISKS), default="medium", show_default=True,
    help="Drift of less risk is told and does not fail: low, medium or high.",
)  # fmt: skip
@click.option("--learn", is_flag=True, help="Add what can be noise to noise.yaml of the library, to be reviewed.")
@click.option(
    "--update-wire", is_flag=True, help="Write what the streams look like as the new baselines; check nothing."
)
@click.option(
    "--wire", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
    help="Where baselines of the project lie. [default: wire/ of the library]",
)  # fmt: skip
@click.option("--reason", metavar="TEXT", help="Why, with --learn or --update-wire; kept with what is written.")
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
    """Say what has drifted: recordings against today, or against newer ones.

    Each cassette is judged by today's parsers, prices, rules and baselines of streams, and played through today's
    pipeline. A PATH is a cassette or a folder of them; without one, the library is checked. Two cassettes are compared
    with each other: call by call, by prompt, settings, stream, artifact, files, tokens and verdicts. Each finding has
    its class, a risk, and the command that mends it. Ends with 3 for drift of the risk that fails, 4 for recordings
    that are missing, unused or too old.
    """
    _refuse_odd(context, learn, update_wire, reason)
    _refuse_unheeded(context, update_wire)
    check_reports(reports, as_json)
    home = find_home(Path.cwd())
    pair = len(paths) == 2 and all(is_cassette(path) for path in paths) and not update_wire
    if pair and (static or workers):
        raise click.UsageError("--static and -n are for cassettes against today; two are only read", context)
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
        raise click.UsageError("--learn and --update-wire write different files; give one of them", context)
    if (learn or update_wire) != bool(reason and reason.strip()):
        raise click.UsageError("--reason goes with --learn or --update-wire, and they with it: why is it so?", context)


def _refuse_unheeded(context: click.Context, update_wire: bool) -> None:
    """Baselines are written without a check: nothing is played, nothing fails, and there is nothing to report."""
    given = [name for name in UNHEEDED if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if update_wire and given:
        flags = ", ".join(UNHEEDED[name] for name in given)
        raise click.UsageError(f"--update-wire checks nothing, so {flags} would say nothing; leave it out", context)


def _tell_written(written: tuple[BaselineShape, ...], fail_on: Risk, as_json: bool) -> None:
    if as_json:
        show_document("drift", document(Drifted(played=()), 0, fail_on, "today", written))
        return
    for one in written:
        answer(
            f"{one.path}: of {one.agent} {one.version} {one.read} fields are read, {one.kept} kept, "
            f"{one.ignored} ignored, {one.absent} asked for and never seen"
        )
