"""`mz cost`: three figures and their difference, in groups that add up, and what was for nothing."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import pytest
from mz_engine.pricing.table import GenaiPrices
from mz_events.catalog.call import AgentReplied, CallPriced, CallSettled, ReplyParsed, Usage
from mz_events.catalog.feature import PhaseStarted
from mz_events.names import FeatureId
from mz_projections.cost.totals import GroupBy
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, decoded, on_terminal
from tests.cli.stored_run import RUN, START_US, TREE, StoredRun, tell

NEWER = "20260302-080000-ffff"


def requested(mz: Mz, *args: str) -> Any:
    answer = mz(*args, "--json")
    assert answer.err == ""
    return decoded(answer)


def money(*amounts: str | None) -> Decimal:
    return sum((Decimal(amount) for amount in amounts if amount is not None), Decimal())


@pytest.fixture
def two_runs(stored_run: StoredRun) -> StoredRun:
    stored_run.close()
    newer = StoredRun(stored_run.home, run=NEWER).begin("login")
    newer.deliver("login")
    newer.close()
    return stored_run


def test_in_a_pipe(stored_run: StoredRun, mz: Mz, snapshot: SnapshotAssertion) -> None:
    answer = mz("cost")
    assert answer.exit == 0
    assert answer.err.splitlines() == [
        "reported compared with computed: 1 killed, 4 unexplained",
        "1 call without a computed price: the cost may be more than `computed` says",
        "error of estimated money: 103% (median of the calls)",
    ]
    assert answer.out == snapshot
    assert mz("cost", "--by", "attempt").out == snapshot


def test_as_json(stored_run: StoredRun, mz: Mz, snapshot: SnapshotAssertion) -> None:
    assert mz("cost", "--json", "--by", "phase").out.replace(str(stored_run.home), "HOME") == snapshot


def test_a_part_of_a_run(stored_run: StoredRun, mz: Mz) -> None:
    """Grouped by the next smaller part, and the parts add up to the whole."""
    feature = requested(mz, "cost", "login")
    assert (feature["feature"], feature["phase"], feature["by"]) == ("login", None, "phase")
    for group in feature["groups"]:
        phase = requested(mz, "cost", f"{RUN}/login/{group['name']}")
        assert (phase["phase"], phase["by"], phase["total"]["calls"]) == (group["name"], "attempt", group["calls"])
        assert phase["total"]["duration_ms"] == group["duration_ms"] == 1000 * group["calls"]
        attempt = requested(mz, "cost", f"login/{group['name']}#1")
        assert {call["call"]["attempt"] for call in attempt["groups"]} == {attempt["attempt"]} == {1}


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("login/pdr", "login/pdr has no calls; did you mean `prd`?"),
        ("login/prd#9", "login/prd#9 has no calls"),
        (f"{RUN}@3", "is an event"),
    ],
)
def test_a_part_without_calls(stored_run: StoredRun, mz: Mz, selector: str, message: str) -> None:
    answer = mz("cost", selector)
    assert (answer.exit, answer.out) == (2, "")
    assert message in answer.err


@pytest.mark.slow
def test_on_a_terminal(stored_run: StoredRun, snapshot: SnapshotAssertion) -> None:
    shown = on_terminal(stored_run.home, "cost", columns=80, env={"NO_COLOR": "1"})
    assert "\x1b" not in shown
    assert "\n".join(line.rstrip() for line in shown.splitlines()) == snapshot


@pytest.mark.parametrize("which", [(), ("--all",)])
def test_groups_add_up(two_runs: StoredRun, mz: Mz, which: tuple[str, ...]) -> None:
    for by in get_args(GroupBy):
        result = requested(mz, "cost", *(which or (RUN,)), "--by", by)
        assert (result["run"], result["by"]) == (None if which else RUN, by)
        for name in ("estimated_usd", "reported_usd", "computed_usd", "difference_usd", "underestimate_usd"):
            assert money(*(group[name] for group in result["groups"])) == money(result["total"][name])
        assert sum(group["calls"] for group in result["groups"]) == result["total"]["calls"] == (9 if which else 5)
        wasted = [group["wasted"]["calls"] for group in result["groups"]]
        assert sum(wasted) == result["wasted"]["calls"] == (5 if which else 3)


def test_it_agrees_with_status(stored_run: StoredRun, mz: Mz) -> None:
    groups = {group["name"]: group for group in requested(mz, "cost")["groups"]}
    for feature in requested(mz, "status")["features"]:
        group = groups.get(feature["id"])
        for name in ("estimated_usd", "reported_usd", "computed_usd"):
            assert feature[name] == (group[name] if group else None)
        assert feature["unpriced_calls"] == (group["unpriced_calls"] if group else 0)
        assert feature["tokens"]["input"] == (group["input_tokens"] if group else None)


def test_features_stand_in_the_order_of_the_backlog(home: Path, mz: Mz) -> None:
    """Not in that in which they were begun, nor in that of their names."""
    log = StoredRun(home).begin("zeta", "alpha", "mid")
    for feature in ("mid", "alpha", "zeta"):
        log.admit(feature)
        log.ask(feature, log.ref(feature, "prd"))
    log.close()
    assert [group["name"] for group in requested(mz, "cost")["groups"]] == ["zeta", "alpha", "mid"]


def test_all_runs_and_each_alone_say_the_same(two_runs: StoredRun, mz: Mz) -> None:
    together = {group["name"]: group for group in requested(mz, "cost", "--all")["groups"]}
    assert set(together) == {RUN, NEWER}
    for name, group in together.items():
        (single,) = requested(mz, "cost", name, "--by", "run")["groups"]
        assert group == single
    assert requested(mz, "cost", "--all")["groups"] == list(together.values()), "the second time from what was kept"


def test_calls_that_go_on(home: Path, mz: Mz) -> None:
    log = StoredRun(home).begin("login").admit("login")
    log.to_feature("login", PhaseStarted(phase="prd", iteration=1))
    log.ask("login", log.ref("login", "prd"))
    log.close()
    answer = mz("cost")
    assert answer.err == "1 call not ended yet\n"
    total = requested(mz, "cost")["total"]
    assert (total["open_calls"], total["unpriced_calls"], total["computed_usd"]) == (1, 0, None)
    assert (total["estimated_usd"], total["difference_usd"], total["underestimate_usd"]) == ("0.025", None, None)
    assert requested(mz, "cost", "--by", "attempt")["groups"][0]["call"]["outcome"] == "open"


def test_nothing_was_called(home: Path, mz: Mz) -> None:
    log = StoredRun(home).begin("login")
    log.close()
    assert requested(mz, "cost")["total"]["computed_usd"] is None
    assert mz("cost").out.count("\n") == 1


def test_a_log_in_a_place_that_cannot_be_written(stored_run: StoredRun, mz: Mz) -> None:
    """What is kept beside the log is kept in memory then."""
    stored_run.close()
    (stored_run.home / ".mz" / "views.sqlite").mkdir()
    assert requested(mz, "cost", "--all")["total"]["calls"] == 5


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((RUN, "--all"), "give either SELECTOR or --all"),
        (("--by", "moon"), "'moon' is not one of"),
        (("--gate", "+15%"), "--gate and --baseline require each other"),
        (("--baseline", RUN), "--gate and --baseline require each other"),
        (("--gate", "15", "--baseline", RUN), "write it as +15%"),
        (("--gate", "+15%", "--baseline", RUN), "cannot be its own baseline"),
        (("--gate", "+15%", "--baseline", RUN, "--since", "7d"), "--gate and --sessions cannot be combined"),
        (("--gate", "+15%", "--baseline", RUN, "--all"), "--gate cannot be combined with --all"),
        (("--gate", "+15%", "--baseline", RUN, "--what-if", "model=x"), "--gate and --sessions cannot be combined"),
        (("--sessions", "--by", "phase"), "--gate and --sessions cannot be combined"),
        (("--sessions", "--prices", "2026-06-01"), "--gate and --sessions cannot be combined"),
        (("--since", "soon"), "'soon' is not a time; write a day"),
        (("--since", "2026-02-01", "--until", "2026-01-01"), "is not before"),
        (("--timezone", "Mars/Base"), "there is no time zone 'Mars/Base'"),
        (("--prices", "June"), "is not a day; write it as 2026-06-01"),
        (("--what-if", "claude-opus-5"), "has no model; write it as model=claude-opus-5"),
        (("--what-if", "model="), "has no model"),
        (("--what-if", "model=no-such-model"), "no price for 'no-such-model'; set one under `prices:` in mz.yaml"),
        (("--what-if", "model=opus"), "no price for 'opus'"),
        (("--by", "session"), "runs cannot be grouped by session: use run, phase"),
        (("--imported", "--by", "phase"), "imported sessions cannot be grouped by phase: use day, week"),
        (("--imported", "--all"), "--all: not available with --imported and --day"),
        (("--day", "--prices", "2026-06-01"), "--prices: not available with --imported"),
        (("--day", "--what-if", "mid=claude-opus-5", RUN), "SELECTOR, --what-if: not available with --imported"),
        (("--day", "--by", "month"), "--day cannot be combined with --by month"),
    ],
)
def test_wrong_use(stored_run: StoredRun, mz: Mz, args: tuple[str, ...], message: str) -> None:
    answer = mz("cost", *args)
    assert (answer.exit, answer.out) == (2, "")
    assert message in answer.err


# when ----------------------------------------------------------------------------------------------------------------
def test_a_span_of_time_is_about_all_runs(two_runs: StoredRun, mz: Mz) -> None:
    result = requested(mz, "cost", "--since", "2026-03-01", "--until", "2026-03-01", "--timezone", "UTC")
    assert (result["run"], result["by"], result["total"]["calls"]) == (None, "run", 9)
    assert (result["since"], result["until"]) == ("2026-03-01T00:00:00.000000Z", "2026-03-02T00:00:00.000000Z")
    assert requested(mz, "cost", "--until", "2026-02-28", "--timezone", "UTC")["total"]["calls"] == 0
    assert requested(mz, "cost", RUN, "--since", "2026-03-01", "--timezone", "UTC")["total"]["calls"] == 5


@pytest.mark.parametrize(
    ("by", "zone", "name"),
    [
        ("day", "UTC", "2026-03-01"),
        ("day", "Pacific/Kiritimati", "2026-03-02"),
        ("week", "UTC", "2026-W09"),
        ("week", "Pacific/Kiritimati", "2026-W10"),
        ("month", "UTC", "2026-03"),
    ],
)
def test_days_are_those_of_the_time_zone(stored_run: StoredRun, mz: Mz, by: str, zone: str, name: str) -> None:
    assert [group["name"] for group in requested(mz, "cost", "--by", by, "--timezone", zone)["groups"]] == [name]


# refused -------------------------------------------------------------------------------------------------------------
def test_what_was_refused_costs_nothing(home: Path, mz: Mz) -> None:
    """A login that failed is no call of unknown cost: what was set aside for it was given back whole."""
    log = StoredRun(home).begin("login").admit("login")
    log.to_feature("login", PhaseStarted(phase="prd", iteration=1))
    call(log, "prd", 1, (Usage(model="claude-sonnet-4-5", input=10_000, output=0, requests=1),), None)
    call(log, "prd", 2, (), None, "error")
    key = log.ref("login", "prd", attempt=2).key
    log.to_feature("login", CallSettled(feature=FeatureId("login"), key=key, nanousd=0))
    log.close()
    for args in (("cost",), ("cost", "--prices", "2026-03-02"), ("cost", "--all")):
        total = requested(mz, *args)["total"]
        assert (total["calls"], total["unpriced_calls"], total["computed_usd"]) == (2, 0, "0.03")
        assert "without a computed price" not in mz(*args).err
    (feature,) = requested(mz, "status")["features"]
    assert (feature["unpriced_calls"], feature["computed_usd"]) == (0, "0.03")
    assert "unpriced" not in on_terminal(home, "status")


# why -----------------------------------------------------------------------------------------------------------------
def call(
    stored_run: StoredRun, phase: str, attempt: int, usage: tuple[Usage, ...], reported: int | None,
    terminal: Literal["success", "error"] = "success",
) -> None:  # fmt: skip
    """A call of the feature that is there, priced by the real table."""
    ref = stored_run.ref("login", phase, attempt=attempt)
    stored_run.ask("login", ref)
    empty = stored_run.blob("")
    price = GenaiPrices().price(usage, START_US)
    stored_run.to_feature(
        "login",
        AgentReplied(ref=ref, stdout=empty, stderr=empty, exit=0, duration_ms=1, tree=TREE),
        ReplyParsed(ref=ref, parser="claude-code/1", ending=terminal, session="s1", text=empty, usage=usage,
                  reported_nanousd=reported),
        CallPriced(key=ref.key, computed_nanousd=price.nanousd, unpriced=price.unpriced, prices=price.prices),
    )  # fmt: skip


@pytest.fixture
def reported(home: Path) -> StoredRun:
    """Three calls: one that agrees, one whose agent counted cache lifetimes otherwise, one without a price."""
    log = StoredRun(home).begin("login").admit("login")
    log.to_feature("login", PhaseStarted(phase="prd", iteration=1))
    call(log, "prd", 1, (Usage(model="claude-sonnet-4-5", input=10_000, output=0, requests=1),), 30_000_000)
    written = Usage(model="claude-sonnet-4-5", input=10_000, output=0, cache_write_1h=10_000, requests=1)
    call(log, "prd", 2, (written,), 37_500_000)
    call(log, "prd", 3, (Usage(model="gateway/own", input=10_000, output=0),), 30_000_000)
    log.close()
    return log


@pytest.mark.slow
def test_reasons(reported: StoredRun, mz: Mz, snapshot: SnapshotAssertion) -> None:
    result = requested(mz, "cost", "--by", "attempt")
    assert [group["call"]["cause"] for group in result["groups"]] == ["match", "cache-lifetime", "unknown"]
    assert result["groups"][1]["call"]["cause_detail"] == "it priced 10,000 one-hour cache writes as five-minute ones"
    assert result["groups"][2]["call"]["cause_detail"] == "no price for gateway/own"
    assert result["total"]["difference_usd"] == "-0.0225"
    assert result["causes"] == [
        {"cause": "match", "calls": 1, "difference_usd": "0.00"},
        {"cause": "cache-lifetime", "calls": 1, "difference_usd": "-0.0225"},
        {"cause": "unknown", "calls": 1, "difference_usd": None},
    ]
    assert [group["name"] for group in requested(mz, "cost", "--all", "--by", "cause")["groups"]] == [
        "match", "cache-lifetime", "unknown"]  # fmt: skip
    shown = on_terminal(reported.home, "cost", "--by", "attempt", columns=100, env={"NO_COLOR": "1"})
    assert "\n".join(line.rstrip() for line in shown.splitlines()) == snapshot


def test_prices_of_ones_own_count_from_now_on(reported: StoredRun, mz: Mz) -> None:
    """What was recorded stays; what is asked anew goes by them."""
    (reported.home / "mz.yaml").write_text('prices:\n- {model: gateway/own, input: "3", output: "15"}\n')
    assert requested(mz, "cost")["total"]["unpriced_calls"] == 1
    result = requested(mz, "cost", "--prices", "2026-06-01", "--by", "attempt")
    assert result["prices_on"] == "2026-06-01"
    assert [group["computed_usd"] for group in result["groups"]] == ["0.03", "0.06", "0.03"]
    assert [group["call"]["cause"] for group in result["groups"]] == ["match", "cache-lifetime", "match"]
    assert "own sha256:" in result["groups"][0]["call"]["prices"]


def test_settings_that_cannot_be_read_hide_nothing(reported: StoredRun, mz: Mz) -> None:
    (reported.home / "mz.yaml").write_text("prices: much\n")
    answer = mz("cost")
    assert answer.exit == 0
    assert "custom prices are ignored: mz.yaml:1:9" in answer.err


@pytest.mark.slow
def test_what_is_said_fits_the_terminal(reported: StoredRun) -> None:
    shown = on_terminal(reported.home, "cost", "--what-if", "model=claude-opus-5", columns=60, env={"NO_COLOR": "1"})
    assert max(map(len, shown.splitlines())) <= 60
    assert "another number" in " ".join(shown.split())
    assert "wasted" not in shown, "nothing was"


# what if -------------------------------------------------------------------------------------------------------------
def test_under_another_model(reported: StoredRun, mz: Mz, snapshot: SnapshotAssertion) -> None:
    """The same tokens: 10,000 x 5, 10,000 x 10 for an hour, 10,000 x 5."""
    result = requested(mz, "cost", "--what-if", "model=claude-opus-5", "--by", "attempt")
    assert [group["what_if_usd"] for group in result["groups"]] == ["0.05", "0.10", "0.05"]
    assert result["what_if"] == {
        "models": {"model": "claude-opus-5"}, "usd": "0.20", "paid_usd": "0.12", "change_usd": "0.08"}  # fmt: skip
    assert any("might not have been accepted" in note for note in result["notes"])
    assert mz("cost", "--what-if", "model=claude-opus-5").out == snapshot


def test_a_change_is_over_calls_of_which_both_sides_are_known(home: Path, mz: Mz) -> None:
    """The second call was never priced: what it had cost under another model is no difference to anything."""
    log = StoredRun(home).begin("login").admit("login")
    call(log, "prd", 1, (Usage(model="claude-sonnet-4-5", input=10_000, output=0),), None)
    call(log, "prd", 2, (Usage(model="gateway/own", input=10_000, output=0),), None)
    log.close()
    result = requested(mz, "cost", "--what-if", "model=claude-opus-5")["what_if"]
    assert (result["usd"], result["paid_usd"], result["change_usd"]) == ("0.10", "0.03", "0.02")
    rows = [line.split("\t") for line in mz("cost", "--what-if", "model=claude-opus-5").out.splitlines()]
    assert [row[-1] for row in rows[1:3]] == ["+0.02", "+0.02"]


def test_a_fork_is_no_measure_for_the_gate(home: Path, mz: Mz) -> None:
    """Its feature's first calls were made, and paid for, in the run that it was forked from."""
    for name in (RUN, NEWER):
        log = StoredRun(home, run=name).begin("login")
        log.deliver("login")
        log.close()
    copy = StoredRun(home, run="20260303-080000-cccc").begin("login")
    copy.copied_from = RUN
    copy.deliver("login")
    copy.close()
    answer = mz("cost", copy.run, "--gate", "+15%", "--baseline", NEWER)
    assert answer.exit == 125
    assert "continues features of another run" in answer.err
    compared = requested(mz, "cost", copy.run, "--sessions", "--baseline", NEWER)
    assert (compared["compared"], compared["measured"]) == ([], [])


