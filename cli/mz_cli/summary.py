"""Run and feature status as tables and JSON, shared by status, run, demo and others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mz_engine.exits import Exit, worst
from mz_engine.ports import TEMPLATE_BROKEN
from mz_events.catalog.run import Hold
from mz_projections.views import FeatureView, RunView

from mz_cli.advice import Around, Words, answers, builds_on, listed, resume_command, review_commands, standing
from mz_cli.render.table import Table, columns
from mz_cli.render.text import compact, count, instant, line, moment, money, nanousd_of, usd
from mz_cli.shapes.base import Tests, Tokens
from mz_cli.shapes.run import BrokenShape, ChecksShape, FeatureStatus, FeatureSummary, RunStatus, WaitingShape

FATAL = {"drift": Exit.DRIFT, "recording-missing": Exit.RECORDING, TEMPLATE_BROKEN: Exit.INVALID}
"""Codes of fatal problems with exit codes of their own; other codes mean a missing prerequisite."""
REPOSITORY = frozenset({
    "bare", "branch-exists", "detached", "git-failed", "no-base", "no-commit", "not-a-repository", "not-trusted",
    "read-only", "worktree-lost", "worktree-unusable",
})  # fmt: skip
NOT_REPORTED = "not reported"
UNPRICED = "unpriced"
FEWER = "may report fewer tokens than were used"
"""Said of sessions with incomplete files."""
NO_FEATURES = "The run has no features."
ALONE = Around()
"""For callers that need neither files nor inbox."""


def feature_summary(view: FeatureView) -> FeatureSummary:
    return FeatureSummary(**_summary(view))


def feature_status(view: FeatureView, run: str, words: Words, around: Around = ALONE) -> FeatureStatus:
    checks = view.checks
    return FeatureStatus(
        **_summary(view),
        title=line(words(view.title)),
        source=view.source or None,
        phase=view.phase or None,
        iteration=view.phases[-1].iteration if view.phases else None,
        depends_on=view.depends_on,
        quarantined=view.quarantined,
        rollbacks=view.rollbacks,
        unpriced_calls=view.unpriced,
        pull_request=view.pull_request or None,
        checks=ChecksShape(green=checks[0], red=checks[1], pending=checks[2]) if checks else None,
        pull_request_text=around.text(run, view.feature),
        target=view.target or None,
        worktree=around.tree(run, view.feature),
        hold=view.hold.value if view.hold else None,
        until=instant(view.until_us),
        because=view.because or None,
        code=view.code or None,
        broken=_broken(view, words),
        waiting=_waiting(view, run, words, around),
        next=resume_command(run, view, around),
    )


def run_status(view: RunView, repository: str, held: bool, words: Words, around: Around = ALONE) -> RunStatus:
    """Return the status of a run. `process_running`: a process drives it."""
    return RunStatus(
        repository=repository, run=view.run, status=view.status, held=held, pipeline=view.pipeline, base=view.base,
        base_commit=view.base_commit, mz=view.core, started_at=instant(view.started_us),
        last_event_at=instant(view.last_us), events=view.events, code=view.code or None,
        features=tuple(feature_status(feature, view.run, words, around) for feature in view.features),
    )  # fmt: skip


def heading(view: RunView, held: bool) -> str:
    """Return the run in one line."""
    since = f", since {moment(view.started_us)}" if view.started_us is not None else ""
    return f"run {view.run}: {run_standing(view, held)}, {view.pipeline} on {view.base}{since}"


def run_standing(view: RunView, held: bool) -> str:
    """Return the status of the run with its code in brackets. `process_running`: a process drives it."""
    code = f" ({view.code})" if view.code else ""
    return ("interrupted" if view.status in ("running", "paused") and not held else view.status) + code


def exit_of(view: RunView) -> Exit:
    """Return the exit code of `mz run` for a stopped run."""
    of_run = {"stopped": Exit.STOPPED, "halted": exit_of_code(view.code)}.get(view.status, Exit.OK)
    return worst([of_run, *(_exit_of_feature(feature) for feature in view.features)])


def exit_of_code(code: str) -> Exit:
    """Return the exit code of a fatal problem."""
    return FATAL.get(code, Exit.REPOSITORY if code in REPOSITORY else Exit.PREREQUISITE)


def _exit_of_feature(view: FeatureView) -> Exit:
    match view.status, view.hold:
        case "failed", _:
            return Exit.VERDICT
        case "held", Hold.BUDGET:
            return Exit.LIMIT
        case "held", Hold.FATAL:
            return exit_of_code(view.code)
        case (("waiting" | "held"), _):
            return Exit.WAITING
    return Exit.OK


def _summary(view: FeatureView) -> dict[str, Any]:
    tests = view.tests
    return {
        "id": view.feature,
        "status": view.status,
        "branch": view.branch or None,
        "phases": view.completed,
        "attempts": view.attempts,
        "tests": Tests(passed=tests[0], failed=tests[1]) if tests else None,
        "tokens": Tokens(input=view.input_tokens, output=view.output_tokens),
        "estimated_usd": usd(view.estimated_nanousd),
        "reported_usd": usd(view.reported_nanousd),
        "computed_usd": usd(view.computed_nanousd),
    }


def _broken(view: FeatureView, words: Words) -> BrokenShape | None:
    found = view.broken
    if found is None:
        return None
    return BrokenShape(template=found.template, line=found.line, detail=words(found.detail) or None)


def _waiting(view: FeatureView, run: str, words: Words, around: Around) -> WaitingShape | None:
    asked = view.waiting
    if asked is None:
        return None
    return WaitingShape(
        ask=asked.ask.value, code=asked.code or None, phase=asked.phase, unit=asked.unit or None,
        since=instant(asked.since_us), place=asked.place, detail=words(asked.detail) or None, answers=answers(view),
        resume=resume_command(run, view, around) or f"mz resume {run}", commands=review_commands(view),
        answered=around.letter(view) is not None,
    )  # fmt: skip


# tables ---------------------------------------------------------------------------------------------------------------
TAKEN = (">attempts", ">tests", "branch", ">tokens", ">estimated", ">reported", ">computed")


def status_table(view: RunView, held: bool, words: Words, around: Around, whole: bool) -> Table:
    """Return the features of a run. `exact`: for a pipe, with everything that a terminal shows outside of the table."""
    if not whole:
        shown = listed(view.features)[0]
        rows = tuple((feature.feature, standing(feature), *taken(feature, whole)) for feature in shown)
        return Table(columns=columns("*feature", "status", *TAKEN), rows=rows, empty=NO_FEATURES)
    rows = tuple(
        (
            feature.feature, standing(feature), feature.phase or "-", *taken(feature, whole),
            words(feature.title), resume_command(view.run, feature, around) or "", feature.pull_request,
            around.tree(view.run, feature.feature) or "", view.run, run_standing(view, held),
            builds_on(view, feature), around.text(view.run, feature.feature) or "",
        )
        for feature in view.features
    )  # fmt: skip
    heads = (
        "feature", "status", "phase", *TAKEN, "title", "next", "pull_request", "worktree", "run", "run_status",
        "builds_on", "pull_request_text",
    )  # fmt: skip
    return Table(columns=columns(*heads), rows=rows, empty=NO_FEATURES)


def closing_table(features: Sequence[FeatureView], whole: bool) -> Table:
    """Return results and cost of a run. On a terminal the status is shown only if one is not `delivered`."""
    shown = tuple(features) if whole else listed(features)[0]
    says = whole or any(feature.status != "delivered" for feature in shown)
    rows = tuple(
        (feature.feature, *([standing(feature)] if says else []), " ".join(feature.completed) or "-",
         *taken(feature, whole))
        for feature in shown
    )  # fmt: skip
    heads = ("*feature", "status") if says else ("*feature",)
    return Table(columns=columns(*heads, "phases", *TAKEN), rows=rows, empty=NO_FEATURES)


def taken(view: FeatureView, whole: bool) -> tuple[str, ...]:
    """Return the cells below `CLOSING_COLUMNS`."""
    return (
        attempts_cell(view.attempts, whole),
        tests_cell(view.tests),
        view.branch or "-",
        tokens_cell(view.input_tokens, view.output_tokens, whole),
        *money_cells(view, whole),
    )


def attempts_cell(attempts: dict[str, int], whole: bool) -> str:
    """Return the sum and the phases with more than one attempt; with `exact` every phase."""
    if whole:
        return " ".join(f"{phase}={number}" for phase, number in attempts.items()) or "-"
    again = ", ".join(f"{phase} {number}" for phase, number in attempts.items() if number > 1)
    return f"{sum(attempts.values()) or '-'}" + (f" ({again})" if again else "")


def tests_cell(tests: tuple[int, int] | None) -> str:
    if tests is None:
        return "-"
    passed, failed = tests
    return f"{passed} passed, {failed} failed" if failed else f"{passed} passed"


def tokens_cell(taken: int | None, given: int | None, whole: bool) -> str:
    """Return input and output tokens, rounded unless `exact`."""
    if taken is None and given is None:
        return "-"
    shown = count if whole else compact
    return f"{shown(taken)} in, {shown(given)} out"


def money_cells(view: FeatureView, whole: bool) -> tuple[str, str, str]:
    """Return estimated, reported and computed amounts, `-` before the first call. A terminal also shows the number of
    unpriced calls."""
    amounts = view.estimated_nanousd, view.reported_nanousd, view.computed_nanousd
    if not view.calls:
        return "-", "-", "-"
    estimated, reported, computed = [usd(amount) if whole else money(amount) for amount in amounts]
    if computed and view.unpriced and not whole:
        computed = f"{computed} + {view.unpriced} {UNPRICED}"
    return estimated or UNPRICED, reported or NOT_REPORTED, computed or UNPRICED


def money_words(estimated: str | None, reported: str | None, computed: str | None, whole: bool = False) -> str:
    """Return the three amounts (exact decimal strings) as text, rounded unless `exact`."""
    amounts = {"estimated": estimated, "reported": reported, "computed": computed}
    said = (
        f"{name} {f'${amount}' if whole else money(nanousd_of(amount))}"
        for name, amount in amounts.items()
        if amount is not None
    )
    return ", ".join(said) or UNPRICED
