"""Pending actions of a run with the commands that resolve them, and the location of each feature's work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from mz_engine.errors.codes import PROBLEMS
from mz_engine.paths import MZ_FOLDER, PULL_REQUESTS_FOLDER, worktree_folder
from mz_engine.ports import OWN_PROBLEMS, TEMPLATE_BROKEN
from mz_events.catalog.feature import QuestionKind
from mz_events.catalog.run import Hold, Verdict
from mz_events.names import Digest
from mz_projections.run.spending import amount_text
from mz_projections.views.messages import InboxMessage
from mz_projections.views.model import AWAITS_MERGE, DELIVERED_STATUSES, ENDED_STATUSES, FeatureView, Question, RunView

from mz_cli.app.context import ProjectLog, TextLoader, is_process_running
from mz_cli.terminal.text import count_noun, format_time, shorten, single_line

DETAIL_MAX = 300
LISTED_MAX = 40
"""Features listed on a terminal; of more, only the started ones are listed and the others counted."""
REVIEW_COMMANDS = {
    Verdict.APPROVE: "mz review approve {}",
    Verdict.RETRY: "mz review answer {} TEXT",
    Verdict.ACCEPT: "mz review accept {} -m WHY",
    Verdict.REJECT: "mz review reject {} -m WHY",
}
PENDING_MESSAGE_TEXT = {
    "answer": "answered; pending until the run continues",
    "cancel": "cancellation requested; pending until the run continues",
    "retry": "retry requested; pending until the run continues",
    "revision": "revision requested; pending until the run continues",
}


class RunContext(msgspec.Struct, frozen=True, kw_only=True):
    """Data about a run that is not in its events: texts, files beside the log, the process, inbox messages."""

    root: Path
    load_text: TextLoader
    process_running: bool = False
    """A process drives the run, and reads its inbox by itself."""
    messages: tuple[InboxMessage, ...] = ()
    """All messages in the run's inbox."""

    def worktree(self, run: str, feature: str) -> str | None:
        """Return the path of the worktree; None if it does not exist."""
        folder = worktree_folder(self.root, run, feature)
        return str(folder) if folder.is_dir() else None

    def pull_request_text(self, run: str, feature: str) -> str | None:
        """Return the file with the text of a pull request that a person has to open; None if it does not exist."""
        file = self.root / MZ_FOLDER / PULL_REQUESTS_FOLDER / run / f"{feature}.md"
        return str(file) if file.is_file() else None

    def pending_message(self, view: FeatureView) -> InboxMessage | None:
        """Return the first message for the feature that the run has not read yet."""
        features = (view.feature,) if view.status in ENDED_STATUSES else (view.feature, None)
        questions = (None, view.question.version if view.question else None)
        pending = (m for m in self.messages if m.status == "pending" and m.kind in PENDING_MESSAGE_TEXT)
        return next((m for m in pending if m.feature in features and m.question in questions), None)


def run_context(log: ProjectLog, run: str) -> RunContext:
    return RunContext(
        root=log.root, load_text=log.load_text, process_running=is_process_running(log.root), messages=log.messages(run)
    )


def status_label(view: FeatureView) -> str:
    """Return the status, with its explanation in brackets."""
    asks = view.question.question_kind.value if view.question and view.status == "waiting" else ""
    codes = (asks, view.code, view.hold.value if view.hold else "")
    explanation = next((word for word in codes if word), "") if view.status in ("held", "waiting", "failed") else ""
    if view.status == "held" and view.blocked_by:
        explanation = f"{explanation} {view.blocked_by}".strip()
    return f"{view.status} ({explanation})" if explanation else view.status


def over_budget_text(view: FeatureView) -> str:
    """Return which budget a held feature exceeds, by how much, and when it fits again; empty if it does not."""
    call = view.over_budget if view.hold is Hold.BUDGET else None
    if call is None or not call.budget:
        return ""
    unit = "tokens" if call.budget.endswith("tokens") else "nanousd"
    used, limit, needed = (amount_text(unit, n) for n in (call.committed, call.limit, getattr(call, unit) or 0))
    until = f"; it fits at {format_time(call.until_us)} if nothing else is spent" if call.until_us is not None else ""
    return f"budget.{call.budget}: {used} of {limit} used, and the next call reserves {needed}{until}"


