"""Events of delivery: commits, pushes, pull requests. Every intent can be looked up, and is before it is repeated."""

from __future__ import annotations

from typing import Literal

from mz_events.catalog.base import IntentEvent, OutcomeEvent
from mz_events.names import Commit, Digest, FeatureId, Path


class CommitRequested(IntentEvent, frozen=True, kw_only=True, tag="commit.requested"):
    """Looked up by the `Mz-Key` trailer on the feature's branch."""

    NON_DETERMINISTIC = frozenset({"tree", "parent"})
    key: str
    purpose: Literal["work", "restore"]
    phase: str
    unit: str
    tree: Commit
    """Capture whose content is committed."""
    parent: Commit
    message: Digest
    """Blob: the full message, trailers included."""


class Committed(OutcomeEvent, frozen=True, kw_only=True, tag="commit.made"):
    """Without a request before it, nothing was to be committed, and `commit` is the branch's head."""

    NON_DETERMINISTIC = frozenset({"commit"})
    key: str
    commit: Commit
    files: int
    insertions: int
    deletions: int


class PushRequested(IntentEvent, frozen=True, kw_only=True, tag="push.requested"):
    """Looked up by the branch on the remote; pushed with a lease on `old`."""

    NON_DETERMINISTIC = frozenset({"commit", "old"})
    key: str
    remote: str
    branch: str
    commit: Commit
    old: Commit | None


class Pushed(OutcomeEvent, frozen=True, kw_only=True, tag="push.made"):
    NON_DETERMINISTIC = frozenset({"commit"})
    key: str
    commit: Commit


class PullRequestRequested(IntentEvent, frozen=True, kw_only=True, tag="pull-request.requested"):
    """Looked up by head branch and the key in its body."""

    NON_DETERMINISTIC = frozenset({"body"})
    key: str
    branch: str
    target: str
    title: Digest
    body: Digest
    strategy: Literal["none", "draft", "ready"]


class PullRequestOpened(OutcomeEvent, frozen=True, kw_only=True, tag="pull-request.opened"):
    """With strategy `none`, `url` is empty and the body is in a file for the person who opens the pull request."""

    NON_DETERMINISTIC = frozenset({"url", "number"})
    key: str
    url: str
    number: int | None


class BaseMerged(OutcomeEvent, frozen=True, kw_only=True, tag="base.merged"):
    """The new commits of the pull request's target were merged into the branch. Repeatable: until this is recorded, the
    branch is where the stream says."""

    NON_DETERMINISTIC = frozenset({"base", "head", "tree"})
    key: str
    base: Commit
    """The target's head."""
    head: Commit
    """Head of the feature's branch, afterwards."""
    tree: Commit
    """Capture, afterwards."""
    changed: bool
    """False: there was nothing to merge."""
    conflicts: tuple[Path, ...] = ()
    """Files that now contain conflict markers."""
    unmarked: tuple[Path, ...] = ()
    """Files with a conflict that markers cannot show (binary, or deleted on one side), left as in the branch."""


class ChecksPolled(OutcomeEvent, frozen=True, kw_only=True, tag="checks.polled"):
    """State of the pull request's checks at the pushed commit. Only the polls that begin and end a wait are events."""

    NON_DETERMINISTIC = frozenset({"commit"})
    key: str
    commit: Commit
    commit_known: bool
    """False: the forge has not noticed the commit yet."""
    passed: int
    failed: int
    pending: int
    flaky: bool = False
    """Every failed check is listed in `pull_requests.flaky` and can be run again by the forge."""
    report: Digest | None = None
    """Blob: JSON array of messages about failed checks, with the end of their logs."""


class ChecksRerun(OutcomeEvent, frozen=True, kw_only=True, tag="checks.rerun"):
    """The failed checks were started again. Idempotent at the forge."""

    key: str
    runs: int


class MergeRequested(IntentEvent, frozen=True, kw_only=True, tag="merge.requested"):
    """Looked up by the target branch: at `commit` or beyond it is done, at `old` it is moved."""

    NON_DETERMINISTIC = frozenset({"old", "head", "commit"})
    key: str
    branch: str
    """The target."""
    message: Digest
    """Blob: the full message, trailers included."""
    old: Commit
    """The target's head, first parent of the merge."""
    head: Commit
    """Head of the feature's branch, second parent, with whose tree the target ends."""
    commit: Commit
    """The merge, which is made already; no ref has it."""


class BranchLanded(OutcomeEvent, frozen=True, kw_only=True, tag="branch.landed"):
    """The feature's branch is merged into its target. Without a request before it, the target had it already."""

    NON_DETERMINISTIC = frozenset({"old", "commit"})
    feature: FeatureId
    key: str
    branch: str
    """The target."""
    changed: bool
    files: int = 0
    insertions: int = 0
    deletions: int = 0
    old: Commit
    """The target's head before."""
    commit: Commit
    """The merge; without a change `old`."""


class TargetMoved(OutcomeEvent, frozen=True, kw_only=True, tag="target.moved"):
    """The target branch has commits that the feature's branch has not: they are merged into it first."""

    NON_DETERMINISTIC = frozenset({"commit"})
    key: str
    branch: str
    commit: Commit
    """The target's head."""


class TagRequested(IntentEvent, frozen=True, kw_only=True, tag="tag.requested"):
    """Looked up by its name."""

    NON_DETERMINISTIC = frozenset({"name", "commit"})
    key: str
    name: str
    commit: Commit


class Tagged(OutcomeEvent, frozen=True, kw_only=True, tag="tag.made"):
    NON_DETERMINISTIC = frozenset({"name", "commit"})
    key: str
    name: str
    commit: Commit


class BranchesClosed(OutcomeEvent, frozen=True, kw_only=True, tag="branches.closed"):
    """The branches were deleted, their heads kept under `refs/mz/`. Repeatable: a branch that is gone is closed."""

    key: str
    branches: tuple[str, ...]


class IssueRequested(IntentEvent, frozen=True, kw_only=True, tag="issue.requested"):
    """An issue is about to be opened for an item of a run. Looked up by a line of its text. In the stream
    `tracker/<run>`."""

    SCHEMA = 2
    feature: FeatureId
    repository: str
    """As `[HOST/]OWNER/NAME`."""
    token: str = ""
    """A random part of the line, which nobody knows before."""


class IssueOpened(OutcomeEvent, frozen=True, kw_only=True, tag="issue.opened"):
    """An issue shows an item of a run. In the stream `tracker/<run>`; issues in it are not opened again."""

    feature: FeatureId
    issue: str
    """As `[HOST/]OWNER/NAME#NUMBER`."""


class DeliveryFailed(OutcomeEvent, frozen=True, kw_only=True, tag="delivery.failed"):
    """A step was rejected: by the forge, by the remote, or by what the repository holds."""

    key: str
    code: str
    detail: Digest
