"""Effects of delivery: merge, push, pull request (each is looked up before it is repeated), CI checks (polled once,
flaky ones started again), and the end of a feature; in the repository itself: merge the feature's branch into its
target, tag a commit, close the branch. The text of a pull request, for the person who reviews it, is what the agent
wrote about the work, then what the log knows of it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase

from msgspec.structs import asdict
from mz_events.catalog.delivery import (
    BaseMerged,
    BranchesClosed,
    BranchLanded,
    ChecksPolled,
    ChecksRerun,
    DeliveryFailed,
    MergeRequested,
    PullRequestOpened,
    PullRequestRequested,
    Pushed,
    PushRequested,
    Tagged,
    TagRequested,
    TargetMoved,
)
from mz_events.catalog.feature import FeatureDelivered
from mz_events.names import Commit, FeatureId, Path
from mz_projections.feature.state import BetweenPhases
from mz_projections.views.timeline import count_noun, list_names

from mz_engine.artifacts.command_output import excerpt
from mz_engine.artifacts.parse import title_and_body
from mz_engine.decide.caller import agent_of
from mz_engine.decoding.quantity import NANOUSD_PER_USD
from mz_engine.effects.prompt import read_file
from mz_engine.effects.steps import (
    Effect,
    StepContext,
    Steps,
    call_port,
    emit,
    get_json,
    get_text,
    put_blob,
    put_report,
)
from mz_engine.effects.validation import ensure_worktree
from mz_engine.effects.workspace import commit_message, select_papers
from mz_engine.model.pins import Commands, Pins
from mz_engine.model.pipeline import TagStep
from mz_engine.ports import (
    CiCheck,
    Clock,
    DeliveryRefused,
    FeatureWorktree,
    Forge,
    MergeResult,
    RemoteError,
    RepositoryUnusable,
    StorageFailed,
    Workspace,
)
from mz_engine.ref_names import DATE, fill, name_values

CONFLICT_MARKER = "<<<<<<< "
"""Start of a conflict marker that git writes into a file."""


def deliver(key: str, effect: Effect) -> Effect:
    """Carry out a step of delivery, and record if remote or forge fail."""
    try:
        yield from effect
    except RemoteError as error:
        yield from emit(DeliveryFailed(key=key, code=error.code, detail=(yield from put_blob(str(error)))))


def merge_base(context: StepContext) -> Effect:
    """Merge the target branch. Repeatable: an unrecorded merge is first reset to the stream's head."""
    progress, tree, key = context.phase_state.progress, context.unit_run.tree, context.key("merge_base")
    settings, head = context.pins.config.pull_requests, progress.head
    yield from ensure_worktree(context, tree)
    target = yield from target_branch(context)
    remote = settings.remote if _is_pushed(context) else None
    base = yield from call_port(Workspace.target_head, remote, target)
    merged = MergeResult(commit=head, tree=tree, changed=False)
    if base is not None:
        message = commit_message(f"merge {target}", key, context).encode()
        merged = yield from call_port(Workspace.merge, context.worktree, head, base, message)
    if merged.changed:
        before, tree = tree, merged.tree
        if context.pins.config.place_of_papers == "log":
            papers = select_papers(context, (yield from call_port(Workspace.changes, tree, before)))
            tree = yield from call_port(Workspace.revert_paths, context.worktree, tree, before, papers)
    marked: list[Path] = []
    for path in dict.fromkeys((*progress.conflicted_files, *merged.conflicts)):
        # A marker may also be of an earlier merge that was never fixed.
        text = (yield from read_file(tree, path)) or ""
        if any(line.startswith(CONFLICT_MARKER) for line in text.splitlines()):
            marked.append(path)
    yield from emit(
        BaseMerged(
            key=key,
            base=base or head,
            head=merged.commit,
            tree=tree,
            changed=merged.changed,
            conflicts=tuple(marked),
            unmarked=tuple(path for path in merged.conflicts if path not in marked),
        )
    )


