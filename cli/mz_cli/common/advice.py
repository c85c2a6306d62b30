"""Pending actions of a run with the commands that resolve them, and the location of each feature's work.

Paths of features' files, and the run context for display.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from mz_engine.paths import MZ_FOLDER, PULL_REQUESTS_FOLDER, WORKTREES_FOLDER
from mz_engine.ports import TEMPLATE_BROKEN
from mz_events.catalog.run import Hold
from mz_events.names import Digest
from mz_projections.views.messages import InboxMessage
from mz_projections.views.model import FeatureView, RunView

from mz_cli.terminal.text import count_noun, shorten, single_line

TextLoader = Callable[[Digest | None], str]
"""Blob digest -> text; empty for None and for an erased blob."""
PathFinder = Callable[[str, str], str | None]
"""Run and feature -> an existing path, or None."""
DETAIL_MAX = 300
LISTED_MAX = 40
"""Features listed on a terminal; of more, only the started ones are listed and the others counted."""
ENDED_STATUSES = ("delivered", "merged", "tagged", "cancelled", "skipped", "failed")
RESUMABLE_STATUSES = ("held", "interrupted", "paused")
REVIEW_COMMANDS = {
    "approve": "mz review approve {}",
    "retry": "mz review answer {} TEXT",
    "reject": "mz review reject {} -m WHY",
}
"""Verdict -> command."""
PENDING_MESSAGE_TEXT = {
    "answer": "answered; pending until the run continues",
    "cancel": "cancellation requested; pending until the run continues",
    "retry": "retry requested; pending until the run continues",
}


def no_path(run: str, feature: str) -> None:
    """Return None, for callers that need no paths."""


class RunContext(msgspec.Struct, frozen=True, kw_only=True):
    """Data about a run that is not in its events: files beside the log, and inbox messages."""

    worktree_path: PathFinder = no_path
    pull_request_text_path: PathFinder = no_path
    """The text of a pull request that a person has to open."""
    messages: tuple[InboxMessage, ...] = ()
    """All messages in the run's inbox."""
    display_path: Callable[[str], str] = str
    """Shorten a path for display."""

    def pending_message(self, view: FeatureView) -> InboxMessage | None:
        """Return the first message for the feature that the run has not read yet."""
        question_version = int(view.question.event_ref.rpartition("@")[2]) if view.question else None
        for message in self.messages:
            concerns_feature = message.feature == view.feature or (
                message.feature is None and view.status not in ENDED_STATUSES
            )
            if (
                message.status == "pending"
                and message.kind in PENDING_MESSAGE_TEXT
                and concerns_feature
                and message.question in (None, question_version)
            ):
                return message
        return None


def status_label(view: FeatureView) -> str:
    """Return the status, with its explanation in brackets."""
    hold = view.code if view.hold is Hold.FATAL else (view.hold.value if view.hold else "")
    codes = (hold, view.question.question_kind.value if view.question else "", view.code)
    explanation = next((word for word in codes if word), "") if view.status in ("held", "waiting", "failed") else ""
    if view.status == "held" and view.blocked_by:
        explanation = f"{explanation} {view.blocked_by}".strip()
    return f"{view.status} ({explanation})" if explanation else view.status


# commands -------------------------------------------------------------------------------------------------------------
def possible_verdicts(view: FeatureView) -> tuple[str, ...]:
    """Return the possible verdicts, the likeliest first."""
    question = view.question
    first = (
        "approve" if question is not None and question.question_kind.value in ("approval", "repository") else "retry"
    )
    return (first, *(verdict for verdict in REVIEW_COMMANDS if verdict != first))


def review_commands(view: FeatureView) -> tuple[str, ...]:
    """Return the command that shows the question, then those that answer it, the likeliest first."""
    return (
        f"mz review show {view.feature}",
        *(REVIEW_COMMANDS[verdict].format(view.feature) for verdict in possible_verdicts(view)),
    )


def resume_command(run: str, view: FeatureView, context: RunContext) -> str | None:
    """Return the command that continues a feature; None if none is needed, or only one for its dependency."""
    if context.pending_message(view) is not None:
        return f"mz resume {run}"
    if view.question is not None and view.status == "waiting":
        return f"mz resume {run} --feature {view.feature} --answer {possible_verdicts(view)[0]}"
    if view.status == "held" and view.hold is Hold.FATAL and view.code == TEMPLATE_BROKEN:
        return f"mz cancel {run}"
    return f"mz resume {run}" if view.status in RESUMABLE_STATUSES and not _is_dependency_lost(view) else None


