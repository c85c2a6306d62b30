"""`mz show`: one feature in full."""

from __future__ import annotations

import msgspec
import pytest
from mz_cli.detail import messages
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import on_terminal, run
from tests.cli.story import Story


@pytest.mark.parametrize(
    "words", [("login",), ("audit",), ("later",), ("login", "--phase", "code", "--attempt", "2", "--prompt")]
)
def test_as_text(
    story: Story, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion, words: tuple[str, ...]
) -> None:
    answer = run(capsys, "show", *words)
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out == snapshot


def test_as_json(story: Story, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    answer = run(capsys, "show", "login", "--phase", "code", "--prompt", "--json")
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out == snapshot


def test_prompts_only_on_request(story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    shown = msgspec.json.decode(run(capsys, "show", "login", "--json").out)
    assert {call["prompt"] for call in shown["calls"]} == {None}
    assert len(shown["calls"]) == 4


@pytest.mark.parametrize(
    ("words", "exit_code", "message"),
    [
        (("lgin",), 10, "has no feature 'lgin'; did you mean `login`?"),
        (("login", "--run", "nope"), 2, "there is no run 'nope'"),
        (("login", "--phase", "cod"), 2, "login has no phase 'cod'; did you mean `code`?"),
        (("login", "--attempt", "0"), 2, "0 is not in the range"),
    ],
)
def test_what_is_not_there(
    story: Story, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], exit_code: int, message: str
) -> None:
    answer = run(capsys, "show", *words)
    assert (answer.exit, answer.out) == (exit_code, "")
    assert message in answer.err


def test_the_newest_run_that_has_the_feature(story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    story.close()
    newer = Story(story.home, run="20260302-080000-ffff")
    newer.begin("other")
    newer.close()
    assert msgspec.json.decode(run(capsys, "show", "login", "--json").out)["run"] == story.run


def test_long_messages_are_cut_on_a_terminal_only(story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    story.admit("later")
    ref = story.ref("later", "prd")
    story.ask("later", ref)
    story.wait("later", detail="y" * 5000)
    story.close()
    assert "y" * 5000 in run(capsys, "show", "later").out
    assert "y" * 301 not in on_terminal(story.home, "show", "later", columns=6000).split("attempt 1", 1)[1]


def test_erased_words_are_left_out(story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    for path in story.blobs.root.rglob("*"):
        if path.is_file():
            path.unlink()
    assert run(capsys, "show", "login").exit == 0
    assert run(capsys, "show", "login", "--json", "--prompt").exit == 0


@pytest.mark.parametrize(
    ("report", "told"), [("", ()), ('["a", "b"]', ("a", "b")), ("no json", ("no json",)), ('{"a": 1}', ('{"a": 1}',))]
)
def test_reports(report: str, told: tuple[str, ...]) -> None:
    assert messages(report) == told
