"""Run and feature status as tables and JSON, shared by status, run, demo and others."""

from __future__ import annotations

from msgspec import field
from mz_engine.errors.diagnostics import Exit, most_severe
from mz_engine.ports import OWN_PROBLEMS, TEMPLATE_BROKEN
from mz_events.catalog.run import Hold
from mz_projections.views.model import FeatureView, Landing, RunView

from mz_cli.common.advice import (
    RunContext,
    features_to_list,
    limit_lines,
    next_command,
    over_budget_text,
    pending_actions,
    possible_verdicts,
    review_commands,
    review_hint,
    stack_branch,
    status_label,
    work_locations,
)
from mz_cli.terminal.console import print_line
from mz_cli.terminal.json import Shape, Tests, Tokens, shape_of
from mz_cli.terminal.table import Cell, Table, columns, elapsed_cell, print_table, prints_tsv, usd_cell
from mz_cli.terminal.text import compact_number, exact_usd, format_count, format_time, rounded_usd, single_line

FATAL_EXITS = {"drift": Exit.DRIFT, "recording-missing": Exit.RECORDING, TEMPLATE_BROKEN: Exit.INVALID}
"""Codes of fatal problems with exit codes of their own; other codes mean a missing prerequisite."""
REPOSITORY_CODES = frozenset({
    "bare", "branch-exists", "detached", "git-failed", "no-base", "no-commit", "not-a-repository", "not-trusted",
    "environment-outside", "read-only", "worktree-lost", "worktree-unusable",
})  # fmt: skip
NOT_REPORTED = "not reported"
UNPRICED = "unpriced"
INCOMPLETE_TOKENS = "may report fewer tokens than were used"
"""Said of sessions with incomplete files."""
NO_FEATURES = "The run has no features."


class FeatureSummary(Shape, frozen=True, kw_only=True):
    """One feature, as every command that lists features shows it."""

    feature: str = field(name="id")
    status: str
    branch: str | None
    completed_phases: tuple[str, ...] = field(name="phases")
    """Completed phases, in order."""
    attempts: dict[str, int]
    """Builder calls by phase, over all iterations and units."""
    tests: Tests | None
    tokens: Tokens
    estimated_nanousd: int | None
    reported_nanousd: int | None
    computed_nanousd: int | None


class WaitingShape(Shape, frozen=True, kw_only=True):
    """A question to a person."""

    question_kind: str
    code: str | None
    phase: str
    unit: str | None
    since_us: int | None = field(name="since")
    event_ref: str
    detail: str | None
    answers: tuple[str, ...]
    """Possible verdicts, the most likely first."""
    commands: tuple[str, ...]
    """Commands that show the question, then that answer it, the most likely first."""
    answered: bool
    """A message for the question was posted and not read yet."""


class CiChecksShape(Shape, frozen=True, kw_only=True):
    passed: int
    failed: int
    pending: int


class TemplateErrorShape(Shape, frozen=True, kw_only=True):
    """A template that could not be rendered."""

    template: str
    """Path below `pipelines/templates/`."""
    line: int | None
    detail: str | None
    """Error message."""


class FeatureStatus(FeatureSummary, frozen=True, kw_only=True):
    title: str
    source: str | None
    kind: str | None
    """Kind of the item, in pipelines with several."""
    phase: str | None
    """Current or last phase."""
    iteration: int | None
    depends_on: tuple[str, ...]
    quarantined: bool
    rollbacks: int
    unpriced: int = field(name="unpriced_calls")
    """Calls that `computed_usd` does not include."""
    pull_request: str | None
    landed: Landing | None
    """Where the branch was merged into its target."""
    tags: tuple[str, ...]
    checks: CiChecksShape | None
    """CI checks of the pull request when last polled."""
    pull_request_text: str | None
    """File with the text of a pull request to be opened by hand."""
    target: str | None
    """Target branch: the base, or the branch of the feature that this one is stacked on."""
    worktree: str | None
    """Path of the worktree, while it exists."""
    hold: str | None
    over_budget: str | None
    """Which budget the next call does not fit into, what is used of it, and when it fits again."""
    until_us: int | None = field(name="until")
    blocked_by: str | None
    code: str | None
    template_error: TemplateErrorShape | None
    """Template error that halted the run."""
    waiting: WaitingShape | None
    next: str | None
    """Command needed to continue; for an open question, the one that shows it; null: none."""