def test_only_calls_that_are_meant(reported: StoredRun, mz: Mz) -> None:
    """A name that fits no call is a mistake; the story's pins are gone, so no tier fits."""
    for name in ("premium", "gpt-5.5"):
        answer = mz("cost", "--what-if", f"{name}=claude-opus-5", "--what-if", "model=claude-opus-5")
        assert answer.exit == 2
        assert f"no call uses '{name}'; there are model claude-sonnet-4-5; tiers are unknown" in answer.err
    result = requested(mz, "cost", "--what-if", "claude-sonnet-4-5=claude-opus-5", "--all")
    assert result["what_if"]["usd"] == "0.20"


def test_a_tier_that_routing_named_names_its_calls(home: Path, mz: Mz) -> None:
    log = StoredRun(home).begin("login").admit("login")
    for attempt, tier in enumerate(("cheap", "mid", "cheap"), start=1):
        ref = log.ref("login", "prd", attempt=attempt)
        log.ask("login", ref, routed_to=tier)
        log.reply("login", ref)
    log.close()
    result = requested(mz, "cost", "--what-if", "cheap=claude-opus-5")["what_if"]
    assert (result["models"], result["usd"]) == ({"cheap": "claude-opus-5"}, "0.026")


def test_an_agent_without_money_is_named(home: Path, mz: Mz) -> None:
    """Not one of which only some calls tell none, nor one whose calls nobody could price."""
    stored_run = StoredRun(home).begin("login").admit("login")
    usage = (Usage(model="claude-sonnet-4-5", input=10_000, output=0, requests=1),)
    call(stored_run, "prd", 1, usage, None)
    note = "claude-code reported no money: nothing to compare with `computed`"
    assert note in mz("cost").err
    call(stored_run, "prd", 2, usage, 30_000_000)
    stored_run.close()
    assert note not in mz("cost").err


