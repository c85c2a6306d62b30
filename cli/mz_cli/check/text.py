"""Result of `mz gate` as text: one line per layer, then every finding with its fix, then the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from mz_qa.results import GateResult, LayerResult
from mz_recordings.findings.grouping import FindingGroup, group_results
from mz_recordings.findings.model import KIND_PROPERTIES, Finding, ReplayResult

from mz_cli.terminal.text import count_noun
from mz_cli.terminal.width import Line, Span

STATUS_STYLES = {"passed": "green", "failed": "bold red", "empty": "yellow", "skipped": "dim"}
DIFF_STYLES = {"-": "red", "+": "green"}
PLACES_MAX = 6
DETAIL_MAX = 40
NAME_WIDTH = 9


def layer_line(layer: LayerResult) -> Line:
    """Return the result of a layer in one line."""
    status = layer.status.upper() if layer.status == "failed" else layer.status
    counts = [count_noun(layer.checks, "check"), f"{layer.duration_ms / 1000:.1f} s"]
    if layer.findings:
        counts.insert(0, count_noun(len(layer.findings), "finding"))
    description = layer.reason or ", ".join(counts)
    return (
        Span(f"{layer.number}  {layer.name:<{NAME_WIDTH}}  "),
        Span(f"{status:<7}", STATUS_STYLES[layer.status]),
        Span(f"  {description}"),
    )


def remaining_lines(result: GateResult, name: str = "gate") -> Iterator[Line]:
    """Yield findings, remarks and verdict."""
    for layer in result.layers:
        if layer.findings:
            yield ()
            yield (Span(f"layer {layer.number}, {layer.name}: {layer.about}", "bold"),)
            for finding_group in group_results([ReplayResult(path="", name=layer.name, findings=layer.findings)]):
                yield from _group_lines(finding_group)
    remarks = [(layer, remark) for layer in result.layers for remark in layer.remarks]
    if remarks:
        yield ()
    for layer, remark in remarks:
        yield (Span(f"remark ({layer.name}): {remark}", "dim"),)
    yield ()
    yield (Span(summary(result, name), "bold red" if result.first_failure else "bold green"),)


def summary(result: GateResult, name: str = "gate") -> str:
    """Return the verdict in one line."""
    ran = [layer for layer in result.layers if layer.status != "skipped"]
    parts = [
        count_noun(len(ran), "layer"), count_noun(sum(layer.checks for layer in ran), "check"),
        f"{result.duration_ms / 1000:.1f} s", "$0",
    ]  # fmt: skip
    empty = [layer.name for layer in ran if layer.status == "empty"]
    if empty:
        parts.append(f"nothing to check in {', '.join(empty)}")
    failed = result.first_failure
    if failed is None:
        return f"{name} passed: {', '.join(parts)}"
    number = count_noun(sum(len(layer.findings) for layer in result.layers), "finding")
    return f"{name} FAILED, first in layer {failed.number} ({failed.name}): {number}, {', '.join(parts)}"


def _group_lines(finding_group: FindingGroup) -> Iterator[Line]:
    yield (Span(finding_group.kind, "bold red"), Span(f"  {finding_group.message}"))
    findings = [finding for _, finding in finding_group.occurrences]
    locations = list(dict.fromkeys(filter(None, map(finding_location, findings))))
    for location in locations[:PLACES_MAX]:
        yield (Span(f"  {location}", "dim"),)
    if len(locations) > PLACES_MAX:
        yield (Span(f"  and {len(locations) - PLACES_MAX} more places", "dim"),)
    for line in finding_group.detail[:DETAIL_MAX]:
        yield (Span(f"  {line}", DIFF_STYLES.get(line[:1], "")),)
    if len(finding_group.detail) > DETAIL_MAX:
        yield (Span(f"  and {len(finding_group.detail) - DETAIL_MAX} more lines; --json has all", "dim"),)
    code = (f"  (exit {int(KIND_PROPERTIES[finding_group.kind].exit)})", "dim")
    if findings[0].fix:
        yield (Span("  fix: ", "bold"), Span(findings[0].fix), Span(*code))
    else:
        yield (Span(*code),)


def finding_location(finding: Finding) -> str:
    """Return file and line of a finding, and its call."""
    position = f"{finding.file}:{finding.line}" if finding.file and finding.line else finding.file
    call = "/".join(filter(None, (finding.feature, finding.call)))
    return f"{position} ({call})" if position and call else position or call