APPROVABLE = (QuestionKind.APPROVAL, QuestionKind.WITHHELD)
"""Questions whose likeliest answer is an approval."""


# commands -------------------------------------------------------------------------------------------------------------
def possible_verdicts(question: Question | None) -> tuple[Verdict, ...]:
    """Return the possible verdicts, the likeliest first."""
    approves = question is not None and question.question_kind in APPROVABLE
    first = Verdict.APPROVE if approves else Verdict.RETRY
    impossible = first if question is not None and question.gate else Verdict.ACCEPT
    return (first, *(verdict for verdict in REVIEW_COMMANDS if verdict not in (first, impossible)))


def review_commands(view: FeatureView) -> tuple[str, ...]:
    """Return the command that shows the question, then those that answer it, the likeliest first."""
    answers = (REVIEW_COMMANDS[verdict].format(view.feature) for verdict in possible_verdicts(view.question))
    return (f"mz review show {view.feature}", *answers)


def next_command(run: str, view: FeatureView, context: RunContext) -> str | None:
    """Return the next command for a stopped feature; for a question, the one that shows it and what its answers do.
    None if none is needed, or only one for its dependency."""
    if context.pending_message(view) is not None:
        return f"mz resume {run}"
    if view.question is not None and view.status == "waiting":
        return review_commands(view)[0]
    if _is_template_broken(view):
        return f"mz cancel {run}"
    waits = is_dependency_lost(view) or (view.awaits_dependency and view.code != AWAITS_MERGE)
    waits |= context.process_running and view.hold in (Hold.TIMER, Hold.CHECKS)
    switch = "git switch --detach && " if view.status == "held" and view.code in OWN_PROBLEMS else ""
    return f"{switch}mz resume {run}" if view.status in ("held", "interrupted", "paused") and not waits else None


def _is_template_broken(view: FeatureView) -> bool:
    return view.status == "held" and view.hold is Hold.FATAL and view.code == TEMPLATE_BROKEN


def is_dependency_lost(view: FeatureView) -> bool:
    """Return True if its dependency was not delivered, so that continuing the run does not help."""
    return view.status == "held" and view.hold is None and bool(view.blocked_by) and not view.awaits_dependency


OVER_TEXTS = {
    "": "nothing is open",
    "planned-nothing": "nothing is missing any more, so nothing was planned",
    "cycles": "no more were allowed",
    "unchanged": "nothing was delivered in the last of them",
}


def pending_actions(view: RunView, context: RunContext) -> tuple[tuple[str, str], ...]:
    """Return pairs of the reason why a person is needed and the command to use."""
    reasons_by_command: dict[str, list[str]] = {}
    for feature in view.features:
        for reason, command in _feature_action(view, feature, context):
            reasons_by_command.setdefault(command, []).append(single_line(reason))
    resume = f"mz resume {view.run}"
    resumable = reasons_by_command.pop(resume, [])
    if view.status == "running" and not context.process_running:
        resumable.insert(0, "no process is running this run; it was interrupted")
    elif view.status in ("stopped", "halted") and not resumable and not any(map(_is_template_broken, view.features)):
        resumable = [f"the run is {view.status}"]
    elif view.status == "idle" and (view.over or view.integration) and not resumable:
        why = (f"{count_noun(view.cycle, 'cycle')}: " if view.cycle else "") + OVER_TEXTS[view.over]
        if all(command.startswith("mz retry ") for command in reasons_by_command):
            reasons_by_command[f"mz finish {view.run}   (or {resume} --cycles 1)"] = [why]
    if resumable:
        reasons_by_command[resume] = resumable
    return tuple(("\n".join(limit_lines(reasons)), command) for command, reasons in reasons_by_command.items())


