"""`mz status`: one object for programs, a table for people."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import on_terminal, run, spawn
from tests.cli.story import RUN, Story, tell

HOSTILE = "\x1b[31mred\x1b[0m\nsecond line \u202e🎉 " + "x" * 10_000


def test_in_a_pipe(story: Story, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    answer = run(capsys, "status")
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out == snapshot


def test_as_json(story: Story, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    answer = run(capsys, "status", RUN, "--json")
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out.replace(str(story.home), "HOME") == snapshot


@pytest.mark.parametrize("columns", [20, 80, 120])
def test_on_a_terminal(story: Story, columns: int, snapshot: SnapshotAssertion) -> None:
    shown = on_terminal(story.home, "status", columns=columns, env={"NO_COLOR": "1"})
    assert "\x1b" not in shown
    assert "\n".join(line.rstrip() for line in shown.splitlines()) == snapshot


def test_colours_only_where_they_are_wanted(story: Story) -> None:
    assert "\x1b[" in on_terminal(story.home, "status")
    assert "\x1b" not in on_terminal(story.home, "status", env={"TERM": "dumb"})
    assert "\x1b" not in on_terminal(story.home, "status", env={"NO_COLOR": "1", "FORCE_COLOR": "1"})
    assert "\x1b" not in spawn(story.home, "status", FORCE_COLOR="1").out


def test_unknown_is_never_zero(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story(home)
    story.begin("login")
    story.admit("login")
    ref = story.ref("login", "prd")
    story.ask("login", ref)
    story.reply("login", ref, computed=None)
    story.close()
    (feature,) = msgspec.json.decode(run(capsys, "status", "--json").out)["features"]
    assert feature["computed_usd"] is None
    assert feature["tests"] is None
    assert "unpriced" in run(capsys, "status").out


@pytest.mark.parametrize("columns", [1, 20, 80, 300])
def test_hostile_titles(home: Path, columns: int, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story(home)
    story.begin("login", "audit", title=HOSTILE)
    story.wait("audit", detail=HOSTILE)
    story.close()
    shown = on_terminal(home, "status", columns=columns, env={"NO_COLOR": "1"})
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    rows = run(capsys, "status").out.splitlines()
    assert len(rows) == 3
    assert "red second line 🎉 " + "x" * 10_000 in rows[1]
    title = msgspec.json.decode(run(capsys, "status", "--json").out)["features"][0]["title"]
    assert title.endswith("x" * 10_000)
    assert "\x1b" not in title


def test_which_run(story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    story.close()
    newer = Story(story.home, run="20260302-080000-ffff")
    newer.begin("later")
    newer.close()
    shown = [msgspec.json.decode(run(capsys, "status", *words, "--json").out)["run"]
             for words in ((), ("20260301",), (RUN,), ("20260302",))]  # fmt: skip
    assert shown == ["20260302-080000-ffff", RUN, RUN, "20260302-080000-ffff"]
    for wrong, problem in (("2026", "2 runs have ids that begin with '2026'"), ("x", "there is no run 'x'")):
        answer = run(capsys, "status", wrong)
        assert answer.exit == 2
        assert problem in answer.err
        assert f"20260302-080000-ffff, {RUN}" in answer.err


def test_from_inside_a_worktree(story: Story, capsys: pytest.CaptureFixture[str],
                                monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    tree = story.home / ".mz" / "worktrees" / RUN / "login"
    tree.mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {story.home}/.git/worktrees/login\n")
    monkeypatch.chdir(tree)
    assert run(capsys, "status").exit == 0


def test_from_a_linked_worktree_elsewhere(story: Story, tmp_path_factory: pytest.TempPathFactory,
                                          capsys: pytest.CaptureFixture[str],
                                          monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    other = tmp_path_factory.mktemp("other")
    (other / ".git").write_text(f"gitdir: {story.home}/.git/worktrees/other\n")
    monkeypatch.chdir(other)
    assert run(capsys, "status").exit == 0


def test_reading_changes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell(home).close()
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert run(capsys, "status").exit == 0
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
