"""Messages for a run: what is left, who takes it, and what `mz retry`, `pause`, `resume` and `cancel` say of it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event as Signal
from threading import Thread

import pytest
from filelock import FileLock
from mz_cli.app.context import ProjectLog, open_log
from mz_cli.deliver.messages import cancel_at_once
from mz_cli.deliver.run import run_to_resume
from mz_cli.people.inbox import active_run, post_message, user_name
from mz_cli.people.questions import unfinished_runs
from mz_engine.errors.diagnostics import MzError
from mz_engine.run.coordinator import Coordinator
from mz_engine.run.process import RunProcess
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.inbox import AnswerPosted, PausePosted, RetryPosted
from mz_events.catalog.run import RunFinished, Verdict
from mz_events.names import FeatureId
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run

from tests.cli.drive import Mz, decoded
from tests.cli.stored_run import StoredRun
from tests.support import driving
from tests.support.asking import ASKING, DATABASE, Asking, Clock, Shelf, inbox, keep
from tests.support.processes import eventually

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def feature(home: Path, shelf: Shelf) -> str:
    """A run rests in the log of `home`, and this feature of it waits for a person."""
    return shelf.keep("blocker", home)


@contextmanager
def at_work(asking: Asking = ASKING["blocker"], takes: bool = True) -> Iterator[Coordinator]:
    """What another process does for the run: it holds the lock, and takes what is left; nothing is driven."""
    over, store = Signal(), SqliteStore(DATABASE)
    coordinator = Coordinator(trial.RUN, asking.pins, store, Clock(), lambda recorded: None)

    def take() -> None:
        while not over.wait(0.02):
            coordinator.read_inbox()

    thread = Thread(target=take)
    with FileLock(".mz/run.lock"), store:
        coordinator.resume()
        if takes:
            thread.start()
        try:
            yield coordinator
        finally:
            over.set()
            if takes:
                thread.join()


def paused(coordinator: Coordinator, wanted: bool) -> bool:
    return eventually(lambda: coordinator.state.paused is wanted)


def answer_to(feature: str, log: ProjectLog, question: int | None = None) -> AnswerPosted:
    who = log.blobs.put(b"Grace")
    return AnswerPosted(feature=FeatureId(feature), verdict=Verdict.APPROVE, actor=who, question=question)


# leaving --------------------------------------------------------------------------------------------------------------
def test_a_process_that_works_on_the_run_takes_it_at_once(mz: Mz, feature: str) -> None:
    with at_work():
        result = mz("review", "answer", feature, "use SQLite")
    assert result.out == "answered: b; the process of run r1 has read it\n"
    with at_work():
        left = decoded(mz("pause", "--json"))
    assert (left["process_running"], left["message_read"]) == (True, True)


def test_a_process_that_is_slow_takes_it_later(mz: Mz, feature: str) -> None:
    with at_work(takes=False), open_log() as log:
        left = post_message(log, trial.RUN, lambda: (answer_to(feature, log),), patience_seconds=0.1)
    assert (left.process_running, left.messages_read) == (True, False)


def test_what_a_process_refuses_is_told(feature: str) -> None:
    """As when somebody else's answer comes between the look and the message."""
    with at_work() as coordinator, open_log() as log:
        post_message(log, trial.RUN, lambda: (answer_to(feature, log),))
        assert eventually(lambda: coordinator.state.tracks[feature].active)
        with pytest.raises(MzError, match="the question is no longer open") as refused:
            post_message(log, trial.RUN, lambda: (answer_to(feature, log),))
    assert refused.value.diagnostics[0].code == "MZ5004"


def test_of_two_that_are_left_at_the_same_moment_the_second_looks_again(feature: str) -> None:
    with open_log() as log:
        looks = []

        def write() -> tuple[Event, ...]:
            looks.append(len(inbox()))
            if len(looks) == 1:
                post_message(log, trial.RUN, lambda: (answer_to(feature, log),))
            return (answer_to(feature, log),)

        assert post_message(log, trial.RUN, write).event_refs == ("inbox/r1@2",)
    assert looks == [0, 1]


def test_a_process_that_works_on_another_run_takes_nothing(mz: Mz, feature: str, home: Path) -> None:
    other = StoredRun(home, run="r2").begin("other")
    with FileLock(".mz/run.lock"):
        with open_log() as log:
            assert active_run(log) == "r2"
        assert "no process is running run r1" in mz("review", "approve", feature).out
        paused = mz("pause", "r1")
    other.close()
    assert (paused.exit, paused.out) == (2, "")
    assert "no process is running run r1" in paused.err


