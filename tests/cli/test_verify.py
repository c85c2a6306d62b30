"""`mz audit --verify`: whatever was done to the record is found, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from mz_cli.app.context import open_log
from mz_cli.common.verification import verify_log

from tests.cli.damage import blob_path, tamper
from tests.cli.drive import Mz, on_terminal
from tests.cli.stored_run import RUN, StoredRun

LOGIN = f"run/{RUN}/login"
NEWER = "20260302-080000-ffff"


@pytest.fixture
def log(stored_run: StoredRun) -> StoredRun:
    """The story, with nobody at it."""
    stored_run.close()
    return stored_run


def result(mz: Mz, *args: str) -> Any:
    answer = mz("audit", "--verify", *args, "--json")
    report = msgspec.json.decode(answer.out)
    assert answer.exit == (0 if report["intact"] else 1)
    assert report["intact"] == (not report["findings"])
    return report


def test_a_whole_log(log: StoredRun, mz: Mz) -> None:
    report = result(mz)
    assert (report["intact"], report["events"], report["streams"]) == (True, len(log.recorded), 4)
    assert report["blobs"] == sum(path.is_file() for path in log.blobs.root.rglob("*"))
    answer = mz("audit", "--verify")
    assert (answer.exit, answer.out) == (0, "event\tkind\tmessage\thint\n")
    assert answer.err.startswith(f"log intact: {len(log.recorded)} events in 4 streams")


@pytest.mark.parametrize(
    ("statements", "folder", "what"),
    [
        (["UPDATE event SET payload = replace(CAST(payload AS TEXT), 'prd', 'prx') WHERE position = 8"],
         f"{LOGIN}@2", "was changed"),
        (["DELETE FROM event WHERE position = 9"], f"{LOGIN}@4", "missing"),
        (["DELETE FROM event WHERE position = (SELECT max(position) FROM event)"], f"run/{RUN}@11", "its head says"),
        (["UPDATE event SET version = 1000 WHERE position = 9", "UPDATE event SET version = 3 WHERE position = 10",
          "UPDATE event SET version = 4 WHERE position = 9"], f"{LOGIN}@4", "is followed by"),
        (["UPDATE event SET recorded_at_us = recorded_at_us + 1 WHERE position = 8"], f"{LOGIN}@2", "was changed"),
        (["UPDATE event SET payload = x'00ff' WHERE position = 8"], f"{LOGIN}@2", "was changed"),
        (["UPDATE event SET type = 'phase.dreamt' WHERE position = 8"], f"{LOGIN}@2", "was changed"),
        (["UPDATE stream SET chain = zeroblob(32) WHERE name LIKE '%/login'"], f"{LOGIN}@43", "head"),
        (["DELETE FROM stream WHERE name LIKE '%/login'"], "?@1", "was changed"),
    ],
)  # fmt: skip
def test_a_changed_log(log: StoredRun, mz: Mz, statements: list[str], folder: str, what: str) -> None:
    tamper(log.home, *statements)
    findings = result(mz)["findings"]
    assert {finding["kind"] for finding in findings} == {"chain"}
    assert (findings[0]["event_ref"], what in findings[0]["message"]) == (folder, True)
    assert "restore .mz/mz.db" in findings[0]["hint"]
    assert mz("audit", "--verify").exit == 1


def test_blobs_that_are_gone_or_changed(log: StoredRun, mz: Mz) -> None:
    gone, changed = log.blob("# text"), log.blob("Do it, please.")
    blob_path(log.home, gone).unlink()
    path = blob_path(log.home, changed)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    findings = {finding["event_ref"]: finding for finding in result(mz)["findings"]}
    assert set(findings) == {f"{LOGIN}@3", f"{LOGIN}@8"}
    assert findings[f"{LOGIN}@8"]["message"] == f"blob {gone} is missing; 3 more events cite it"
    assert f"restore .mz/blobs/{gone[:2]}/{gone[2:]}" in findings[f"{LOGIN}@8"]["hint"]
    assert "does not contain the recorded bytes" in findings[f"{LOGIN}@3"]["message"]
    assert {finding["kind"] for finding in findings.values()} == {"blob"}
    shown = on_terminal(log.home, "audit", "--verify", env={"NO_COLOR": "1"})
    assert f"{LOGIN}@8: blob {gone} is missing" in shown
    assert "log damaged: 2 findings" in shown


def test_a_file_that_is_none(log: StoredRun, mz: Mz) -> None:
    """What can still be opened is judged; what cannot is said to be unusable."""
    file = log.home / ".mz" / "mz.db"
    tamper(log.home, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(file.read_bytes())
    for at in range(len(data) // 2, len(data), 97):
        data[at] ^= 0x55
    file.write_bytes(bytes(data))
    report = result(mz)
    assert (report["findings"][0]["kind"], report["findings"][0]["event_ref"]) == ("file", "log")
    file.write_bytes(bytes(data[: len(data) // 3]))
    assert mz("audit", "--verify").exit == 11


def test_one_run(log: StoredRun, mz: Mz) -> None:
    newer = StoredRun(log.home, run=NEWER).begin("login")
    newer.close()
    tamper(log.home, "UPDATE event SET payload = replace(CAST(payload AS TEXT), 'prd', 'prx') WHERE position = 8")
    report = result(mz, NEWER)
    assert (report["run"], report["events"], report["findings_elsewhere"], report["intact"]) == (NEWER, 2, 1, True)
    assert "1 more finding in other runs" in mz("audit", "--verify", NEWER).err
    assert result(mz, RUN)["findings"][0]["event_ref"] == f"{LOGIN}@2"
    assert mz("audit", "--verify", "nope").exit == 2


def test_a_stream_that_is_gone_concerns_every_run(log: StoredRun, mz: Mz) -> None:
    """What is missing says no more whose it was."""
    newer = StoredRun(log.home, run=NEWER).begin("login")
    newer.close()
    last = "SELECT id FROM stream WHERE name LIKE '%abcd/export'"
    tamper(
        log.home, f"DELETE FROM event WHERE stream_id = ({last})", "DELETE FROM stream WHERE name LIKE '%abcd/export'"
    )
    tamper(log.home, f"DELETE FROM event WHERE position > (SELECT min(position) FROM event WHERE position > 58) "
                     f"AND stream_id = (SELECT id FROM stream WHERE name = 'run/{RUN}')")  # fmt: skip
    for run_id in (RUN, NEWER):
        assert "are missing" in " ".join(finding["message"] for finding in result(mz, run_id)["findings"])


def test_long_checks_say_how_far_they_are(log: StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mz_cli.common.verification.PROGRESS_INTERVAL", 10)
    texts: list[str] = []
    monkeypatch.setattr("mz_cli.common.verification.print_note", texts.append)
    with open_log(log.home) as opened:
        verify_log(opened, None)
    assert texts[:2] == ["10 events checked", "20 events checked"]
    assert texts[-1].endswith("blobs checked")


def test_nothing_is_changed_by_checking(home: Path, log: StoredRun, mz: Mz) -> None:
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    result(mz)
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
