"""The forge port, which returns recorded results."""

from __future__ import annotations

from typing import Protocol

from mz_engine.ports import Check, Place, PullRequest, RemoteRefused
from mz_events.catalog.delivery import ChecksRerun, ChecksSeen, DeliveryFailed, PullRequestOpened, PullRequestRequested
from mz_events.names import Commit, Digest

from mz_recordings.history.tape import Tape

SOME_COMMIT = Commit("0" * 40)


class Texts(Protocol):
    """Blob store."""

    def get(self, digest: Digest) -> bytes: ...


class AnsweredForge:
    """Implements `mz_engine.ports.Forge`. `base` is the run's base branch."""

    def __init__(self, tape: Tape, blobs: Texts, base: str) -> None:
        self.tape, self.blobs, self.base = tape, blobs, base

    def find(self, branch: str, key: str) -> PullRequest | None:
        """`open` returns the recorded pull request."""
        return None

    def open(self, branch: str, target: str, title: str, body: str, draft: bool) -> PullRequest:
        found = self.tape.outcome(PullRequestOpened, DeliveryFailed)
        if isinstance(found, DeliveryFailed):
            raise RemoteRefused(self.blobs.get(found.detail).decode("utf-8", "replace"))
        return PullRequest(url=found.url, number=found.number)

    def update(self, number: int, target: str, title: str, body: str) -> None:
        pass

    def checks(self, number: int, head: Commit) -> tuple[Check, ...] | None:
        found = self.tape.outcome(ChecksSeen, ChecksRerun)
        if isinstance(found, ChecksRerun) or not found.known:
            return () if isinstance(found, ChecksRerun) else None
        return (
            *(Check(name="", state="green") for _ in range(found.green)),
            *(Check(name="", state="red") for _ in range(found.red)),
            *(Check(name="", state="pending") for _ in range(found.pending)),
        )

    def failed_log(self, check: Check) -> str:
        return ""

    def rerun(self, run: str) -> None:
        pass

    def merged(self, branch: str) -> Commit | None:
        """Derive from the recorded target whether the dependency was merged."""
        found = self.tape.next()
        if isinstance(found, DeliveryFailed):
            raise RemoteRefused(self.blobs.get(found.detail).decode("utf-8", "replace"))
        return SOME_COMMIT if isinstance(found, PullRequestRequested) and found.target == self.base else None

    def hand_over(self, place: Place, target: str, title: str, body: str) -> str:
        self.tape.outcome(PullRequestOpened)
        return ""
