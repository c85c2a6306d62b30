"""`mz audit` as text: claims in order, the verdict first, each with the event refs that support it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap

import msgspec
from msgspec.structs import replace
from mz_projections.cost.totals import Totals
from mz_projections.views.model import DONE_STATUSES, ArtifactView, CommitView, RunView
from mz_projections.views.timeline import Line, code_suffix

from mz_cli.audit.query import (
    ArtifactEvidence,
    AuditFeature,
    AuditReport,
    DecisionEvidence,
    GateEvidence,
    ReplyEvidence,
)
from mz_cli.common.run_text import duration_cell, live_status, money_text, run_duration
from mz_cli.terminal.table import SECOND_US, Table, columns
from mz_cli.terminal.text import count_noun, format_elapsed, iso_time, single_line

SHORT = 12
"""Characters of a digest or commit on a terminal; a pipe gets it in full."""
WIDTH_MIN = 20


class Claim(msgspec.Struct, frozen=True):
    """One statement of the audit."""

    section: str
    """`verdict`, `remarks`, `run`, or the id of a feature."""
    subject: str
    """Subject within the section: requested, commit, gate, cost, ..."""
    text: str
    event_refs: tuple[str, ...]


def claims(report: AuditReport, durations: Mapping[str, str], digits: int | None, full: bool) -> Iterator[Claim]:
    """Yield all claims, without the timeline; without `full`, only verdict, remarks and each feature's result.
    `durations`: of features that ended, and of the run; `digits`: length of digests and commits, None for all."""
    yield from _verdict_claims(report, durations.get("", ""), digits)
    for gap in report.gaps:
        about = f"{gap.feature}: " if gap.feature else ""
        allowed = "; approved by a person" if gap.allowed_by else ""
        event_refs = (*gap.event_refs, *filter(None, [gap.allowed_by]))
        yield Claim("remarks", "fault" if gap.fault else "remark", f"{about}{gap.message}{allowed}", event_refs)
    for finding in report.record.findings:
        yield Claim("remarks", "log", f"{finding.message}; {finding.hint}", (finding.event_ref,))
    if not report.gaps and report.record.intact:
        yield Claim("remarks", "-", "no remarks", ())
    for feature in report.features:
        feature_claims = _feature_claims(feature, durations.get(feature.id, ""), digits)
        yield from (claim for claim in feature_claims if full or claim.subject == "result")
    if full:
        for decision in report.decisions:
            yield Claim("run", "person", _decision_text(decision), (decision.event_ref,))
        cost = _cost_text(report.cost, report.wasted, exact=digits is None)
        yield Claim("run", "cost", cost, (report.started_event_ref, report.last_event_ref))


def _verdict_claims(report: AuditReport, duration: str, digits: int | None) -> Iterator[Claim]:
    done = sum(feature.status in DONE_STATUSES for feature in report.features)
    faults = sum(gap.fault for gap in report.gaps) + len(report.record.findings)
    remarks = sum(not gap.fault for gap in report.gaps)
    counts = [f"{done} of {len(report.features)} features delivered"]
    counts += [count_noun(number, noun) for number, noun in ((faults, "fault"), (remarks, "remark")) if number]
    subject = f"feature {report.feature} of run {report.run}" if report.feature else f"run {report.run}"
    yield Claim("verdict", report.verdict, f"{subject}: {', '.join(counts)}", (report.last_event_ref,))
    origin = f"pipeline {report.pipeline} on {report.base} at {report.base_commit[:digits]}, mz {report.mz_version}"
    refs = report.started_event_ref, report.last_event_ref
    yield Claim("verdict", "run", f"{origin}; now {live_status(report.status, report.process_running)}{duration}", refs)
    yield Claim("verdict", "isolation", ", ".join(report.isolation) or "unknown", refs)
    for event_ref, lines in report.setting_changes.items():
        yield from (Claim("verdict", "corrected", line, (event_ref,)) for line in lines)
    record = report.record
    state = "intact" if record.intact else f"damaged, {count_noun(len(record.findings), 'finding')}"
    scope = f"{count_noun(record.events, 'event')} in {count_noun(record.streams, 'stream')}"
    yield Claim("verdict", "log", f"{state}: {scope} and {count_noun(record.blobs, 'blob')} verified", ())
    missing = f"none in git notes; `mz seal {report.run}` writes one, to be kept elsewhere"
    yield Claim("verdict", "seal", record.seals[-1] if record.seals else missing, ())


# a feature ------------------------------------------------------------------------------------------------------------
def _feature_claims(feature: AuditFeature, duration: str, digits: int | None) -> Iterator[Claim]:
    def claim(subject: str, text: str, *event_refs: str | None) -> Claim:
        return Claim(feature.id, subject, text, tuple(filter(None, event_refs)))

    item = feature.requested_item
    if item is not None:
        skipped = f", skipped: already delivered by {item.skipped_for}" if item.skipped_for else ""
        yield claim("requested", f"{item.title} ({item.source or 'no source'}){skipped}", item.event_ref)
    pull_request = f", {feature.pull_request}" if feature.pull_request else ""
    branch = f" on {feature.branch} for {feature.target}" if feature.branch else ""
    delivery = f" at {feature.landed.commit[:digits]}" if feature.landed else ""
    delivery += f", tagged {', '.join(feature.tags)}" if feature.tags else ""
    text = f"{feature.status}{code_suffix(feature.code)}{branch}{delivery}{pull_request}{duration}"
    yield claim("result", text, feature.event_ref)
    if paths := feature.changed_paths:
        yield claim("changed", f"{count_noun(len(paths), 'file')}: {', '.join(paths)}", feature.event_ref)
    for subject, counts in (("tests before", feature.tests_before), ("tests after", feature.tests_after)):
        for tests in counts:
            text = f"{tests.name}: {tests.passed} passed, {tests.failed} failed{_new_text(tests.new_failures)}"
            text += f"; missing: {', '.join(tests.missing)}" if tests.missing else ""
            yield claim(subject, text, tests.event_ref)
    for commit in feature.commits:
        description = f"{commit.commit[:digits]} {_unit_name(commit)}, {commit.purpose}: "
        description += f"{count_noun(commit.files, 'file')}, +{commit.insertions} -{commit.deletions}"
        yield claim("commit", description, commit.event_ref)
    for artifact in feature.artifacts:
        yield claim("artifact", _artifact_text(artifact, digits), artifact.event_ref, artifact.request_event_ref)
    for reply in feature.replies:
        again = f" iteration {reply.iteration}" if reply.iteration > 1 else ""
        who = "" if reply.role == "builder" else f" ({reply.role})"
        verdict = "valid" if reply.valid else f"rejected by {', '.join(reply.rules)}"
        yield claim("rules", f"{_unit_name(reply)}{who}{again} attempt {reply.attempt}: {verdict}", reply.event_ref)
    for gate in feature.gates:
        yield claim("gate", _gate_text(gate, digits), gate.event_ref, gate.command.event_ref if gate.command else None)
    for decision in feature.decisions:
        yield claim("person", _decision_text(decision), decision.event_ref, decision.question)
    if feature.cost.calls:
        yield claim("cost", _cost_text(feature.cost, feature.wasted, exact=digits is None), feature.event_ref)


def _artifact_text(artifact: ArtifactEvidence, digits: int | None) -> str:
    location = artifact.path or ("the reply" if artifact.agent else "the result of a command")
    description = f"{artifact.artifact} (phase {_unit_name(artifact)}): {location}, "
    description += f"sha256 {artifact.digest[:digits]}"
    if artifact.agent is None:
        return description
    amounts = artifact.estimated_nanousd, artifact.reported_nanousd, artifact.computed_nanousd
    cost = money_text(*amounts, exact=digits is None)
    prompt = f", prompt {artifact.prompt_digest[:digits]}" if artifact.prompt_digest else ""
    return f"{description}, by {artifact.agent} {artifact.model}, attempt {artifact.attempt}{prompt}; {cost}"


def _gate_text(gate: GateEvidence, digits: int | None) -> str:
    passed = "passed" if gate.judged_by is None else "met"
    verdict = passed if gate.passed else f"rejected ({', '.join(gate.rules) or 'no rule named'})"
    description = f"{_unit_name(gate)}: {gate.gate} {verdict}"
    if gate.judged_by is not None:
        return f"{description}, judged by {gate.judged_by}"
    if gate.command is None:
        return f"{description} (rule)"
    command = gate.command
    ending = "killed at its time limit" if command.exit is None else f"exit {command.exit}"
    if command.stage == "setup":
        description += f", did not run: the set-up `{command.name}` failed, {ending} in {command.duration_ms} ms"
        return f"{description}, output sha256 {command.output_digest[:digits]}"
    has_counts = (command.passed, command.failed) != (None, None)
    tests = f", {command.passed or 0} passed, {command.failed or 0} failed" if has_counts else ""
    tests += _new_text(command.new_failures)
    location = "a clean checkout"
    location += f" with environment {command.environment[:digits]}" if command.environment else ""
    description += f", {ending}{tests} in {command.duration_ms} ms in {location}"
    return f"{description}, output sha256 {command.output_digest[:digits]}"


def _new_text(new_failures: int | None) -> str:
    return "" if new_failures is None else f", {new_failures or 'none'} of them new"


def _decision_text(decision: DecisionEvidence) -> str:
    about = f" on {decision.question_kind}" if decision.question_kind else ""
    about += code_suffix(decision.code)
    phase = f" in {decision.phase}" if decision.phase else ""
    reason = f": {single_line(decision.reason)}" if decision.reason else ", without a reason"
    action = decision.verdict or decision.kind
    action += f" with commits of people up to {decision.head}" if decision.head else ""
    return f"{decision.actor}: {action}{about}{phase} at {iso_time(decision.recorded_at_us)}{reason}"


def _cost_text(cost: Totals, wasted: Totals, exact: bool) -> str:
    """Return the three amounts, and what was wasted of them."""
    amounts = money_text(cost.estimated_nanousd, cost.reported_nanousd, cost.computed_nanousd, exact)
    text = f"{count_noun(cost.calls, 'call')}: {amounts}"
    if wasted.calls:
        wasted_amounts = money_text(None, wasted.reported_nanousd, wasted.computed_nanousd, exact)
        text += f"; wasted: {count_noun(wasted.calls, 'call')}, {wasted_amounts}"
    return text


def _unit_name(part: CommitView | ArtifactView | ReplyEvidence | GateEvidence) -> str:
    return f"{part.phase}/{part.unit}" if part.unit else part.phase


def durations_of(run: RunView) -> dict[str, str]:
    """Return `, took 3m 12s (plan 40s, code 2m 30s)` of each feature that ended, and `, took 5m 01s` of a finished run
    under the empty name."""
    durations = {"": f", took {elapsed}" if (elapsed := run_duration(run)) else ""}
    for feature in run.features:
        phases = [
            f"{phase.phase} {format_elapsed((phase.ended_us - phase.started_us) / SECOND_US)}"
            for phase in feature.phases
            if phase.ended_us is not None
        ]
        if (elapsed := duration_cell(feature)) != "-":
            durations[feature.feature] = f", took {elapsed}" + (f" ({', '.join(phases)})" if phases else "")
    return durations


# drawn ----------------------------------------------------------------------------------------------------------------
def table(claimed: Iterable[Claim], timeline: Iterable[Line]) -> Table:
    """Return one row per claim and per entry of the timeline, for a pipe."""
    rows = [(claim.section, claim.subject, claim.text, " ".join(claim.event_refs)) for claim in claimed]
    rows += [
        ("timeline", entry.type, f"{iso_time(entry.recorded_at_us)} {entry.text}", entry.event_ref)
        for entry in timeline
    ]
    return Table(columns=columns("section", "subject", "~claim", "~events"), rows=rows)


def render_text(claimed: Iterable[Claim], timeline: Sequence[tuple[str, str]] | None, width: int) -> tuple[str, ...]:
    """Return the lines for a terminal of that width. `timeline`: text and event ref of each entry; None: the claims are
    only verdict, remarks and one line per feature."""
    lines: list[str] = []
    section = ""
    for claim in claimed:
        if timeline is None and claim.subject == "result":
            claim = replace(claim, subject=claim.section, section="features")
        if claim.section != section:
            section = claim.section
            lines += ["", section] if lines else []
        indent = "  " if lines else ""
        lines += _wrapped_claim(indent, f"{claim.subject}: {claim.text}", claim.event_refs, width)
    if timeline is not None:
        lines += ["", "timeline"]
    for text, event_ref in timeline or ():
        lines += _wrapped_claim("  ", text, (event_ref,), width)
    return tuple(lines)


def _wrapped_claim(indent: str, text: str, event_refs: Sequence[str], width: int) -> list[str]:
    """Return the wrapped text with its event refs: on the last line if there is room, else below."""
    room = max(width, WIDTH_MIN)
    lines = wrap(
        single_line(text), room, initial_indent=indent, subsequent_indent=f"{indent}    ", break_on_hyphens=False
    )
    for event_ref in (f"[{event_ref}]" for event_ref in event_refs):
        if len(lines[-1]) + 1 + len(event_ref) <= room:
            lines[-1] += f" {event_ref}"
        else:
            lines.append(f"{indent}    {event_ref}")
    return lines
