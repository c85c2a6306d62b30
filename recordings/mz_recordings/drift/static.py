"""Comparison of one cassette with the current parsers, prices and rules, without a replay or any process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec
from mz_engine.agents.registry import adapters
from mz_engine.artifacts.parse import parse
from mz_engine.artifacts.rule import RuleSet
from mz_engine.artifacts.validate import validate
from mz_engine.pins import Pins
from mz_engine.pipelines.definition import Phase
from mz_engine.ports import Prices, Reading
from mz_events.catalog.call import CallRef
from mz_events.catalog.check import Violation

from mz_recordings.cassette import BUILDER, Cassette, Identity, StoredFile, Taken, identity_of, parse_time
from mz_recordings.drift.difference import Atom, Difference
from mz_recordings.drift.noise import WITHIN_MAX
from mz_recordings.drift.outputs import NANOUSD_PER_USD, grown, reading_of
from mz_recordings.findings import Finding, FindingKind
from mz_recordings.mending import ACCEPT, ALL, LEARN
from mz_recordings.playing.compare import by_itself
from mz_recordings.playing.parting import kind_of
from mz_recordings.recording.story import Divergence

Line = dict[str, Any]
PRICE_TOLERANCE = 0.01
"""Relative difference that rounding of agents and price tables explains."""
TREE_RULES = "tree."
"""Prefix of rules about contents that no tree can hold; they do not concern an artifact."""
READ = ("terminal", "bad_lines", "problem", "usage", "reported_nanousd")


def check(cassette: Cassette, pins: Pins | None, prices: Prices, today: datetime) -> Iterator[Difference]:
    """Yield the differences from the current state. Without `pins` (the pipeline is invalid) rules are not checked."""
    yield from (Difference(finding) for finding in by_itself(cassette, today))
    known = {one.recording.identity: one for one in cassette.taken}
    agents = adapters(pins.config.agents if pins is not None else {})
    readings = {call: reading for call, one in known.items() if (reading := reading_of(one, agents))}
    yield from _readings(cassette, readings)
    yield from _prices(known, readings, prices)
    if pins is not None:
        yield from _rules(cassette, pins)


# parsers --------------------------------------------------------------------------------------------------------------
def _readings(cassette: Cassette, readings: Mapping[Identity, Reading]) -> Iterator[Difference]:
    """Yield recorded bytes that the current parser reads differently than the trace says."""
    for call, line in _told(cassette, "reply.read"):
        reading = readings.get(call)
        if reading is None:
            continue
        old = {"type": line["type"], **{name: line.get(name) for name in READ}}
        new = {"type": line["type"], **_read_now(reading)}
        old["problem"], new["problem"] = _known_words(old["problem"]), _known_words(new["problem"])
        if old != new:
            where = Divergence(0, old, new)
            kind = kind_of(where)
            verb = "counts other tokens in" if kind == "COST" else "reads"
            yield _finding(
                kind,
                call,
                f"the current parser {verb} the recorded bytes" + ("" if kind == "COST" else " differently"),
                "parser",
                where.lines(),
            )


def _read_now(reading: Reading) -> Line:
    plain: Line = msgspec.json.decode(msgspec.json.encode({name: getattr(reading, name) for name in READ}))
    return plain


def _known_words(problem: Line | None) -> Line | None:
    """Return the problem without the agent's own description and without empty fields."""
    if not isinstance(problem, dict):
        return problem
    return {name: value for name, value in problem.items() if name != "detail" and value}


def _told(cassette: Cassette, *types: str) -> Iterator[tuple[Identity, Line]]:
    """Yield events of these types that concern a call."""
    for feature, story in cassette.stories.items():
        for raw in story.splitlines():
            line = json.loads(raw)
            if line["type"] in types:
                ref = msgspec.convert(line["ref"], CallRef)
                yield identity_of(cassette.manifest.pipeline, feature, ref), line


# prices ---------------------------------------------------------------------------------------------------------------
def _prices(
    known: Mapping[Identity, Taken], readings: Mapping[Identity, Reading], prices: Prices
) -> Iterator[Difference]:
    """Yield the difference between the reported cost and the current price table, for all calls together."""
    reported = computed = calls = 0
    for call, reading in readings.items():
        at = parse_time(known[call].recording.recorded_at)
        price = prices.price(reading.usage, int(at.timestamp()) * 1_000_000).nanousd if reading.usage else None
        if price is not None and reading.reported_nanousd is not None:
            calls, reported, computed = calls + 1, reported + reading.reported_nanousd, computed + price
    atom = Atom("prices", str(reported), str(computed))
    if calls and abs(grown(atom) or Fraction()) > PRICE_TOLERANCE:
        amounts = [f"${amount / NANOUSD_PER_USD:.6f}" for amount in (reported, computed)]
        what = f"the agent reported {amounts[0]} for {calls} calls, the current price table gives {amounts[1]}"
        detail = (f"- prices: {amounts[0]}", f"+ prices: {amounts[1]}")
        mend = LEARN if abs(grown(atom) or Fraction()) * 100 <= WITHIN_MAX else ALL
        yield Difference(Finding(kind="COST", what=what, cause="prices", detail=detail, mend=mend), (atom,))


