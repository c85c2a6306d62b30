"""Effects on branch and worktree: create, commit, restore, and reconcile a commit after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import asdict
from mz_events.catalog.delivery import CommitRequested, Committed
from mz_events.catalog.feature import (
    EditMade,
    HumanRequested,
    QuestionKind,
    TreeRestored,
    WorkspaceConflicted,
    WorkspaceReady,
)
from mz_events.catalog.validation import Change
from mz_events.names import Commit, InvalidName, Path, parse_path
from mz_projections.feature.state import CreatingWorkspace, Restoring, UnitUsage, progress_of

from mz_engine.decide.actions import RestoreTree
from mz_engine.decoding.quantity import NANOUSD_PER_USD
from mz_engine.effects.items import input_items
from mz_engine.effects.steps import Effect, StepContext, Steps, call_port, emit, get_text, put_blob
from mz_engine.path_patterns import matches, select
from mz_engine.ports import RepositoryUnusable, StorageFailed, Workspace, WorkspaceCreated
from mz_engine.prompts.render import EditData, TemplateError, render_edit
from mz_engine.ref_names import INTEGRATION, fill


def create_workspace(context: StepContext) -> Effect:
    """Create branch and worktree. Repeatable: continues from what a killed attempt left."""
    assert isinstance(context.state, CreatingWorkspace)
    starts_from = context.state.started.starts_from
    try:
        result = yield from call_port(Workspace.open, context.worktree, starts_from)
    except StorageFailed:
        raise
    except RepositoryUnusable as error:
        detail, conflict = (yield from put_blob(str(error))), QuestionKind.CONFLICT
        yield from emit(HumanRequested(phase="", unit="", question_kind=conflict, code=error.code, detail=detail))
        return
    if isinstance(result, WorkspaceCreated):
        yield from emit(WorkspaceReady(head=result.head, tree=result.tree, environment=result.environment))
    else:
        yield from emit(WorkspaceConflicted(paths=result.paths))


def make_edit(context: StepContext) -> Effect:
    """Delete and write the files of the phase's edit, but for those without a text whose template has some. Repeatable.
    Raises TemplateError."""
    name, unit_run, config = context.phase.edit or "", context.unit_run, context.pins.config
    edit, tree, started = context.pins.edits[name], unit_run.tree, context.phase_state.progress.started
    data = EditData(
        item=context.feature,
        title=(yield from get_text(started.title)),
        body=(yield from get_text(started.body)),
        items=(yield from input_items(context)),
        base=context.base_branch,
        integration=context.integration,
    )
    values, files = {"item": data.item, INTEGRATION: data.integration}, dict[Path, bytes]()
    for pattern, template in edit.write.items():
        path = _edited_path(fill(pattern, values), template, config.denied_paths)
        text = render_edit(context.pins.templates, template, data)
        if text or not context.pins.templates[template]:
            files[path] = text.encode()
    patterns = [fill(pattern, values) for pattern in edit.delete]
    paths = select(patterns, (yield from call_port(Workspace.paths, tree)))
    kept = {*select(config.denied_paths, paths), *files}
    deleted = tuple(path for path in paths if path not in kept)
    tree = yield from call_port(Workspace.edit, context.worktree, tree, deleted, files)
    yield from emit(EditMade(edit=name, written=tuple(files), deleted=deleted, tree=tree))


def _edited_path(name: str, template: str, denied: Sequence[str]) -> Path:
    """Return the path that an edit writes. Raises TemplateError if nothing may change there."""
    try:
        path = parse_path(name)
    except InvalidName as error:
        raise TemplateError(template, None, str(error)) from error
    if matches(denied, path):
        raise TemplateError(template, None, f"{path} is one of `denied_paths`, which nothing changes")
    return path


def make_commit(context: StepContext) -> Effect:
    """Commit the work of one unit run."""
    unit_run, progress, phase = context.unit_run, context.phase_state.progress, context.phase
    title = yield from get_text(progress.started.title)
    subject = (phase.commit or "{phase}: {title}").format(
        feature=context.feature, title=title, phase=phase.phase, unit=unit_run.unit
    )
    usage = progress.usage.since(unit_run.usage_before)
    if context.pins.config.commits == "squash":
        subject, usage = title, progress.usage
    message = commit_message(subject, context.key("commit"), context, usage)
    yield from _commit(context, context.key("commit"), "work", phase.phase, unit_run.unit, unit_run.tree, message)


def commit_message(
    subject: str, key: str, context: StepContext, usage: UnitUsage | None = None, trailers: Sequence[str] = ()
) -> str:
    """Return a commit message: one line, and trailers with key and feature, those given, and tokens, cost (if they
    are known) and duration of the calls, if there were any."""
    texts = ["", f"Mz-Key: {key}", f"Mz-Feature: {context.feature}", *trailers]
    if usage is not None and context.pins.config.usage_in_commits:
        if usage.input_tokens or usage.output_tokens:
            texts.append(f"Mz-Tokens: {usage.input_tokens} in, {usage.output_tokens} out")
        if usage.nanousd:
            texts.append(f"Mz-Cost-USD: {usage.nanousd / NANOUSD_PER_USD:.6f}")
        texts.append(f"Mz-Duration-Seconds: {usage.duration_ms / 1000:.1f}")
    return "\n".join((" ".join(subject.split()), *texts, ""))


def restore_tree(action: RestoreTree, context: StepContext) -> Effect:
    """Commit the tree from before the phase that a rollback leads to; history is kept."""
    assert isinstance(context.state, Restoring)
    progress, to = context.state.progress, context.state.to
    if action.committed:
        yield from call_port(Workspace.ensure, context.worktree, progress.head, progress.tree)
        yield from emit(TreeRestored(tree=progress.tree))
        return
    key = f"{context.run}/{context.feature}/-/-/{progress.restore_count}/0/restore"
    message = commit_message(f"restore the tree from before {to}", key, context)
    yield from _commit(context, key, "restore", to, "", progress.tree, message)


def _commit(
    context: StepContext, key: str, purpose: Literal["work", "restore"], phase: str, unit: str, tree: Commit, text: str
) -> Effect:
    progress, config = progress_of(context.state), context.pins.config
    assert progress is not None
    parent = progress.head
    is_deferred = config.commits == "squash" and (purpose == "restore" or not context.phase.deliver)
    content = None if is_deferred else (yield from _without_papers(context, tree, parent))
    if content is None:
        yield from emit(Committed(key=key, commit=parent, files=0, insertions=0, deletions=0))
        return
    tree, message = content, (yield from put_blob(text))
    request = CommitRequested(
        key=key, purpose=purpose, phase=phase, unit=unit, tree=tree, parent=parent, message=message
    )
    yield from emit(request)
    yield from reconcile_commit(request, context, is_new=True)


def _without_papers(context: StepContext, tree: Commit, head: Commit) -> Steps[Commit | None]:
    """Return a capture without papers, if the branch gets none; None if nothing else differs from the branch's head."""
    changes = yield from call_port(Workspace.changes, head, tree)
    papers = select_papers(context, changes) if context.pins.config.place_of_papers == "log" else ()
    if not papers:
        return tree if changes else None
    if len(papers) == len(changes):
        return None
    return (yield from call_port(Workspace.revert_paths, context.worktree, tree, head, papers))


def select_papers(context: StepContext, changes: tuple[Change, ...]) -> tuple[Path, ...]:
    """Return the paths of papers among changes."""
    return select(context.pins.pipeline.paper_patterns(context.feature), (change.path for change in changes))


def reconcile_commit(intent: CommitRequested, context: StepContext, is_new: bool = False) -> Effect:
    """Find the commit by its key on the branch, or make it under that key."""
    commit = None if is_new else (yield from call_port(Workspace.find_commit, context.worktree, intent.key))
    if commit is None:
        message = (yield from get_text(intent.message)).encode()
        commit = yield from call_port(Workspace.commit, context.worktree, intent.tree, intent.parent, message)
    yield from emit(Committed(key=intent.key, **asdict(commit)))
