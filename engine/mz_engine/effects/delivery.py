"""Effects of delivery: push and pull request, each looked for before it is done again; and the end of a feature."""

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
"""How a line of a file begins where git could not merge."""


def merge_base(scene: Scene) -> Effect:
    """Repeatable: first the branch is put where the stream says, so that a merge which nobody recorded is forgotten."""
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
        other = base
        merged = yield from do("workspace.merge", lambda ports: ports.workspace.merge(place, head, other, message))
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
    """The dependency's branch for a stacked feature, and the base once that was merged. Raises RemoteRefused."""
    target = scene.work.book.started.target
    if target == scene.base or scene.pins.config.pull_requests.strategy == "none":
        return target
    merged = yield from do("forge.merged", lambda ports: ports.forge.merged(target))
    return scene.base if merged else target


def _marked(tree: Commit, paths: tuple[Path, ...]) -> Steps[tuple[Path, ...]]:
    """Which of these files hold conflict markers: of this merge, and of an earlier one that nobody mended."""
    found: list[Path] = []
    for path in paths:
        data = yield from read_file(tree, path)
        if data is not None and any(line.startswith(MARKER) for line in data.splitlines()):
            found.append(path)
    return tuple(found)


def conflict_words(merged: BaseMerged) -> str:
    """What the agent reads that is to mend it, or the person who decides."""
    said = ["Meanwhile the branch that this is for has changed, and was merged into this one."]
    if merged.conflicts:
        files = "\n".join(f"- {path}" for path in merged.conflicts)
        said.append(f"These files hold conflict markers now (`<<<<<<<`, `=======`, `>>>>>>>`):\n{files}")
        said.append("In each of them keep what both sides meant, remove the markers, and see that all tests pass.")
    if merged.unmarked:
        files = "\n".join(f"- {path}" for path in merged.unmarked)
        said.append(
            "Both sides changed these files too, in a way that no markers can show (binary, or removed on one side); "
            f"they stand as this branch had them, without what the other side did:\n{files}"
        )
    return "\n".join((*said, "Everything else of this feature is done already."))


def push(scene: Scene) -> Effect:
    place, remote, head = scene.place, scene.pins.config.pull_requests.remote, scene.work.book.head
    try:
        old = yield from do("workspace.remote_head", lambda ports: ports.workspace.remote_head(remote, place.branch))
    except RemoteRefused as error:
        yield from _failed(scene.key("push"), "remote-unreachable", error)
        return
    if not (yield from _ours(old, scene)):
        refusal = RemoteRefused(
            f"{remote} has commits on {place.branch} that are not of this run ({old}); they would be lost. Take that "
            "branch away there, or bring its commits to where they belong, then approve"
        )
        yield from _failed(scene.key("push"), "branch-moved", refusal)
        return
    request = PushRequested(key=scene.key("push"), remote=remote, branch=place.branch, commit=head, old=old)
    yield from emit(request)
    yield from _push(request)


def _ours(old: Commit | None, scene: Scene) -> Steps[bool]:
    """Whether nothing is lost when the remote's branch moves on from there."""
    book = scene.work.book
    if old is None or old == book.pushed:
        return True
    return (yield from do("workspace.contains", lambda ports: ports.workspace.contains(book.head, old)))


def settle_push(intent: PushRequested) -> Effect:
    """The remote says whether it has the commit."""
    remote, branch = intent.remote, intent.branch
    try:
        there = yield from do("workspace.remote_head", lambda ports: ports.workspace.remote_head(remote, branch))
    except RemoteRefused as error:
        yield from _failed(intent.key, "remote-unreachable", error)
        return
    if there == intent.commit:
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
    """Title: the feature's, to the letter. Body: the artifact without its heading, and the key by which it is found."""
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
    """Found by head branch and key, else opened; both the first time and after a crash. One that an earlier iteration
    opened gets the new words."""
    title, body, place = (yield from get(intent.title)), (yield from get(intent.body)), scene.place
    if intent.strategy == "none":
        yield from do("forge.hand_over", lambda ports: ports.forge.hand_over(place, intent.target, title, body))
        yield from emit(PullRequestOpened(key=intent.key, url="", number=None))
        return
    draft = intent.strategy == "draft"
    mine = f"{scene.run}/{scene.feature}/"
    try:
        found = yield from do("forge.find", lambda ports: ports.forge.find(intent.branch, mine))
        if found is None or found.state == "merged":
            found = yield from do(
                "forge.open", lambda ports: ports.forge.open(intent.branch, intent.target, title, body, draft)
            )
        elif found.state == "closed":
            raise RemoteRefused(f"{found.url} was closed; open it again, or reject the feature")
        elif found.key != intent.key and found.number is not None:
            number = found.number
            yield from do("forge.update", lambda ports: ports.forge.update(number, intent.target, title, body))
    except RemoteRefused as error:
        yield from _failed(intent.key, "pull-request-refused", error)
        return
    yield from emit(PullRequestOpened(key=intent.key, url=found.url, number=found.number))


def finish(action: FinishFeature, scene: Scene) -> Effect:
    """Every phase is complete; the worktree has done its work, the branch stays. What was merged in from the target was
    not touched by the feature."""
    assert isinstance(scene.state, Between)
    book, place = scene.state.book, scene.place
    head, joined = book.head, book.joined
    touched = yield from do("workspace.touched", lambda ports: ports.workspace.touched(action.base, head))
    if joined is not None:
        since = yield from do("workspace.touched", lambda ports: ports.workspace.touched(joined, head))
        touched = tuple(path for path in touched if path in since)
    yield from do("workspace.close", lambda ports: ports.workspace.close(place))
    yield from emit(FeatureDelivered(terminal=scene.pins.pipeline.terminal, head=head, touched=touched))
