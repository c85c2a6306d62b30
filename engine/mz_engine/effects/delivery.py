"""Effects of delivery: merge, push, pull request (each is looked up before it is repeated); the end of a feature."""

from __future__ import annotations

from mz_events.catalog.delivery import (
    BaseMerged,
    DeliveryFailed,
    PullRequestOpened,
    PullRequestRequested,
    Pushed,
    PushRequested,
)
from mz_events.catalog.feature import FeatureDelivered
from mz_events.names import Commit, Path
from mz_projections.state import Between, Spent

from mz_engine.artifacts.parse import title_and_body
from mz_engine.decide.actions import FinishFeature
from mz_engine.effects.check import stand_on
from mz_engine.effects.prompt import read_file
from mz_engine.effects.steps import Effect, Scene, Steps, do, emit, get, put
from mz_engine.effects.workspace import commit_message
from mz_engine.ports import Merged, RemoteRefused

MARKER = "<<<<<<< "
"""Start of a conflict marker that git writes into a file."""


def merge_base(scene: Scene) -> Effect:
    """Merge the target branch. Repeatable: an unrecorded merge is first reset to the stream's head."""
    place, cell, head, key = scene.place, scene.cell, scene.work.book.head, scene.key("merge_base")
    settings = scene.pins.config.pull_requests
    remote = None if settings.strategy == "none" else settings.remote
    yield from stand_on(scene, cell.tree)
    try:
        target = yield from _target(scene)
        base = yield from do("workspace.target_head", lambda ports: ports.workspace.target_head(remote, target))
    except RemoteRefused as error:
        yield from _failed(key, "remote-unreachable", error)
        return
    message = commit_message(f"merge {target}", key, scene, Spent()).encode()
    merged = Merged(commit=head, tree=cell.tree, changed=False)
    if base is not None:
        target_head = base
        merged = yield from do(
            "workspace.merge", lambda ports: ports.workspace.merge(place, head, target_head, message)
        )
    tree = merged.tree if merged.changed else cell.tree
    suspects = dict.fromkeys((*scene.work.book.conflicted, *merged.conflicts))
    marked = yield from _marked(tree, tuple(suspects))
    yield from emit(
        BaseMerged(
            key=key,
            base=base or head,
            head=merged.commit,
            tree=tree,
            changed=merged.changed,
            conflicts=marked,
            unmarked=tuple(path for path in merged.conflicts if path not in marked),
        )
    )


def _target(scene: Scene) -> Steps[str]:
    """Return the branch that the pull request targets.

    For a stacked feature this is the dependency's branch until that is merged, then the base. Raises RemoteError.
    """
    target = scene.work.book.started.target
    if target == scene.base or scene.pins.config.pull_requests.strategy == "none":
        return target
    merged = yield from do("forge.merged", lambda ports: ports.forge.merged(target))
    return scene.base if merged else target


def _marked(tree: Commit, paths: tuple[Path, ...]) -> Steps[tuple[Path, ...]]:
    """Return the files that hold conflict markers, of this merge or of an earlier one that was never fixed."""
    marked: list[Path] = []
    for path in paths:
        data = yield from read_file(tree, path)
        if data is not None and any(line.startswith(MARKER) for line in data.splitlines()):
            marked.append(path)
    return tuple(marked)


def conflict_words(merged: BaseMerged) -> str:
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


def push(scene: Scene) -> Effect:
    place, remote, head = scene.place, scene.pins.config.pull_requests.remote, scene.work.book.head
    try:
        old = yield from do("workspace.remote_head", lambda ports: ports.workspace.remote_head(remote, place.branch))
    except RemoteRefused as error:
        yield from _failed(scene.key("push"), "remote-unreachable", error)
        return
    if not (yield from _ours(old, scene)):
        refusal = RemoteRefused(
            f"{remote} has commits on {place.branch} that are not from this run ({old}); a push would lose them. "
            "Delete that branch on the remote, or move its commits to another one, then approve"
        )
        yield from _failed(scene.key("push"), "branch-moved", refusal)
        return
    request = PushRequested(key=scene.key("push"), remote=remote, branch=place.branch, commit=head, old=old)
    yield from emit(request)
    yield from _push(request)


def _ours(old: Commit | None, scene: Scene) -> Steps[bool]:
    """Return True if a push over `old` loses no commit of somebody else."""
    book = scene.work.book
    if old is None or old == book.pushed:
        return True
    return (yield from do("workspace.contains", lambda ports: ports.workspace.contains(book.head, old)))


