"""People and a run at work: answers, pauses and levels of autonomy, with the installed program and real processes."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.bench import Bench
from tests.support.processes import eventually

pytestmark = pytest.mark.slow

FEATURE, OTHER = "group-thousands", "month-filter"
BLOCKER = "say({'type': 'result', 'subtype': 'success', 'is_error': False, 'result': 'Blocker: need your input'})"


def held_up(bench: Bench, feature: str, phase: str) -> Path:
    """The agent answers in that phase only when the file is there."""
    go = bench.home.parent / "go"
    waits = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists():\n    time.sleep(0.05)\nanswer()\n"
    bench.act(feature, phase, waits)
    return go


def ended(process: subprocess.Popen[str], code: int) -> str:
    out, err = process.communicate(timeout=200)
    assert process.returncode == code, out + err
    return out + err


def question(bench: Bench) -> tuple[str, str, str] | None:
    """Phase, kind and code of what is asked; None where nothing is."""
    requested = bench.json("review", "list")["questions"]
    return (requested[0]["phase"], requested[0]["question_kind"], requested[0]["code"]) if requested else None


# pauses ---------------------------------------------------------------------------------------------------------------
def paused_in(bench: Bench, phase: str, pause: Callable[[], object]) -> None:
    """Pause the run during the call of that phase, which ends, and wait until its feature is paused too."""
    go = bench.home.parent / "go"
    eventually(lambda: any(f"/{phase}/" in key for key in bench.calls()))
    pause()
    eventually(lambda: bench.json("status")["status"] == "paused")
    go.touch()
    eventually(lambda: bench.statuses() == {FEATURE: "paused"})
    go.unlink()


def test_a_paused_run_begins_nothing_and_stays_until_it_is_resumed_or_ended(tmp_path: Path) -> None:
    """By commands and by signals."""
    bench = Bench(tmp_path)
    for phase in ("prd", "techspec", "tasks"):
        go = held_up(bench, FEATURE, phase)
    process = bench.start("run", "--feature", FEATURE)
    paused_in(bench, "prd", lambda: bench.mz("pause"))
    version = len(bench.events())
    time.sleep(2)
    assert (len(bench.events()), sum(bench.calls().values())) == (version, 1), "nothing is begun"
    assert process.poll() is None
    assert bench.json("status")["process_running"]
    process.send_signal(signal.SIGUSR2)
    paused_in(bench, "techspec", lambda: process.send_signal(signal.SIGUSR1))
    bench.mz("resume")
    paused_in(bench, "tasks", lambda: bench.mz("pause"))
    process.send_signal(signal.SIGINT)
    go.touch()
    assert "To continue: mz resume" in ended(process, 20)
    bench.mz("resume")
    assert bench.statuses() == {FEATURE: "delivered"}
    assert set(bench.calls().values()) == {1}
    assert [bool(event["actor"]) for event in bench.of_type("run.paused")] == [True, False, True]
    assert bench.of_type("human.requested") == [], "what is in order is asked about at no level but supervised"


# answers --------------------------------------------------------------------------------------------------------------
def test_an_answer_is_taken_while_the_run_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.act(FEATURE, "prd", BLOCKER)
    go = held_up(bench, OTHER, "prd")
    process = bench.start("run", "--feature", FEATURE, "--feature", OTHER)
    eventually(lambda: bench.calls() and question(bench) == ("prd", "blocker", "agent-blocker"))
    output = bench.mz("review", "answer", FEATURE, "group by three, with commas", MZ_USER="Ada").out
    assert "has read it" in output
    assert "has no open question" in bench.mz("review", "approve", FEATURE, code=2).err
    assert process.poll() is None
    go.touch()
    ended(process, 0)
    assert bench.statuses() == {FEATURE: "delivered", OTHER: "delivered"}
    shown = bench.json("review", "show", FEATURE)
    assert [(item["actor"], item["note"]) for item in shown["decisions"]] == [("Ada", "group by three, with commas")]
    assert "group by three, with commas" in bench.mz("show", FEATURE, "--prompt").out


def test_two_people_answer_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.act(FEATURE, "prd", BLOCKER)
    bench.mz("run", "--feature", FEATURE, "--autonomy", "full_auto", code=21)
    assert question(bench) == ("prd", "blocker", "agent-blocker"), "an agent that asks is heard in full_auto too"
    people = [
        bench.start("review", "approve", FEATURE, MZ_USER="Ada"),
        bench.start("review", "reject", FEATURE, "-m", "no", MZ_USER="Grace"),
    ]
    communicates = [person.communicate(timeout=60) for person in people]
    assert sorted(person.returncode for person in people) == [0, 2], communicates
    assert "is answered already" in "".join(err for _, err in communicates)
    (question_,) = bench.json("review", "list")["questions"]
    assert question_["answered"]["actor"] == ("Ada" if people[0].returncode == 0 else "Grace")


def test_what_was_rejected_is_done_once_more(tmp_path: Path) -> None:
    """A finished run is taken up again by a retry; the work of later phases is put back first."""
    bench = Bench(tmp_path)
    bench.act(FEATURE, "techspec", BLOCKER)
    bench.mz("run", "--feature", FEATURE, code=21)
    bench.mz("review", "reject", FEATURE, "-m", "not now")
    bench.mz("resume", code=1)
    assert bench.json("status")["status"] == "finished"
    bench.mz("retry", f"{FEATURE}/prd", "-m", "now it is time")
    bench.mz("resume")
    assert bench.statuses() == {FEATURE: "delivered"}
    assert "now it is time" in bench.mz("show", f"{FEATURE}/prd", "--prompt").out
    shown = bench.json("review", "show", FEATURE)
    assert [(item["kind"], item["phase"]) for item in shown["decisions"]] == [("answer", None), ("retry", "prd")]


def test_the_work_is_shown_to_whoever_decides(tmp_path: Path) -> None:
    """The patch of what the agent changed, besides the artifacts, from the captures in git."""
    bench = Bench(tmp_path)
    bench.mz("run", "--feature", FEATURE, code=21, MZ_LIMITS_FEATURE_FILES_MAX="1")
    assert question(bench) == ("tasks", "approval", "size")
    page = bench.mz("review", "show", FEATURE).out
    assert "artifact tasks (tasks/group-thousands/tasks.json)" in page
    assert "why you are asked" in page, page
    assert "changes in" not in page, "the artifact is shown as it is"
    bench.mz("review", "approve", FEATURE, "-m", "this once")
    bench.mz("resume", code=21)
    assert question(bench) == ("code", "approval", "files_max")
    shown = bench.json("review", "show", FEATURE)
    (patch,) = [item["text"] for item in shown["evidence"] if item["kind"] == "diff"]
    assert "+++ b/tally/" in patch
    assert "+++ b/tasks/" not in patch
    bench.mz("review", "approve", FEATURE)
    bench.mz("resume")
    assert bench.statuses() == {FEATURE: "delivered"}


def test_a_secret_is_named_and_never_shown(tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "A" * 93 + "AA"
    bench = Bench(tmp_path)
    path = f"tasks/{FEATURE}/prd.md"
    bench.act(FEATURE, "prd", f"answer(); (cwd / {path!r}).write_text({key!r})")
    bench.mz("run", "--feature", FEATURE, code=21)
    assert question(bench) == ("prd", "secret", path)
    for shown in (bench.mz("review", "show", FEATURE).out, bench.mz("review", "show", FEATURE, "--json").out):
        assert path in shown
        assert key not in shown
        assert "changes in" not in shown


# autonomy -------------------------------------------------------------------------------------------------------------
def test_supervised_asks_after_each_planning_phase(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.mz("run", "--feature", FEATURE, "--autonomy", "supervised", code=21)
    for phase in ("prd", "techspec", "tasks"):
        assert question(bench) == (phase, "approval", "checkpoint")
        bench.mz("review", "approve", FEATURE)
        bench.mz("resume", code=0 if phase == "tasks" else 21)
    assert bench.statuses() == {FEATURE: "delivered"}
    assert [document["actor"] for document in bench.of_type("answer.accepted")] != []
