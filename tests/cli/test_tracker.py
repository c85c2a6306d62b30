"""The tracker: items of a plan as issues, equal to the log, whatever people, GitHub and crashes do to them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from mz_cli.app.context import ProjectLog
from mz_cli.live import tracker as tracker_module
from mz_cli.live.tracker import Tracker
from mz_engine.artifacts.load import load_rules
from mz_engine.model.config import Config
from mz_engine.model.pins import Pins, encode_pins
from mz_engine.paths import BLOBS_FOLDER, LOG_FILE, MZ_FOLDER
from mz_engine.pipelines.load import load_pipeline
from mz_engine.prompts.render import load_templates
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.delivery import IssueOpened, IssueRequested
from mz_events.catalog.run import (
    CycleStarted,
    FeatureAdmitted,
    FeatureOutcome,
    FeatureStopped,
    ItemAdded,
    ItemRequeued,
    RunClosing,
    RunForked,
    RunStarted,
)
from mz_events.names import Digest, FeatureId, RunId, run_stream, tracker_stream
from mz_events.names import Path as TreePath
from mz_events.store import Append

from tests.support.forge import FakeGh
from tests.support.samples import sample

pytestmark = pytest.mark.slow

RUN = RunId("r1")
STREAM = run_stream(RUN)
CONFIG = Config(tracker="github:acme/tally")
STOPS = {
    "merged": FeatureOutcome.MERGED, "failed": FeatureOutcome.FAILED, "cancelled": FeatureOutcome.CANCELLED,
}  # fmt: skip


class Desk:
    """A log with a run, issues, and what the run prints."""

    def __init__(self, folder: Path) -> None:
        (folder / MZ_FOLDER).mkdir()
        self.root, self.gh, self.printed = folder, FakeGh(folder / "gh"), list[str]()
        self.environment = self.gh.environment()
        self.store = SqliteStore(folder / MZ_FOLDER / LOG_FILE)
        self.blobs = FileBlobs(folder / MZ_FOLDER / BLOBS_FOLDER)
        pipeline = load_pipeline("generation", folder)[0]
        pins = Pins(pipeline=pipeline, rules=load_rules(), templates=load_templates(), config=CONFIG)
        started = replace(sample(RunStarted), run=RUN, pins=self.blobs.put(encode_pins(pins)))
        self.record(started, CycleStarted(cycle=1))
        self.tracker = self.begin()

    def begin(self, config: Config = CONFIG, fault: str = "") -> Tracker:
        self.tracker = Tracker(
            ProjectLog(self.root, self.store), config, {**self.environment, "FAKE_GH_FAULT": fault}, self.printed.append
        )
        return self.tracker

    def record(self, *events: Event) -> None:
        self.store.append([Append(STREAM, None, events)], 1)

    def add(self, *names: str, title: str = "R-1", body: str = "Do it.", needs: tuple[str, ...] = ()) -> None:
        for name in names:
            self.record(ItemAdded(
                feature=FeatureId(name), source=f"{RUN}#{name}", priority=0, order=0, kind="task", cycle=1,
                made_by=FeatureId("plan-1"), title=self.blobs.put(title.encode()), body=self.blobs.put(body.encode()),
                depends_on=tuple(map(FeatureId, needs)), files=(TreePath("a.py"),),
            ))  # fmt: skip

    def admit(self, name: str) -> None:
        self.record(FeatureAdmitted(feature=FeatureId(name)))

    def stop(self, name: str, outcome: str) -> None:
        self.record(FeatureStopped(feature=FeatureId(name), version=1, status=STOPS[outcome], code="test"))

    def show(self, config: Config = CONFIG) -> None:
        """As a new process would."""
        self.begin(config).update(RUN)

    def issue(self, number: int = 1) -> dict[str, Any]:
        return next(issue for issue in self.gh.issues if issue["number"] == number)

    def shown(self) -> list[tuple[str, list[str]]]:
        return [(issue["state"], issue["labels"]) for issue in self.gh.issues]

    def comments(self, number: int = 1) -> list[str]:
        return [comment["body"].partition("\n")[0] for comment in self.gh.comments(f"issues/{number}/comments")]

    def opened(self) -> list[str]:
        events = (recorded.event for recorded in self.store.read(tracker_stream(RUN)))
        return [event.issue for event in events if isinstance(event, IssueOpened)]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(tracker_module, "token_hex", lambda _: "5eed")
    desk = Desk(tmp_path)
    with desk.store:
        yield desk


# states ---------------------------------------------------------------------------------------------------------------
def test_an_issue_has_the_task_and_its_state_until_it_is_merged(desk: Desk) -> None:
    desk.add("t1")
    desk.add("t2", title="Second", body="## Files\n\n- b.py", needs=("t1",))
    desk.tracker.update(RUN)
    first, second = desk.gh.issues
    assert (first["title"], second["title"]) == ("R-1", "Second")
    assert second["body"] == (
        "## Files\n\n- b.py\n\nDepends on: t1 (#1)\n\n"
        "Proposed by `plan-1` in the run `r1`; more: `mz show t2`\n\n<!-- mz r1/t2 5eed -->"
    )
    assert desk.shown() == [("open", ["mz", "mz:ready"])] * 2
    assert desk.opened() == ["acme/tally#1", "acme/tally#2"]
    desk.admit("t1")
    desk.tracker.update(RUN)
    assert desk.shown() == [("open", ["mz", "mz:in-progress"]), ("open", ["mz", "mz:ready"])]
    desk.stop("t1", "merged")
    desk.tracker.update(RUN)
    assert desk.shown() == [("closed", ["mz"]), ("open", ["mz", "mz:ready"])]
    assert (desk.comments(1), desk.comments(2)) == (["**mz**: merged"], [])
    calls = len(desk.gh.calls)
    desk.tracker.update(RUN)
    assert len(desk.gh.calls) == calls, "nothing differs"
    desk.show()
    assert len(desk.gh.calls) == calls + 1, "a new process looks once"
    assert desk.printed == []


def test_what_failed_is_told_when_it_is_not_begun_again(desk: Desk) -> None:
    desk.add("t1", "t2", "t3")
    desk.admit("t1")
    desk.stop("t1", "failed")
    desk.tracker.update(RUN)
    assert (desk.issue()["labels"], desk.comments()) == (["mz", "mz:ready"], []), "the next cycle begins it again"
    for attempt in (2, 3):
        desk.record(ItemRequeued(feature=FeatureId("t1"), cycle=attempt, attempt=attempt))
        desk.stop("t1", "failed")
    desk.tracker.update(RUN)
    assert (desk.shown()[0], desk.comments()) == (("open", ["mz", "mz:failed"]), ["**mz**: failed (test)"])
    desk.stop("t3", "failed")
    desk.record(RunClosing(how="finish", actor=Digest("a" * 64)))
    desk.stop("t2", "cancelled")
    desk.tracker.update(RUN)
    assert desk.shown()[2] == ("open", ["mz", "mz:failed"]), "no cycle follows"
    assert (desk.shown()[1], desk.comments(2)) == (("open", ["mz", "mz:failed"]), ["**mz**: cancelled"])


def test_all_issues_of_a_run_that_was_abandoned_say_so(desk: Desk) -> None:
    desk.add("t1", "t2", "t3")
    desk.admit("t1")
    desk.stop("t1", "merged")
    desk.admit("t2")
    desk.tracker.update(RUN)
    desk.stop("t2", "cancelled")
    desk.record(RunClosing(how="cancel", actor=Digest("a" * 64)))
    desk.tracker.update(RUN)
    assert desk.shown() == [("closed", ["mz", "mz:abandoned"])] * 3
    assert [desk.comments(number) for number in (1, 2, 3)] == [["**mz**: abandoned"]] * 3
    assert "\n\nTests" not in desk.gh.comments("issues/1/comments")[0]["body"]


def test_labels_are_the_same_in_any_case(desk: Desk) -> None:
    desk.add("t1")
    desk.tracker.update(RUN)
    desk.gh.change_issue(1, labels=["Bug", "MZ", "Mz:Ready"])
    calls = len(desk.gh.calls)
    desk.show()
    assert len(desk.gh.calls) == calls + 1, "nothing differs"
    desk.admit("t1")
    desk.show()
    assert desk.issue()["labels"] == ["Bug", "MZ", "mz:in-progress"]


def test_a_run_that_ended_before_it_could_be_shown_is_shown_as_it_ended(desk: Desk) -> None:
    desk.add("t1")
    desk.admit("t1")
    desk.stop("t1", "merged")
    desk.show()
    assert (desk.shown(), desk.comments()) == ([("closed", ["mz"])], ["**mz**: merged"])


def test_items_of_a_backlog_and_of_a_fork_are_not_shown(desk: Desk) -> None:
    desk.record(replace(sample(ItemAdded), feature=FeatureId("login"), made_by=None))
    desk.show()
    desk.add("t1")
    desk.record(sample(RunForked))
    desk.show()
    assert desk.gh.calls == []


def test_two_hundred_tasks_are_listed_page_by_page_and_opened_once(desk: Desk) -> None:
    desk.add(*(f"t{number}" for number in range(1, 201)))
    for number in range(1, 201):
        desk.gh.issue(number, "t", f"x\n\n<!-- mz r1/t{number} -->", labels=["mz", "mz:ready"])
        opened = IssueOpened(feature=FeatureId(f"t{number}"), issue=f"acme/tally#{number}")
        desk.store.append([Append(tracker_stream(RUN), None, (opened,))], 1)
    desk.show()
    assert len(desk.gh.calls) == 3, "three pages, and nothing is written"
    assert len(desk.gh.issues) == len(desk.opened()) == 200


# texts ----------------------------------------------------------------------------------------------------------------
def test_texts_are_cut_and_have_no_control_characters_no_secrets_and_no_mentions(desk: Desk) -> None:
    desk.environment["DEPLOY_TOKEN"] = "hunter2hunter2"
    desk.add(
        "t1", title="a\x1b[31m\nb\x07 hunter2hunter2 @ada " + "x" * 300, body="y hunter2hunter2 @ada " + "z" * 70_000
    )
    desk.show()
    issue = desk.issue()
    assert issue["title"].startswith("a b <redacted> @\u200bada xxx")
    assert issue["body"].startswith("y <redacted> @\u200bada zzz")
    assert "hunter2" not in issue["title"]
    assert len(issue["title"]) == 250
    assert "hunter2" not in issue["body"]
    assert len(issue["body"]) < 65_536
    assert issue["body"].endswith("\n<!-- mz r1/t1 5eed -->")


# crashes and people ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lag", [0, 1, 3])
def test_an_issue_that_was_opened_before_a_crash_is_found_when_it_is_listed(desk: Desk, lag: int) -> None:
    desk.add("t1", "t2")
    desk.begin(fault="lost-reply").update(RUN)
    desk.gh.issue(2, "of others", "Do it.", labels=["mz"])
    assert (len(desk.gh.issues), desk.opened()) == (2, [])
    desk.gh.change_issue(1, labels=[], body="Do it.\r\n\r\n<!-- mz r1/t1 5eed -->")
    desk.gh.lag(2 * lag)
    for _ in range(lag + 1):
        desk.show()
    assert [issue["title"] for issue in desk.gh.issues] == ["R-1", "of others", "R-1"]
    assert desk.opened() == (["acme/tally#3", "acme/tally#1"] if lag else ["acme/tally#1", "acme/tally#3"])
    assert desk.issue(1)["labels"] == ["mz", "mz:ready"]


def test_an_issue_that_somebody_else_made_to_look_like_it_is_none(desk: Desk) -> None:
    desk.add("t1")
    desk.begin(fault="lost-request").update(RUN)
    desk.gh.issue(1, "of others", "Do it.\n\n<!-- mz r1/t1 -->", labels=[])
    desk.show()
    assert (desk.opened(), desk.issue()["labels"]) == ([], [])
    assert desk.printed[-1].startswith("the issue of t1 may be open already")


def test_an_issue_that_an_earlier_version_requested_is_found(desk: Desk) -> None:
    desk.add("t1")
    requested = IssueRequested(feature=FeatureId("t1"), repository="acme/tally")
    desk.store.append([Append(tracker_stream(RUN), None, (requested,))], 1)
    desk.gh.issue(1, "t", "x\n\n<!-- mz r1/t1 -->", labels=[])
    desk.show()
    assert desk.opened() == ["acme/tally#1"]


def test_what_a_process_was_killed_before_it_could_send_is_opened_when_no_list_can_lack_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.add("t1")
    desk.begin(fault="lost-request").update(RUN)
    desk.begin().update(RUN, is_last=True)
    assert desk.gh.issues == []
    assert desk.printed[1] == "the issue of t1 may be open already; it is looked up again before one is opened"
    monkeypatch.setattr(tracker_module, "LISTED_WITHIN", timedelta())
    desk.tracker.update(RUN)
    assert (len(desk.gh.issues), desk.opened()) == (1, ["acme/tally#1"])


def test_an_issue_that_may_be_open_is_not_opened_again_while_nobody_can_look(desk: Desk) -> None:
    desk.add("t1")
    desk.begin(fault="lost-reply").update(RUN)
    desk.begin(fault="server-error").update(RUN, is_last=True)
    assert len(desk.gh.issues) == 1
    assert "HTTP 502" in desk.printed[1]


@pytest.mark.parametrize("state", ["deleted", "moved"])
def test_an_issue_that_is_gone_is_not_opened_again(desk: Desk, state: str) -> None:
    desk.add("t1", "t2")
    desk.show()
    desk.gh.change_issue(1, state=state, labels=[])
    desk.admit("t1")
    desk.tracker.update(RUN)
    desk.stop("t1", "merged")
    for _ in range(3):
        desk.show()
    assert [issue["number"] for issue in desk.gh.issues] == [1, 2]
    assert desk.comments() == []
    assert set(desk.printed) == {"acme/tally#1, the issue of t1, was deleted or moved; it is not opened again"}


def test_what_people_changed_stays(desk: Desk) -> None:
    desk.add("t1")
    desk.tracker.update(RUN)
    desk.gh.change_issue(1, state="closed", title="Mine", body="Mine", labels=["bug", "mz:ready"])
    desk.admit("t1")
    desk.tracker.update(RUN)
    issue = desk.issue()
    assert (issue["title"], issue["body"], issue["state"]) == ("Mine", "Mine", "closed")
    assert issue["labels"] == ["bug", "mz", "mz:in-progress"]
    desk.stop("t1", "merged")
    desk.show()
    assert (desk.issue()["labels"], desk.comments()) == (["bug", "mz"], ["**mz**: merged"])


def test_a_repository_is_the_same_in_any_case(desk: Desk) -> None:
    desk.add("t1", "t2")
    desk.show()
    desk.show(replace(CONFIG, tracker="github:Acme/Tally"))
    assert desk.opened() == ["acme/tally#1", "acme/tally#2"]


def test_another_repository_gets_issues_of_its_own(desk: Desk) -> None:
    desk.add("t1")
    desk.show()
    desk.show(replace(CONFIG, tracker="github:acme/other"))
    assert desk.opened() == ["acme/tally#1", "acme/other#2"], "the stand-in has one list"


# failures -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("login", "`gh` is not logged in; run `gh auth login`, or set GH_TOKEN"),
        ("rate-limit", "`gh api` failed: HTTP 403: API rate limit exceeded"),
        ("server-error", "`gh api` failed: HTTP 502"),
        ("nonsense", "unexpected reply"),
    ],
)
def test_a_failure_is_told_once_and_not_repeated_at_once(desk: Desk, fault: str, reason: str) -> None:
    desk.add("t1", "t2")
    desk.begin(fault=fault)
    for _ in range(3):
        desk.tracker.update(RUN)
    assert len(desk.gh.calls) == 1
    desk.tracker.update(RUN, is_last=True)
    assert len(desk.gh.calls) == 2
    (printed,) = desk.printed
    assert printed.startswith("the issues of the tracker github:acme/tally are not up to date: ")
    assert reason in printed
    desk.show()
    assert len(desk.gh.issues) == 2, "the next process makes up for it"


def test_without_gh_it_is_told(desk: Desk) -> None:
    desk.add("t1")
    (desk.root / "bin").mkdir()
    (desk.root / "bin/git").symlink_to(shutil.which("git") or "")
    desk.environment["PATH"] = str(desk.root / "bin")
    desk.show()
    assert "`gh` is not installed, or not on PATH" in desk.printed[0]
    assert "leave out `tracker`" in desk.printed[0]


def test_who_may_not_write_opens_each_issue_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "PAUSE_SECONDS", 0)
    desk.gh.refuse_writing()
    desk.add("t1", "t2")
    desk.begin()
    for _ in range(4):
        desk.tracker.update(RUN)
    desk.show()
    assert [issue["labels"] for issue in desk.gh.issues] == [[], []]
    (printed,) = set(desk.printed)
    assert printed.endswith("`gh api` failed: gh: Must have admin rights to Repository. (HTTP 403)")


def test_one_that_fails_keeps_no_other_from_being_shown(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(tracker_module, "TITLE_CHARS_MAX", 500)
    desk.add("t1", title="x" * 300)
    desk.add("t2")
    for _ in range(3):
        desk.tracker.update(RUN)
    assert desk.opened() == ["acme/tally#1"]
    assert json.dumps(desk.gh.issues).count("mz r1/t2") == 1


def test_a_remote_that_is_gone_is_told(desk: Desk) -> None:
    desk.add("t1")
    desk.begin(replace(CONFIG, tracker="github"))
    for _ in range(2):
        desk.tracker.update(RUN, is_last=True)
    reason = "the remote origin is no repository of GitHub"
    assert desk.printed == [f"the issues of the tracker github are not up to date: {reason}"]
