"""The forge port, which returns recorded results."""

from __future__ import annotations

from typing import Protocol

from mz_engine.ports import CiCheck, FeatureWorktree, PullRequest, RemoteError
from mz_events.catalog.delivery import (
    ChecksPolled,
    ChecksRerun,
    DeliveryFailed,
    PullRequestOpened,
    PullRequestRequested,
)
from mz_events.names import Commit, Digest

from mz_recordings.history.tape import RecordedStream

SOME_COMMIT = Commit("0" * 40)


class BlobReader(Protocol):
    """Blob store."""

    def get(self, digest: Digest) -> bytes: ...


class RecordedForge:
    """Implements `mz_engine.ports.Forge`. `base` is the run's base branch."""

    def __init__(self, stream: RecordedStream, blobs: BlobReader, base: str) -> None:
        self.stream, self.blobs, self.base = stream, blobs, base

    def find(self, branch: str, key: str) -> PullRequest | None:
        """`open` returns the recorded pull request."""
        return None

    def open(self, branch: str, target: str, title: str, body: str, draft: bool) -> PullRequest:
        outcome = self.stream.outcome(PullRequestOpened, DeliveryFailed)
        if isinstance(outcome, DeliveryFailed):
            raise RemoteError(self.blobs.get(outcome.detail).decode("utf-8", "replace"))
        return PullRequest(url=outcome.url, number=outcome.number)

    def update(self, number: int, target: str, title: str, body: str) -> None:
        pass

    def checks(self, number: int, head: Commit) -> tuple[CiCheck, ...] | None:
        outcome = self.stream.outcome(ChecksPolled, ChecksRerun)
        if isinstance(outcome, ChecksRerun) or not outcome.commit_known:
            return () if isinstance(outcome, ChecksRerun) else None
        return (
            *(CiCheck(name="", state="green") for _ in range(outcome.passed)),
            *(CiCheck(name="", state="red") for _ in range(outcome.failed)),
            *(CiCheck(name="", state="pending") for _ in range(outcome.pending)),
        )

    def failed_log(self, check: CiCheck) -> str:
        return ""

    def rerun(self, run: str) -> None:
        pass

    def merged(self, branch: str) -> Commit | None:
        """Derive from the recorded target whether the dependency was merged."""
        event = self.stream.next_event()
        if isinstance(event, DeliveryFailed):
            raise RemoteError(self.blobs.get(event.detail).decode("utf-8", "replace"))
        return SOME_COMMIT if isinstance(event, PullRequestRequested) and event.target == self.base else None

    def write_description(self, worktree: FeatureWorktree, target: str, title: str, body: str) -> str:
        self.stream.outcome(PullRequestOpened)
        return ""
