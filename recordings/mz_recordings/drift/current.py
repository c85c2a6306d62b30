"""Comparison of one cassette with the current parsers, prices and rules, without a replay or any process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

import msgspec
from mz_engine.agents.registry import all_adapters
from mz_engine.artifacts.parse import parse_artifact
from mz_engine.artifacts.validate import validate
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import PhaseOutput
from mz_engine.ports import ParsedReply, Prices
from mz_events.catalog.validation import Violation

from mz_recordings.cassette.model import Cassette, Identity, RecordedCall, parse_time
from mz_recordings.cassette.trace import (
    REPLY_PARSED,
    EventDifference,
    EventJson,
    call_events,
    complete_event,
    trace_events,
)
from mz_recordings.drift.model import Difference, LeafDifference, call_difference
from mz_recordings.drift.noise import WITHIN_PERCENT_MAX
from mz_recordings.drift.outputs import NANOUSD_PER_USD, parse_recorded, relative_growth
from mz_recordings.findings.model import ACCEPT, PROPOSE_NOISE, RERECORD_ALL, Finding
from mz_recordings.record.recorder import phase_outputs
from mz_recordings.replay.compare import drift_kind, static_findings

PRICE_TOLERANCE = 0.01
"""Relative difference that rounding of agents and price tables explains."""
TREE_RULES = "tree."
"""Prefix of rules about contents that no tree can hold; they do not concern an artifact."""
PARSED_FIELDS = ("ending", "bad_lines", "problem", "usage", "reported_nanousd")


def check_cassette(
    cassette: Cassette, pins: Pins | None, prices: Prices, today: datetime
) -> tuple[tuple[Difference, ...], int]:
    """Return the differences from the current state, and the number of artifacts that the current rules check. Without
    `pins` (the pipeline is invalid) there are none."""
    calls = cassette.by_identity()
    agents = all_adapters(pins.config.agents if pins is not None else {})
    readings = {
        call: reading for call, recorded_call in calls.items() if (reading := parse_recorded(recorded_call, agents))
    }
    rule_differences, count = _check_artifacts(cassette, pins) if pins is not None else ([], 0)
    differences = (
        *(Difference(finding) for finding in static_findings(cassette, today)),
        *_parser_differences(cassette, readings),
        *_price_differences(calls, readings, prices),
        *rule_differences,
    )
    return differences, count


# parsers --------------------------------------------------------------------------------------------------------------
def _parser_differences(cassette: Cassette, readings: Mapping[Identity, ParsedReply]) -> Iterator[Difference]:
    """Yield recorded bytes that the current parser reads differently than the trace says."""
    for call, line in call_events(cassette, REPLY_PARSED):
        reading = readings.get(call)
        if reading is None:
            continue
        old = {"type": line["type"], **{name: line.get(name) for name in PARSED_FIELDS}}
        parsed = {name: getattr(reading, name) for name in PARSED_FIELDS if name != "bad_lines"}
        new = {"type": line["type"], **_as_json({**parsed, "bad_lines": reading.undecodable_lines})}
        old["problem"], new["problem"] = _comparable_problem(old["problem"]), _comparable_problem(new["problem"])
        if old != new:
            difference = EventDifference(0, old, new)
            kind = drift_kind(difference)
            verb = "counts other tokens in" if kind == "COST" else "reads"
            message = f"the current parser {verb} the recorded bytes" + ("" if kind == "COST" else " differently")
            yield call_difference(kind, call, message, "parser", difference.lines(), fix=ACCEPT % kind)


def _as_json(values: Mapping[str, Any]) -> EventJson:
    decoded: EventJson = msgspec.json.decode(msgspec.json.encode(values))
    return decoded


def _comparable_problem(problem: EventJson | None) -> EventJson | None:
    """Return the problem without the agent's own description and without empty fields."""
    if not isinstance(problem, dict):
        return problem
    return {name: value for name, value in problem.items() if name != "detail" and value}


# prices ---------------------------------------------------------------------------------------------------------------
def _price_differences(
    recorded_calls: Mapping[Identity, RecordedCall], readings: Mapping[Identity, ParsedReply], prices: Prices
) -> Iterator[Difference]:
    """Yield the difference between the reported cost and the current price table, for all calls together."""
    reported = computed = calls = 0
    for call, reading in readings.items():
        at = parse_time(recorded_calls[call].recording.recorded_at)
        price = prices.price(reading.usage, int(at.timestamp()) * 1_000_000).nanousd if reading.usage else None
        if price is not None and reading.reported_nanousd is not None:
            calls, reported, computed = calls + 1, reported + reading.reported_nanousd, computed + price
    leaf = LeafDifference("prices", str(reported), str(computed))
    growth = abs(relative_growth(leaf) or Fraction())
    if calls and growth > PRICE_TOLERANCE:
        amounts = [f"${amount / NANOUSD_PER_USD:.6f}" for amount in (reported, computed)]
        message = f"the agent reported {amounts[0]} for {calls} calls, the current price table gives {amounts[1]}"
        detail = (f"- prices: {amounts[0]}", f"+ prices: {amounts[1]}")
        fix = PROPOSE_NOISE if growth * 100 <= WITHIN_PERCENT_MAX else RERECORD_ALL
        yield Difference(Finding(kind="COST", message=message, cause="prices", detail=detail, fix=fix), (leaf,))


