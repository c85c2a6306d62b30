"""What `mz run` does about a run that is not finished: another shape is refused, new items join."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bench import Bench

pytestmark = pytest.mark.slow

BLOCKER = "say({'type': 'result', 'subtype': 'success', 'is_error': False, 'result': 'Blocker: need your input'})"


def waiting_run(directory: Path) -> Bench:
    bench = Bench(directory)
    bench.act("group-thousands", "prd", BLOCKER)
    bench.mz("run", "--feature", "group-thousands", code=21)
    return bench


def test_another_base_or_pipeline_is_refused_with_the_way_out(tmp_path: Path) -> None:
    bench = waiting_run(tmp_path)
    (run,) = {event["run"] for event in bench.of_type("run.started")}
    bench.git("checkout", "-q", "-b", "other")
    refused = bench.mz("run", code=16)
    assert "MZ5003" in refused.err
    assert f"mz resume {run}" in refused.err
    assert f"mz cancel {run}" in refused.err
    bench.mz("cancel", run)
    bench.mz("resume", run, code=None)
    assert bench.statuses() == {"group-thousands": "cancelled"}
    bench.act("group-thousands", "prd", BLOCKER)
    bench.mz("run", "--feature", "group-thousands", code=21)
    assert bench.of_type("run.started")[0]["base"] == "other"


def test_settings_that_a_run_keeps_are_named_if_they_have_changed(tmp_path: Path) -> None:
    bench = waiting_run(tmp_path)
    (run,) = {event["run"] for event in bench.of_type("run.started")}
    kept = f"run {run} keeps `autonomy: checkpoint`, with which it began; `full_auto` (MZ_AUTONOMY) is ignored"
    for arguments in (("resume",), ("run", "--feature", "group-thousands")):
        assert kept in bench.mz(*arguments, code=21, MZ_AUTONOMY="full_auto").err
        assert "MZ5003" not in bench.mz(*arguments, code=21, MZ_AUTONOMY="checkpoint").err
    settings = bench.root / "mz.yaml"
    text = settings.read_text()
    more = "gates: {baseline: strict}\nlimits: {feature_files_max: 9}\nbudget: {run: 99}\ndenied_commands: [git push]\n"
    settings.write_text(f"{text}parallel_max: 7\n{more}")
    errors = bench.mz("resume", code=21).err
    for kept in (
        "`parallel_max: 2`, with which it began; `7` (mz.yaml:3:1",
        "`gates.baseline: no-new-failures`, with which it began; `strict` (mz.yaml:4:9",
        "`limits.feature_files_max: 80`, with which it began; `9` (mz.yaml:5:10",
        "`denied_commands`, with which it began; that of mz.yaml:7:1",
    ):
        assert f"warning[MZ5003] run {run} keeps {kept}" in errors
    assert errors.count("MZ5003") == 4, "a budget and commands are taken over"
    assert f"mz cancel {run} && mz run" in errors
    settings.write_text(f"{text}gates: {{baseline: no}}\n")
    assert "warning[MZ2006] mz.yaml:3:19 `gates.baseline`" in bench.mz("resume", code=21).err, (
        "none of them is taken over"
    )


def test_a_branch_that_a_person_has_checked_out_holds_its_feature_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    both = ("--feature", "group-thousands", "--feature", "month-filter")
    for feature in both[1::2]:
        bench.act(feature, "prd", BLOCKER)
    bench.mz("run", *both, code=21)
    bench.git("switch", "-q", "feat/group-thousands")
    held = bench.mz("resume", *both, "-m", "go on", code=21)
    assert bench.statuses() == {"group-thousands": "held", "month-filter": "delivered"}
    (held_event,) = bench.of_type("feature.held")
    assert (held_event["code"], bench.of_type("run.halted")) == ("branch-checked-out", [])
    steps = {feature["id"]: feature["next"] for feature in bench.json("status")["features"]}
    assert steps["group-thousands"].startswith("git switch --detach && mz resume ")
    for shown in (held, bench.mz("show", "group-thousands")):
        assert steps["group-thousands"] in shown.out
    bench.git("switch", "-q", "-")
    bench.mz("resume")
    assert set(bench.statuses().values()) == {"delivered"}


def test_a_feature_is_cancelled_although_a_person_has_its_branch_checked_out(tmp_path: Path) -> None:
    """Before that holds it, and then."""
    bench = waiting_run(tmp_path)
    feature = "group-thousands"
    branch = f"feat/{feature}"
    bench.git("switch", "-q", branch)
    head = bench.git("rev-parse", branch)
    for _ in range(2):
        assert bench.mz("cancel", feature).out == f"cancelled: {feature}; branches stay as they are\n"
        assert bench.statuses()[feature] == "cancelled"
        assert bench.git("rev-parse", branch) == head
        assert bench.mz("audit", "--verify").exit == 0
        bench.mz("retry", feature)
        bench.mz("resume", code=21)
        assert bench.statuses()[feature] == "held"
    bench.git("switch", "-q", "-")
    bench.mz("resume")
    assert bench.statuses()[feature] == "delivered"


def test_new_items_join_and_delivered_ones_are_not_done_again(tmp_path: Path) -> None:
    bench = waiting_run(tmp_path)
    bench.mz("run", "--feature", "month-filter", code=21)
    assert bench.statuses() == {"group-thousands": "waiting", "month-filter": "delivered"}
    bench.mz("resume", "--feature", "group-thousands", "-m", "use commas")
    assert set(bench.statuses().values()) == {"delivered"}
    bench.mz("run", "--feature", "month-filter", "--feature", "month-compare")
    skipped = {event["feature"]: event["changed"] for event in bench.of_type("item.skipped")}
    assert skipped == {"month-filter": False, "group-thousands": False}
    assert bench.statuses()["month-compare"] == "delivered"
    (started,) = [event for event in bench.of_type("feature.started") if event["feature"] == "month-compare"]
    assert started["starts_from"] == [bench.git("rev-parse", "feat/month-filter").strip()], (
        "stacked on an earlier run's"
    )
    before = bench.json("runs")
    assert "nothing to do" in bench.mz("run", "--feature", "month-filter").err
    assert bench.json("runs") == before, "with nothing to do there is no run"
    assert bench.json("run", "--feature", "month-filter")["run"] == before["runs"][0]["run"]


def test_features_that_were_not_asked_for_are_not_continued_in_silence(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.act(
        "group-thousands",
        "prd",
        "say({'type': 'result', 'subtype': 'success', 'is_error': True, 'result': 'x API Error: 401'})",
    )
    bench.mz("run", "--feature", "group-thousands", code=11)
    for dry in ([], ["--dry-run"]):
        refused = bench.mz("run", "--feature", "month-filter", *dry, code=16)
        assert "MZ5003" in refused.err
        assert "group-thousands" in refused.err
    bench.mz("run", "--feature", "month-filter", "--feature", "group-thousands")
    assert bench.statuses() == {"group-thousands": "delivered", "month-filter": "delivered"}


def test_a_feature_whose_dependency_is_not_delivered_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    ended = bench.mz("run", "--feature", "month-compare", code=21)
    assert "month-compare waits: month-filter is not delivered: mz run --feature month-filter" in ended.err
    assert "nothing to do" in ended.err
    backlog = bench.root / "features.md"
    backlog.write_text(backlog.read_text().replace("## [FEAT] month-filter", "## [BLOCKED] month-filter"))
    for feature in ("month-compare", "month-filter"):
        ended = bench.mz("run", "--feature", feature, code=21)
        assert f"{feature} waits: month-filter is blocked: make it FEAT" in ended.err