def _is_dependency_lost(view: FeatureView) -> bool:
    """Return True if its dependency was not delivered, so that continuing the run does not help."""
    return view.status == "held" and view.hold is None and bool(view.blocked_by)


def pending_actions(
    view: RunView, process_running: bool, load_text: TextLoader, context: RunContext
) -> tuple[tuple[str, str], ...]:
    """Return pairs of the reason why a person is needed and the command to use.

    `process_running`: a process drives the run, and reads its inbox by itself."""
    questions: list[tuple[str, str]] = []
    resumable: list[str] = []
    by_lost_dependency: dict[str, list[str]] = {}
    over_budget: list[str] = []
    template_errors: list[str] = []
    if view.status == "running" and not process_running:
        resumable.append("no process is running this run; it was interrupted")
    for feature in view.features:
        message = context.pending_message(feature)
        if message is not None:
            resumable += (
                []
                if process_running
                else [f"{feature.feature}: {status_label(feature)}: {PENDING_MESSAGE_TEXT[message.kind]}"]
            )
        elif feature.status == "waiting" and feature.question is not None:
            questions.append((_question_line(feature, load_text), _answer_commands(feature)))
        elif _is_dependency_lost(feature):
            by_lost_dependency.setdefault(_lost_dependency(view, feature), []).append(
                f"{feature.feature}: {status_label(feature)}"
            )
        elif feature.hold is Hold.FATAL and feature.code == TEMPLATE_BROKEN:
            template_errors.append(
                f"{feature.feature}: {status_label(feature)}{template_error_text(feature, load_text)}"
            )
        elif feature.hold is Hold.BUDGET:
            over_budget.append(f"{feature.feature}: {status_label(feature)}")
        elif feature.status in RESUMABLE_STATUSES:
            resumable.append(f"{feature.feature}: {status_label(feature)}{_fatal_detail(feature, load_text)}")
    resume = f"mz resume {view.run}"
    blocked = [(reasons, f"mz retry {dependency}") for dependency, reasons in by_lost_dependency.items()]
    blocked += [(template_errors, _restart_hint(view))] if template_errors else []
    blocked += [(over_budget, f"raise budget in mz.yaml, then: {resume}")] if over_budget else []
    blocked += [(resumable, resume)] if resumable else []
    return (
        *questions,
        *(
            ("\n".join(limit_lines([single_line(reason) for reason in reasons])), command)
            for reasons, command in blocked
        ),
    )


def _restart_hint(run: RunView) -> str:
    """Return how to replace a run that cannot continue. A branch with commits is never deleted by the command that is
    to be pasted."""
    unfinished = [feature for feature in run.features if feature.branch and feature.status not in ENDED_STATUSES]
    empty_branches = [feature.branch for feature in unfinished if not feature.commits]
    branches_with_work = [feature.branch for feature in unfinished if feature.commits]
    commands = f"mz cancel {run.run} && mz resume {run.run} && mz clean --yes {run.run}"
    commands += f" && git branch -D {' '.join(empty_branches)}" if empty_branches else ""
    keep_hint = (
        f"; keep what you need of {', '.join(branches_with_work)}, then: git branch -D {' '.join(branches_with_work)}"
        if branches_with_work
        else ""
    )
    return (
        "fix the template below pipelines/templates; `mz gate --layer 1` checks all of them. This run keeps the "
        f"template that it started with, so replace the run: {commands}{keep_hint}, then: mz run"
    )


def _lost_dependency(run: RunView, feature: FeatureView) -> str:
    """Return the dependency that was not delivered, at the end of a chain of held features."""
    dependency = run.find_feature(feature.blocked_by)
    return (
        _lost_dependency(run, dependency)
        if dependency is not None and _is_dependency_lost(dependency)
        else feature.blocked_by
    )


def _question_line(feature: FeatureView, load_text: TextLoader) -> str:
    question = feature.question
    phase = f" in {question.phase}{'/' if question.unit else ''}{question.unit}" if question and question.phase else ""
    detail = shorten(single_line(load_text(question.detail)), DETAIL_MAX) if question else ""
    return f"{feature.feature}: {status_label(feature)}{phase}{': ' if detail else ''}{detail}"


def _fatal_detail(feature: FeatureView, load_text: TextLoader) -> str:
    """Return the agent's text on the fatal problem as a suffix; empty if there is none."""
    last_call = feature.calls[-1] if feature.calls else None
    if feature.hold is not Hold.FATAL or last_call is None or last_call.problem != feature.code:
        return ""
    detail = shorten(single_line(load_text(last_call.detail)), DETAIL_MAX)
    return f": {detail}" if detail else ""


