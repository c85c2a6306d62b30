"""Comments on issues: what a run does with what cannot be written, and with features that tell nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_cli.app.context import ProjectLog
from mz_cli.live.issue_reports import IssueReports
from mz_cli.live.tracker import Tracker
from mz_engine.model.config import Config
from mz_engine.paths import LOG_FILE, MZ_FOLDER
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.feature import FeatureStarted
from mz_events.catalog.run import (
    FeatureOutcome,
    FeatureStopped,
    ItemAdded,
    ItemRequeued,
    ItemsAdded,
    RetryAccepted,
    RunClosing,
    RunResumed,
    RunStarted,
)
from mz_events.names import Digest, FeatureId, StreamId
from mz_events.store import Append

from tests.support.forge import FakeGh
from tests.support.processes import eventually
from tests.support.samples import sample

LIST = "issues/{}/comments"


class Desk:
    """A log, issues, and what the run prints."""

    def __init__(self, folder: Path) -> None:
        (folder / MZ_FOLDER).mkdir()
        self.gh, self.printed = FakeGh(folder / "gh"), list[str]()
        self.program = folder / "gh" / "commands" / "gh"
        self.store = SqliteStore(folder / MZ_FOLDER / LOG_FILE)
        self.environment = {**self.gh.environment(), "PATH": str(self.program.parent)}
        self.comments = self.begin()

    def begin(self) -> IssueReports:
        return IssueReports(ProjectLog(self.program.parents[2], self.store), self.environment, self.printed.append)

    def record(self, event: Event, stream: str, causation: str = "") -> None:
        for recorded in self.store.append([Append(StreamId(stream), None, (event,), causation)], 1):
            self.comments.on_event(recorded)

    def start(self, number: int, issue: str, causation: str = "") -> None:
        name = FeatureId(f"issue-{number}")
        self.record(replace(sample(ItemAdded), feature=name), "run/r1")
        started = replace(sample(FeatureStarted), feature=name, issue=issue)
        self.record(started, f"run/r1/{name}", causation)

    def stop(self, number: int) -> None:
        self.record(stopped(number), "run/r1")


def stopped(number: int) -> FeatureStopped:
    return FeatureStopped(feature=FeatureId(f"issue-{number}"), version=1, status=FeatureOutcome.WAITING)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    with desk.store:
        yield desk


def test_what_cannot_be_written_is_told_and_the_next_comment_is_written(desk: Desk) -> None:
    desk.program.chmod(0o644)
    desk.start(7, "acme/tally#7")
    eventually(lambda: bool(desk.printed))
    desk.program.chmod(0o755)
    desk.start(8, "acme/tally#8")
    desk.comments.close()
    (printed,) = desk.printed
    assert printed.startswith("not written on issues: ")
    assert "ermission denied" in printed
    (comment,) = desk.gh.comments(LIST.format(8))
    assert comment["body"].startswith("**mz**: working\n"), "no phase has begun"


def test_each_issue_has_one_comment(desk: Desk) -> None:
    desk.start(7, "acme/tally#7")
    desk.start(8, "acme/tally#8")
    desk.stop(7)
    desk.comments.close()
    assert [len(desk.gh.comments(LIST.format(number))) for number in (7, 8)] == [1, 1]
    assert desk.printed == []


def test_what_a_killed_process_did_not_write_is_written_when_the_run_continues(desk: Desk) -> None:
    desk.start(7, "acme/tally#7")
    desk.start(8, "")
    desk.comments.close()
    desk.store.append([Append(StreamId("run/r1"), None, (stopped(7),))], 1)
    desk.comments = desk.begin()
    desk.record(sample(RunResumed), "run/r1")
    desk.comments.close()
    (comment,) = desk.gh.comments(LIST.format(7))
    assert comment["body"].startswith("**mz**: waiting")
    calls = len(desk.gh.calls)
    desk.comments = desk.begin()
    desk.record(sample(RunResumed), "run/r1")
    desk.comments.close()
    assert len(desk.gh.calls) == calls + 1, "it is read, and not written again"


def test_issues_of_a_run_that_is_abandoned_say_so(desk: Desk) -> None:
    desk.record(sample(RunStarted), "run/r1")
    for number in (7, 8):
        desk.start(number, f"acme/tally#{number}")
        desk.stop(number)
    desk.record(RunClosing(how="cancel", actor=Digest("a" * 64)), "run/r1")
    desk.comments.close()
    comments = [desk.gh.comments(LIST.format(number)) for number in (7, 8)]
    assert [comment["body"].partition("\n")[0] for [comment] in comments] == ["**mz**: abandoned"] * 2


@pytest.mark.parametrize("kind", [FeatureStopped, RunResumed, ItemsAdded, ItemRequeued, RetryAccepted])
def test_the_tracker_is_updated_after_an_event_and_at_the_end(
    desk: Desk, kind: type[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    updates = list[tuple[str, bool]]()
    monkeypatch.setattr(Tracker, "update", lambda _, run, is_last: updates.append((run, is_last)))
    log = ProjectLog(desk.program.parents[2], desk.store)
    desk.comments.tracker = Tracker(log, Config(), os.environ, desk.printed.append)
    desk.record(sample(kind), "run/r1")
    eventually(lambda: bool(updates))
    desk.comments.close()
    assert (updates, desk.printed) == ([("r1", False), ("r1", True)], [])


@pytest.mark.parametrize(("issue", "causation"), [("", ""), ("acme/tally#7", "run/r0/issue-7@1")])
def test_a_feature_without_an_issue_and_a_fork_tell_nothing(issue: str, causation: str, desk: Desk) -> None:
    desk.start(7, issue, causation)
    desk.stop(7)
    desk.comments.close()
    assert (desk.gh.calls, desk.printed) == ([], [])
