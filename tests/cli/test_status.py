"""`mz status`: one object for programs, a table for people."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from mz_events.catalog.delivery import ChecksPolled
from mz_events.catalog.run import ItemAdded
from mz_events.names import FeatureId, run_stream
from mz_events.store import Append
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, on_terminal, spawn
from tests.cli.stored_run import RUN, START_US, TREE, StoredRun, tell

HOSTILE = "\x1b[31mred\x1b[0m\nsecond line \u202e🎉 " + "x" * 10_000


def test_in_a_pipe(stored_run: StoredRun, mz: Mz, snapshot: SnapshotAssertion) -> None:
    answer = mz("status")
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out == snapshot


def test_as_json(stored_run: StoredRun, mz: Mz, snapshot: SnapshotAssertion) -> None:
    answer = mz("status", RUN, "--json")
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out.replace(str(stored_run.home), "HOME") == snapshot


@pytest.mark.parametrize("columns", [20, 80, 120])
def test_on_a_terminal(stored_run: StoredRun, columns: int, snapshot: SnapshotAssertion) -> None:
    shown = on_terminal(stored_run.home, "status", columns=columns, env={"NO_COLOR": "1"})
    assert "\x1b" not in shown
    assert "\n".join(line.rstrip() for line in shown.splitlines()) == snapshot


@pytest.mark.slow
def test_colours_only_where_they_are_wanted(stored_run: StoredRun) -> None:
    assert "\x1b[" in on_terminal(stored_run.home, "status")
    assert "\x1b" not in on_terminal(stored_run.home, "status", env={"TERM": "dumb"})
    assert "\x1b" not in on_terminal(stored_run.home, "status", env={"NO_COLOR": "1", "FORCE_COLOR": "1"})
    assert "\x1b" not in spawn(stored_run.home, "status", FORCE_COLOR="1").out


def test_unknown_is_never_zero(home: Path, mz: Mz) -> None:
    log = StoredRun(home).begin("login").admit("login")
    ref = log.ref("login", "prd")
    log.ask("login", ref)
    log.reply("login", ref, computed=None)
    log.close()
    (feature,) = msgspec.json.decode(mz("status", "--json").out)["features"]
    assert feature["computed_usd"] is None
    assert feature["tests"] is None
    assert "unpriced" in mz("status").out


@pytest.mark.parametrize("columns", [1, 20, 80, 300])
@pytest.mark.slow
def test_hostile_titles(home: Path, columns: int, mz: Mz) -> None:
    log = StoredRun(home).begin("login", "audit", title=HOSTILE)
    log.wait("audit", detail=HOSTILE)
    log.close()
    shown = on_terminal(home, "status", columns=columns, env={"NO_COLOR": "1"})
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    rows = mz("status").out.splitlines()
    assert len(rows) == 3
    assert r"red\nsecond line 🎉 " + "x" * 10_000 in rows[1]
    title = msgspec.json.decode(mz("status", "--json").out)["features"][0]["title"]
    assert title.endswith("x" * 10_000)
    assert "\x1b" not in title


def test_features_that_wait_for_what_is_blocked_are_named(stored_run: StoredRun, mz: Mz) -> None:
    blocked = "## [BLOCKED] big: Big\n\n## [FEAT] small: Small\n\n- depends on: big\n"
    (stored_run.home / "features.md").write_text(blocked)
    text = "small waits: big is blocked: make it FEAT"
    assert text in mz("status").err
    assert msgspec.json.decode(mz("status", "--json").out)["waiting_items"] == {"small": text}
    assert text not in mz("status", RUN).err
    (stored_run.home / "features.md").write_text("## [NO] x")
    assert msgspec.json.decode(mz("status", "--json").out)["waiting_items"] == {}


def test_which_run(stored_run: StoredRun, mz: Mz) -> None:
    stored_run.close()
    newer = StoredRun(stored_run.home, run="20260302-080000-ffff").begin("later")
    newer.close()
    shown = [msgspec.json.decode(mz("status", *args, "--json").out)["run"]
             for args in ((), ("20260301",), (RUN,), ("20260302",))]  # fmt: skip
    assert shown == ["20260302-080000-ffff", RUN, RUN, "20260302-080000-ffff"]
    for selector, exit_code, problem in (
        ("2026", 2, "2 run ids begin with '2026'"),
        ("x", 10, "there is no run or feature 'x'"),
        ("login/prd", 2, "'login/prd' is a part of a feature"),
        (f"{RUN}@2", 2, f"'{RUN}@2' is an event"),
    ):
        answer = mz("status", selector)
        assert (answer.exit, answer.out) == (exit_code, "")
        assert problem in answer.err


def test_which_feature(stored_run: StoredRun, mz: Mz) -> None:
    complete, *of_feature = [
        msgspec.json.decode(mz("status", *selector, "--json").out) for selector in ((), ("login",), (f"{RUN}/login",))
    ]
    assert [feature for feature in complete["features"] if feature["id"] == "login"] == of_feature[0]["features"]
    assert of_feature[0] == of_feature[1]
    assert complete["run"] == of_feature[0]["run"]


def test_from_inside_a_worktree(stored_run: StoredRun, mz: Mz,
                                monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    tree = stored_run.home / ".mz" / "worktrees" / RUN / "login"
    tree.mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {stored_run.home}/.git/worktrees/login\n")
    monkeypatch.chdir(tree)
    assert mz("status").exit == 0


def test_from_a_linked_worktree_elsewhere(stored_run: StoredRun, tmp_path_factory: pytest.TempPathFactory,
                                          mz: Mz,
                                          monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    other = tmp_path_factory.mktemp("other")
    (other / ".git").write_text(f"gitdir: {stored_run.home}/.git/worktrees/other\n")
    monkeypatch.chdir(other)
    assert mz("status").exit == 0


def test_reading_changes_nothing(home: Path, mz: Mz) -> None:
    tell(home).close()
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert mz("status").exit == 0
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_where_the_work_is(home: Path, mz: Mz) -> None:
    """The worktree as long as it is there; the pull request with its checks."""
    log = StoredRun(home).begin("login", "audit")
    log.deliver("login")
    log.to_feature("login", ChecksPolled(key="k", commit=TREE, commit_known=True, passed=3, failed=1, pending=0))
    log.wait("audit")
    log.close()
    tree = home / ".mz" / "worktrees" / RUN / "audit"
    tree.mkdir(parents=True)
    login, audit = msgspec.json.decode(mz("status", "--json").out)["features"]
    assert (login["worktree"], audit["worktree"]) == (None, str(tree))
    assert login["checks"] == {"passed": 3, "failed": 1, "pending": 0}
    heads, first, second = [line.split("\t") for line in mz("status").out.splitlines()]
    assert dict(zip(heads, first, strict=True))["pull_request"] == "https://forge.invalid/pull/7"
    assert dict(zip(heads, second, strict=True))["worktree"] == str(tree)
    assert dict(zip(heads, second, strict=True))["run"] == RUN
    shown = on_terminal(home, "status", env={"NO_COLOR": "1"}, columns=300)
    assert "login: https://forge.invalid/pull/7 (3 checks passed, 1 failed, 0 pending)" in shown
    assert f"audit: worktree {tree.relative_to(home)}" in shown


@pytest.mark.slow
def test_thousands_of_features(home: Path, mz: Mz) -> None:
    log = StoredRun(home).begin("first")
    added = next(item.event for item in log.recorded if isinstance(item.event, ItemAdded))
    more = tuple(replace(added, feature=FeatureId(f"f{number}")) for number in range(5000))
    log.store.append([Append(run_stream(RUN), None, more)], START_US)
    log.close()
    assert mz("status").out.count("\n") == 5002