def target_branch(context: StepContext) -> Steps[str]:
    """Return the branch that the work is for: for a stacked feature the dependency's until that is merged. Raises
    RemoteError."""
    target = context.phase_state.progress.started.target
    if target == context.base_branch or not _is_pushed(context):
        return target
    merged = yield from call_port(Forge.merged, target)
    return context.base_branch if merged else target


def _is_pushed(context: StepContext) -> bool:
    """Return True if the phase delivers to the remote, whose branches then count."""
    steps, strategy = context.phase.deliver, context.pins.config.pull_requests.strategy
    return strategy != "none" and "push" in steps and "merge" not in steps


def conflict_text(merged: BaseMerged) -> str:
    """Return the text for the agent that resolves the conflict, or for the person who decides."""
    parts = ["Meanwhile the branch that this is for has changed, and was merged into this one."]
    if merged.conflicts:
        files = "\n".join(f"- {path}" for path in merged.conflicts)
        parts.append(f"These files hold conflict markers now (`<<<<<<<`, `=======`, `>>>>>>>`):\n{files}")
        parts.append("In each of them keep what both sides meant, remove the markers, and see that all tests pass.")
    if merged.unmarked:
        files = "\n".join(f"- {path}" for path in merged.unmarked)
        parts.append(
            "Both sides changed these files too, in a way that no markers can show (binary, or removed on one side); "
            f"they stand as this branch had them, without what the other side did:\n{files}"
        )
    return "\n".join((*parts, "Everything else of this feature is done already."))


def push_branch(context: StepContext) -> Effect:
    progress, branch, key = context.phase_state.progress, context.worktree.branch, context.key("push")
    remote = context.pins.config.pull_requests.remote
    old = yield from call_port(Workspace.remote_head, remote, branch)
    is_ours = old is None or old == progress.pushed_commit
    if old is not None and not is_ours and not (yield from call_port(Workspace.contains, progress.head, old)):
        raise RemoteError(
            f"{remote} has commits on {branch} that are not from this run ({old}); a push would lose them. "
            "Delete that branch on the remote, or move its commits to another one, then approve",
            "branch-moved",
        )
    request = PushRequested(key=key, remote=remote, branch=branch, commit=progress.head, old=old)
    yield from emit(request)
    yield from reconcile_push(request, is_new=True)


def reconcile_push(intent: PushRequested, is_new: bool = False) -> Effect:
    """Push, unless the remote has the commit already."""
    remote_head = None if is_new else (yield from call_port(Workspace.remote_head, intent.remote, intent.branch))
    if remote_head != intent.commit:
        yield from call_port(Workspace.push, intent.remote, intent.branch, intent.commit, intent.old)
    yield from emit(Pushed(key=intent.key, commit=intent.commit))


def open_pull_request(context: StepContext) -> Effect:
    """Open the pull request, but none for a branch without commits of its own: a forge refuses that. Title: the
    feature's, verbatim."""
    progress, key = context.phase_state.progress, context.key("open_pr")
    started, has_commits = progress.started, progress.head != progress.base
    target = yield from target_branch(context)
    title = yield from get_text(started.title)
    request = PullRequestRequested(
        key=key,
        branch=started.branch,
        target=target,
        title=(yield from put_blob(title)),
        body=(yield from put_blob((yield from pull_request_body(context, key)))),
        strategy=context.pins.config.pull_requests.strategy if has_commits else "none",
    )
    yield from emit(request)
    yield from reconcile_pull_request(request, context)


