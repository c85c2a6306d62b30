"""Effects of delivery on branches and tags of the repository: merge the feature's branch into its target, tag a commit,
close the branch. A merge commit is made first; then the target moves to it, from the head that it was made for only."""

from __future__ import annotations

from msgspec.structs import asdict
from mz_events.catalog.delivery import BranchesClosed, BranchLanded, MergeRequested, Tagged, TagRequested, TargetMoved
from mz_events.names import Commit, FeatureId

from mz_engine.effects.delivery import target_branch
from mz_engine.effects.steps import Effect, StepContext, Steps, call_port, emit, get_text, put_blob
from mz_engine.effects.workspace import commit_message
from mz_engine.model.pipeline import TagStep
from mz_engine.ports import Clock, DeliveryRefused, FeatureWorktree, RepositoryUnusable, StorageFailed, Workspace
from mz_engine.ref_names import DATE, fill, name_values


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