def _feature_action(run: RunView, feature: FeatureView, context: RunContext) -> Iterator[tuple[str, str]]:
    """Yield the reason why the feature needs a person, and the command; nothing if it does not, or if it is an end of
    the run that others follow: one that failed is begun anew, not retried."""
    reason, resume = f"{feature.feature}: {status_label(feature)}", f"mz resume {run.run}"
    message = context.pending_message(feature)
    if message is not None:
        if not context.process_running:
            yield f"{reason}: {PENDING_MESSAGE_TEXT[message.kind]}", resume
    elif feature.status == "waiting" and feature.question is not None:
        show_command, likeliest, *others = review_commands(feature)
        question = feature.question
        phase = f" in {question.phase}{'/' if question.unit else ''}{question.unit}" if question.phase else ""
        answers = f"{show_command}\n  {likeliest}   (or {', or '.join(others)})"
        yield f"{reason}{phase}{_detail_suffix(question.detail, context)}", answers
    elif feature.status == "failed" and run.closing and run.integration and run.base == feature.target:
        repair = f"(`git switch {run.integration}`, after a conflict `git merge {run.base}`)"
        merged = f"so nothing was merged: commit what is missing to {run.integration} {repair}, then"
        if feature is run.features[-1]:
            yield f"{reason}{_detail_suffix(feature.failure, context)}, {merged}", f"mz finish {run.run}"
    elif feature.status == "failed" and feature.failure is not None and run.status != "finished":
        yield f"{reason}{_detail_suffix(feature.failure, context)}", f"mz retry {feature.feature}"
    elif is_dependency_lost(feature):
        yield reason, f"mz retry {_lost_dependency(run, feature)}"
    elif _is_template_broken(feature):
        fault = feature.template_error
        location = f" in {fault.location}{_detail_suffix(fault.detail, context)}" if fault else ""
        yield f"{reason}{location}", _restart_hint(run)
    elif feature.awaits_dependency:
        dependency = run.find_feature(feature.blocked_by)
        if dependency is not None and feature.code == AWAITS_MERGE:
            yield reason, f"merge {dependency.pull_request or dependency.branch or dependency.feature}, then: {resume}"
    elif feature.hold is Hold.BUDGET:
        yield ": ".join(filter(None, (reason, over_budget_text(feature)))), f"raise budget in mz.yaml, then: {resume}"
    elif feature.status == "held" and feature.code in OWN_PROBLEMS:
        yield f"{reason}: {' '.join(PROBLEMS[feature.code])}", next_command(run.run, feature, context) or resume
    elif next_command(run.run, feature, context):
        call = feature.calls[-1] if feature.calls and feature.hold is Hold.FATAL else None
        detail = _detail_suffix(call.detail if call and call.problem == feature.code else None, context)
        remedy = PROBLEMS.get(feature.code, ("", ""))[1] if feature.hold is Hold.FATAL else ""
        text = f"{reason}{detail}"
        yield f"{text.rstrip('.')}{'.' * (text[-1] not in '?!')} {remedy}" if remedy else text, resume


def _detail_suffix(detail: Digest | None, context: RunContext) -> str:
    text = shorten(single_line(context.load_text(detail)), DETAIL_MAX) if detail is not None else ""
    return f": {text}" if text else ""


def _restart_hint(run: RunView) -> str:
    """Return how to replace a run that cannot continue. A branch with commits is never deleted by the command that is
    to be pasted."""
    unfinished = [feature for feature in run.features if feature.branch and feature.status not in ENDED_STATUSES]
    commands = f"mz cancel {run.run} && mz clean --yes {run.run}"
    if empty_branches := " ".join(feature.branch for feature in unfinished if not feature.commits):
        commands += f" && git branch -D {empty_branches}"
    if with_work := [feature.branch for feature in unfinished if feature.commits]:
        commands += f"; keep what you need of {', '.join(with_work)}, then: git branch -D {' '.join(with_work)}"
    return (
        "fix the template below pipelines/templates; `mz check --layer 1` checks all of them. This run keeps the "
        f"template that it started with, so replace the run: {commands}, then: mz run"
    )


