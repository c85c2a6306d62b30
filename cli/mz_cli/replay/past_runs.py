"""`mz replay --run` and `--recheck-rules`: replay past runs through the current code, or recheck their artifacts
with the current rules."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from mz_engine.agents.registry import all_adapters
from mz_engine.errors.diagnostics import Exit, MzError, most_severe
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.model.pipeline import Pipeline
from mz_engine.pipelines.load import load_pipeline, load_valid_pipeline_files
from mz_engine.ports import RepositoryUnusable, Workspace
from mz_engine.pricing.table import price_table
from mz_engine.run.settings import load_config
from mz_recordings.findings.model import KIND_PROPERTIES, Finding, Risk
from mz_recordings.past_runs.model import (
    INTENDED_CHANGES,
    Divergence,
    RunReplay,
    StreamReplay,
    findings_of,
    group_by_cause,
)
from mz_recordings.past_runs.ports import ReplayInputs
from mz_recordings.past_runs.recheck import Recheck, RecheckRules, RuleChange, recheck_run
from mz_recordings.past_runs.replay import PinsUnreadable, load_pins, replay_run, run_started
from mz_recordings.record.learnings import known_hint

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.common.feature_query import ViolationShape
from mz_cli.replay.command import clamp_exit
from mz_cli.reports.findings import Suite, finding_lines
from mz_cli.reports.options import ReportOptions
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.table import write_output
from mz_cli.terminal.text import Line, Span, count_noun

PINS_UNREADABLE_HINT = "use the version of mz that started it, or replay another run: mz runs"


class DivergenceShape(Divergence, frozen=True, kw_only=True):
    """Divergence of one event."""

    risk: Risk


class CauseShape(Shape, frozen=True, kw_only=True):
    """Divergences with the same cause."""

    kind: str
    recorded: str | None
    produced: str | None
    fields: tuple[str, ...]
    event_refs: tuple[str, ...]


class UncheckedPart(Shape, frozen=True, kw_only=True):
    """Something that was read from the log instead of being recomputed, or could not be checked."""

    subject: str
    count: int


class ComparedStream(Shape, frozen=True, kw_only=True):
    stream: str
    events: int
    compared: int
    """Number of intents and derived events compared with the current code."""
    first: str | None
    """First diverging event; null: none."""
    divergences: int
    not_compared: int
    """Number of events after a divergence, or after missing data, that cannot be compared."""
    missing_data: str | None
    """Recorded data that is gone, and the event from which the stream is not comparable; null: it is comparable."""


class PastRun(Shape, frozen=True, kw_only=True):
    exit: int
    run: str
    mz_version: str
    """Version of mz that started the run."""
    streams: tuple[ComparedStream, ...]
    divergences: tuple[DivergenceShape, ...]
    causes: tuple[CauseShape, ...]
    explained: tuple[DivergenceShape, ...]
    unchecked: tuple[UncheckedPart, ...]


class RuleChangeShape(Shape, frozen=True, kw_only=True):
    """An artifact on which the current rules reach another verdict."""

    run: str
    feature: str
    event_ref: str
    """`stream@version` of the recorded verdict."""
    phase: str
    artifact: str
    path: str | None
    """Null: the artifact is the agent's reply."""
    rule_set: str
    """Name of the current rule set."""
    was: str
    """valid or invalid."""
    now: str
    violations: tuple[ViolationShape, ...]
    """Rules broken now; for an artifact that is valid now, those broken then."""


class RecheckResult(Shape, frozen=True, kw_only=True):
    exit: int
    runs: tuple[str, ...]
    artifacts: int
    """Number of artifacts rechecked, including rejected attempts."""
    differing: tuple[RuleChangeShape, ...]
    unchecked: tuple[UncheckedPart, ...]


# the current code -----------------------------------------------------------------------------------------------------
def replay_past_run(selector: str | None, bisect: bool, as_json: bool, reports: ReportOptions) -> int:
    """Replay a past run through the current code; return the exit code, with `bisect` that for git. Raises MzError
    (MZ5001, MZ6001, MZ6010)."""
    with open_log() as log:
        history = load_history(log, log.find_run(selector))
    exit_code = clamp_exit(history_exit(history, bisect)) if bisect else history_exit(history)
    facts = tuple((f"events of {stream.stream}", str(stream.events)) for stream in history.streams)
    suite = Suite(name=f"run {history.run}", findings=findings_of(history), properties=facts)
    with reports.text_stream() as stream:
        write_output(stream, as_json, "replay-run", past_run(history, exit_code), render_text(history))
    reports.write("mz replay --run", (suite,), exit_code)
    return int(exit_code)


