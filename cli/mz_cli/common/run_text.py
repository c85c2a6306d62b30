"""Run and feature status as tables and JSON, shared by status, run, demo and others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mz_engine.errors.exits import Exit, most_severe
from mz_engine.ports import TEMPLATE_BROKEN
from mz_events.catalog.run import Hold
from mz_projections.views.model import FeatureView, RunView

from mz_cli.common.advice import (
    RunContext,
    TextLoader,
    features_to_list,
    possible_verdicts,
    resume_command,
    review_commands,
    stack_branch,
    status_label,
)
from mz_cli.common.json import CiChecksShape, FeatureStatus, FeatureSummary, RunStatus, TemplateErrorShape, WaitingShape
from mz_cli.terminal.json import Tests, Tokens, shape_of
from mz_cli.terminal.table import Table, columns
from mz_cli.terminal.text import (
    compact_number,
    exact_usd,
    format_count,
    format_elapsed,
    format_time,
    iso_time,
    parse_usd,
    rounded_usd,
    single_line,
)

FATAL_EXITS = {"drift": Exit.DRIFT, "recording-missing": Exit.RECORDING, TEMPLATE_BROKEN: Exit.INVALID}
"""Codes of fatal problems with exit codes of their own; other codes mean a missing prerequisite."""
REPOSITORY_CODES = frozenset({
    "bare", "branch-exists", "detached", "git-failed", "no-base", "no-commit", "not-a-repository", "not-trusted",
    "read-only", "worktree-lost", "worktree-unusable",
})  # fmt: skip
NOT_REPORTED = "not reported"
UNPRICED = "unpriced"
INCOMPLETE_TOKENS = "may report fewer tokens than were used"
"""Said of sessions with incomplete files."""
NO_FEATURES = "The run has no features."
NO_CONTEXT = RunContext()
"""For callers that need neither files nor inbox."""


def feature_summary(view: FeatureView) -> FeatureSummary:
    return FeatureSummary(**_summary_fields(view))


def feature_status(
    view: FeatureView, run: str, load_text: TextLoader, context: RunContext = NO_CONTEXT
) -> FeatureStatus:
    checks = view.checks
    return shape_of(
        FeatureStatus,
        view,
        **_summary_fields(view),
        title=single_line(load_text(view.title)),
        iteration=view.phases[-1].iteration if view.phases else None,
        unpriced_calls=view.unpriced,
        checks=CiChecksShape(passed=checks[0], failed=checks[1], pending=checks[2]) if checks else None,
        pull_request_text=context.pull_request_text_path(run, view.feature),
        worktree=context.worktree_path(run, view.feature),
        until=iso_time(view.until_us),
        template_error=_template_error(view, load_text),
        waiting=_waiting_shape(view, run, load_text, context),
        next=resume_command(run, view, context),
    )


def run_status(
    view: RunView, repository: str, process_running: bool, load_text: TextLoader, context: RunContext = NO_CONTEXT
) -> RunStatus:
    """Return the status of a run. `process_running`: a process drives it."""
    return RunStatus(
        repository=repository,
        run=view.run,
        status=view.status,
        process_running=process_running,
        pipeline=view.pipeline,
        base=view.base,
        base_commit=view.base_commit,
        mz=view.mz_version,
        started_at=iso_time(view.started_us),
        last_event_at=iso_time(view.last_recorded_us),
        events=view.events,
        code=view.code or None,
        features=tuple(feature_status(feature, view.run, load_text, context) for feature in view.features),
    )


def heading(view: RunView, process_running: bool) -> str:
    """Return the run in one line."""
    since = f", since {format_time(view.started_us)}" if view.started_us is not None else ""
    took = f", took {elapsed}" if (elapsed := run_duration(view)) else ""
    return f"run {view.run}: {run_status_label(view, process_running)}, {view.pipeline} on {view.base}{since}{took}"


def run_duration(view: RunView) -> str:
    """Return the time from the start to the last event of a finished run; empty for any other."""
    if view.status != "finished" or view.started_us is None or view.last_recorded_us is None:
        return ""
    return format_elapsed((view.last_recorded_us - view.started_us) / SECOND_US)


def duration_cell(view: FeatureView, exact: bool) -> str:
    """Return the time from start to end of an ended feature, `-` for any other; with `exact` in seconds."""
    if view.status in SUSPENDED_STATUSES or view.started_us is None or view.ended_us is None:
        return "-"
    return elapsed_cell(view.ended_us - view.started_us, exact)


def elapsed_cell(duration_us: int | None, exact: bool) -> str:
    """Return `3m 12s`, or seconds with `exact`; `-` if unknown."""
    if duration_us is None:
        return "-"
    return f"{duration_us / SECOND_US:.3f}" if exact else format_elapsed(duration_us / SECOND_US)


def run_status_label(view: RunView, process_running: bool) -> str:
    """Return the status of the run with its code in brackets. `process_running`: a process drives it."""
    code = f" ({view.code})" if view.code else ""
    return ("interrupted" if view.status in ("running", "paused") and not process_running else view.status) + code


def run_exit(view: RunView) -> Exit:
    """Return the exit code of `mz run` for a stopped run."""
    run_code = {"stopped": Exit.STOPPED, "halted": fatal_exit(view.code)}.get(view.status, Exit.OK)
    return most_severe([run_code, *(_feature_exit(feature) for feature in view.features)])


def fatal_exit(code: str) -> Exit:
    """Return the exit code of a fatal problem."""
    return FATAL_EXITS.get(code, Exit.REPOSITORY if code in REPOSITORY_CODES else Exit.PREREQUISITE)


def _feature_exit(view: FeatureView) -> Exit:
    match view.status, view.hold:
        case "failed", _:
            return Exit.VERDICT
        case "held", Hold.BUDGET:
            return Exit.LIMIT
        case "held", Hold.FATAL:
            return fatal_exit(view.code)
        case (("waiting" | "held"), _):
            return Exit.WAITING
    return Exit.OK


def _summary_fields(view: FeatureView) -> dict[str, Any]:
    tests = view.tests
    return {
        "id": view.feature,
        "status": view.status,
        "branch": view.branch or None,
        "phases": view.completed_phases,
        "attempts": view.attempts,
        "tests": Tests(passed=tests[0], failed=tests[1]) if tests else None,
        "tokens": Tokens(input=view.input_tokens, output=view.output_tokens),
        "estimated_usd": exact_usd(view.estimated_nanousd),
        "reported_usd": exact_usd(view.reported_nanousd),
        "computed_usd": exact_usd(view.computed_nanousd),
    }


def _template_error(view: FeatureView, load_text: TextLoader) -> TemplateErrorShape | None:
    fault = view.template_error
    if fault is None:
        return None
    return TemplateErrorShape(template=fault.template, line=fault.line, detail=load_text(fault.detail) or None)


def _waiting_shape(view: FeatureView, run: str, load_text: TextLoader, context: RunContext) -> WaitingShape | None:
    question = view.question
    if question is None:
        return None
    return shape_of(
        WaitingShape,
        question,
        since=iso_time(question.since_us),
        detail=load_text(question.detail) or None,
        answers=possible_verdicts(view),
        resume=resume_command(run, view, context) or f"mz resume {run}",
        commands=review_commands(view),
        answered=context.pending_message(view) is not None,
    )


# tables ---------------------------------------------------------------------------------------------------------------
SECOND_US = 1_000_000
SUSPENDED_STATUSES = ("waiting", "held", "interrupted", "paused")
"""Statuses of features that stopped but may continue, so that their duration is unknown."""
CLOSING_COLUMNS = (">attempts", ">tests", "branch", ">tokens", ">estimated", ">reported", ">computed")


def status_table(
    view: RunView, process_running: bool, load_text: TextLoader, context: RunContext, exact: bool
) -> Table:
    """Return the features of a run. `exact`: for a pipe, with everything that a terminal shows outside of the table."""
    if not exact:
        listed_features = features_to_list(view.features)[0]
        rows = tuple(
            (feature.feature, status_label(feature), *closing_cells(feature, exact), duration_cell(feature, exact))
            for feature in listed_features
        )
        return Table(columns=columns("*feature", "status", *CLOSING_COLUMNS, ">duration"), rows=rows, empty=NO_FEATURES)
    rows = tuple(
        (
            feature.feature, status_label(feature), feature.phase or "-", *closing_cells(feature, exact),
            load_text(feature.title), resume_command(view.run, feature, context) or "", feature.pull_request,
            context.worktree_path(view.run, feature.feature) or "", view.run, run_status_label(view, process_running),
            stack_branch(view, feature), context.pull_request_text_path(view.run, feature.feature) or "",
            duration_cell(feature, exact),
        )
        for feature in view.features
    )  # fmt: skip
    heads = (
        "feature",
        "status",
        "phase",
        *CLOSING_COLUMNS,
        "title",
        "next",
        "pull_request",
        "worktree",
        "run",
        "run_status",
        "builds_on",
        "pull_request_text",
        "duration_s",
    )
    return Table(columns=columns(*heads), rows=rows, empty=NO_FEATURES)


def closing_table(features: Sequence[FeatureView], exact: bool) -> Table:
    """Return results and cost of a run. On a terminal the status is shown only if one is not `delivered`."""
    listed_features = tuple(features) if exact else features_to_list(features)[0]
    with_status = exact or any(feature.status != "delivered" for feature in listed_features)
    rows = tuple(
        (feature.feature, *([status_label(feature)] if with_status else []), " ".join(feature.completed_phases) or "-",
         *closing_cells(feature, exact), duration_cell(feature, exact))
        for feature in listed_features
    )  # fmt: skip
    heads = ("*feature", "status") if with_status else ("*feature",)
    return Table(
        columns=columns(*heads, "phases", *CLOSING_COLUMNS, "duration_s" if exact else ">duration"),
        rows=rows,
        empty=NO_FEATURES,
    )


def closing_cells(view: FeatureView, exact: bool) -> tuple[str, ...]:
    """Return the cells below `CLOSING_COLUMNS`."""
    return (
        attempts_cell(view.attempts, exact),
        tests_cell(view.tests),
        view.branch or "-",
        tokens_cell(view.input_tokens, view.output_tokens, exact),
        *money_cells(view, exact),
    )


def attempts_cell(attempts: dict[str, int], exact: bool) -> str:
    """Return the sum and the phases with more than one attempt; with `exact` every phase."""
    if exact:
        return " ".join(f"{phase}={number}" for phase, number in attempts.items()) or "-"
    repeated = ", ".join(f"{phase} {number}" for phase, number in attempts.items() if number > 1)
    return f"{sum(attempts.values()) or '-'}" + (f" ({repeated})" if repeated else "")


def tests_cell(tests: tuple[int, int] | None) -> str:
    if tests is None:
        return "-"
    passed, failed = tests
    return f"{passed} passed, {failed} failed" if failed else f"{passed} passed"


def tokens_cell(input_tokens: int | None, output_tokens: int | None, exact: bool) -> str:
    """Return input and output tokens, rounded unless `exact`."""
    if input_tokens is None and output_tokens is None:
        return "-"
    number_text = format_count if exact else compact_number
    return f"{number_text(input_tokens)} in, {number_text(output_tokens)} out"


def money_cells(view: FeatureView, exact: bool) -> tuple[str, str, str]:
    """Return estimated, reported and computed amounts, `-` before the first call. A terminal also shows the number of
    unpriced calls."""
    amounts = view.estimated_nanousd, view.reported_nanousd, view.computed_nanousd
    if not view.calls:
        return "-", "-", "-"
    estimated, reported, computed = [exact_usd(amount) if exact else rounded_usd(amount) for amount in amounts]
    if computed and view.unpriced and not exact:
        computed = f"{computed} + {view.unpriced} {UNPRICED}"
    return estimated or UNPRICED, reported or NOT_REPORTED, computed or UNPRICED


def money_text(estimated: str | None, reported: str | None, computed: str | None, exact: bool = False) -> str:
    """Return the three amounts (exact decimal strings) as text, rounded unless `exact`."""
    amounts = {"estimated": estimated, "reported": reported, "computed": computed}
    parts = (
        f"{name} {f'${amount}' if exact else rounded_usd(parse_usd(amount))}"
        for name, amount in amounts.items()
        if amount is not None
    )
    return ", ".join(parts) or UNPRICED