class RunStatus(Shape, frozen=True, kw_only=True):
    """`mz status --json` and `mz run --json`."""

    repository: str
    run: str
    status: str
    process_running: bool
    """A process is running the run. Without one, a run with the status `running` was interrupted."""
    pipeline: str
    base: str
    base_commit: str
    integration: str | None
    """Branch into which items of the run are merged."""
    cycle: int
    """The latest cycle; 0: none."""
    over: str | None
    """Why no cycle follows: planned-nothing, cycles or unchanged; null: one may follow."""
    mz_version: str
    """Version of mz that started the run."""
    isolation: tuple[str, ...]
    """Levels of isolation that agents and commands had, as `mz doctor` names them; empty: unknown."""
    started_us: int | None
    last_recorded_us: int | None = field(name="last_event_at")
    events: int
    code: str | None
    features: tuple[FeatureStatus, ...]
    waiting_items: dict[str, str]
    """Features of the backlog that wait for others and are in no run, and why; in `mz status` without SELECTOR."""


def feature_summary(view: FeatureView) -> FeatureSummary:
    tests = Tests(passed=view.tests[0], failed=view.tests[1]) if view.tests else None
    tokens = Tokens(input=view.input_tokens, output=view.output_tokens)
    return shape_of(FeatureSummary, view, tests=tests, tokens=tokens)


def feature_status(view: FeatureView, run: str, context: RunContext) -> FeatureStatus:
    checks, fault, load_text = view.checks, view.template_error, context.load_text
    return shape_of(
        FeatureStatus,
        feature_summary(view),
        view,
        title=single_line(load_text(view.title)),
        iteration=view.phases[-1].iteration if view.phases else None,
        checks=CiChecksShape(passed=checks[0], failed=checks[1], pending=checks[2]) if checks else None,
        pull_request_text=context.pull_request_text(run, view.feature),
        worktree=context.worktree(run, view.feature),
        template_error=shape_of(TemplateErrorShape, fault, detail=load_text(fault.detail) or None) if fault else None,
        over_budget=over_budget_text(view) or None,
        waiting=_waiting_shape(view, context),
        next=next_command(run, view, context),
    )


def run_status(view: RunView, context: RunContext) -> RunStatus:
    return shape_of(
        RunStatus,
        view,
        repository=str(context.root),
        process_running=context.process_running,
        waiting_items={},
        features=tuple(feature_status(feature, view.run, context) for feature in view.features),
    )


def heading(view: RunView, process_running: bool) -> str:
    """Return the run in one line."""
    since = f", since {format_time(view.started_us)}" if view.started_us is not None else ""
    took = f", took {elapsed}" if (elapsed := run_duration(view)) else ""
    return f"run {view.run}: {run_status_label(view, process_running)}, {view.pipeline} on {view.base}{since}{took}"


def run_duration(view: RunView) -> str:
    """Return the time at work from the start to the last event of a finished run; empty for any other."""
    if view.status != "finished" or view.clock_us is None or view.last_recorded_us is None:
        return ""
    return elapsed_cell(view.last_recorded_us - view.clock_us)


def duration_cell(view: FeatureView) -> Cell:
    """Return the time from start to end of an ended feature, `-` for any other."""
    ended = view.status not in SUSPENDED_STATUSES and view.started_us is not None and view.ended_us is not None
    return elapsed_cell((view.ended_us or 0) - (view.started_us or 0) if ended else None)


def run_status_label(view: RunView, process_running: bool) -> str:
    """Return the status of the run with its code in brackets. `process_running`: a process drives it."""
    return live_status(view.status, process_running) + (f" ({view.code})" if view.code else "")


def live_status(status: str, process_running: bool) -> str:
    """Return the status of a run: `interrupted` if the log says that it is active, but no process drives it."""
    return "interrupted" if status in ("running", "paused") and not process_running else status


def run_exit(view: RunView) -> Exit:
    """Return the exit code of `mz run` for a stopped run."""
    if view.status == "finished" and view.closing:
        return Exit.OK  # The person who ended it has seen what failed.
    run_code = {"stopped": Exit.STOPPED, "halted": fatal_exit(view.code)}.get(view.status, Exit.OK)
    if view.status == "idle" and (view.over == "unchanged" or (view.over == "cycles" and not view.is_capped)):
        run_code = Exit.LIMIT
    return most_severe([run_code, *(_feature_exit(feature) for feature in view.features)])


def fatal_exit(code: str) -> Exit:
    return FATAL_EXITS.get(code, Exit.REPOSITORY if code in REPOSITORY_CODES else Exit.PREREQUISITE)


def _feature_exit(view: FeatureView) -> Exit:
    match view.status, view.hold:
        case (("failed" | "cancelled"), _):
            return Exit.VERDICT
        case "held", Hold.BUDGET:
            return Exit.LIMIT
        case "held", Hold.FATAL if view.code not in OWN_PROBLEMS:
            return fatal_exit(view.code)
        case (("waiting" | "held"), _):
            return Exit.WAITING
    return Exit.OK