@pytest.mark.parametrize(
    ("name", "address", "text", "expected"),
    [
        ("Ada", "ada@example.invalid", "", "Ada <ada@example.invalid>"),
        ("Ada", "", "", "Ada"),
        ("", "ada@example.invalid", "", "ada@example.invalid"),
        ("Ada", "ada@example.invalid", " Grace\n\x1b[1mHopper ", "Grace Hopper"),
        ("Ada" * 99, "", "", ("Ada" * 99)[:200]),
    ],
)
def test_the_name_of_a_person(tmp_path: Path, name: str, address: str, text: str, expected: str) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for key, value in (("name", name), ("email", address)):
        subprocess.run(["git", "config", f"user.{key}", value], cwd=tmp_path, check=True)
    assert user_name(tmp_path, text) == expected


def test_without_a_name_the_login_counts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("LOGNAME", "grace")
    assert user_name(home / "nowhere", "") == "grace"


# once more ------------------------------------------------------------------------------------------------------------
def test_a_retry_is_left(mz: Mz, feature: str) -> None:
    left = decoded(mz("retry", f"{feature}/plan", "-m", "short, please", "--json"))
    assert (left["schema"], left["kind"], left["phase"], left["message_read"]) == ("mz.retry/1", "retry", "plan", False)
    (letter,) = inbox()
    assert isinstance(letter, RetryPosted)
    assert letter.note is not None
    assert FileBlobs(Path(".mz/blobs")).get(letter.note) == b"short, please"
    again = mz("retry", feature)
    assert (again.exit, again.out) == (2, "")
    assert "requested a retry" in again.err


def test_a_retry_says_what_comes_next(mz: Mz, feature: str) -> None:
    assert mz("retry", f"{feature}/plan").out == (
        "retry of b requested, from plan; no process is running run r1; continue it with\n  mz resume r1\n"
    )


@pytest.mark.parametrize(
    ("args", "exit_code", "output"),
    [
        (("nope",), 10, "MZ4010"),
        (("b/plna",), 2, "no phase 'plna'; did you mean `plan`?"),
        (("b/ship",), 2, "b has not started ship\nhint: phases started by b: plan"),
        (("b", "-m", ""), 2, "the note is empty"),
    ],
)
def test_what_cannot_be_retried(mz: Mz, feature: str, args: tuple[str, ...], exit_code: int, output: str) -> None:
    answer = mz("retry", *args)
    assert (answer.exit, answer.out) == (exit_code, "")
    assert output in answer.err
    assert inbox() == []


@pytest.mark.parametrize(
    ("feature", "output"), [("login", "login is already delivered"), ("later", "later has not started")]
)
def test_what_does_not_rest_is_not_retried(mz: Mz, stored_run: StoredRun, feature: str, output: str) -> None:
    answer = mz("retry", feature)
    assert answer.exit == 2
    assert f"error[MZ5006] {output}" in answer.err


def test_what_is_held_can_be_retried(mz: Mz, stored_run: StoredRun) -> None:
    assert mz("retry", "export").exit == 0


def test_what_waits_for_a_dependency_is_not_retried(mz: Mz, home: Path) -> None:
    asking = ASKING["blocker"]
    world = driving.new_world()
    world.script = lambda spec, files: asking.script(world, spec, files) or trial.script(spec, files)
    trial.begin(world, asking.pins, {"b": (), "c": ("b",)})
    drive_run(world, trial.RUN, asking.pins, 1)
    driving.answer(world, "b", Verdict.REJECT)
    drive_run(world, trial.RUN, asking.pins, 1)
    keep(world, home)
    answer = mz("retry", "c")
    assert "c waits for b\nhint: mz retry b" in answer.err
    assert mz("retry", "b").exit == 0


def test_a_retry_does_not_repeat_with_commands_that_were_corrected(mz: Mz, feature: str) -> None:
    """Only a resume takes them over; the attempts would be paid in vain."""
    Path("mz.yaml").write_text("commands: {test: {run: corrected}}\n")
    with at_work():
        answer = mz("retry", feature)
    assert "error[MZ5006] a process drives run r1 with the commands before your correction" in answer.err
    assert "end it (Ctrl-C), then: mz retry b && mz resume r1" in answer.err
    assert inbox() == []
    assert mz("retry", feature).exit == 0


def test_an_answer_says_that_a_process_keeps_the_commands_it_began_with(mz: Mz, feature: str) -> None:
    Path("mz.yaml").write_text("commands: {test: {run: corrected}}\n")
    kept = "run r1 keeps the commands that it began with; for the corrected ones end it (Ctrl-C), then: mz resume r1"
    with at_work():
        assert kept in mz("review", "answer", feature, "SQLite", "--json").err
        assert mz("pause").exit == 0
        assert kept in mz("resume").err
    Path("mz.yaml").write_text("commands: 3\n")
    with at_work():
        assert kept not in mz("pause").err + mz("resume").err


