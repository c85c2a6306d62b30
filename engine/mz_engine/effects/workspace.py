"""Effects on branch and worktree: create, commit, restore, and reconcile a commit after a crash."""

from __future__ import annotations

from typing import Literal

from mz_events.catalog.delivery import CommitRequested, Committed
from mz_events.catalog.feature import Ask, HumanRequested, TreeRestored, WorkspaceConflicted, WorkspaceReady
from mz_events.names import Commit
from mz_projections.state import Book, Restoring, Spent

from mz_engine.decide.actions import Open, Restore
from mz_engine.effects.steps import Effect, Scene, Steps, do, emit, get, put
from mz_engine.ports import MadeCommit, Opened, RepositoryUnusable

NANO = 1_000_000_000


def open_workspace(action: Open, scene: Scene) -> Effect:
    """Create branch and worktree. Repeatable: continues from what a killed attempt left."""
    place, starts_from = scene.place, action.started.starts_from
    try:
        opened = yield from do("workspace.open", lambda ports: ports.workspace.open(place, starts_from))
    except RepositoryUnusable as error:
        detail = yield from put(str(error))
        yield from emit(HumanRequested(phase="", unit="", ask=Ask.CONFLICT, code=error.code, detail=detail))
        return
    if isinstance(opened, Opened):
        yield from emit(WorkspaceReady(head=opened.head, tree=opened.tree))
    else:
        yield from emit(WorkspaceConflicted(paths=opened.paths))


def make_commit(scene: Scene) -> Effect:
    """Commit the work of one unit run."""
    cell, book, phase = scene.cell, scene.work.book, scene.phase
    title = yield from get(book.started.title)
    subject = (phase.commit or "{phase}: {title}").format(
        feature=scene.feature, title=title, phase=phase.phase, unit=cell.unit
    )
    key = scene.key("commit")
    message = commit_message(subject, key, scene, cell.spent)
    yield from _commit(scene, key, "work", cell.tree, book.head, message, phase.phase, cell.unit)


def commit_message(subject: str, key: str, scene: Scene, spent: Spent) -> str:
    """Return a commit message: one line, and trailers with key, feature, tokens, cost and duration."""
    dollars = f"{spent.nanousd / NANO:.6f}"
    return (
        f"{' '.join(subject.split())}\n\n"
        f"Mz-Key: {key}\n"
        f"Mz-Feature: {scene.feature}\n"
        f"Mz-Tokens: {spent.input_tokens} in, {spent.output_tokens} out\n"
        f"Mz-Cost-USD: {dollars}\n"
        f"Mz-Duration-Seconds: {spent.duration_ms / 1000:.1f}\n"
    )


def restore(action: Restore, scene: Scene) -> Effect:
    """Commit the tree from before the phase that a rollback leads to; history is kept."""
    assert isinstance(scene.state, Restoring)
    book, place = scene.state.book, scene.place
    if action.committed:
        yield from do("workspace.ensure", lambda ports: ports.workspace.ensure(place, book.head, book.tree))
        yield from emit(TreeRestored(tree=book.tree))
        return
    key = _restore_key(scene, book)
    message = commit_message(f"restore the tree from before {scene.state.to}", key, scene, Spent())
    yield from _commit(scene, key, "restore", book.tree, book.head, message, scene.state.to, "")


def _restore_key(scene: Scene, book: Book) -> str:
    return f"{scene.run}/{scene.feature}/-/-/{book.restores}/0/restore"


def _commit(
    scene: Scene,
    key: str,
    purpose: Literal["work", "restore"],
    tree: Commit,
    parent: Commit,
    message: str,
    phase: str,
    unit: str,
) -> Effect:
    digest = yield from put(message)
    request = CommitRequested(
        key=key, purpose=purpose, phase=phase, unit=unit, tree=tree, parent=parent, message=digest
    )
    yield from emit(request)
    made = yield from _make(request, scene)
    yield from _committed(request, made)


def settle_commit(intent: CommitRequested, scene: Scene) -> Effect:
    """Find the commit by its key on the branch, or make it again under the same key."""
    place = scene.place
    made = yield from do("workspace.find_commit", lambda ports: ports.workspace.find_commit(place, intent.key))
    if made is None:
        made = yield from _make(intent, scene)
    yield from _committed(intent, made)


def _make(intent: CommitRequested, scene: Scene) -> Steps[MadeCommit]:
    place = scene.place
    message = (yield from get(intent.message)).encode()
    return (
        yield from do(
            "workspace.commit", lambda ports: ports.workspace.commit(place, intent.tree, intent.parent, message)
        )
    )


def _committed(intent: CommitRequested, made: MadeCommit) -> Effect:
    yield from emit(
        Committed(
            key=intent.key,
            commit=made.commit,
            files=made.files,
            insertions=made.insertions,
            deletions=made.deletions,
        )
    )
