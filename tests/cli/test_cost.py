"""`mz cost`: three figures and their difference, in groups that add up, and what was for nothing."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from mz_events.catalog.feature import PhaseStarted
from mz_projections.spending import By
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import on_terminal, run
from tests.cli.story import RUN, Story, tell

NEWER = "20260302-080000-ffff"


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    answer = run(capsys, *words, "--json")
    assert (answer.exit, answer.err) == (0, "")
    return msgspec.json.decode(answer.out)


def money(*amounts: str | None) -> Decimal:
    return sum((Decimal(amount) for amount in amounts if amount is not None), Decimal())


@pytest.fixture
def two_runs(story: Story) -> Story:
    story.close()
    newer = Story(story.home, run=NEWER)
    newer.begin("login")
    newer.deliver("login")
    newer.close()
    return story


def test_in_a_pipe(story: Story, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    answer = run(capsys, "cost")
    assert answer.exit == 0
    assert answer.err == "1 call without a computed price: `computed` is more than it says\n"
    assert answer.out == snapshot
    assert run(capsys, "cost", "--by", "attempt").out == snapshot


def test_as_json(story: Story, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    assert run(capsys, "cost", "--json", "--by", "phase").out.replace(str(story.home), "HOME") == snapshot


def test_on_a_terminal(story: Story, snapshot: SnapshotAssertion) -> None:
    shown = on_terminal(story.home, "cost", columns=80, env={"NO_COLOR": "1"})
    assert "\x1b" not in shown
    assert "\n".join(line.rstrip() for line in shown.splitlines()) == snapshot


@pytest.mark.parametrize("which", [(), ("--all",)])
def test_groups_add_up(two_runs: Story, capsys: pytest.CaptureFixture[str], which: tuple[str, ...]) -> None:
    for by in get_args(By):
        found = asked(capsys, "cost", *(which or (RUN,)), "--by", by)
        assert (found["run"], found["by"]) == (None if which else RUN, by)
        for name in ("estimated_usd", "reported_usd", "computed_usd", "difference_usd"):
            assert money(*(group[name] for group in found["groups"])) == money(found["total"][name])
        assert sum(group["calls"] for group in found["groups"]) == found["total"]["calls"] == (9 if which else 5)
        wasted = [group["thrown_away"]["calls"] for group in found["groups"]]
        assert sum(wasted) == found["thrown_away"]["calls"] == (5 if which else 3)


def test_it_agrees_with_status(story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    groups = {group["name"]: group for group in asked(capsys, "cost")["groups"]}
    for feature in asked(capsys, "status")["features"]:
        group = groups.get(feature["id"])
        for name in ("estimated_usd", "reported_usd", "computed_usd"):
            assert feature[name] == (group[name] if group else None)
        assert feature["unpriced_calls"] == (group["unpriced_calls"] if group else 0)
        assert feature["tokens"]["input"] == (group["input_tokens"] if group else None)


def test_features_stand_in_the_order_of_the_backlog(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not in that in which they were begun, nor in that of their names."""
    story = Story(home)
    story.begin("zeta", "alpha", "mid")
    for feature in ("mid", "alpha", "zeta"):
        story.admit(feature)
        story.ask(feature, story.ref(feature, "prd"))
    story.close()
    assert [group["name"] for group in asked(capsys, "cost")["groups"]] == ["zeta", "alpha", "mid"]


def test_all_runs_and_each_alone_say_the_same(two_runs: Story, capsys: pytest.CaptureFixture[str]) -> None:
    together = {group["name"]: group for group in asked(capsys, "cost", "--all")["groups"]}
    assert set(together) == {RUN, NEWER}
    for name, group in together.items():
        (alone,) = asked(capsys, "cost", name, "--by", "run")["groups"]
        assert group == alone
    assert asked(capsys, "cost", "--all")["groups"] == list(together.values()), "the second time from what was kept"


def test_calls_that_go_on(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story(home)
    story.begin("login")
    story.admit("login")
    story.to_feature("login", PhaseStarted(phase="prd", iteration=1))
    story.ask("login", story.ref("login", "prd"))
    story.close()
    answer = run(capsys, "cost")
    assert answer.err == "1 call not ended yet\n"
    total = asked(capsys, "cost")["total"]
    assert (total["open_calls"], total["unpriced_calls"], total["computed_usd"]) == (1, 0, None)
    assert (total["estimated_usd"], total["difference_usd"]) == ("0.025", None)
    assert asked(capsys, "cost", "--by", "attempt")["groups"][0]["call"]["fate"] == "open"


def test_nothing_was_called(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story(home)
    story.begin("login")
    story.close()
    assert asked(capsys, "cost")["total"]["computed_usd"] is None
    assert run(capsys, "cost").out.splitlines()[1].split("\t")[3:] == ["0", *["-"] * 6, "0"]


def test_a_log_in_a_place_that_cannot_be_written(story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    """What is kept beside the log is kept in memory then."""
    story.close()
    (story.home / ".mz" / "views.sqlite").mkdir()
    assert asked(capsys, "cost", "--all")["total"]["calls"] == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((RUN, "--all"), "name a run, or ask for --all of them"),
        (("nope",), "there is no run 'nope'"),
        (("--by", "moon"), "'moon' is not one of"),
    ],
)
def test_wrong_use(story: Story, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    answer = run(capsys, "cost", *words)
    assert (answer.exit, answer.out) == (2, "")
    assert message in answer.err


def test_reading_one_run_changes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell(home).close()
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert run(capsys, "cost").exit == 0
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