def test_a_feature_at_work_is_not_retried(mz: Mz, feature: str) -> None:
    with at_work():
        mz("review", "approve", feature)
        answer = mz("retry", feature)
    assert "b is in progress" in answer.err


# pausing --------------------------------------------------------------------------------------------------------------
def test_only_a_run_at_work_can_be_paused(mz: Mz, feature: str) -> None:
    answer = mz("pause")
    assert (answer.exit, answer.out) == (2, "")
    assert "error[MZ5005] no process is running run r1" in answer.err
    assert "mz resume r1" in answer.err
    assert inbox() == []


def test_the_run_with_the_latest_event_or_message_is_resumed(mz: Mz, stored_run: StoredRun) -> None:
    with open_log() as log:
        assert run_to_resume(log) == stored_run.run
    newer = StoredRun(stored_run.home, "20260302-120000-ef01").begin("other").admit("other")
    with open_log() as log:
        assert run_to_resume(log) == newer.run
    newer.close()
    assert mz("retry", f"{stored_run.run}/audit").exit == 0
    with open_log() as log:
        assert run_to_resume(log) == stored_run.run
        assert unfinished_runs(log) == (newer.run, stored_run.run)


def test_a_run_that_is_over_is_neither_paused_nor_resumed(mz: Mz, stored_run: StoredRun) -> None:
    stored_run.to_run(RunFinished())
    assert mz("pause").err.endswith("hint: it is finished; start another with `mz run`\n")


def test_a_pause_and_its_end(mz: Mz, feature: str) -> None:
    with at_work() as coordinator:
        assert "continue with `mz resume`" in mz("pause").out
        assert paused(coordinator, True)
        assert mz("pause").out == "run r1 is already paused\n"
        assert decoded(mz("pause", "--json"))["event_ref"] is None
        shown = mz("resume")
        assert (shown.exit, shown.out) == (0, "")
        assert shown.err.endswith("run r1 continues; the process of run r1 has read it\n")
        assert paused(coordinator, False)
    assert [type(event).__name__ for event in inbox()] == [PausePosted.__name__, "ResumePosted"]


def test_an_answer_to_a_paused_run_lets_it_go_on(mz: Mz, feature: str) -> None:
    with at_work() as coordinator:
        mz("pause")
        shown = decoded(mz("resume", "--feature", feature, "--answer", "retry", "-m", "use SQLite", "--json"))
        assert paused(coordinator, False)
    assert (shown["schema"], shown["run"], shown["process_running"]) == ("mz.resume/1", "r1", True)


def test_a_run_at_work_is_not_resumed_twice(mz: Mz, feature: str) -> None:
    with at_work():
        answer = mz("resume")
    assert answer.exit == 16
    assert "MZ5002" in answer.err


# answers with the resume, and cancelling ------------------------------------------------------------------------------
def test_an_answer_with_the_resume_meets_only_open_questions(mz: Mz, feature: str) -> None:
    mz("review", "approve", feature)
    answer = mz("resume", "--feature", feature, "--answer", "retry")
    assert answer.exit == 2
    assert "b is answered already" in answer.err
    assert len(inbox()) == 1
    assert "did you mean `b`" in mz("resume", "--feature", "bb", "--answer", "retry").err


def test_what_is_given_up_is_said_by_whom_it_is_taken(mz: Mz, feature: str) -> None:
    with at_work():
        cancelled = decoded(mz("cancel", feature, "-m", "not needed", "--json"))
    assert cancelled["schema"] == "mz.cancel/1"
    assert (cancelled["process_running"], cancelled["messages_read"]) == (True, True)


def test_a_finished_run_with_mail_is_not_over(mz: Mz, stored_run: StoredRun) -> None:
    stored_run.to_run(RunFinished())
    assert decoded(mz("review", "list", "--json"))["questions"] == []
    assert mz("retry", "audit").exit == 0
    assert [item["feature"] for item in decoded(mz("review", "list", "--json"))["questions"]] == ["audit"]


@pytest.mark.parametrize("code", ["MZ1006", "MZ5002"])
def test_a_cancel_that_the_storage_forbids_is_an_error(monkeypatch: pytest.MonkeyPatch, home: Path, code: str) -> None:
    """Any other obstacle only leaves the message for the next resume."""

    def fails(process: RunProcess, run: str) -> None:
        raise MzError(code, "git cannot be used")

    monkeypatch.setattr(RunProcess, "record_cancellations", fails)
    with pytest.raises(MzError, match="MZ1006") if code == "MZ1006" else nullcontext():
        assert not cancel_at_once(home, trial.RUN)