def load_history(log: ProjectLog, run: str) -> RunReplay:
    """Replay the run. Raises MzError: MZ6001 if there is nothing to compare, MZ6010 if the pins cannot be read."""
    with _reject_unreadable_pins():
        config = load_pins(log.blobs, run_started(log.store, run)).config
        ports = ReplayInputs(
            blobs=log.blobs, trees=_captured_trees(log.root), adapters=all_adapters(config.agents),
            prices=price_table(config, os.environ), hints=partial(known_hint, log.store, log.blobs),
        )  # fmt: skip
        history = replay_run(log.store, run, ports)
    if not any(stream.compared or stream.divergences or stream.missing_data for stream in history.streams):
        raise MzError("MZ6001", f"run {run} has no decisions to replay yet", hint="`mz runs` lists the runs")
    return history


def _captured_trees(root: Path) -> Workspace | None:
    """Return the captured trees; None without a usable git, and then the trees count as missing."""
    try:
        return GitWorkspace(root, WorkspaceSettings())
    except RepositoryUnusable:
        return None


@contextmanager
def _reject_unreadable_pins() -> Iterator[None]:
    try:
        yield
    except PinsUnreadable as error:
        raise MzError("MZ6010", str(error), hint=PINS_UNREADABLE_HINT) from error


def history_exit(history: RunReplay, bisect: bool = False) -> Exit:
    """Return the exit code; a crash of the current code is a bug, and no verdict on its decisions."""
    if any(divergence.kind == "failure" for divergence in history.divergences):
        return Exit.BUG
    return most_severe((KIND_PROPERTIES[finding.kind].exit for finding in findings_of(history)), bisect)


def render_text(history: RunReplay) -> Iterator[Line]:
    """Yield all divergences by cause and what could not be compared, then the summary."""
    for finding in findings_of(history):
        yield from finding_lines(finding)
        yield ()
    for stream in history.streams:
        if stream.not_compared and stream.missing_data is None:
            yield (Span(f"{stream.stream}: {stream.not_compared} later events are not comparable", "dim"),)
    reasons = {change.id: change.reason for change in INTENDED_CHANGES}
    for name, number in Counter(divergence.intended_change for divergence in history.explained).items():
        yield (Span(f"explained by {name} ({number}): {reasons.get(name, '')}".removesuffix(": "), "dim"),)
    yield from _unchecked_lines(history.streams, "taken from the log, not computed again")
    yield (Span(summary(history)),)


def summary(history: RunReplay) -> str:
    """Return in one line what was replayed, and the verdict."""
    events = sum(stream.events for stream in history.streams)
    compared = sum(stream.compared for stream in history.streams)
    number, causes = len(history.divergences), len(group_by_cause(history.divergences))
    verdict = "matches the log"
    if number:
        verdict = f"differs from the log: {count_noun(number, 'divergence')} of {count_noun(causes, 'cause')}"
    elif incomparable := sum(stream.missing_data is not None for stream in history.streams):
        verdict = f"{count_noun(incomparable, 'stream')} not comparable"
    streams = count_noun(len(history.streams), "stream")
    return f"run {history.run} (mz {history.mz_version}): {events} events in {streams}, {compared} compared: {verdict}"


def past_run(history: RunReplay, exit_code: Exit) -> PastRun:
    streams = []
    for stream in history.streams:
        unexplained = [divergence.event_ref for divergence in stream.divergences if not divergence.intended_change]
        first = unexplained[0] if unexplained else None
        streams.append(shape_of(ComparedStream, stream, first=first, divergences=len(unexplained)))
    causes = [
        shape_of(CauseShape, group[0], event_refs=tuple(divergence.event_ref for divergence in group))
        for group in group_by_cause(history.divergences)
    ]
    return shape_of(
        PastRun,
        history,
        exit=int(exit_code),
        streams=tuple(streams),
        divergences=tuple(map(_divergence_shape, history.divergences)),
        causes=tuple(causes),
        explained=tuple(map(_divergence_shape, history.explained)),
        unchecked=unchecked_parts(history.streams),
    )


def _divergence_shape(divergence: Divergence) -> DivergenceShape:
    return shape_of(DivergenceShape, divergence, risk=KIND_PROPERTIES[divergence.finding].risk)


def unchecked_parts(parts: Iterable[StreamReplay | Recheck]) -> tuple[UncheckedPart, ...]:
    """Add up by kind what was not computed again."""
    counts = sum((Counter(part.not_recomputed) for part in parts), Counter[str]())
    return tuple(UncheckedPart(subject=kind, count=count) for kind, count in counts.items())


