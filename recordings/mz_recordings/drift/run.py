"""Drift check: the cassettes of a library against the current project, or two cassettes against each other, without
known noise. The current parsers, prices and rules are compared without a replay or any process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace
from mz_engine.agents.registry import all_adapters
from mz_engine.artifacts.parse import parse_artifact
from mz_engine.artifacts.validate import validate
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import PhaseOutput
from mz_engine.ports import ParsedReply, Prices
from mz_engine.pricing.table import GenaiPrices
from mz_events.catalog.validation import Violation
from mz_projections.feature.unit import BLOCK

from mz_recordings.cassette.files import CassetteUnreadable, load
from mz_recordings.cassette.model import Cassette, Identity, RecordedCall, parse_time
from mz_recordings.cassette.repository import FixtureUnavailable
from mz_recordings.cassette.trace import (
    REPLY_PARSED,
    EventDifference,
    EventJson,
    call_events,
    call_of_event,
    complete_event,
    trace_events,
)
from mz_recordings.drift.compare import differences
from mz_recordings.drift.model import AgentDescriptions, Difference, LeafDifference, call_difference
from mz_recordings.drift.noise import (
    FILE_NAME,
    REJECTION_REASONS,
    WITHIN_PERCENT_MAX,
    NoiseEntry,
    NoiseRejection,
    add_noise,
    hide_noise,
    may_match,
    propose_noise,
    read_noise,
    rejection_of,
)
from mz_recordings.drift.outputs import NANOUSD_PER_USD, parse_recorded, relative_growth
from mz_recordings.drift.stream_baselines import FOLDER, Baselines, built_in_folder, check_streams, load_baselines
from mz_recordings.findings.model import ACCEPT, PROPOSE_NOISE, RERECORD_ALL, Finding, ReplayResult
from mz_recordings.record.recorder import phase_outputs
from mz_recordings.replay.compare import describe_cassette, drift_kind, static_findings
from mz_recordings.replay.project import current_project
from mz_recordings.replay.replay import ReplayJob, replay_all, replay_error_finding, with_locations

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
    blocks = {
        call_of_event(event, cassette.manifest.pipeline, feature)
        for feature, trace in cassette.traces.items()
        for before, event in pairwise(trace_events(trace, "artifact.parsed", "artifact.validated"))
        if before.get("artifact") == BLOCK
    }
    texts: dict[str, dict[tuple[int, str], str]] = {}
    differences, count = list[Difference](), 0
    for call, line in call_events(cassette, "artifact.validated"):
        if call not in recorded_calls or call.phase not in order or call in blocks:
            continue  # Where an agent raised a block, nobody looked at its outputs.
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


OUTDATED_REJECTIONS = ("EXPIRED", "UNUSED_ENTRY")
"""Rejections of entries that were valid once: findings; all others are errors of the file."""


class LibraryKnowledge(msgspec.Struct, frozen=True, kw_only=True):
    """Noise and baselines of a library, and the agents of its project."""

    library: Path
    noise: tuple[NoiseEntry, ...]
    baselines: Baselines
    today: date
    agent_descriptions: AgentDescriptions


class LibraryDefect(NamedTuple):
    """A file that cannot be used, or a rejected entry."""

    code: Literal["MZ6020", "MZ6021"]
    """MZ6020: noise; MZ6021: baselines."""
    message: str
    rejection: str = ""
    """Name of the rejection; empty: the file that `message` names cannot be read."""


def read_library(
    library: Path, agent_descriptions: AgentDescriptions, today: date, baseline_folder: Path | None = None
) -> tuple[LibraryKnowledge, tuple[LibraryDefect, ...]]:
    """Read noise and baselines. One rejected entry disables all noise; one unreadable baseline all of the project's.

    `baseline_folder`: folder of the project's baselines, if it is not in the library.
    """
    defects, noise = list[LibraryDefect](), tuple[NoiseEntry, ...]()
    try:
        noise = read_noise(library)
    except CassetteUnreadable as error:
        defects.append(LibraryDefect("MZ6020", str(error)))
    for number, entry in enumerate(noise, start=1):
        if (name := rejection_of(entry, today)) and name not in OUTDATED_REJECTIONS:
            message = f"entry {number} ({entry.kind} {entry.path}) is rejected: {name}: {REJECTION_REASONS[name]}"
            defects.append(LibraryDefect("MZ6020", message, name))
    noise = () if defects else noise
    try:
        baselines = load_baselines((built_in_folder(), baseline_folder or library / FOLDER))
    except CassetteUnreadable as error:
        defects.append(LibraryDefect("MZ6021", str(error)))
        baselines = load_baselines((built_in_folder(),))
    knowledge = LibraryKnowledge(
        library=library, noise=noise, baselines=baselines, today=today, agent_descriptions=agent_descriptions
    )
    return knowledge, tuple(defects)


class LibraryDrift(msgspec.Struct, frozen=True, kw_only=True):
    """Findings without noise, and the noise."""

    results: tuple[ReplayResult, ...]
    matched_entries: tuple[tuple[NoiseEntry, int], ...] = ()
    """Entries that hid something, each with the number of differences."""
    hidden_count: int = 0
    """Number of hidden differences."""
    proposed: tuple[NoiseEntry, ...] = ()
    rejections: tuple[NoiseRejection, ...] = ()


# current project ------------------------------------------------------------------------------------------------------
def check_current(
    jobs: tuple[ReplayJob, ...],
    knowledge: LibraryKnowledge,
    *,
    static: bool,
    is_whole_library: bool,
    workers: int,
    report: Callable[[ReplayResult], None],
    reason: str = "",
) -> LibraryDrift:
    """Compare each cassette with the current parsers, prices, rules and baselines, and unless `static` replay it.

    `is_whole_library`: these are all its cassettes. With a `reason`, differences that can be noise are added to the
    library's file.
    """
    replay_results = (None,) * len(jobs) if static else replay_all(jobs, workers, report)
    checked, cassettes, command_id = [], list[Cassette](), token_hex(8)
    for job, replayed in zip(jobs, replay_results, strict=True):
        cassette, result, static_differences = _check_cassette(job, replayed, knowledge, command_id)
        cassettes += [cassette] if cassette else []
        checked.append(((cassette.manifest.name if cassette else "",), result, static_differences))
    drifted = _apply_noise(checked, knowledge, reason)
    results = (with_locations(result, Path(jobs[0].project)) for result in drifted.results)
    outdated = _outdated_entries(knowledge, cassettes, is_whole_library and len(cassettes) == len(jobs))
    return replace(drifted, results=(*results, *outdated))


def _check_cassette(
    job: ReplayJob, replayed: ReplayResult | None, knowledge: LibraryKnowledge, command_id: str
) -> tuple[Cassette | None, ReplayResult, tuple[Difference, ...]]:
    """Return the cassette if it is readable, the result of its replay, and the differences found without a replay."""
    path = Path(job.path)
    result = replayed or ReplayResult(path=job.path, name=path.name)
    try:
        cassette = load(path)
    except CassetteUnreadable as error:
        return None, result if replayed else replace(result, findings=(replay_error_finding(error),)), ()
    manifest = cassette.manifest
    calls = tuple(call.recording.identity.path for call in cassette.calls)
    result = replace(describe_cassette(result, cassette), calls=calls)
    pins: Pins | None = None
    try:
        pins = current_project(Path(job.project), job.environment, manifest, 1, command_id).pins
    except (FixtureUnavailable, MzError) as error:
        result = result if replayed else replace(result, findings=(replay_error_finding(error),))
    if manifest.provenance == "copied":
        static_differences = tuple(Difference(finding) for finding in static_findings(cassette, job.today))
    else:
        prices = GenaiPrices(pins.config.prices if pins is not None else ())
        static_differences, artifacts = check_cassette(cassette, pins, prices, job.today)
        streams = check_streams(cassette, knowledge.baselines, knowledge.agent_descriptions)
        static_differences = (*static_differences, *streams)
        result = replace(result, artifacts_checked=artifacts)
    unreported = (entry for entry in static_differences if not _is_reported(entry.finding, result.findings))
    return cassette, result, tuple(unreported)


def _is_reported(finding: Finding, reported: tuple[Finding, ...]) -> bool:
    return any(
        other.kind == finding.kind
        and (other.message == finding.message or (finding.feature and other.feature == finding.feature))
        for other in reported
    )


# two cassettes --------------------------------------------------------------------------------------------------------
def compare_two(old: Path, new: Path, knowledge: LibraryKnowledge, reason: str = "") -> LibraryDrift:
    """Compare two recordings of the same calls. Copied replies are rejected."""
    try:
        old_cassette, new_cassette = load(old), load(new)
    except CassetteUnreadable as error:
        return LibraryDrift(
            results=(ReplayResult(path=str(error.path), name=old.name, findings=(replay_error_finding(error),)),)
        )
    names = (old_cassette.manifest.name, new_cassette.manifest.name)
    result = ReplayResult(
        path=str(old), name=names[0], provenance=new_cassette.manifest.provenance, recordings=len(new_cassette.calls)
    )
    cassettes = [old_cassette, new_cassette]
    copied = [cassette.manifest.name for cassette in cassettes if cassette.manifest.provenance == "copied"]
    if copied:
        message = (
            f"the replies of {', '.join(dict.fromkeys(copied))} were copied from another agent: nothing can be compared"
        )
        finding = Finding(kind="COPIED", message=message, fix=RERECORD_ALL)
        return LibraryDrift(results=(replace(result, findings=(finding,)),))
    cassette_differences = differences(old_cassette, new_cassette, knowledge.agent_descriptions)
    drifted = _apply_noise([(names, result, cassette_differences)], knowledge, reason)
    return replace(drifted, results=(*drifted.results, *_outdated_entries(knowledge, cassettes, False)))


# noise ----------------------------------------------------------------------------------------------------------------
def _apply_noise(
    checked: Sequence[tuple[tuple[str, ...], ReplayResult, tuple[Difference, ...]]],
    knowledge: LibraryKnowledge,
    reason: str,
) -> LibraryDrift:
    """Hide known noise and, with a reason, propose more of it. `checked` begins with the names of the cassettes."""
    entries, proposed, rejections = knowledge.noise, list[NoiseEntry](), list[NoiseRejection]()
    if reason:
        for names, _, differences in checked:
            remaining = hide_noise(differences, entries, names).remaining
            new_entries, new_rejections = propose_noise(remaining, names[0], reason, knowledge.today)
            proposed += new_entries
            rejections += new_rejections
        if proposed:
            add_noise(knowledge.library, tuple(proposed))
        entries = (*entries, *proposed)
    matches = [(result, hide_noise(differences, entries, names)) for names, result, differences in checked]
    match_counts = sum((match.matched_entries for _, match in matches), Counter[NoiseEntry]())
    return LibraryDrift(
        results=tuple(
            replace(result, findings=(*result.findings, *(difference.finding for difference in match.remaining)))
            for result, match in matches
        ),
        matched_entries=tuple(match_counts.items()),
        hidden_count=sum(match.hidden_count for _, match in matches),
        proposed=tuple(proposed),
        rejections=tuple(rejections),
    )


def _outdated_entries(
    knowledge: LibraryKnowledge, cassettes: list[Cassette], is_whole_library: bool
) -> Iterator[ReplayResult]:
    """Yield findings for noise entries that have expired or match nothing. An entry for all cassettes is only reported
    as unmatched if the `is_whole_library` library was read."""
    path, findings = str(knowledge.library / FILE_NAME), list[Finding]()
    names = {cassette.manifest.name for cassette in cassettes}
    for number, entry in enumerate(knowledge.noise, start=1):
        entry_label, fix = f"entry {number} ({entry.kind} {entry.path})", f"remove entry {number} from {{cassette}}"
        if rejection_of(entry, knowledge.today) == "EXPIRED":
            message = f"EXPIRED: {entry_label} was valid until {entry.until}"
            findings.append(Finding(kind="EXPIRED", message=message, cause="EXPIRED", fix=f"{fix}, or change its date"))
        elif (is_whole_library or entry.cassette in names) and not any(may_match(entry, item) for item in cassettes):
            message = f"UNUSED_ENTRY: {entry_label} matches nothing any more"
            findings.append(Finding(kind="UNUSED", message=message, cause="UNUSED_ENTRY", fix=fix))
    if findings:
        yield ReplayResult(path=path, name=FILE_NAME, findings=tuple(findings))