def template_error_text(feature: FeatureView, load_text: TextLoader) -> str:
    """Return template, line and error as a suffix; empty if no template is broken."""
    fault = feature.template_error
    detail = shorten(single_line(load_text(fault.detail)), DETAIL_MAX) if fault else ""
    return f" in {fault.location}{': ' if detail else ''}{detail}" if fault else ""


def _answer_commands(feature: FeatureView) -> str:
    show_command, likeliest, *others = review_commands(feature)
    return "\n  ".join((show_command, f"{likeliest}   (or {', or '.join(others)})"))


def limit_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the first lines, and a count of the others."""
    hidden = len(lines) - LISTED_MAX
    return tuple(lines) if hidden <= 0 else (*lines[:LISTED_MAX], f"and {hidden:,} more")


# location of the work -------------------------------------------------------------------------------------------------
def work_locations(view: RunView, context: RunContext) -> tuple[str, ...]:
    """Return for each feature its pull request, else its branch and the text for one, else its worktree."""
    return tuple(
        f"{feature.feature}: {location}"
        for feature in view.features
        if (location := _work_location(view, feature, context))
    )


def _work_location(view: RunView, feature: FeatureView, context: RunContext) -> str:
    stacked_on = stack_branch(view, feature)
    stack_note = f", which builds on {stacked_on}" if stacked_on else ""
    if feature.pull_request:
        passed, failed, pending = feature.checks or (0, 0, 0)
        checks = f" ({passed} checks passed, {failed} failed, {pending} pending)" if feature.checks else ""
        return f"{feature.pull_request}{checks}{stack_note}"
    if feature.status in ("delivered", "tagged"):
        text_path = context.pull_request_text_path(view.run, feature.feature)
        return f"{feature.branch}{stack_note}" + (
            f"; text for a pull request: {context.display_path(text_path)}" if text_path else ""
        )
    return context.worktree_path(view.run, feature.feature) or ""


def stack_branch(view: RunView, feature: FeatureView) -> str:
    """Return the branch of the feature that this one is stacked on; empty if it is on the run's base."""
    return feature.target if feature.target != view.base else ""


def review_hint(view: RunView, context: RunContext) -> str:
    """Return how to review what was delivered without a pull request; empty if nothing was."""
    delivered = [
        feature
        for feature in view.features
        if feature.status == "delivered" and feature.branch and not feature.pull_request
    ]
    if not delivered:
        return ""
    first = delivered[0]
    command = f"`git diff {first.target}...{first.branch}`"
    if len(delivered) > 1:
        return f"next: review what was delivered, for example with {command}"
    text_path = context.pull_request_text_path(view.run, first.feature)
    text_note = f"; the text for a pull request is in {context.display_path(text_path)}" if text_path else ""
    return f"next: review it with {command}{text_note}"


# many features --------------------------------------------------------------------------------------------------------
def features_to_list(features: Sequence[FeatureView]) -> tuple[tuple[FeatureView, ...], str]:
    """Return the features to list on a terminal (of many, the started ones), and a count of the others by status."""
    if len(features) <= LISTED_MAX:
        return tuple(features), ""
    shown = tuple(feature for feature in features if feature.started_us is not None)
    hidden_by_status = Counter(feature.status for feature in features if feature.started_us is None)
    kinds = ", ".join(f"{number:,} {status}" for status, number in hidden_by_status.items())
    return (
        shown,
        f"and {count_noun(sum(hidden_by_status.values()), 'other feature')}: {kinds}" if hidden_by_status else "",
    )


def run_context(home: Path, messages: tuple[InboxMessage, ...] = ()) -> RunContext:
    """Return the context of the project's runs; `messages`: the run's inbox."""
    return RunContext(
        worktree_path=worktree_finder(home),
        pull_request_text_path=pull_request_text_finder(home),
        messages=messages,
        display_path=relative_path,
    )


def worktree_finder(home: Path) -> PathFinder:
    """Return a function from run and feature to the worktree; None if it does not exist."""

    def worktree_path(run: str, feature: str) -> str | None:
        folder = home / MZ_FOLDER / WORKTREES_FOLDER / run / feature
        return str(folder) if folder.is_dir() else None

    return worktree_path


def pull_request_text_finder(home: Path) -> PathFinder:
    """Return a function from run and feature to the text of a pull request that a person has to open; None if it does
    not exist."""

    def text_path(run: str, feature: str) -> str | None:
        file = home / MZ_FOLDER / PULL_REQUESTS_FOLDER / run / f"{feature}.md"
        return str(file) if file.is_file() else None

    return text_path


def relative_path(location: str) -> str:
    """Return the path relative to the current directory if it is below it, else unchanged."""
    path, here = Path(location), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else location
