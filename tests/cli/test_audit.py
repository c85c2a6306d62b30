"""`mz audit`: the verdict first, every claim with its place, from the log alone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from mz_cli.app import context
from mz_cli.audit import command as audit_command
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.delivery import ChecksPolled
from mz_events.catalog.feature import FeatureDelivered, HumanAnswered, HumanRequested, PhaseStarted, QuestionKind
from mz_events.catalog.run import AnswerAccepted, Verdict
from mz_events.names import FeatureId, StreamId
from mz_events.store import Recorded
from syrupy.assertion import SnapshotAssertion

from tests.cli.damage import blob_path, tamper
from tests.cli.drive import Mz, on_terminal
from tests.cli.stored_run import RUN, StoredRun
from tests.cli.test_status import HOSTILE
from tests.support.samples import sample

EVENT_REF = re.compile(r"(?:run|inbox)/[\w-]+(?:/[\w-]+)?@\d+")


def report(mz: Mz, *args: str) -> Any:
    answer = mz("audit", *args, "--json")
    result = msgspec.json.decode(answer.out)
    assert answer.exit == (0 if result["verdict"] == "yes" else 1)
    return result


@pytest.fixture
def clean(home: Path) -> StoredRun:
    """A run whose one feature was delivered."""
    log = StoredRun(home).begin("login")
    log.deliver("login")
    log.stop()
    log.close()
    return log


def test_in_a_pipe(stored_run: StoredRun, mz: Mz, snapshot: SnapshotAssertion) -> None:
    answer = mz("audit", "--full")
    assert (answer.exit, answer.err) == (1, "")
    assert answer.out == snapshot
    assert {line.count("\t") for line in answer.out.splitlines()} == {3}
    assert answer.out.splitlines()[1].split("\t")[:2] == ["verdict", "no"], "the verdict comes first"


@pytest.mark.slow
def test_on_a_terminal(stored_run: StoredRun, snapshot: SnapshotAssertion) -> None:
    shown = on_terminal(stored_run.home, "audit", "audit", "--full", columns=80, env={"NO_COLOR": "1"})
    assert "\x1b" not in shown
    assert "\n".join(line.rstrip() for line in shown.splitlines()) == snapshot


def test_a_run_whose_process_is_gone_was_interrupted(home: Path, mz: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    log = StoredRun(home).begin("login")
    log.close()
    assert "\tinterrupted\t" in mz("status").out
    assert "; now interrupted" in mz("audit").out
    assert not report(mz)["process_running"]
    monkeypatch.setattr(audit_command, "is_process_running", lambda _: True)
    assert "; now running" in mz("audit").out


def test_verdict_remarks_and_one_line_per_feature(stored_run: StoredRun, mz: Mz) -> None:
    shown = on_terminal(stored_run.home, "audit", columns=160, env={"NO_COLOR": "1"}).splitlines()
    features = shown[shown.index("features") + 1 :]
    assert [line.split(":")[0].strip() for line in features if line] == ["login", "audit", "export", "later"]
    assert shown[0].startswith("no: run ")
    assert any("took 43s (prd 17s, code 21s)" in line for line in features)
    assert "remarks" in shown
    assert "timeline" not in shown
    rows = [line.split("\t") for line in mz("audit").out.splitlines()[1:]]
    assert {row[1] for row in rows if row[0] in ("login", "audit", "export", "later")} == {"result"}
    assert {row[0] for row in rows} == {"verdict", "remarks", "login", "audit", "export", "later"}


def test_a_corrected_command_is_part_of_the_verdict(stored_run: StoredRun, mz: Mz) -> None:
    """As it was and as it is, each on its line."""
    event_ref = stored_run.correct()
    texts = ["- commands.test: make test", "+ commands.test: make check"]
    shown = on_terminal(stored_run.home, "audit", columns=160, env={"NO_COLOR": "1"}).splitlines()
    assert [line for line in shown if "corrected" in line] == [f"  corrected: {text} [{event_ref}]" for text in texts]
    rows = [line.split("\t") for line in mz("audit").out.splitlines()]
    assert [row for row in rows if row[1] == "corrected"] == [
        ["verdict", "corrected", text, event_ref] for text in texts
    ]
    assert list(report(mz)["setting_changes"]) == [event_ref]


@pytest.mark.parametrize("command", ["audit", "cost"])
def test_each_stream_is_read_once(stored_run: StoredRun, mz: Mz, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    streams = list[StreamId]()

    class CountingStore(SqliteStore):
        def read(self, stream: StreamId, after: int = 0) -> Iterator[Recorded[Event]]:
            streams.append(stream)
            return super().read(stream, after)

    monkeypatch.setattr(context, "SqliteStore", CountingStore)
    mz(command)
    features = [stream for stream in streams if stream.count("/") == 2]
    assert features
    assert len(streams) == len(set(streams))


def test_as_json(stored_run: StoredRun, mz: Mz, snapshot: SnapshotAssertion) -> None:
    answer = mz("audit", "login", "--json")
    assert answer.exit == 0, "this one was delivered"
    assert answer.out.replace(str(stored_run.home), "HOME") == snapshot


def test_a_clean_run(clean: StoredRun, mz: Mz) -> None:
    result = report(mz)
    assert (result["verdict"], result["gaps"]) == ("yes", [])
    assert result["record"] == {
        "intact": True, "events": len(clean.recorded), "streams": 2, "blobs": result["record"]["blobs"], "findings": [],
        "seals": [],
    }  # fmt: skip
    (feature,) = result["features"]
    (refused, passed) = feature["gates"]
    assert (refused["passed"], passed["passed"]) == (False, True)
    assert passed["command"]["passed"] == 7
    assert len(passed["command"]["output_digest"]) == 64
    assert [entry["event_ref"] for entry in result["timeline"]] == [item.event_ref for item in clean.recorded]


def test_every_claim_names_a_place_that_is_there(stored_run: StoredRun, mz: Mz) -> None:
    event_refs = {item.event_ref for item in stored_run.recorded}
    for line in mz("audit", "--full").out.splitlines()[1:]:
        section, subject, _, places = line.split("\t")
        assert places or (section, subject) in (("verdict", "log"), ("verdict", "seal"))
        assert set(places.split()) <= event_refs
    assert set(EVENT_REF.findall(mz("audit", "--json").out)) <= event_refs


def test_it_needs_nothing_but_the_log(clean: StoredRun, mz: Mz,
                                      monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """The repository and its worktrees may be gone."""
    before = mz("audit", "--full").out
    elsewhere = clean.home / "elsewhere"
    elsewhere.mkdir()
    shutil.move(clean.home / ".mz", elsewhere / ".mz")
    shutil.rmtree(clean.home / ".git")
    monkeypatch.chdir(elsewhere)
    assert mz("audit", "--full").out == before


def test_money_agrees_with_cost_and_status(stored_run: StoredRun, mz: Mz) -> None:
    result = report(mz)
    cost = msgspec.json.decode(mz("cost", "--json").out)
    status = msgspec.json.decode(mz("status", "--json").out)
    assert (result["cost"], result["wasted"]) == (cost["total"], cost["wasted"])
    assert [entry["id"] for entry in result["features"]] == [item["id"] for item in status["features"]]
    for mine, theirs in zip(result["features"], status["features"], strict=True):
        for name in ("estimated_usd", "reported_usd", "computed_usd"):
            assert mine["cost"][name] == theirs[name]
        assert mine["status"] == theirs["status"]


def test_a_damaged_record_is_no(clean: StoredRun, mz: Mz) -> None:
    digest = clean.blob("# text")
    blob_path(clean.home, digest).unlink()
    result = report(mz)
    assert result["verdict"] == "no"
    assert result["record"]["findings"][0]["event_ref"] == f"run/{RUN}/login@8"
    assert "remarks\tlog\tblob" in mz("audit").out
    tamper(clean.home, "UPDATE event SET recorded_at_us = recorded_at_us + 1 WHERE position = 8")
    assert {finding["kind"] for finding in report(mz)["record"]["findings"]} == {"chain", "blob"}


def test_who_decided_what_and_why(home: Path, mz: Mz) -> None:
    log = StoredRun(home).begin("login").admit("login")
    ref = log.ref("login", "prd")
    question = HumanRequested(phase="prd", unit="", question_kind=QuestionKind.CHECKS, code="checks-failed")
    log.to_feature("login", PhaseStarted(phase="prd", iteration=1))
    log.ask("login", ref)
    log.to_feature("login", replace(sample(ChecksPolled), failed=1, pending=0), question)
    assert [gap["kind"] for gap in report(mz)["gaps"] if gap["fault"]] == ["not-delivered"]
    note, who = log.blob("that was \x1b[31mme"), log.blob("mina")
    log.to_run(AnswerAccepted(feature=FeatureId("login"), verdict=Verdict.APPROVE, note=note, actor=who))
    log.to_feature("login", HumanAnswered(run_version=4, verdict=Verdict.APPROVE, note=note, actor=who))
    log.to_feature("login", sample(FeatureDelivered))
    log.close()
    result = report(mz)
    (decision,) = result["features"][0]["decisions"]
    assert (decision["actor"], decision["verdict"], decision["reason"]) == ("mina", "approve", "that was \x1b[31mme")
    assert (decision["question_kind"], decision["code"], decision["phase"]) == ("checks", "checks-failed", "prd")
    assert (decision["event_ref"], decision["question"]) == (f"run/{RUN}@4", f"run/{RUN}/login@5")
    (red,) = [gap for gap in result["gaps"] if gap["kind"] == "checks-red"]
    assert (red["fault"], red["allowed_by"]) == (False, f"run/{RUN}/login@6")
    page = mz("audit", "--full").out
    assert "mina: approve on checks (checks-failed) in prd" in page
    assert "that was me" in page
    assert "\x1b" not in page


@pytest.mark.slow
def test_hostile_texts_on_any_terminal(home: Path) -> None:
    log = StoredRun(home).begin("login", title=HOSTILE)
    log.close()
    for columns in (1, 20, 200):
        text = on_terminal(home, "audit", "--full", columns=columns, env={"NO_COLOR": "1"})
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "xxxxx" in text
        long = [line for line in text.splitlines() if len(line) > max(columns, 20)]
        assert all(line.strip().startswith("[") for line in long), "an address of an event is never broken"


@pytest.mark.parametrize(
    ("args", "exit_code", "message"),
    [
        (("nope",), 10, "there is no run or feature 'nope'"),
        (("lgin",), 10, "did you mean `login`?"),
        (("login/code",), 2, "'login/code' is a part of a feature"),
        (("login@3",), 2, "'login@3' is an event"),
    ],
)
def test_what_is_not_there(stored_run: StoredRun, mz: Mz, args: tuple[str, ...], exit_code: int, message: str) -> None:
    answer = mz("audit", *args)
    assert (answer.exit, answer.out) == (exit_code, "")
    assert message in answer.err
