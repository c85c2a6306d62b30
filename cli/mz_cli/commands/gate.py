"""Command `mz gate`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click
from mz_engine.version import VERSION
from mz_qa.gate import project_at, run_gate
from mz_qa.layers.facts import GateResult, LayerResult
from mz_qa.layers.table import NUMBERS

from mz_cli.commands.replay import cassettes_at
from mz_cli.context import find_home
from mz_cli.findingshape import finding_shape
from mz_cli.gatepage import layer_line, rest_of_page
from mz_cli.help import command
from mz_cli.render.console import note, put_lines
from mz_cli.render.document import show_document
from mz_cli.render.styled import plain
from mz_cli.render.text import instant, usd
from mz_cli.reports.facts import ReportOptions, Suite
from mz_cli.reports.options import answering, check_reports, report_options, write_reports
from mz_cli.shapes.gate import GateFailure, GateLayer, GateReport

LAYER = click.Choice([str(number) for number in NUMBERS])


@command(
    "gate",
    examples=(
        ("mz gate", "all layers: before a release, and in CI"),
        ("mz gate --layer 1 --layer 3", "settings, pipelines and rules only: seconds"),
        ("mz gate --allow-empty 7", "if nothing is recorded yet"),
        ("mz gate --json | jq .first_failure", "for scripts"),
    ),
    following="`mz replay` replays recordings only and can accept changes; `mz drift` compares two.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--layer", "layers", metavar="N", type=LAYER, multiple=True, help="Only this layer; repeatable.")
@click.option(
    "--allow-empty", metavar="N", type=LAYER, multiple=True,
    help="Do not fail if this layer has nothing to check; repeatable.",
)  # fmt: skip
@click.option(
    "-n", "workers", metavar="N", type=click.IntRange(min=1), help="Number of parallel replays. [default: processors]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.gate/1.")
@report_options
def gate(
    paths: tuple[Path, ...],
    layers: tuple[str, ...],
    allow_empty: tuple[str, ...],
    workers: int | None,
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
    found = cassettes_at(home, paths) if paths else ()
    project = project_at(home, os.environ, found, workers or os.cpu_count() or 1, datetime.now(UTC), note, Path.cwd())
    chosen, may_be_empty = [int(one) for one in layers] or NUMBERS, [int(one) for one in allow_empty]
    with answering(reports, as_json) as stream:
        if as_json:
            result = run_gate(project, chosen, may_be_empty, lambda layer: note(plain(layer_line(layer))))
            show_document("gate", document(result))
        else:
            result = run_gate(project, chosen, may_be_empty, lambda layer: put_lines(stream, (layer_line(layer),)))
            put_lines(stream, rest_of_page(result))
    write_reports(reports, "mz gate", suites_of(result), result.exit, as_json)
    return int(result.exit)


def document(result: GateResult) -> GateReport:
    failed = result.first_failure
    return GateReport(
        version=VERSION,
        verdict="failed" if failed else "passed",
        exit=int(result.exit),
        started=_moment(result.started),
        finished=_moment(result.finished),
        seconds=result.duration_ms / 1000,
        cost_usd=usd(0) or "",
        layers=tuple(_layer(layer) for layer in result.layers),
        first_failure=GateFailure(layer=failed.number, name=failed.name, what=failed.findings[0].what)
        if failed
        else None,
    )


def _moment(at: datetime) -> str:
    return instant(int(at.timestamp() * 1_000_000)) or ""


def _layer(layer: LayerResult) -> GateLayer:
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


def suites_of(result: GateResult) -> tuple[Suite, ...]:
    """Return a suite per executed layer, with a case per kind of checked item."""
    return tuple(
        Suite(
            name=f"{layer.number} {layer.name}",
            seconds=layer.duration_ms / 1000,
            findings=layer.findings,
            facts=(*((name, str(count)) for name, count in layer.checked.items()), ("status", layer.status)),
            cases=tuple(layer.checked),
        )
        for layer in result.layers
        if layer.status != "skipped"
    )