def reconcile_pull_request(intent: PullRequestRequested, context: StepContext) -> Effect:
    """Find the pull request by head branch and key and update it, or open it; the same the first time and after a
    crash."""
    title, body = (yield from get_text(intent.title)), (yield from get_text(intent.body))
    if intent.strategy == "none":
        yield from call_port(Forge.write_description, context.worktree, intent.target, title, body)
        yield from emit(PullRequestOpened(key=intent.key, url="", number=None))
        return
    draft = intent.strategy == "draft"
    try:
        pull_request = yield from call_port(Forge.find, intent.branch, f"{context.run}/{context.feature}/")
        if pull_request is None or pull_request.state == "merged":
            pull_request = yield from call_port(Forge.open, intent.branch, intent.target, title, body, draft)
        elif pull_request.state == "closed":
            raise RemoteError(f"{pull_request.url} was closed; open it again, or reject the feature")
        elif pull_request.key != intent.key and pull_request.number is not None:
            yield from call_port(Forge.update, pull_request.number, intent.target, title, body)
    except RemoteError:
        done = None
        with suppress(RemoteError):  # The forge may have done it although its reply was lost.
            done = yield from call_port(Forge.find, intent.branch, intent.key)
        if done is None or done.state != "open":
            raise
        pull_request = done
    yield from emit(PullRequestOpened(key=intent.key, url=pull_request.url, number=pull_request.number))


def finish_feature(context: StepContext) -> Effect:
    """Close the worktree and record the delivery. Files that only a merge of the target branch changed do not count."""
    assert isinstance(context.state, BetweenPhases)
    progress, worktree = context.state.progress, context.worktree
    head, merged_target = progress.head, progress.merged_target
    changed_paths = yield from call_port(Workspace.changed_paths, progress.base, head)
    if merged_target is not None:
        changed_since_merge = yield from call_port(Workspace.changed_paths, merged_target, head)
        changed_paths = tuple(path for path in changed_paths if path in changed_since_merge)
    yield from call_port(Workspace.close, worktree)
    landed, ending = progress.landed, context.pins.pipeline.ending
    delivered = landed.commit if landed is not None and ending == "merged" else head
    yield from emit(FeatureDelivered(ending=ending, head=delivered, changed_paths=changed_paths))


PROMPT_LOG_LINES_MAX = 50
"""Log lines of each failed CI check in the prompt of the phase that fixes it (as in Monozukuri's CI reprompt)."""


def poll_checks(context: StepContext) -> Effect:
    """Poll the CI checks once; the report holds the log ends of failed ones. If the forge cannot be asked, no check is
    known, and the next poll asks again."""
    head, number = context.phase_state.progress.head, context.unit_run.pull_request_number
    report = None
    try:
        checks = () if number is None else (yield from call_port(Forge.checks, number, head))
        messages = []
        for check in failed_checks(checks):
            log_end = excerpt((yield from call_port(Forge.failed_log, check)).encode(), lines_max=PROMPT_LOG_LINES_MAX)
            message = f"the check `{check.name}` of the pull request failed"
            messages.append(f"{message}; it printed:\n{log_end}" if log_end else message)
        report = yield from put_report(messages)
    except RemoteError:
        checks = None
    states, flaky = [check.state for check in checks or ()], context.pins.config.pull_requests.flaky
    yield from emit(
        ChecksPolled(
            key=context.key("await_checks"),
            commit=head,
            commit_known=checks is not None,
            passed=states.count("green"),
            failed=states.count("red"),
            pending=states.count("pending"),
            flaky=report is not None and all(is_flaky(check, flaky) for check in failed_checks(checks)),
            report=report,
        )
    )


def failed_checks(checks: tuple[CiCheck, ...] | None) -> tuple[CiCheck, ...]:
    return tuple(check for check in checks or () if check.state == "red")


def is_flaky(check: CiCheck, patterns: Iterable[str]) -> bool:
    """Return True if the CI check is known to fail at random and the forge can run it again. A pattern names a job, or
    workflow and job."""
    names = (check.name, check.name.partition(" / ")[2])
    return check.run is not None and any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def rerun_checks(context: StepContext) -> Effect:
    """Start each CI run with failed checks once again. Errors of the forge show at the next poll."""
    number, started = context.unit_run.pull_request_number, 0
    assert number is not None
    with suppress(RemoteError):
        checks = yield from call_port(Forge.checks, number, context.phase_state.progress.head)
        for run in dict.fromkeys(check.run for check in failed_checks(checks) if check.run):
            yield from call_port(Forge.rerun, run)
            started += 1
    yield from emit(ChecksRerun(key=context.key("rerun"), runs=started))