# rules ----------------------------------------------------------------------------------------------------------------
class Handed(NamedTuple):
    """An artifact that a call had to produce, with its rules and the artifacts that existed before."""

    artifact: str
    path: str
    rules: RuleSet
    stored: StoredFile | None
    """None: it is missing."""
    text: str | None
    others: Mapping[str, str]


def judged(cassette: Cassette, pins: Pins) -> int:
    """Return the number of recorded artifacts that the current rules check."""
    return sum(one.text is not None for _, _, handed in _handed_over(cassette, pins) for one in handed)


def _rules(cassette: Cassette, pins: Pins) -> Iterator[Difference]:
    """Yield differences in what the current rules decide on the recorded artifacts and parse from them."""
    parsed = {(call.feature, line.get("digest")): line for call, line in _parsed(cassette)}
    for call, line, handed in _handed_over(cassette, pins):
        violations: list[tuple[str, str]] = []
        for one in handed:
            found = validate(one.rules, one.text, one.path or one.artifact, pins.config.limits, one.others)
            violations += [(each.violation.rule, each.violation.path) for each in found]
            if one.text is not None and one.stored is not None:
                before = parsed.get((call.feature, one.stored.sha256))
                yield from _taken_from(call, one.artifact, before, parse(one.rules, one.text))
        yield from _verdict(call, _recorded_violations(line), violations)


def _handed_over(cassette: Cassette, pins: Pins) -> Iterator[tuple[Identity, Line, tuple[Handed, ...]]]:
    """Yield each call with a recorded verdict and a current phase: the call, the verdict's event, its artifacts."""
    order = [phase.phase for phase in pins.pipeline.phases]
    taken = {one.recording.identity: one for one in cassette.taken}
    texts: dict[str, dict[tuple[int, str], str]] = {}
    for call, line in _told(cassette, "artifact.validated"):
        one, phase = taken.get(call), pins.pipeline.find(call.phase) if call.phase in order else None
        if one is None or phase is None:
            continue
        at, known = order.index(call.phase), texts.setdefault(call.feature, {})
        others = {name: text for (place, name), text in sorted(known.items()) if place <= at}
        handed = tuple(_handed(one, phase, pins, others))
        known |= {(at, each.artifact): each.text for each in handed if each.text is not None}
        yield call, line, handed


def _handed(one: Taken, phase: Phase, pins: Pins, others: Mapping[str, str]) -> Iterator[Handed]:
    """Yield the artifacts that a call had to produce and that have rules now."""
    for artifact, path, rules in _outputs(phase, one.recording.identity):
        if rules not in pins.rules:
            continue
        stored = next((file for file in one.recording.files if (file.artifact, file.path) == (artifact, path)), None)
        text = one.contents[stored.name].decode("utf-8", "replace") if stored else None
        yield Handed(artifact, path, pins.rules[rules], stored, text, others)
        others = others if text is None else {**others, artifact: text}


def _verdict(call: Identity, was: list[tuple[str, str]], now: list[tuple[str, str]]) -> Iterator[Difference]:
    if set(was) == set(now):
        return
    gone = [f"- {rule} {path}".rstrip() for rule, path in was if (rule, path) not in now]
    more = [f"+ {rule} {path}".rstrip() for rule, path in now if (rule, path) not in was]
    verdict = (
        "the current rules reject accepted artifacts" if not was else "the current rules accept rejected artifacts"
    )
    what = "the current rules report other violations" if was and now else verdict
    yield _finding("POLICY", call, what, "rules", (*gone, *more))


def _recorded_violations(line: Line) -> list[tuple[str, str]]:
    try:
        found = msgspec.convert(line.get("violations", []), list[Violation])
    except msgspec.ValidationError:
        return []
    return [(one.rule, one.path) for one in found if not one.rule.startswith(TREE_RULES)]


def _parsed(cassette: Cassette) -> Iterator[tuple[Identity, Line]]:
    for feature, story in cassette.stories.items():
        for raw in story.splitlines():
            line = json.loads(raw)
            if line["type"] == "artifact.parsed":
                yield Identity(pipeline="", feature=feature, phase=str(line.get("phase"))), line


def _outputs(phase: Phase, call: Identity) -> Iterator[tuple[str, str, str]]:
    """Yield artifact, path and rules of a role's outputs."""
    if call.role != BUILDER:
        if phase.review is not None:
            yield phase.review.output, "", phase.review.rules
        return
    for output in phase.outputs:
        path = (output.path or "").replace("{feature}", call.feature).replace("{unit}", call.unit)
        yield output.artifact, path, output.rules


def _taken_from(call: Identity, artifact: str, before: Line | None, found: Any) -> Iterator[Difference]:
    if before is None:
        return
    now = msgspec.json.decode(
        msgspec.json.encode({name: getattr(found, name) for name in ("units", "files", "fields")})
    )
    old = {"type": "artifact.parsed", **{name: before.get(name, now[name]) for name in now}}
    new = {"type": "artifact.parsed", **now}
    if old != new:
        what = f"the artifact {artifact} is parsed differently now"
        yield _finding("ARTIFACT", call, what, artifact, Divergence(0, old, new).lines())


def _finding(kind: FindingKind, call: Identity, what: str, cause: str, detail: tuple[str, ...]) -> Difference:
    return Difference(
        Finding(
            kind=kind, what=what, feature=call.feature, call=call.name, cause=cause, detail=detail, mend=ACCEPT % kind
        )
    )