def _unchecked_lines(parts: Iterable[StreamReplay | Recheck], label: str) -> Iterator[Line]:
    yield from ((Span(f"{label}: {part.subject} ({part.count})", "dim"),) for part in unchecked_parts(parts))


# the current rules ----------------------------------------------------------------------------------------------------
def recheck_past_runs(selector: str | None, as_json: bool, reports: ReportOptions) -> int:
    """Recheck the artifacts of a run, or of all runs, with the current rules; return the exit code. Raises MzError
    (MZ5001, MZ6001, MZ6010, and those of the project's files)."""
    with open_log() as log, _reject_unreadable_pins():
        runs = (log.find_run(selector),) if selector is not None else tuple(reversed(log.runs()))
        # The project's rules, else those of mz.
        names = {load_pins(log.blobs, run_started(log.store, run)).pipeline.pipeline for run in runs}
        current = {name: _current_pipeline(name, log.root) for name in sorted(names)}
        rules = RecheckRules(
            rule_sets=load_valid_pipeline_files(log.root).rules,
            limits=load_config(log.root, os.environ, {}).config.limits,
            pipelines={name: pipeline for name, pipeline in current.items() if pipeline is not None},
        )
        rechecked = tuple(recheck_run(log.store, log.blobs, run, rules) for run in runs)
    if not any(run.artifacts for run in rechecked):
        raise MzError("MZ6001", "no artifact was produced that could be rechecked", hint="`mz runs` lists the runs")
    exit_code = Exit.DRIFT if any(run.rule_changes for run in rechecked) else Exit.OK
    result = RecheckResult(
        exit=int(exit_code),
        runs=tuple(run.run for run in rechecked),
        artifacts=sum(run.artifacts for run in rechecked),
        differing=tuple(_rule_change_shape(change) for run in rechecked for change in run.rule_changes),
        unchecked=unchecked_parts(rechecked),
    )
    with reports.text_stream() as stream:
        write_output(stream, as_json, "replay-recheck", result, recheck_text(rechecked))
    suites = tuple(Suite(name=f"run {run.run}", findings=recheck_findings(run)) for run in rechecked)
    reports.write("mz replay --recheck-rules", suites, exit_code)
    return int(exit_code)


def _current_pipeline(name: str, root: Path) -> Pipeline | None:
    try:
        return load_pipeline(name, root)[0]
    except MzError as error:
        if error.code != "MZ3001":
            raise
        return None


def recheck_findings(rechecked: Recheck) -> tuple[Finding, ...]:
    """Return one finding for each changed verdict."""
    return tuple(
        Finding(
            kind="DECISION",
            message=f"{change.event_ref}: {change.path or change.artifact} "
            f"{'now fails' if change.now_fails else 'now passes'} ({change.rule_set})",
            feature=change.feature,
            cause=change.rule_set,
            detail=tuple(
                f"{'+' if change.now_fails else '-'} {message or f'{violation.path} [{violation.rule}]'}"
                for violation, message in ((broken.violation, broken.message) for broken in change.violations)
            ),
            fix="revert the rules, or fix what they find",
        )
        for change in rechecked.rule_changes
    )


def recheck_text(rechecked: Sequence[Recheck]) -> Iterator[Line]:
    """Yield the artifacts with another verdict under the current rules, and the summary."""
    for finding in (finding for run in rechecked for finding in recheck_findings(run)):
        yield from finding_lines(finding)
        yield ()
    yield from _unchecked_lines(rechecked, "not rechecked")
    yield (Span(recheck_summary(rechecked)),)


def recheck_summary(rechecked: Sequence[Recheck]) -> str:
    artifacts = count_noun(sum(run.artifacts for run in rechecked), "artifact")
    now_fails = Counter(change.now_fails for run in rechecked for change in run.rule_changes)
    verdict = f"{now_fails[True]} now fail, {now_fails[False]} now pass" if now_fails else "all verdicts are unchanged"
    return f"{artifacts} of {count_noun(len(rechecked), 'run')} rechecked with the current rules: {verdict}"


def _rule_change_shape(change: RuleChange) -> RuleChangeShape:
    was, now = ("valid", "invalid") if change.now_fails else ("invalid", "valid")
    violations = (shape_of(ViolationShape, broken.violation, broken) for broken in change.violations)
    return shape_of(RuleChangeShape, change, was=was, now=now, violations=tuple(violations))
