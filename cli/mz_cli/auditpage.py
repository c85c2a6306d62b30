"""`mz audit` as text: claims in order, the verdict first, each with the event refs that support it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

import msgspec

from mz_cli.render.table import Table, columns
from mz_cli.render.text import line
from mz_cli.shapes.audit import (
    AuditFeature,
    AuditReport,
    CountedTests,
    DecisionShape,
    GapShape,
    GateShape,
    MadeShape,
    ReplyShape,
)
from mz_cli.shapes.cost import Amounts
from mz_cli.summary import money_words

SHORT = 12
"""Characters of a digest or commit on a terminal; a pipe gets it in full."""
WIDTH_MIN = 20
DONE = ("delivered", "merged", "tagged", "skipped")
NOTHING_MISSING = "no remarks"


class Claim(msgspec.Struct, frozen=True):
    """One statement of the audit."""

    section: str
    """`verdict`, `remarks`, `run`, or the id of a feature."""
    subject: str
    """Subject within the section: requested, commit, gate, cost, ..."""
    text: str
    places: tuple[str, ...]


def claims(report: AuditReport, digits: int | None = None) -> Iterator[Claim]:
    """Yield all claims, without the timeline. `digits`: length of digests and commits; None: full."""
    yield from _verdict(report, digits)
    for gap in report.gaps:
        yield _gap(gap)
    for finding in report.record.findings:
        yield Claim("remarks", "log", f"{finding.what}; {finding.hint}", (finding.place,))
    if not report.gaps and report.record.whole:
        yield Claim("remarks", "-", NOTHING_MISSING, ())
    for feature in report.features:
        yield from _feature(feature, digits)
    for decision in report.decisions:
        yield Claim("run", "person", _decision(decision), (decision.place,))
    money = cost_words(report.cost, report.thrown_away, whole=digits is None)
    yield Claim("run", "cost", money, (report.begun, report.settled))


def _verdict(report: AuditReport, digits: int | None) -> Iterator[Claim]:
    done = sum(feature.status in DONE for feature in report.features)
    faults = sum(gap.fault for gap in report.gaps) + len(report.record.findings)
    remarks = sum(not gap.fault for gap in report.gaps)
    said = [
        f"{done} of {len(report.features)} features delivered",
        *([_several(faults, "fault")] if faults else []),
        *([_several(remarks, "remark")] if remarks else []),
    ]
    about = f"feature {report.feature} of run {report.run}" if report.feature else f"run {report.run}"
    yield Claim("verdict", report.verdict, f"{about}: {', '.join(said)}", (report.settled,))
    how = f"pipeline {report.pipeline} on {report.base} at {report.base_commit[:digits]}, mz {report.mz}"
    yield Claim("verdict", "run", f"{how}; now {report.status}", (report.begun, report.settled))
    record = report.record
    state = "intact" if record.whole else f"damaged, {_several(len(record.findings), 'finding')}"
    where = f"{_several(record.events, 'event')} in {_several(record.streams, 'stream')}"
    yield Claim("verdict", "log", f"{state}: {where} and {_several(record.blobs, 'blob')} verified", ())


def _gap(gap: GapShape) -> Claim:
    about = f"{gap.feature}: " if gap.feature else ""
    allowed = "; approved by a person" if gap.allowed else ""
    places = (*gap.places, *([gap.allowed] if gap.allowed else []))
    return Claim("remarks", "fault" if gap.fault else "remark", f"{about}{gap.what}{allowed}", places)


# a feature ------------------------------------------------------------------------------------------------------------
def _feature(feature: AuditFeature, digits: int | None) -> Iterator[Claim]:
    def claim(subject: str, text: str, *event_refs: str | None) -> Claim:
        return Claim(feature.id, subject, text, tuple(event_ref for event_ref in event_refs if event_ref))

    asked = feature.asked
    if asked is not None:
        skipped = f", skipped: already delivered by {asked.skipped}" if asked.skipped else ""
        yield claim("requested", f"{asked.title} ({asked.source or 'no source'}){skipped}", asked.place)
    code = f" ({feature.code})" if feature.code else ""
    pull = f", {feature.pull_request}" if feature.pull_request else ""
    branch = f" on {feature.branch} for {feature.target}" if feature.branch else ""
    yield claim("result", f"{feature.status}{code}{branch}{pull}", feature.place)
    if feature.files:
        yield claim("changed", f"{_several(len(feature.files), 'file')}: {', '.join(feature.files)}", feature.place)
    for tests in feature.tests_before:
        yield claim("tests before", _tests(tests), tests.place)
    for tests in feature.tests_after:
        yield claim("tests after", _tests(tests), tests.place)
    for commit in feature.commits:
        what = f"{commit.commit[:digits]} {_cell(commit.phase, commit.unit)}, {commit.purpose}: "
        what += f"{_several(commit.files, 'file')}, +{commit.insertions} -{commit.deletions}"
        yield claim("commit", what, commit.place)
    for made in feature.artifacts:
        yield claim("artifact", _made(made, digits), made.place, made.asked)
    for reply in feature.replies:
        yield claim("rules", _reply(reply), reply.place)
    for gate in feature.gates:
        yield claim("gate", _gate(gate, digits), gate.place, gate.command.place if gate.command else None)
    for decision in feature.decisions:
        yield claim("person", _decision(decision), decision.place, decision.question)
    if feature.cost.calls:
        yield claim("cost", cost_words(feature.cost, feature.thrown_away, whole=digits is None), feature.place)


def _tests(tests: CountedTests) -> str:
    return f"{tests.name}: {tests.passed} passed, {tests.failed} failed"


def _made(made: MadeShape, digits: int | None) -> str:
    what = f"{made.artifact} (phase {_cell(made.phase, made.unit)}): {made.path or 'the reply'}, "
    what += f"sha256 {made.digest[:digits]}"
    if made.agent is None:
        return what
    cost = money_words(made.estimated_usd, made.reported_usd, made.computed_usd, whole=digits is None)
    prompt = f", prompt {made.prompt_digest[:digits]}" if made.prompt_digest else ""
    return f"{what}, by {made.agent} {made.model}, attempt {made.attempt}{prompt}; {cost}"


def _reply(reply: ReplyShape) -> str:
    again = f" iteration {reply.iteration}" if reply.iteration > 1 else ""
    who = "" if reply.role == "builder" else f" ({reply.role})"
    verdict = "valid" if reply.valid else f"rejected by {', '.join(reply.rules)}"
    return f"{_cell(reply.phase, reply.unit)}{who}{again} attempt {reply.attempt}: {verdict}"


def _gate(gate: GateShape, digits: int | None) -> str:
    if gate.command is None and gate.passed:
        return f"{_cell(gate.phase, gate.unit)}: {gate.gate} passed (rule)"
    verdict = "passed" if gate.passed else f"rejected ({', '.join(gate.rules) or 'no rule named'})"
    what = f"{_cell(gate.phase, gate.unit)}: {gate.gate} {verdict}"
    if gate.command is None:
        return f"{what} (rule)"
    ran = gate.command
    ending = "killed at its time limit" if ran.exit is None else f"exit {ran.exit}"
    counted = (ran.passed, ran.failed) != (None, None)
    tests = f", {ran.passed or 0} passed, {ran.failed or 0} failed" if counted else ""
    return f"{what}, {ending}{tests} in {ran.duration_ms} ms, output sha256 {ran.output_digest[:digits]}"


def _decision(decision: DecisionShape) -> str:
    about = f" on {decision.ask}" if decision.ask else ""
    about += f" ({decision.code})" if decision.code else ""
    phase = f" in {decision.phase}" if decision.phase else ""
    why = f": {line(decision.why)}" if decision.why else ", without a reason"
    return f"{decision.who}: {decision.verdict or decision.kind}{about}{phase} at {decision.at}{why}"


def cost_words(cost: Amounts, thrown_away: Amounts, whole: bool) -> str:
    """Return the three amounts, and what was wasted of them."""
    amounts = money_words(cost.estimated_usd, cost.reported_usd, cost.computed_usd, whole)
    said = f"{_several(cost.calls, 'call')}: {amounts}"
    if thrown_away.calls:
        waste = money_words(None, thrown_away.reported_usd, thrown_away.computed_usd, whole)
        said += f"; wasted: {_several(thrown_away.calls, 'call')}, {waste}"
    return said


def _cell(phase: str, unit: str | None) -> str:
    return f"{phase}/{unit}" if unit else phase


def _several(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# drawn ----------------------------------------------------------------------------------------------------------------
def table(report: AuditReport) -> Table:
    """Return one row per claim, then the timeline, for a pipe."""
    rows = [(each.section, each.subject, each.text, " ".join(each.places)) for each in claims(report)]
    rows += [("timeline", entry.type, f"{entry.at} {entry.text}", entry.place) for entry in report.timeline]
    return Table(columns=columns("section", "subject", "claim", "events"), rows=tuple(rows), empty="")


def page(report: AuditReport, shown: Sequence[tuple[str, str]], width: int) -> tuple[str, ...]:
    """Return the lines for a terminal of that width. `timeline`: text and event ref of each entry."""
    lines: list[str] = []
    section = ""
    for claim in claims(report, SHORT):
        if claim.section != section:
            section = claim.section
            lines += ["", section] if lines else []
        indent = "  " if lines else ""
        lines += _laid_out(indent, f"{claim.subject}: {claim.text}", claim.places, width)
    lines += ["", "timeline"]
    for text, place in shown:
        lines += _laid_out("  ", text, (place,), width)
    return tuple(lines)


def _laid_out(indent: str, text: str, places: Sequence[str], width: int) -> list[str]:
    """Return the wrapped text with its event refs: on the last line if there is room, else below."""
    room = max(width, WIDTH_MIN)
    lines = wrap(line(text), room, initial_indent=indent, subsequent_indent=f"{indent}    ", break_on_hyphens=False)
    for place in (f"[{place}]" for place in places):
        if len(lines[-1]) + 1 + len(place) <= room:
            lines[-1] += f" {place}"
        else:
            lines.append(f"{indent}    {place}")
    return lines