# the text of a pull request -------------------------------------------------------------------------------------------
NOT_RUN = "not run"
SETUP_FAILED = "not run, the set-up failed"


def pull_request_body(context: StepContext, key: str) -> Steps[str]:
    """Return the body: the artifact without its heading, the request, gates, corrected commands, effort, papers, and,
    hidden, the key by which the pull request is found again."""
    sections = (
        (yield from _summary(context)),
        (yield from _request(context)),
        (yield from _gates(context)),
        _corrections(context.pins),
        _effort(context),
        _papers(context),
        f"<!--\nMz-Key: {key}\n-->",
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _summary(context: StepContext) -> Steps[str]:
    for output in context.phase.outputs:
        parsed = context.unit_run.parsed_artifacts.get(output.artifact)
        if parsed is not None:
            return title_and_body((yield from get_text(parsed.digest)))[1].rstrip()
    return ""


def _request(context: StepContext) -> Steps[str]:
    started = context.phase_state.progress.started
    title, body = (yield from get_text(started.title)), (yield from get_text(started.body))
    quoted = (f"> {line}".rstrip() for line in body.strip().splitlines())
    closes = ("", f"Closes {'/'.join(started.issue.split('/')[-2:])}.") if started.issue else ()
    return "\n".join(("## Request", "", f"> **{' '.join(title.split())}**", ">", *quoted, *closes))


def _gates(context: StepContext) -> Steps[str]:
    """Return a table of the commands before and after the work, then what failed and counts as passed."""
    progress = context.phase_state.progress
    gate_runs = {**progress.gate_runs, **context.unit_run.gate_runs}
    base = dict((yield from get_json(progress.started.base_results)))
    rows = [
        f"| `{name}` | {_result(*base[name][:3]) if name in base else NOT_RUN} | "
        f"{_result(ran.exit, ran.passed, ran.failed) if ran.stage == 'gate' else SETUP_FAILED} |"
        for name, ran in gate_runs.items()
    ]
    table = ["| command | before | after |", "|---|---|---|", *rows] if rows else ["No command of `mz.yaml` is a gate."]
    notes = list[str]()
    for name, ran in gate_runs.items():
        if ran.missing is not None:
            missing = list_names(f"`{id_}`" for id_ in (yield from get_json(ran.missing)))
            notes.append(f"- `{name}`: tests that passed on the base are missing: {missing}")
    if progress.started.known_failures is not None:
        for name, ids in (yield from get_json(progress.started.known_failures)).items():
            notes.append(f"- `{name}`: {len(ids)} failed tests, which fail without this change too; no others fail.")
    for accepted in progress.accepted_gates:
        actor = yield from get_text(accepted.answer.actor)
        note = (yield from get_text(accepted.answer.note)) if accepted.answer.note else "no reason given"
        notes.append(f"- `{accepted.gate}` failed and was accepted as it is by {actor}: {' '.join(note.split())}")
    judged_by, unit_run = dict(progress.judged_by), context.unit_run
    judged_by |= {f"{context.phase_state.phase}/{unit_run.unit}": unit_run.judged_by} if unit_run.judged_by else {}
    for name, key in judged_by.items():
        phase = context.pins.pipeline.find_phase(name.partition("/")[0])
        rules = list_names(f"`{rule.id}`" for rule in context.pins.judged_rules(phase))
        notes.append(f"- {name.removesuffix('/')}: {rules}: judged by `{key}`")
    return "\n".join(("## Gates", "", *table, *(("", *notes) if notes else ())))


def _result(exit_code: int | None, passed: int | None, failed: int | None) -> str:
    if passed is not None:
        return f"{passed} passed, {failed or 0} failed"
    return "passed" if exit_code == 0 else "ran out of time" if exit_code is None else f"exit {exit_code}"


def _corrections(pins: Pins) -> str:
    """Return the commands, and what they need, that are others than at the start of the run."""
    changes = Commands.of(pins.config).changes_from(pins.first_commands) if pins.first_commands else ()
    lines = ("".join(filter(str.isprintable, line)) for line in changes)
    return "\n".join(("## Corrected during the run", "", "```diff", *lines, "```")) if changes else ""


def _effort(context: StepContext) -> str:
    progress, usage = context.phase_state.progress, context.phase_state.progress.usage
    calls, rollbacks = sum(progress.calls.values()), progress.rollback_count
    tokens = f"{usage.input_tokens:,} input and {usage.output_tokens:,} output tokens"
    cost = f"${usage.nanousd / NANOUSD_PER_USD:.2f}" if usage.nanousd else "at an unknown cost"
    by_phase = ", ".join(f"{phase} {count}" for phase, count in progress.calls.items())
    effort = f"{count_noun(calls, 'call')} of {agent_of(progress, context.pins.config)} ({by_phase})"
    effort += f", {count_noun(rollbacks, 'rollback')}" if rollbacks else ""
    more = f"every attempt, prompt and change: `mz show {context.feature}`; the evidence: `mz audit {context.feature}`"
    return f"## Effort\n\n- {effort}, {tokens}, {cost}\n- {more}"


def _papers(context: StepContext) -> str:
    """Return how to read the papers that the branch does not have."""
    if context.pins.config.place_of_papers == "branch":
        return ""
    artifacts = {**context.phase_state.progress.artifacts, **context.unit_run.parsed_artifacts}
    names = {artifact.path: name for name, artifact in artifacts.items() if artifact.path is not None}
    rows = [f"- {path}: `mz show {context.feature} --artifact {name}`" for path, name in names.items()]
    return "\n".join(("## Papers", "", "Not on this branch, but in the log:", "", *rows)) if rows else ""


# branches and tags of the repository. A target only moves to a merge from the head that this was made for. ------------
def merge_branch(context: StepContext) -> Effect:
    """Merge the feature's branch into its target: a commit with the very tree of the branch. The branch must contain
    the target; otherwise record that the target moved."""
    head, key = context.phase_state.progress.head, context.key("merge")
    target = yield from target_branch(context)
    old = yield from call_port(Workspace.target_head, None, target)
    if old is None:
        hint = f"`git branch {target} COMMIT` makes it; then approve"
        raise DeliveryRefused(f"there is no branch {target} in this repository to merge into; {hint}", "target-missing")
    if (yield from call_port(Workspace.contains, old, head)):
        feature = FeatureId(context.feature)
        yield BranchLanded(feature=feature, key=key, branch=target, changed=False, old=old, commit=old)
    elif not (yield from call_port(Workspace.contains, head, old)):
        yield from emit(TargetMoved(key=key, branch=target, commit=old))
    else:
        message = yield from put_blob((yield from _merge_message(target, old, head, context)))
        commit = (yield from call_port(Workspace.join, old, head, (yield from get_text(message)).encode())).commit
        request = MergeRequested(key=key, branch=target, message=message, old=old, head=head, commit=commit)
        yield from emit(request)
        yield from reconcile_merge(request, context)


def _merge_message(target: str, old: Commit, head: Commit, context: StepContext) -> Steps[str]:
    """Return the message of a merge: which branch it is of, that which the item's began as if its kind names one; lines
    of code and tests, unless git cannot tell; and the usage of all calls of the item."""
    progress, pins, trailers = context.phase_state.progress, context.pins, list[str]()
    [kind] = pins.pipeline.kinds
    begun = pins.branch(kind.starts, context.feature, context.base_branch, context.integration)
    try:
        change = yield from call_port(Workspace.source_change, old, head, pins.config.sources)
    except StorageFailed:
        raise
    except RepositoryUnusable:
        pass
    else:
        code, tests = change.code, change.tests
        trailers.append(f"Mz-Lines: code +{code.added} -{code.removed}, tests +{tests.added} -{tests.removed}")
    calls = sum(progress.calls.values())
    trailers += [f"Mz-Calls: {calls}"] if calls else []
    subject = f"Merge branch '{begun or context.worktree.branch}' into {target}"
    return commit_message(subject, context.key("merge"), context, progress.usage if calls else None, trailers)


def reconcile_merge(intent: MergeRequested, context: StepContext) -> Effect:
    """Move the target to the merge unless it is there or beyond; the same the first time and after a crash."""
    message = (yield from get_text(intent.message)).encode()
    made = yield from call_port(Workspace.join, intent.old, intent.head, message)
    now = yield from call_port(Workspace.advance, intent.branch, intent.old, intent.commit)
    if now is not None:
        yield from emit(TargetMoved(key=intent.key, branch=intent.branch, commit=now))
        return
    feature, counts = FeatureId(context.feature), {**asdict(made), "commit": intent.commit}
    yield BranchLanded(feature=feature, key=intent.key, branch=intent.branch, changed=True, old=intent.old, **counts)


def make_tag(context: StepContext, name: str) -> Effect:
    """Tag a commit. A name with the date that is taken by another commit gets a number; the name is chosen before the
    intent, so that a repetition on another day takes the same."""
    step = context.phase.steps[name]
    assert isinstance(step, TagStep)
    commit = _commit_at(context, step)
    title = yield from get_text(context.phase_state.progress.started.title)
    now_us = yield from call_port(Clock.now_us)
    values = name_values(context.run, context.feature, title, context.integration, now_us)
    number, text = 1, fill(step.tag, values)
    while f"{{{DATE}}}" in step.tag and (yield from call_port(Workspace.tagged, text)) not in (None, commit):
        number += 1
        text = fill(step.tag, {**values, DATE: f"{values[DATE]}.{number}"})
    request = TagRequested(key=context.key(name), name=text, commit=commit)
    yield from emit(request)
    yield from reconcile_tag(request)


def _commit_at(context: StepContext, step: TagStep) -> Commit:
    """Return the commit that a step tags."""
    progress, merged = context.phase_state.progress, context.unit_run.target_merge
    if step.at == "head":
        return progress.head
    if step.at == "merge" and progress.landed is not None:
        return progress.landed.commit
    before = progress.landed.old if progress.landed is not None else progress.merged_target or progress.base
    return merged.base if merged is not None else before


def reconcile_tag(intent: TagRequested) -> Effect:
    """Make the tag unless it is there."""
    at = yield from call_port(Workspace.tagged, intent.name)
    if at is None:
        yield from call_port(Workspace.tag, intent.name, intent.commit)
    elif at != intent.commit:
        hint = f"rename or delete it (`git tag -d {intent.name}`), then approve"
        raise DeliveryRefused(
            f"the tag {intent.name} exists at {at[:12]}, not at {intent.commit[:12]}; {hint}", "tag-exists"
        )
    yield from emit(Tagged(key=intent.key, name=intent.name, commit=intent.commit))


def close_branches(context: StepContext, step: str) -> Effect:
    """Delete the item's branch, whose head mz keeps; for the step about all of the run's, first those of its items and
    the integration branch. Repeatable."""
    progress, closed = context.phase_state.progress, list[str]()
    started = progress.started
    for item in started.items if step == "close_branches" else ():
        head = started.starts_from[0] if item.branch == context.integration else item.head
        if head is not None:
            worktree = FeatureWorktree(run=context.run, feature=item.feature, branch=item.branch)
            yield from call_port(Workspace.close_branch, worktree, head)
            closed.append(item.branch)
    yield from call_port(Workspace.close_branch, context.worktree, progress.head)
    yield from emit(BranchesClosed(key=context.key(step), branches=(*closed, context.worktree.branch)))