def settle_push(intent: PushRequested) -> Effect:
    """Record the push if the remote has the commit, else push."""
    remote, branch = intent.remote, intent.branch
    try:
        remote_head = yield from do("workspace.remote_head", lambda ports: ports.workspace.remote_head(remote, branch))
    except RemoteRefused as error:
        yield from _failed(intent.key, "remote-unreachable", error)
        return
    if remote_head == intent.commit:
        yield from emit(Pushed(key=intent.key, commit=intent.commit))
    else:
        yield from _push(intent)


def _push(request: PushRequested) -> Effect:
    try:
        yield from do(
            "workspace.push",
            lambda ports: ports.workspace.push(request.remote, request.branch, request.commit, request.old),
        )
    except RemoteRefused as error:
        yield from _failed(request.key, "push-refused", error)
        return
    yield from emit(Pushed(key=request.key, commit=request.commit))


def _failed(key: str, code: str, error: RemoteRefused) -> Effect:
    yield from emit(DeliveryFailed(key=key, code=code, detail=(yield from put(str(error)))))


def open_pull_request(scene: Scene) -> Effect:
    """Open the pull request. Title: the feature's, verbatim. Body: the artifact without its heading, then the key."""
    started, key = scene.work.book.started, scene.key("open_pr")
    try:
        target = yield from _target(scene)
    except RemoteRefused as error:
        yield from _failed(key, "pull-request-refused", error)
        return
    title = yield from get(started.title)
    body = yield from _body(scene)
    request = PullRequestRequested(
        key=key,
        branch=started.branch,
        target=target,
        title=(yield from put(title)),
        body=(yield from put(f"{body.rstrip()}\n\nMz-Key: {key}\n")),
        strategy=scene.pins.config.pull_requests.strategy,
    )
    yield from emit(request)
    yield from settle_pull_request(request, scene)


def _body(scene: Scene) -> Steps[str]:
    for output in scene.phase.outputs:
        parsed = scene.cell.parsed.get(output.artifact)
        if parsed is not None:
            return title_and_body((yield from get(parsed.digest)))[1]
    return ""


def settle_pull_request(intent: PullRequestRequested, scene: Scene) -> Effect:
    """Find the pull request by head branch and key, or open it; the same the first time and after a crash.

    One that an earlier iteration opened is updated.
    """
    title, body, place = (yield from get(intent.title)), (yield from get(intent.body)), scene.place
    if intent.strategy == "none":
        yield from do("forge.write_description", lambda ports: ports.forge.hand_over(place, intent.target, title, body))
        yield from emit(PullRequestOpened(key=intent.key, url="", number=None))
        return
    draft = intent.strategy == "draft"
    key_prefix = f"{scene.run}/{scene.feature}/"
    try:
        pull_request = yield from do("forge.find", lambda ports: ports.forge.find(intent.branch, key_prefix))
        if pull_request is None or pull_request.state == "merged":
            pull_request = yield from do(
                "forge.open", lambda ports: ports.forge.open(intent.branch, intent.target, title, body, draft)
            )
        elif pull_request.state == "closed":
            raise RemoteRefused(f"{pull_request.url} was closed; open it again, or reject the feature")
        elif pull_request.key != intent.key and pull_request.number is not None:
            number = pull_request.number
            yield from do("forge.update", lambda ports: ports.forge.update(number, intent.target, title, body))
    except RemoteRefused as error:
        yield from _failed(intent.key, "pull-request-refused", error)
        return
    yield from emit(PullRequestOpened(key=intent.key, url=pull_request.url, number=pull_request.number))


def finish(action: FinishFeature, scene: Scene) -> Effect:
    """Close the worktree and record the delivery; the branch stays.

    Files that came from the target branch by a merge do not count as changed by the feature.
    """
    assert isinstance(scene.state, Between)
    book, place = scene.state.book, scene.place
    head, joined = book.head, book.joined
    touched = yield from do("workspace.changed_paths", lambda ports: ports.workspace.touched(action.base, head))
    if joined is not None:
        since = yield from do("workspace.changed_paths", lambda ports: ports.workspace.touched(joined, head))
        touched = tuple(path for path in touched if path in since)
    yield from do("workspace.close", lambda ports: ports.workspace.close(place))
    yield from emit(FeatureDelivered(terminal=scene.pins.pipeline.terminal, head=head, touched=touched))
