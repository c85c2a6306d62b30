"""Facts of delivery: commits, pushes, pull requests. Every intent here is findable: looked for before it is redone."""

from __future__ import annotations

from typing import Literal

from mz_events.catalog.base import Event, Role
from mz_events.names import Commit, Digest, Path


class CommitRequested(Event, frozen=True, kw_only=True, tag="commit.requested"):
    """Found again by its `Mz-Key` trailer on the feature's branch."""

    ROLE = Role.INTENT
    MEASURED = frozenset({"tree", "parent"})
    key: str
    purpose: Literal["work", "restore"]
    phase: str
    unit: str
    tree: Commit
    """Capture whose content is committed."""
    parent: Commit
    message: Digest
    """Blob: the whole message, trailers included."""


class Committed(Event, frozen=True, kw_only=True, tag="commit.made"):
    ROLE = Role.OUTCOME
    MEASURED = frozenset({"commit"})
    key: str
    commit: Commit
    files: int
    insertions: int
    deletions: int


class PushRequested(Event, frozen=True, kw_only=True, tag="push.requested"):
    """Found by asking the remote for the branch; pushed with a lease on `old`."""

    ROLE = Role.INTENT
    MEASURED = frozenset({"commit", "old"})
    key: str
    remote: str
    branch: str
    commit: Commit
    old: Commit | None


class Pushed(Event, frozen=True, kw_only=True, tag="push.made"):
    ROLE = Role.OUTCOME
    MEASURED = frozenset({"commit"})
    key: str
    commit: Commit


class PullRequestRequested(Event, frozen=True, kw_only=True, tag="pull-request.requested"):
    """Found by head branch and the key in its body."""

    ROLE = Role.INTENT
    MEASURED = frozenset({"body"})
    key: str
    branch: str
    target: str
    title: Digest
    body: Digest
    strategy: Literal["none", "draft", "ready"]


class PullRequestOpened(Event, frozen=True, kw_only=True, tag="pull-request.opened"):
    """With strategy `none`, `url` is empty and the body lies in a file for the person who opens it."""

    ROLE = Role.OUTCOME
    MEASURED = frozenset({"url", "number"})
    key: str
    url: str
    number: int | None


class BaseMerged(Event, frozen=True, kw_only=True, tag="base.merged"):
    """What the pull request's target has gained meanwhile is in the branch. Repeatable: before it is recorded the
    branch stands where the stream says."""

    ROLE = Role.OUTCOME
    MEASURED = frozenset({"base", "head", "tree"})
    key: str
    base: Commit
    """The target's head."""
    head: Commit
    """Of the feature's branch, afterwards."""
    tree: Commit
    """Capture, afterwards."""
    changed: bool
    """False: there was nothing to merge."""
    conflicts: tuple[Path, ...] = ()
    """These files hold conflict markers now."""
    unmarked: tuple[Path, ...] = ()
    """These conflicted too, but no marker can say so: binary, or gone on one side. They stand as the branch had
    them."""


class ChecksSeen(Event, frozen=True, kw_only=True, tag="checks.seen"):
    """One look at the checks of the pull request, at the commit that was pushed. Polls are no events: there is one look
    when waiting begins, and one whenever it ends."""

    ROLE = Role.OUTCOME
    MEASURED = frozenset({"commit"})
    key: str
    commit: Commit
    known: bool
    """False: the forge has not noticed the commit yet."""
    green: int
    red: int
    pending: int
    flaky: bool = False
    """Every red check is one that `pull_requests.flaky` names and that the forge can run again."""
    report: Digest | None = None
    """Blob: JSON array of messages on what is red, with the end of its log."""


class ChecksRerun(Event, frozen=True, kw_only=True, tag="checks.rerun"):
    """The red checks were started again. Asked for twice, the forge does it once."""

    ROLE = Role.OUTCOME
    key: str
    runs: int


class DeliveryFailed(Event, frozen=True, kw_only=True, tag="delivery.failed"):
    """A push or pull request was refused by the forge or the remote."""

    ROLE = Role.OUTCOME
    key: str
    code: str
    detail: Digest
