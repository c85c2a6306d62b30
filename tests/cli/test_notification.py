"""Notifications: what a person is told while nobody looks at the terminal."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NoReturn

import pytest
from mz_cli.live.driver import Notifier, execute
from mz_engine.model.config import Notifications, NotificationSubject
from mz_engine.run.process import RunProcess
from mz_events.catalog.base import Event
from mz_events.catalog.feature import FeatureFailed, HumanRequested, QuestionKind
from mz_events.catalog.run import FeatureOutcome, FeatureStopped, Hold, RunFinished, RunHalted, RunIdle
from mz_events.names import Digest, FeatureId, StreamId
from mz_events.store import Recorded
from mz_recordings.cassette.repository import create_sample

from tests.cli.drive import on_terminal, spawn
from tests.cli.fakeagent import FakeAgent
from tests.support.processes import eventually, is_alive

QUESTION = HumanRequested(
    phase="prd", unit="", question_kind=QuestionKind.BLOCKER, code="agent-blocker", detail=Digest("0" * 64)
)
WRITE = 'echo "$MZ_EVENT $MZ_RUN $MZ_FEATURE: $MZ_TEXT" >> lines'


def recorded(event: Event, stream: str = "run/r1/login", causation: str = "") -> Recorded[Event]:
    return Recorded(StreamId(stream), 1, 1, 1, 1, event, causation)


class Desk:
    """A person's desk: what the bell and the notes say."""

    def __init__(self, root: Path, settings: Notifications) -> None:
        self.root, self.rings, self.notes = root, 0, list[str]()
        texts = {QUESTION.detail: "Which\nbackend? " + "x" * 999}
        self.notifier = Notifier(
            root, settings, os.environ, self.ring, self.notes.append, lambda digest: texts.get(digest, "")
        )

    def ring(self) -> None:
        self.rings += 1

    def lines_after(self, *events: Recorded[Event]) -> list[str]:
        for event in events:
            self.notifier.on_event(event)
            self.notifier.close()
        file = self.root / "lines"
        return file.read_text().splitlines() if file.exists() else []


def test_a_question_rings_and_runs_the_command(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Notifications(command=WRITE))
    (question,) = desk.lines_after(recorded(QUESTION))
    assert question.startswith("question r1 login: login: human requested: prd: question to a person, blocker")
    assert re.search(r"mz review show login; question: Which backend\? x{200,300}", question)
    assert len(question) < 500
    assert (desk.rings, desk.notes) == (1, [])


def stop(feature: str, status: FeatureOutcome, hold: Hold | None = None) -> Recorded[Event]:
    return recorded(FeatureStopped(feature=FeatureId(feature), version=1, status=status, hold=hold), "run/r1")


WAITS, IDLE = stop("login", FeatureOutcome.WAITING), recorded(RunIdle(), "run/r1")
NO_KEY = recorded(RunHalted(feature=FeatureId("login"), code="auth-failure"), "run/r1")
EVERYTHING = ("question", "failed", "halted", "idle", "finished")


@pytest.mark.parametrize(
    ("events", "on", "expected"),
    [
        ((recorded(QUESTION), WAITS, IDLE), EVERYTHING, "question"),
        ((stop("login", FeatureOutcome.HELD, Hold.FATAL), NO_KEY, stop("two", FeatureOutcome.INTERRUPTED), IDLE),
         EVERYTHING, "halted"),
        ((stop("login", FeatureOutcome.HELD, Hold.BUDGET), IDLE), EVERYTHING, "idle"),
        ((stop("two", FeatureOutcome.HELD, Hold.BUDGET), recorded(QUESTION), WAITS, IDLE), EVERYTHING, "question idle"),
        ((recorded(QUESTION), WAITS, stop("login", FeatureOutcome.DELIVERED), IDLE), EVERYTHING, "question idle"),
        ((recorded(QUESTION), WAITS, IDLE), ("idle",), "idle"),
        ((IDLE,), EVERYTHING, "idle"),
    ],
)  # fmt: skip
def test_one_cause_is_told_once(
    tmp_path: Path, events: tuple[Recorded[Event], ...], on: tuple[NotificationSubject, ...], expected: str
) -> None:
    desk = Desk(tmp_path, Notifications(command=WRITE, on=on))
    assert " ".join(line.split()[0] for line in desk.lines_after(*events)) == expected
    assert desk.rings == len(expected.split())


def test_only_what_the_settings_name_is_told(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Notifications(command=WRITE, on=("failed",)))
    lines = desk.lines_after(recorded(QUESTION), recorded(FeatureFailed(code="x")), recorded(RunFinished(), "run/r1"))
    assert [line.split()[0] for line in lines] == ["failed"]
    assert desk.rings == 1


def test_the_question_of_an_original_is_not_told_again_by_its_fork(tmp_path: Path) -> None:
    assert (
        Desk(tmp_path, Notifications(command=WRITE)).lines_after(recorded(QUESTION, causation="run/r0/login@9")) == []
    )


def test_a_command_that_fails_is_told_in_the_view(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Notifications(command="exit 3"))
    assert desk.lines_after(recorded(QUESTION)) == []
    assert desk.notes == ["the command of `notify` failed: exit 3"]
    gone = Desk(tmp_path / "gone", Notifications(command=WRITE))
    assert gone.lines_after(recorded(QUESTION)) == []
    assert "No such file" in gone.notes[0]


def test_a_command_that_hangs_is_killed_with_what_it_started_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mz_cli.live.driver.END_SECONDS", 0.2)
    desk = Desk(tmp_path, Notifications(command="sleep 600 & echo $! > child; wait"))
    for subject in (recorded(QUESTION), recorded(RunFinished(), "run/r1")):
        desk.notifier.on_event(subject)
        while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
            pass
    desk.notifier.close()
    note = "the command of `notify` failed: it still ran 0.2 seconds after the end of the run, and was killed"
    assert desk.notes == [note, note]
    child = int((tmp_path / "child").read_text())
    eventually(lambda: not is_alive(child))


def test_a_run_that_fails_still_waits_for_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = list[Notifier]()

    def drive(process: RunProcess, warn: object) -> NoReturn:
        raise RuntimeError("a worker failed")

    create_sample(tmp_path / "tally", os.environ)
    monkeypatch.setattr(RunProcess, "drive", drive)
    monkeypatch.setattr(Notifier, "close", lambda notifier: closed.append(notifier))
    with pytest.raises(RuntimeError, match="a worker failed"):
        execute(tmp_path / "tally", os.environ, lambda process, say: None)
    assert len(closed) == 1


@pytest.mark.slow
def test_a_run_that_asks_tells_the_person(tmp_path: Path) -> None:
    sample, agent = tmp_path / "tally", FakeAgent(tmp_path / "agent", "idle")
    create_sample(sample, os.environ)
    settings = sample / "mz.yaml"
    settings.write_text(settings.read_text() + f"notify: {{command: '{WRITE}', on: [question, idle]}}\n")
    assert spawn(sample, "run", "--feature", "group-thousands", **agent.environment).exit == 21
    (line,) = (sample / "lines").read_text().splitlines()
    assert line.startswith("question r")
    assert "group-thousands" in line
    text = on_terminal(sample, "resume", "group-thousands", "-m", "Do it.", env=agent.environment)
    assert "\a" in text
    assert len((sample / "lines").read_text().splitlines()) == 2
