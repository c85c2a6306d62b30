"""Effects on branch and worktree: create, commit, restore, and reconcile a commit after a crash."""

from __future__ import annotations

from mz_events.catalog.delivery import CommitRequested, Committed
from mz_events.catalog.feature import HumanRequested, QuestionKind, TreeRestored, WorkspaceConflicted, WorkspaceReady
from mz_projections.feature.state import CreatingWorkspace, Restoring, UnitUsage

from mz_engine.decide.actions import RestoreTree
from mz_engine.decoding.quantity import NANOUSD_PER_USD
from mz_engine.effects.steps import Effect, StepContext, Steps, call_port, emit, get_text, put_blob
from mz_engine.ports import CreatedCommit, RepositoryUnusable, Workspace, WorkspaceCreated


def create_workspace(context: StepContext) -> Effect:
    """Create branch and worktree. Repeatable: continues from what a killed attempt left."""
    assert isinstance(context.state, CreatingWorkspace)
    starts_from = context.state.started.starts_from
    try:
        result = yield from call_port(Workspace.open, context.worktree, starts_from)
    except RepositoryUnusable as error:
        detail, conflict = (yield from put_blob(str(error))), QuestionKind.CONFLICT
        yield from emit(HumanRequested(phase="", unit="", question_kind=conflict, code=error.code, detail=detail))
        return
    if isinstance(result, WorkspaceCreated):
        yield from emit(WorkspaceReady(head=result.head, tree=result.tree))
    else:
        yield from emit(WorkspaceConflicted(paths=result.paths))


def make_commit(context: StepContext) -> Effect:
    """Commit the work of one unit run."""
    unit_run, progress, phase = context.unit_run, context.phase_state.progress, context.phase
    title = yield from get_text(progress.started.title)
    subject = (phase.commit or "{phase}: {title}").format(
        feature=context.feature, title=title, phase=phase.phase, unit=unit_run.unit
    )
    key = context.key("commit")
    message = yield from put_blob(commit_message(subject, key, context, unit_run.usage))
    yield from _commit(
        context,
        CommitRequested(
            key=key,
            purpose="work",
            phase=phase.phase,
            unit=unit_run.unit,
            tree=unit_run.tree,
            parent=progress.head,
            message=message,
        ),
    )


def commit_message(subject: str, key: str, context: StepContext, usage: UnitUsage) -> str:
    """Return a commit message: one line, and trailers with key, feature, tokens, cost and duration."""
    dollars = f"{usage.nanousd / NANOUSD_PER_USD:.6f}"
    return (
        f"{' '.join(subject.split())}\n\n"
        f"Mz-Key: {key}\n"
        f"Mz-Feature: {context.feature}\n"
        f"Mz-Tokens: {usage.input_tokens} in, {usage.output_tokens} out\n"
        f"Mz-Cost-USD: {dollars}\n"
        f"Mz-Duration-Seconds: {usage.duration_ms / 1000:.1f}\n"
    )


def restore_tree(action: RestoreTree, context: StepContext) -> Effect:
    """Commit the tree from before the phase that a rollback leads to; history is kept."""
    assert isinstance(context.state, Restoring)
    progress, to = context.state.progress, context.state.to
    if action.committed:
        yield from call_port(Workspace.ensure, context.worktree, progress.head, progress.tree)
        yield from emit(TreeRestored(tree=progress.tree))
        return
    key = f"{context.run}/{context.feature}/-/-/{progress.restore_count}/0/restore"
    message = yield from put_blob(commit_message(f"restore the tree from before {to}", key, context, UnitUsage()))
    yield from _commit(
        context,
        CommitRequested(
            key=key, purpose="restore", phase=to, unit="", tree=progress.tree, parent=progress.head, message=message
        ),
    )


def _commit(context: StepContext, request: CommitRequested) -> Effect:
    yield from emit(request)
    yield from _record_commit(request, (yield from _write_commit(request, context)))


def reconcile_commit(intent: CommitRequested, context: StepContext) -> Effect:
    """Find the commit by its key on the branch, or make it again under the same key."""
    commit = yield from call_port(Workspace.find_commit, context.worktree, intent.key)
    yield from _record_commit(intent, commit or (yield from _write_commit(intent, context)))


def _write_commit(intent: CommitRequested, context: StepContext) -> Steps[CreatedCommit]:
    message = (yield from get_text(intent.message)).encode()
    return (yield from call_port(Workspace.commit, context.worktree, intent.tree, intent.parent, message))


def _record_commit(intent: CommitRequested, commit: CreatedCommit) -> Effect:
    yield from emit(
        Committed(
            key=intent.key,
            commit=commit.commit,
            files=commit.files,
            insertions=commit.insertions,
            deletions=commit.deletions,
        )
    )