def _waiting_shape(view: FeatureView, context: RunContext) -> WaitingShape | None:
    question = view.question
    if question is None:
        return None
    return shape_of(
        WaitingShape,
        question,
        detail=context.load_text(question.detail) or None,
        answers=tuple(verdict.value for verdict in possible_verdicts(question)),
        commands=review_commands(view),
        answered=context.pending_message(view) is not None,
    )


# for people -----------------------------------------------------------------------------------------------------------
SUSPENDED_STATUSES = ("waiting", "held", "interrupted", "paused")
"""Statuses of features that stopped but may continue, so that their duration is unknown."""
COLUMNS = columns(
    "*feature", "status", "|phase", ">,attempts", ">,tests", "branch", ">tokens", ">estimated", ">reported",
    ">computed", "|title", "|next", "|pull_request", "|worktree", "|run", "|run_status", "|builds_on",
    "|pull_request_text", ">duration|duration_s", "|phases", "|delivery",
)  # fmt: skip


def print_run(view: RunView, context: RunContext) -> None:
    """Print the features; in a table with the run above, and locations and pending actions below."""
    if prints_tsv():
        print_table(status_table(view, context))
        return
    print_line(heading(view, context.process_running) + "\n")
    print_table(status_table(view, context))
    if remaining := features_to_list(view.features)[1]:
        print_line(remaining)
    if locations := work_locations(view, context):
        print_line("\n" + "\n".join(map(single_line, limit_lines(locations))))
    for reason, command in pending_actions(view, context):
        print_line(f"\n{reason}\n{'To continue: ' if command == f'mz resume {view.run}' else '  '}{command}")
    if hint := review_hint(view, context):
        print_line(f"\n{hint}")


def status_table(view: RunView, context: RunContext) -> Table:
    """Return the features of a run; a pipe gets all, with everything that a terminal shows outside of the table."""
    features = view.features if prints_tsv() else features_to_list(view.features)[0]
    rows = tuple(
        (
            feature.feature, status_label(feature), feature.phase or "-", attempts_cell(feature.attempts),
            tests_cell(feature.tests), feature.branch or "-",
            tokens_cell(feature.input_tokens, feature.output_tokens), *money_cells(feature),
            context.load_text(feature.title), next_command(view.run, feature, context) or "", feature.pull_request,
            context.worktree(view.run, feature.feature) or "", view.run,
            run_status_label(view, context.process_running), stack_branch(view, feature),
            context.pull_request_text(view.run, feature.feature) or "", duration_cell(feature),
            " ".join(feature.completed_phases) or "-", feature.delivery,
        )
        for feature in features
    )  # fmt: skip
    return Table(columns=COLUMNS, rows=rows, empty=NO_FEATURES)


def attempts_cell(attempts: dict[str, int]) -> Cell:
    """Return the sum and the phases with more than one attempt; in a pipe every phase."""
    repeated = ", ".join(f"{phase} {number}" for phase, number in attempts.items() if number > 1)
    total = f"{sum(attempts.values()) or '-'}" + (f" ({repeated})" if repeated else "")
    return Cell(total, " ".join(f"{phase}={number}" for phase, number in attempts.items()) or "-")


def tests_cell(tests: tuple[int, int] | None) -> str:
    if tests is None:
        return "-"
    passed, failed = tests
    return f"{passed} passed, {failed} failed" if failed else f"{passed} passed"


def tokens_cell(input_tokens: int | None, output_tokens: int | None) -> Cell:
    """Return input and output tokens, rounded on a terminal."""
    if input_tokens is None and output_tokens is None:
        return Cell("-", "-")
    shown, exact = (f"{text(input_tokens)} in, {text(output_tokens)} out" for text in (compact_number, format_count))
    return Cell(shown, exact)


def money_cells(view: FeatureView) -> tuple[Cell, Cell, Cell]:
    """Return estimated, reported and computed amounts, `-` before the first call. A terminal also shows the number of
    unpriced calls."""
    estimated, reported, computed = (
        usd_cell(view.estimated_nanousd, UNPRICED if view.calls else "-"),
        usd_cell(view.reported_nanousd, NOT_REPORTED if view.calls else "-"),
        usd_cell(view.computed_nanousd, UNPRICED if view.calls else "-"),
    )
    if view.computed_nanousd and view.unpriced:
        computed = Cell(f"{computed} + {view.unpriced} {UNPRICED}", computed.exact)
    return estimated, reported, computed


def money_text(estimated: int | None, reported: int | None, computed: int | None, exact: bool = False) -> str:
    """Return the three amounts of nano-dollars as text, rounded unless `exact`."""
    amounts = {"estimated": estimated, "reported": reported, "computed": computed}
    parts = (
        f"{name} {f'${exact_usd(nanousd)}' if exact else rounded_usd(nanousd)}"
        for name, nanousd in amounts.items()
        if nanousd is not None
    )
    return ", ".join(parts) or UNPRICED
