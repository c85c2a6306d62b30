"""Command `mz gate`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click
from mz_engine.version import VERSION
from mz_qa.gate.run import NUMBERS, load_project, run_gate
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
from mz_cli.terminal.json import print_document
from mz_cli.terminal.text import exact_usd, iso_time
from mz_cli.terminal.width import plain_text

LAYER = click.Choice([str(number) for number in NUMBERS])


@command(
    "gate",
    examples=(
        ("mz gate", "all layers: before a release, and in CI"),
        ("mz gate --layer 1 --layer 3", "settings, pipelines and rules only: seconds"),
        ("mz gate --allow-empty 7", "if nothing is recorded yet"),
        ("mz gate --json | jq .first_failure", "for scripts"),
    ),
    next_command="`mz replay` replays recordings only and can accept changes; `mz drift` compares two.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--layer", "layers", metavar="N", type=LAYER, multiple=True, help="Only this layer; repeatable.")
@click.option(
    "--allow-empty", metavar="N", type=LAYER, multiple=True,
    help="Do not fail if this layer has nothing to check; repeatable.",
)  # fmt: skip
@jobs_option("Number of parallel replays. [default: processors]", "-n")
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

    Five layers: 1 static (settings, pipelines, rules, templates), 2 adapters (each agent adapter fulfils its contract),
    3 artifacts (rules accept valid artifacts and reject others), 4 formats (old logs and recordings are readable),
    7 replays (recordings through the current pipeline). All layers run, even if one fails. PATH is a cassette or a
    folder of cassettes for layer 7 (default: the library). Exits with 1, or with the code of the finding: 10 for an
    invalid pipeline, 3 for drift, 4 for missing recordings or none at all.
    """
    check_reports(reports, as_json)
    home = find_home(Path.cwd())
    cassettes = require_cassettes(home, paths) if paths else ()
    project = load_project(
        home, os.environ, cassettes, jobs or os.cpu_count() or 1, datetime.now(UTC), print_note, Path.cwd()
    )
    layer_numbers, may_be_empty = [int(number) for number in layers] or NUMBERS, [int(number) for number in allow_empty]
    with text_stream(reports, as_json) as stream:
        if as_json:
            result = run_gate(
                project, layer_numbers, may_be_empty, lambda layer: print_note(plain_text(layer_line(layer)))
            )
            print_document("gate", gate_document(result))
        else:
            result = run_gate(
                project, layer_numbers, may_be_empty, lambda layer: write_lines(stream, (layer_line(layer),))
            )
            write_lines(stream, remaining_lines(result))
    write_reports(reports, "mz gate", gate_suites(result), result.exit, as_json)
    return int(result.exit)


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
    return GateLayer(
        id=layer.number,
        name=layer.name,
        about=layer.about,
        status=layer.status,
        reason=layer.reason or None,
        seconds=layer.duration_ms / 1000,
        checks=layer.checks,
        checked=layer.checked,
        findings=tuple(finding_shape(finding, "") for finding in layer.findings),
        remarks=layer.remarks,
    )


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
