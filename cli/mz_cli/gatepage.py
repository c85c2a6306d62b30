"""Result of `mz gate` as text: one line per layer, then every finding with its fix, then the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from mz_qa.layers.facts import GateResult, LayerResult
from mz_recordings.findings import KINDS, Finding, Played
from mz_recordings.grouping import Group, group

from mz_cli.render.styled import Line, Span
from mz_cli.render.text import counted

STATUSES = {"passed": "green", "failed": "bold red", "empty": "yellow", "skipped": "dim"}
LOOKS = {"-": "red", "+": "green"}
PLACES_MAX = 6
DETAIL_MAX = 40
NAME_WIDTH = 9


def layer_line(layer: LayerResult) -> Line:
    """Return the result of a layer in one line."""
    status = layer.status.upper() if layer.status == "failed" else layer.status
    said = [counted(layer.checks, "check"), f"{layer.duration_ms / 1000:.1f} s"]
    if layer.findings:
        said.insert(0, counted(len(layer.findings), "finding"))
    words = layer.reason or ", ".join(said)
    return (
        Span(f"{layer.number}  {layer.name:<{NAME_WIDTH}}  "),
        Span(f"{status:<7}", STATUSES[layer.status]),
        Span(f"  {words}"),
    )


def rest_of_page(result: GateResult) -> Iterator[Line]:
    """Yield findings, remarks and verdict."""
    for layer in result.layers:
        if layer.findings:
            yield ()
            yield (Span(f"layer {layer.number}, {layer.name}: {layer.about}", "bold"),)
            for each in group([Played(path="", name=layer.name, findings=layer.findings)]):
                yield from _group(each)
    remarks = [(layer, words) for layer in result.layers for words in layer.remarks]
    if remarks:
        yield ()
    for layer, words in remarks:
        yield (Span(f"remark ({layer.name}): {words}", "dim"),)
    yield ()
    yield (Span(summary(result), "bold red" if result.first_failure else "bold green"),)


def summary(result: GateResult) -> str:
    """Return the verdict in one line."""
    ran = [layer for layer in result.layers if layer.status != "skipped"]
    parts = [
        counted(len(ran), "layer"), counted(sum(layer.checks for layer in ran), "check"),
        f"{result.duration_ms / 1000:.1f} s", "$0",
    ]  # fmt: skip
    empty = [layer.name for layer in ran if layer.status == "empty"]
    if empty:
        parts.append(f"nothing to check in {', '.join(empty)}")
    failed = result.first_failure
    if failed is None:
        return f"gate passed: {', '.join(parts)}"
    number = counted(sum(len(layer.findings) for layer in result.layers), "finding")
    return f"gate FAILED, first in layer {failed.number} ({failed.name}): {number}, {', '.join(parts)}"


def _group(each: Group) -> Iterator[Line]:
    yield (Span(each.kind, "bold red"), Span(f"  {each.what}"))
    findings = [finding for _, finding in each.places]
    places = list(dict.fromkeys(filter(None, map(place_of, findings))))
    for place in places[:PLACES_MAX]:
        yield (Span(f"  {place}", "dim"),)
    if len(places) > PLACES_MAX:
        yield (Span(f"  and {len(places) - PLACES_MAX} more places", "dim"),)
    for line in each.detail[:DETAIL_MAX]:
        yield (Span(f"  {line}", LOOKS.get(line[:1], "")),)
    if len(each.detail) > DETAIL_MAX:
        yield (Span(f"  and {len(each.detail) - DETAIL_MAX} more lines; --json has all", "dim"),)
    code = (f"  (exit {int(KINDS[each.kind].exit)})", "dim")
    if findings[0].mend:
        yield (Span("  fix: ", "bold"), Span(findings[0].mend), Span(*code))
    else:
        yield (Span(*code),)


def place_of(finding: Finding) -> str:
    """Return file and line of a finding, and its call."""
    where = f"{finding.file}:{finding.line}" if finding.file and finding.line else finding.file
    call = "/".join(filter(None, (finding.feature, finding.call)))
    return f"{where} ({call})" if where and call else where or call
