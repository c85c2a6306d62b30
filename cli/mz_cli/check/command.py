"""Command `mz gate`."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
from mz_engine.version import VERSION
from mz_qa.gate.run import NUMBERS, SELF_TEST_LAYERS, load_project, run_gate
from mz_qa.results import GateResult, LayerResult

from mz_cli.app.context import find_home
from mz_cli.app.help import command, jobs_option
from mz_cli.check.json import GateFailure, GateLayer, GateReport
from mz_cli.check.text import layer_line, remaining_lines
from mz_cli.common.json import finding_shape
from mz_cli.replay.command import require_cassettes
from mz_cli.reports.model import ReportOptions, Suite
from mz_cli.reports.options import check_reports, report_options, text_stream, write_reports
from mz_cli.terminal.console import print_note, write_lines
from mz_cli.terminal.json import print_document, shape_of
from mz_cli.terminal.text import exact_usd, iso_time
from mz_cli.terminal.width import plain_text

LAYER = click.Choice([str(number) for number in NUMBERS])


@command(
    "gate",
    examples=(
        ("mz gate", "all layers: before a release, and in CI"),
        ("mz gate --layer 1 --layer 3", "settings, pipelines and rules only: a second"),
        ("mz gate --allow-empty 7", "if nothing is recorded yet"),
        ("mz gate --json | jq .first_failure", "for scripts"),
    ),
    next_command="`mz replay` replays recordings only and can accept changes; `mz drift` compares two; "
    "`mz doctor --self-test` tests mz itself.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--layer", "layers", metavar="N", type=LAYER, multiple=True, help="Only this layer; repeatable.")
@click.option(
    "--allow-empty", metavar="N", type=LAYER, multiple=True,
    help="Do not fail if this layer has nothing to check; repeatable.",
)  # fmt: skip
@jobs_option("Number of parallel replays. [default: processors]")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.gate/1.")
@report_options
def gate(
    paths: tuple[Path, ...],
    layers: tuple[str, ...],
    allow_empty: tuple[str, ...],
    jobs: int | None,
    as_json: bool,
    reports: ReportOptions,
) -> int:
    """Check everything that needs no agent, offline and free.

    Four layers: 1 static (settings, pipelines, rules, templates, backlog), 3 artifacts (your rules accept valid
    artifacts and reject others), 4 formats (your log and recordings are readable), 7 replays (recordings through the
    current pipeline, drift, verdicts on recorded artifacts). All layers run, even if one fails. What comes with mz is
    tested by `mz doctor --self-test`. PATH is a cassette or a folder of cassettes for layer 7 (default: the library).
    Exits with 1, or with the code of the finding: 10 for an invalid pipeline, 3 for drift, 4 for missing recordings or
    none at all.
    """
    check_reports(reports, as_json)
    home = find_home(Path.cwd())
    cassettes = require_cassettes(home, paths) if paths else ()
    project = load_project(
        home, os.environ, cassettes, jobs or os.cpu_count() or 1, datetime.now(UTC), print_note, Path.cwd()
    )
    layer_numbers, may_be_empty = [int(number) for number in layers] or NUMBERS, [int(number) for number in allow_empty]
    with text_stream(reports, as_json) as stream:
        report = _print_layer_note if as_json else lambda layer: write_lines(stream, (layer_line(layer),))
        result = run_gate(project, layer_numbers, may_be_empty, report)
        if as_json:
            print_document("gate", gate_document(result))
        else:
            write_lines(stream, remaining_lines(result))
    write_reports(reports, "mz gate", gate_suites(result), result.exit, as_json)
    return int(result.exit)


def run_self_test(root: Path, as_json: bool) -> int:
    """Test mz itself, and print the result like that of the gate."""
    project = load_project(root, os.environ, (), 1, datetime.now(UTC), print_note, Path.cwd())
    report = _print_layer_note if as_json else lambda layer: write_lines(sys.stdout, (layer_line(layer),))
    result = run_gate(project, on_result=report, layers=SELF_TEST_LAYERS)
    if as_json:
        print_document("self-test", gate_document(result))
    else:
        write_lines(sys.stdout, remaining_lines(result, "self-test"))
    return int(result.exit)


def _print_layer_note(layer: LayerResult) -> None:
    print_note(plain_text(layer_line(layer)))


def gate_document(result: GateResult) -> GateReport:
    failed_layer = result.first_failure
    return GateReport(
        version=VERSION,
        verdict="failed" if failed_layer else "passed",
        exit=int(result.exit),
        started=_timestamp(result.started),
        finished=_timestamp(result.finished),
        seconds=result.duration_ms / 1000,
        cost_usd=exact_usd(0) or "",
        layers=tuple(_layer_shape(layer) for layer in result.layers),
        first_failure=GateFailure(
            layer=failed_layer.number, name=failed_layer.name, message=failed_layer.findings[0].message
        )
        if failed_layer
        else None,
    )


def _timestamp(at: datetime) -> str:
    return iso_time(int(at.timestamp() * 1_000_000)) or ""


def _layer_shape(layer: LayerResult) -> GateLayer:
    findings = tuple(finding_shape(finding, "") for finding in layer.findings)
    return shape_of(GateLayer, layer, id=layer.number, seconds=layer.duration_ms / 1000, findings=findings)


def gate_suites(result: GateResult) -> tuple[Suite, ...]:
    """Return a suite per executed layer, with a case per kind of checked item."""
    return tuple(
        Suite(
            name=f"{layer.number} {layer.name}",
            seconds=layer.duration_ms / 1000,
            findings=layer.findings,
            properties=(*((name, str(count)) for name, count in layer.checked.items()), ("status", layer.status)),
            cases=tuple(layer.checked),
        )
        for layer in result.layers
        if layer.status != "skipped"
    )