def _lost_dependency(run: RunView, feature: FeatureView) -> str:
    """Return the dependency that was not delivered, at the end of a chain of held features."""
    dependency = run.find_feature(feature.blocked_by)
    lost = dependency is not None and is_dependency_lost(dependency)
    return _lost_dependency(run, dependency) if dependency is not None and lost else feature.blocked_by


def limit_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the first lines, and a count of the others."""
    hidden = len(lines) - LISTED_MAX
    return tuple(lines) if hidden <= 0 else (*lines[:LISTED_MAX], f"and {hidden:,} more")


# location of the work -------------------------------------------------------------------------------------------------
def work_locations(view: RunView, context: RunContext) -> tuple[str, ...]:
    """Return for each feature its pull request, else its branch and the text for one, else its worktree."""
    locations = ((feature.feature, _work_location(view, feature, context)) for feature in view.features)
    return tuple(f"{feature}: {location}" for feature, location in locations if location)


def _work_location(view: RunView, feature: FeatureView, context: RunContext) -> str:
    stacked_on = stack_branch(view, feature)
    stack_note = f", which builds on {stacked_on}" if stacked_on else ""
    if feature.pull_request:
        passed, failed, pending = feature.checks or (0, 0, 0)
        checks = f" ({passed} checks passed, {failed} failed, {pending} pending)" if feature.checks else ""
        return "; ".join(filter(None, (f"{feature.pull_request}{checks}{stack_note}", feature.delivery)))
    if feature.delivery or feature.branch_closed:
        own_branch = "" if feature.landed or feature.branch_closed else feature.branch
        return ", ".join(filter(None, (own_branch, feature.delivery)))
    if feature.status in DELIVERED_STATUSES and feature.branch and not feature.changed_paths:
        return f"nothing changed on {feature.branch}"
    if feature.status in DELIVERED_STATUSES:
        text_path = context.pull_request_text(view.run, feature.feature)
        text_note = f"; text for a pull request: {relative_path(text_path, context)}" if text_path else ""
        return f"{feature.branch}{stack_note}{text_note}"
    worktree = context.worktree(view.run, feature.feature)
    return f"worktree {relative_path(worktree, context)}" if worktree else ""


def stack_branch(view: RunView, feature: FeatureView) -> str:
    """Return the branch of the feature that this one is stacked on; empty if it is on the run's base."""
    return feature.target if feature.target != view.base else ""


def review_hint(view: RunView, context: RunContext) -> str:
    """Return how to review what was changed and delivered without a pull request; empty if nothing was."""
    changed = [feature for feature in view.features if feature.branch and feature.changed_paths]
    delivered = [feature for feature in changed if feature.status == "delivered" and not feature.pull_request]
    if not delivered:
        return ""
    first = delivered[0]
    command = f"`git diff {first.target}...{first.branch}`"
    if len(delivered) > 1:
        return f"next: review what was delivered, for example with {command}"
    text_path = context.pull_request_text(view.run, first.feature)
    text_note = f"; the text for a pull request is in {relative_path(text_path, context)}" if text_path else ""
    return f"next: review it with {command}{text_note}"


# many features --------------------------------------------------------------------------------------------------------
def features_to_list(features: Sequence[FeatureView]) -> tuple[tuple[FeatureView, ...], str]:
    """Return the features to list on a terminal (of many, the started ones), and a count of the others by status."""
    if len(features) <= LISTED_MAX:
        return tuple(features), ""
    hidden = Counter(feature.status for feature in features if feature.started_us is None)
    kinds = ", ".join(f"{number:,} {status}" for status, number in hidden.items())
    count_text = f"and {count_noun(hidden.total(), 'other feature')}: {kinds}" if hidden else ""
    return tuple(feature for feature in features if feature.started_us is not None), count_text


def relative_path(location: str, context: RunContext) -> str:
    """Return the path relative to the repository if that is the current directory, else unchanged."""
    return str(Path(location).relative_to(context.root)) if Path.cwd() == context.root else location
