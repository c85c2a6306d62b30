"""Effects on branch and worktree: create, commit, restore, and reconcile a commit after a crash."""

from __future__ import annotations

from typing import Literal

from mz_events.catalog.delivery import CommitRequested, Committed
from mz_events.catalog.feature import HumanRequested, QuestionKind, TreeRestored, WorkspaceConflicted, WorkspaceReady
from mz_events.names import Commit
from mz_projections.feature.state import FeatureProgress, Restoring, UnitUsage

from mz_engine.decide.actions import CreateWorkspace, RestoreTree
from mz_engine.decoding.quantity import NANOUSD_PER_USD
from mz_engine.effects.steps import Effect, StepContext, Steps, call_port, emit, get_text, put_blob
from mz_engine.ports import CreatedCommit, RepositoryUnusable, WorkspaceCreated


def create_workspace(action: CreateWorkspace, context: StepContext) -> Effect:
    """Create branch and worktree. Repeatable: continues from what a killed attempt left."""
    worktree, starts_from = context.worktree, action.started.starts_from
    try:
        result = yield from call_port("workspace.open", lambda ports: ports.workspace.open(worktree, starts_from))
    except RepositoryUnusable as error:
        detail = yield from put_blob(str(error))
        yield from emit(
            HumanRequested(phase="", unit="", question_kind=QuestionKind.CONFLICT, code=error.code, detail=detail)
        )
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
    message = commit_message(subject, key, context, unit_run.usage)
    yield from _request_commit(context, key, "work", unit_run.tree, progress.head, message, phase.phase, unit_run.unit)


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
    progress, worktree = context.state.progress, context.worktree
    if action.committed:
        yield from call_port(
            "workspace.ensure", lambda ports: ports.workspace.ensure(worktree, progress.head, progress.tree)
        )
        yield from emit(TreeRestored(tree=progress.tree))
        return
    key = _restore_key(context, progress)
    message = commit_message(f"restore the tree from before {context.state.to}", key, context, UnitUsage())
    yield from _request_commit(context, key, "restore", progress.tree, progress.head, message, context.state.to, "")


def _restore_key(context: StepContext, progress: FeatureProgress) -> str:
    return f"{context.run}/{context.feature}/-/-/{progress.restore_count}/0/restore"


def _request_commit(
    context: StepContext,
    key: str,
    purpose: Literal["work", "restore"],
    tree: Commit,
    parent: Commit,
    message: str,
    phase: str,
    unit: str,
) -> Effect:
    digest = yield from put_blob(message)
    request = CommitRequested(
        key=key, purpose=purpose, phase=phase, unit=unit, tree=tree, parent=parent, message=digest
    )
    yield from emit(request)
    commit = yield from _write_commit(request, context)
    yield from _record_commit(request, commit)


def reconcile_commit(intent: CommitRequested, context: StepContext) -> Effect:
    """Find the commit by its key on the branch, or make it again under the same key."""
    worktree = context.worktree
    commit = yield from call_port(
        "workspace.find_commit", lambda ports: ports.workspace.find_commit(worktree, intent.key)
    )
    if commit is None:
        commit = yield from _write_commit(intent, context)
    yield from _record_commit(intent, commit)


def _write_commit(intent: CommitRequested, context: StepContext) -> Steps[CreatedCommit]:
    worktree = context.worktree
    message = (yield from get_text(intent.message)).encode()
    return (
        yield from call_port(
            "workspace.commit", lambda ports: ports.workspace.commit(worktree, intent.tree, intent.parent, message)
        )
    )


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