# rules ----------------------------------------------------------------------------------------------------------------
def _check_artifacts(cassette: Cassette, pins: Pins) -> tuple[list[Difference], int]:
    """Return differences in what the current rules decide on the recorded artifacts and parse from them, and the number
    of artifacts that they check."""
    parsed = {
        (feature, event.get("digest")): event
        for feature, trace in cassette.traces.items()
        for event in trace_events(trace, "artifact.parsed")
    }
    order, recorded_calls = [phase.phase for phase in pins.pipeline.phases], cassette.by_identity()
    texts: dict[str, dict[tuple[int, str], str]] = {}
    differences, count = list[Difference](), 0
    for call, line in call_events(cassette, "artifact.validated"):
        if call not in recorded_calls or call.phase not in order:
            continue
        position, feature_texts = order.index(call.phase), texts.setdefault(call.feature, {})
        earlier_artifacts = {name: text for (at, name), text in sorted(feature_texts.items()) if at <= position}
        stored = {
            (file.artifact, file.path): (file.sha256, text) for file, text in recorded_calls[call].artifacts().items()
        }
        violations: list[tuple[str, str]] = []
        outputs, phase = tuple(phase_outputs(pins.pipeline.phases[position], call)), pins.pipeline.phases[position]
        used_rules = [pins.rules[rule_set] for _, _, rule_set in outputs if rule_set in pins.rules]
        if any("*" in path for _, path, _ in outputs) or any(rules.depends_on_feature for rules in used_rules):
            continue  # A replay decides: what the rules look at is not stored with the call.
        for artifact, path, rule_set in outputs:
            if rule_set not in pins.rules:
                continue
            rules = pins.rules_of(phase, PhaseOutput(artifact=artifact, rules=rule_set))
            sha256, text = stored.get((artifact, path), (None, None))
            problems = validate(rules, text, path or artifact, pins.config.limits, earlier_artifacts)
            violations += [(problem.violation.rule, problem.violation.path) for problem in problems]
            if text is not None:
                count += 1
                earlier_artifacts[artifact] = feature_texts[position, artifact] = text
                if before := parsed.get((call.feature, sha256)):
                    differences += _parse_difference(call, artifact, before, parse_artifact(rules, text))
        differences += _verdict_difference(call, _recorded_violations(line), violations)
    return differences, count


def _verdict_difference(
    call: Identity, recorded: list[tuple[str, str]], current: list[tuple[str, str]]
) -> Iterator[Difference]:
    if set(recorded) == set(current):
        return
    removed = [f"- {rule} {path}".rstrip() for rule, path in recorded if (rule, path) not in current]
    added = [f"+ {rule} {path}".rstrip() for rule, path in current if (rule, path) not in recorded]
    verdict = f"the current rules {'accept rejected' if recorded else 'reject accepted'} artifacts"
    message = "the current rules report other violations" if recorded and current else verdict
    yield call_difference("DECISION", call, message, "rules", (*removed, *added), fix=ACCEPT % "DECISION")


def _recorded_violations(line: EventJson) -> list[tuple[str, str]]:
    try:
        violations = msgspec.convert(line.get("violations", []), list[Violation])
    except msgspec.ValidationError:
        return []
    return [(violation.rule, violation.path) for violation in violations if not violation.rule.startswith(TREE_RULES)]


def _parse_difference(call: Identity, artifact: str, before: EventJson, parsed: Any) -> Iterator[Difference]:
    current = _as_json({name: getattr(parsed, name) for name in ("units", "files", "fields", "names", "ids", "counts")})
    complete = complete_event(before)
    old = {"type": "artifact.parsed", **{name: complete.get(name, current[name]) for name in current}}
    new = {"type": "artifact.parsed", **current}
    if old != new:
        message = f"the artifact {artifact} is parsed differently now"
        detail = EventDifference(0, old, new).lines()
        yield call_difference("ARTIFACT", call, message, artifact, detail, fix=ACCEPT % "ARTIFACT")