# the gate -----------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_the_gate(two_runs: StoredRun, mz: Mz, snapshot: SnapshotAssertion) -> None:
    """The older run spent a call on a feature that waits; the newer did not."""
    answer = mz("cost", NEWER, "--gate", "+15%", "--baseline", RUN)
    assert answer.exit == 125
    assert (answer.out, answer.err) == snapshot
    answer = mz("cost", RUN, "--gate", "+15%", "--baseline", NEWER, "--json")
    result = msgspec.json.decode(answer.out)
    assert (answer.exit, result["verdict"], result["exit"]) == (125, "not-comparable", 125)


def test_a_run_that_cost_more(home: Path, mz: Mz) -> None:
    for name, nanousd in ((RUN, 100_000_000), (NEWER, 120_000_000)):
        log = StoredRun(home, run=name).begin("login")
        log.deliver("login")
        for attempt in range(5, 8):
            call(log, "code", attempt, (Usage(model="claude-sonnet-4-5", input=nanousd // 3000, output=0),), None)
        log.close()
    answer = mz("cost", "--gate", "+15%", "--baseline", RUN)
    assert answer.exit == 1
    assert "failed: more than allowed: a delivered feature, code" in answer.err
    assert mz("cost", "--gate", "+25%", "--baseline", RUN).exit == 0
    assert mz("cost", RUN, "--gate", "+15%", "--baseline", NEWER).exit == 0


def test_reading_one_run_changes_nothing(home: Path, mz: Mz) -> None:
    tell(home).close()
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert mz("cost").exit == 0
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
