"""Command `mz check`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
from mz_engine.version import VERSION
from mz_qa.layers.run import NUMBERS, SELF_TEST_LAYERS, load_project, run_layers
from mz_qa.results import CheckRun, LayerResult
from mz_recordings.findings.model import group_findings

from mz_cli.app.context import find_root
from mz_cli.app.help import command, jobs_option
from mz_cli.replay.command import require_cassettes
from mz_cli.reports.findings import ReplayFinding, Suite, finding_shapes, group_lines
from mz_cli.reports.options import ReportOptions, report_options
from mz_cli.terminal.console import print_note, write_lines
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.table import write_output
from mz_cli.terminal.text import Line, Span, count_noun

STATUS_STYLES = {"passed": "green", "failed": "bold red", "empty": "yellow", "skipped": "dim"}
NAME_WIDTH = 9
LAYER = click.Choice([str(number) for number in NUMBERS])


class CheckedLayer(Shape, frozen=True, kw_only=True):
    """Result of one layer of checks."""

    number: int
    name: str
    about: str
    """Short description."""
    status: str
    """`passed`, `failed`, `empty` (nothing to check, and that was allowed) or `skipped` (not selected)."""
    reason: str | None
    """Reason for an empty or skipped layer."""
    seconds: float
    checks: int
    """Total number of checked items."""
    checked: dict[str, int]
    """Checked items by kind, such as `templates`."""
    findings: tuple[ReplayFinding, ...]
    """Kinds beside those of `mz replay`: ADAPTER, RULE, SPEC, FORMAT, VARIANT, NOTHING-CHECKED, INTERNAL-ERROR."""
    remarks: tuple[str, ...]
    """Remarks that do not fail the layer."""


class FirstFailure(Shape, frozen=True, kw_only=True):
    """First failed layer and its first finding."""

    number: int
    name: str
    message: str


class CheckReport(Shape, frozen=True, kw_only=True):
    version: str
    """Version of `mz`."""
    verdict: str
    """`passed` or `failed`."""
    exit: int
    started: str
    """ISO 8601, UTC."""
    finished: str
    seconds: float
    cost_usd: str
    """Always zero: no model is called."""
    layers: tuple[CheckedLayer, ...]
    first_failure: FirstFailure | None


@command(
    "check",
    examples=(
        ("mz check", "all layers: before a release, and in CI"),
        ("mz check --layer 1 --layer 3", "settings, pipelines and rules only: a second"),
        ("mz check --layer 8", "specifications only: rules, missing and dangling citations"),
        ("mz check --allow-empty 7", "if nothing is recorded yet"),
        ("mz check --json | jq .first_failure", "for scripts"),
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
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.check/1.")
@report_options
def check(
    paths: tuple[Path, ...],
    layers: tuple[str, ...],
    allow_empty: tuple[str, ...],
    jobs: int | None,
    as_json: bool,
    reports: ReportOptions,
) -> int:
    """Check everything that needs no agent, offline and free.

    Five layers: 1 static (settings, pipelines, rules, templates, backlog), 3 artifacts (your rules accept valid
    artifacts and reject others), 4 formats (your log and recordings are readable), 7 replays (recordings through the
    current pipeline, drift, verdicts on recorded artifacts), 8 specs (your documents, by `specs` in mz.yaml). All
    layers run, even if one fails. What comes with mz is tested by `mz doctor --self-test`. PATH is a cassette or a
    folder of cassettes for layer 7 (default: the library). Exits with 1, or with the code of the finding: 10 for an
    invalid pipeline, 3 for drift, 4 for missing recordings or none at all.
    """
    reports.check()
    root = find_root(Path.cwd())
    cassettes = require_cassettes(root, paths) if paths else ()
    project = load_project(
        root, os.environ, cassettes, jobs or os.cpu_count() or 1, datetime.now(UTC), print_note, Path.cwd()
    )
    layer_numbers, may_be_empty = [int(number) for number in layers] or NUMBERS, [int(number) for number in allow_empty]
    with reports.text_stream() as stream:
        result = run_layers(
            project, layer_numbers, may_be_empty, lambda layer: write_lines(stream, (layer_line(layer),))
        )
        write_output(stream, as_json, "check", check_document(result), remaining_lines(result))
    reports.write("mz check", check_suites(result), result.exit)
    return int(result.exit)


def run_self_test(root: Path, as_json: bool) -> int:
    """Test mz itself, and print the result like `mz check`."""
    project = load_project(root, os.environ, (), 1, datetime.now(UTC), print_note, Path.cwd())
    stream = sys.stderr if as_json else sys.stdout
    result = run_layers(project, None, (), lambda layer: write_lines(stream, (layer_line(layer),)), SELF_TEST_LAYERS)
    name = "doctor-self-test"
    write_output(stream, as_json, name, check_document(result), remaining_lines(result, name))
    return int(result.exit)


def check_suites(result: CheckRun) -> tuple[Suite, ...]:
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


# for programs ---------------------------------------------------------------------------------------------------------
def check_document(result: CheckRun) -> CheckReport:
    failed = result.first_failure
    return CheckReport(
        version=VERSION,
        verdict="failed" if failed else "passed",
        exit=int(result.exit),
        started=f"{result.started:%Y-%m-%dT%H:%M:%S.%f}Z",
        finished=f"{result.finished:%Y-%m-%dT%H:%M:%S.%f}Z",
        seconds=result.duration_ms / 1000,
        cost_usd="0.00",
        layers=tuple(
            shape_of(CheckedLayer, layer, seconds=layer.duration_ms / 1000, findings=finding_shapes(layer.findings, ""))
            for layer in result.layers
        ),
        first_failure=shape_of(FirstFailure, failed, message=failed.findings[0].message) if failed else None,
    )


# for people -----------------------------------------------------------------------------------------------------------
def layer_line(layer: LayerResult) -> Line:
    status = layer.status.upper() if layer.status == "failed" else layer.status
    counts = [count_noun(layer.checks, "check"), f"{layer.duration_ms / 1000:.1f} s"]
    if layer.findings:
        counts.insert(0, count_noun(len(layer.findings), "finding"))
    return (
        Span(f"{layer.number}  {layer.name:<{NAME_WIDTH}}  "),
        Span(f"{status:<7}", STATUS_STYLES[layer.status]),
        Span(f"  {layer.reason or ', '.join(counts)}"),
    )


def remaining_lines(result: CheckRun, name: str = "check") -> Iterator[Line]:
    """Yield findings, remarks and verdict."""
    for layer in result.layers:
        if layer.findings:
            yield ()
            yield (Span(f"layer {layer.number}, {layer.name}: {layer.about}", "bold"),)
            for group in group_findings(("", finding) for finding in layer.findings):
                yield from group_lines(group)
    yield ()
    for layer in result.layers:
        yield from ((Span(f"remark ({layer.name}): {remark}", "dim"),) for remark in layer.remarks)
    yield (Span(summary(result, name), "bold red" if result.first_failure else "bold green"),)


def summary(result: CheckRun, name: str = "check") -> str:
    """Return the verdict in one line."""
    ran = [layer for layer in result.layers if layer.status != "skipped"]
    parts = [
        count_noun(len(ran), "layer"), count_noun(sum(layer.checks for layer in ran), "check"),
        f"{result.duration_ms / 1000:.1f} s", "$0",
    ]  # fmt: skip
    if empty := [layer.name for layer in ran if layer.status == "empty"]:
        parts.append(f"nothing to check in {', '.join(empty)}")
    failed = result.first_failure
    if failed is None:
        return f"{name} passed: {', '.join(parts)}"
    number = count_noun(sum(len(layer.findings) for layer in result.layers), "finding")
    return f"{name} FAILED, first in layer {failed.number} ({failed.name}): {number}, {', '.join(parts)}"
