"""Recordings that are made again: what is asked anew, what is served, what is kept, and that nothing is paid twice."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.decoding.quantity import UsdPerMillion
from mz_engine.model.config import Config, PriceRow, Route, RouteChoice
from mz_engine.pricing.estimate import Estimate
from mz_qa.simulation import trial
from mz_recordings.cassette.files import load, load_without_traces, save
from mz_recordings.cassette.model import Cassette, Identity, Item, RecordedCall
from mz_recordings.drift.compare import compare_cassettes
from mz_recordings.findings.model import Finding, finding_kinds
from mz_recordings.record.recorder import SecretInRecording
from mz_recordings.replay.compare import ReplayOutcome
from mz_recordings.rerecord.driver import exceeds_budget
from mz_recordings.rerecord.plan import CallSelection, CallSelector, ReplayedCassette, affected_features, plan_calls
from mz_recordings.rerecord.rerecord import (
    CallEstimates,
    RerecordJob,
    RerecordPlan,
    check_installed,
    kept_features,
    rejection_reason,
    stop_of_trace,
)
from mz_recordings.rerecord.workspace import RerecordWorkspace

from tests.support.again import KEY, Again, requests
from tests.support.gitrepo import GitRepo
from tests.support.rerecord import BUNDLED
from tests.support.tapes import cassette
from tests.support.workshop import SCRIPT, TODAY, Copy

SIGN = "pipelines/templates/sign.md.j2"


@pytest.fixture
def again(copy: Copy, tmp_path: Path) -> Again:
    path = tmp_path / "agent"
    path.mkdir()
    return Again(copy, path)


# the whole ------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_what_changed_and_what_follows_from_it_is_asked_again(again: Again) -> None:
    """Alpha's last letter is another one, so that beta begins from another tree."""
    again.copy.edit(SIGN, "Sign the", "Please sign the")
    again.says({**SCRIPT, "alpha.sign.2.1": {"write": {"letters/alpha.md": "# Letter\nabout alpha, at last\n"}}})
    old = again.copy.cassette()
    prepared, outcome = again.record(CallSelection())
    assert requests(prepared) == {
        "alpha/sign": "PROMPT", "alpha/write.i2": "(alpha/sign)", "alpha/sign.i2": "PROMPT",
        "beta/write": "(alpha)", "beta/write.a2": "(alpha)", "beta/sign": "PROMPT",
    }  # fmt: skip
    assert again.calls() == [
        "alpha.sign.1.1", "alpha.sign.2.1", "beta.write.1.1", "beta.write.1.2", "beta.sign.1.1"
    ]  # fmt: skip
    assert outcome.live_calls == ("alpha/sign", "alpha/sign.i2", "beta/write", "beta/write.a2", "beta/sign")
    assert outcome.served_calls == ("alpha/write", "alpha/write.a2", "alpha/write.i2")
    assert (outcome.kept_features, outcome.dropped_features) == (("alpha", "beta"), ())

    assert outcome.cassette is not None
    assert {"PROMPT", "ARTIFACT"} <= set(finding_kinds(compare_cassettes(old, outcome.cassette, {})))
    made = {call.recording.identity.path: call for call in again.keep(outcome.cassette).calls}
    for item in old.calls:
        path = item.recording.identity.path
        assert (made[path] == item) == (path not in outcome.live_calls)


@pytest.mark.slow
def test_what_another_agent_does_is_seen_by_class(again: Again) -> None:
    """Beta alone, which nothing builds on; its environment holds a key, and the agent tells it."""
    again.program.write_text(
        again.program.read_text()
        .replace('type="system", subtype="init"', 'type="system", subtype="init", novelty="x"')
        .replace('"inputTokens": 100', '"inputTokens": 900')
    )
    greeting = {"write": {"letters/beta.md": "# Letter\n## Greetings\nabout beta\n"}}
    mappings: dict[str, Mapping[str, object]] = {**SCRIPT, "beta.sign.1.1": greeting}
    mappings["beta.write.1.1"] = {**SCRIPT["beta.write.1.2"], "run": "echo key $ANTHROPIC_API_KEY"}
    again.says(mappings)
    prepared, outcome = again.record(CallSelection(selectors=(CallSelector(feature="beta"),)))
    assert requests(prepared) == {"beta/write": "REQUESTED", "beta/write.a2": "REQUESTED", "beta/sign": "REQUESTED"}
    assert again.calls() == ["beta.write.1.1", "beta.sign.1.1"]
    assert outcome.kept_features == ("beta",)
    findings = compare_cassettes(again.copy.cassette(), again.keep(outcome.cassette), {})
    result = {(finding.kind, finding.feature) for finding in findings}
    for kind in ("STREAM", "ARTIFACT", "FILES", "COST", "TRACE", "UNUSED"):
        assert (kind, "beta") in result or (kind in ("STREAM", "TRACE") and kind in finding_kinds(findings)), kind
    assert again.copy.settle().findings == ()
    kept = [path for path in again.copy.root.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]


# nothing is paid twice, and nothing is lost ---------------------------------------------------------------------------
@pytest.mark.slow
def test_an_attempt_that_is_stopped_leaves_what_was_paid_to_the_next_one(again: Again) -> None:
    """The login runs out in the middle; then a budget is enough for what is left."""
    again.single()
    again.copy.edit(SIGN, "Sign the", "Please sign the")
    old = again.copy.cassette()
    again.says({**SCRIPT, "alpha.sign.2.1": {"fail": "API Error: 401 authentication_error"}})
    _, some = again.record(CallSelection())
    assert (some.run_end.stop_reason, some.cassette, some.paid_replies) == ("auth-failure", None, 1)
    assert again.calls() == ["alpha.sign.1.1", "alpha.sign.2.1"]
    again.says(SCRIPT)
    prepared, full = again.record(CallSelection(), budget_nanousd=35_000_000)
    assert [repeated_call.identity.path for repeated_call in prepared.calls if repeated_call.is_paid] == ["alpha/sign"]
    assert prepared.calls[0].estimate == Estimate(tokens=0, nanousd=0)
    assert (full.live_calls, again.calls()[2:]) == (("alpha/sign.i2",), ["alpha.sign.2.1"])
    assert full.run_end == ("", 10_000_000)
    assert finding_kinds(compare_cassettes(old, again.keep(full.cassette), {})) == ("PROMPT",)


@pytest.mark.slow
def test_no_call_begins_that_a_budget_does_not_hold(again: Again) -> None:
    """Another model: every call is asked otherwise."""
    again.single()
    settings = again.copy.root / "mz.yaml"
    settings.write_text(settings.read_text() + "models: {mid: claude-haiku-4-5}\n")
    prepared, outcome = again.record(CallSelection(), budget_nanousd=1000)
    assert set(requests(prepared).values()) == {"CONFIG"}
    assert (outcome.run_end, outcome.live_calls, outcome.paid_replies) == (("budget", 0), (), 0)
    settings.write_text(settings.read_text().replace("claude-haiku-4-5", "other-model-9"))
    _, outcome = again.record(CallSelection(), budget_nanousd=0)
    assert (outcome.run_end, outcome.live_calls) == (("budget", 0), ())
    assert again.calls() == []


def test_the_estimate_is_that_of_the_agent_which_will_be_called() -> None:
    """With `independence: agent` the reviewer is not the builder; a unit may have a dearer route."""
    free = PriceRow(model="gpt-*", input=UsdPerMillion(0), output=UsdPerMillion(0))
    config = Config(failover=("codex",), independence="agent", prices=(free,))
    units = {"type": {"small": RouteChoice(agent="codex"), "auth": RouteChoice(tier="premium")}}
    amounts = []
    for routing in ({}, {"build": Route(units=units)}):
        replay = ReplayOutcome({}, (), {}, {}, {}, trial.pins(replace(config, routing=routing)))
        estimates = CallEstimates(load(BUNDLED), replay, replay.pins)
        call = Identity(pipeline="trial", feature="a", phase="build", unit="u1")
        amounts += [estimates.estimate(replace(call, role=role), None).nanousd or 0 for role in ("builder", "reviewer")]
    assert 0 < amounts[0] < amounts[2]
    assert (amounts[1], amounts[3] > 0) == (0, True), "models of codex cost nothing here"


def test_every_agent_that_will_be_called_has_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `independence: agent` also who reviews; nobody else."""
    config = Config(failover=("codex", "gemini"), independence="agent")
    made, names = load(BUNDLED), list[str]()
    monkeypatch.setattr("mz_recordings.rerecord.rerecord.check_agent", lambda name, *_: names.append(name))
    job = RerecordJob(path="", project="", environment={}, now=TODAY, selection=CallSelection())
    check_installed(job, RerecordPlan(made, made, trial.pins(config), (), (), made))
    assert names == ["claude-code", "codex"]


def test_what_a_budget_holds_up() -> None:
    assert not exceeds_budget(None, 0, None)
    assert not exceeds_budget(5, 10, None)
    assert exceeds_budget(None, 0, 10)
    assert exceeds_budget(0, 10, 10)
    assert not exceeds_budget(0, 9, 10)


@pytest.mark.slow
def test_a_secret_of_the_project_is_never_recorded_nor_paid_for(again: Again) -> None:
    """The repository in which it is recorded has no `.env`; the project has, and git ignores it there."""
    again.single()
    secret = "correcthorsebatterystaple77"
    GitRepo(again.copy.root).write({".env": f"DEPLOY_TOKEN={secret}\n", ".gitignore": ".env\n"})
    again.copy.edit(SIGN, "Sign the", f"Log in with {secret} and sign the")
    with pytest.raises(SecretInRecording, match="DEPLOY_TOKEN"):
        again.record(CallSelection())
    assert again.calls() == []
    again.copy.edit(SIGN, f"Log in with {secret} and sign the", "Please sign the")
    summary = {"write": {"letters/alpha.md": f"# Letter\nlog in with {secret}\n"}}
    again.says({**SCRIPT, "alpha.sign.1.1": summary})
    with contextlib.suppress(SecretInRecording):
        again.record(CallSelection())
    left = [path for path in again.copy.root.rglob("*") if path.is_file() and path.name != ".env"]
    assert not [path for path in left if secret.encode() in path.read_bytes()]


@pytest.mark.slow
def test_what_was_paid_for_other_features_stays(tmp_path: Path) -> None:
    cassette = load(BUNDLED)
    features = sorted({entry.recording.identity.feature for entry in cassette.calls})
    rerecord_workspace = RerecordWorkspace(tmp_path / "work", "0")
    rerecord_workspace.folder.mkdir()
    save(cassette._replace(manifest=replace(cassette.manifest, traces={}), traces={}), rerecord_workspace.paid)
    left = rerecord_workspace.discard_paid(features[:1])
    assert left == sum(item.recording.identity.feature != features[0] for item in cassette.calls) > 0
    assert {call.recording.identity.feature for call in load_without_traces(rerecord_workspace.paid).calls} == set(
        features[1:]
    )
    assert rerecord_workspace.discard_paid(()) == left
    assert rerecord_workspace.discard_paid(features) == 0
    assert not rerecord_workspace.folder.exists()


@pytest.mark.slow
def test_a_feature_that_comes_to_another_rest_keeps_its_old_recordings(again: Again) -> None:
    """And what builds on it does too."""
    again.says({**SCRIPT, "alpha.sign.1.1": {"fail": "Error: no"}, "alpha.sign.1.2": {"fail": "Error: no"},
                "alpha.sign.1.3": {"fail": "Error: no"}, "alpha.sign.1.4": {"fail": "Error: no"}})  # fmt: skip
    _, outcome = again.record(CallSelection(everything=True))
    assert (outcome.run_end.stop_reason, outcome.kept_features, outcome.cassette) == ("", (), None)
    assert {dropped_recordings.feature for dropped_recordings in outcome.dropped_features} == {"alpha", "beta"}
    why = {dropped_feature.feature: dropped_feature.reason for dropped_feature in outcome.dropped_features}
    assert why["alpha"].startswith("it was delivered in the recording, but is ")


@pytest.mark.slow
def test_what_nothing_asks_for_can_go_without_any_call(again: Again) -> None:
    again.single()
    cassette = again.copy.cassette()
    last = next(call for call in cassette.calls if call.recording.identity.path == "alpha/sign.i2")
    identity = replace(last.recording.identity, attempt=2)
    files = tuple(replace(file, name=f"a2.{file.name}") for file in last.recording.files)
    contents = {f"a2.{name}": data for name, data in last.contents.items()}
    surplus = RecordedCall(replace(last.recording, identity=identity, files=files), contents)
    save(cassette._replace(calls=(*cassette.calls, surplus)), again.copy.folder, replace=True)
    pruned = again.prepared(CallSelection(), prune=True)
    assert pruned.calls == ()
    assert finding_kinds(compare_cassettes(pruned.old, pruned.cassette, {})) == ("UNUSED",)
    assert pruned.cassette.calls == cassette.calls


# what is asked: pure --------------------------------------------------------------------------------------------------
def observed(
    cassette: Cassette, *findings: Finding, missed: tuple[Identity, ...] = (), agent: str = ""
) -> ReplayedCassette:
    played = {call.recording.identity: None for call in cassette.calls}
    happened = ReplayOutcome(played, missed, {}, {}, {}, None)  # type: ignore[arg-type]
    return ReplayedCassette(happened, findings, TODAY, agent or cassette.manifest.agent, frozenset())


def planned(cassette: Cassette, call_selection: CallSelection, replayed_cassette: ReplayedCassette) -> dict[str, str]:
    rows = plan_calls(
        cassette, call_selection, replayed_cassette, lambda identity, recorded: Estimate(tokens=1, nanousd=None)
    )
    return {
        repeated_call.identity.path: ",".join(repeated_call.reasons) or f"({repeated_call.follows})"
        for repeated_call in rows
    }


def later_than(replayed_cassette: ReplayedCassette) -> ReplayedCassette:
    return replayed_cassette._replace(today=TODAY + timedelta(days=2))


BETA = Finding(kind="PROMPT", message="", feature="beta", call="sign")


@pytest.mark.slow
def test_what_is_wished_for(recorded: Path) -> None:
    cassette = Copy(recorded).cassette()
    nothing, drifted = observed(cassette), observed(cassette, BETA)
    assert planned(cassette, CallSelection(), nothing) == {}
    assert planned(cassette, CallSelection(), drifted) == {"beta/sign": "PROMPT"}
    assert planned(cassette, CallSelection(expired=True, new=True), drifted) == {}
    assert planned(cassette, CallSelection(changed=True, selectors=(CallSelector(feature="alpha"),)), drifted) == {}
    assert len(planned(cassette, CallSelection(everything=True), nothing)) == 8
    assert set(planned(cassette, CallSelection(), observed(cassette, agent="other")).values()) == {"OTHER_AGENT"}
    beta = CallSelection(selectors=(CallSelector(feature="beta", phase="sign"),))
    assert planned(cassette, beta, nothing) == {"beta/sign": "REQUESTED"}
    aged = cassette._replace(manifest=replace(cassette.manifest, max_age_days=1))
    assert set(planned(aged, CallSelection(expired=True), later_than(nothing)).values()) == {"EXPIRED"}
    assert planned(aged, CallSelection(changed=True), later_than(nothing)) == {}
    # What drifted elsewhere in a feature that is driven anew will be asked too.
    later = planned(cassette, CallSelection(selectors=(CallSelector(feature="alpha", phase="sign"),)), drifted)
    assert (later["alpha/sign"], later["beta/sign"], later["beta/write"]) == ("REQUESTED", "PROMPT", "(alpha)")
    assert "alpha/write" not in later


def test_the_kinds_that_a_fresh_answer_does_not_mend() -> None:
    assert CallSelection().selects_reason("MISSING")
    assert not CallSelection(changed=True).selects_reason("EXPIRED")
    assert CallSelection(changed=True).selects_reason("STREAM")


# what is kept: pure ---------------------------------------------------------------------------------------------------
def chain(*pairs: tuple[str, tuple[str, ...]]) -> Cassette:
    """A cassette of which only the backlog counts."""
    items = tuple(Item(feature=name, title="", body="", priority=0, depends_on=below) for name, below in pairs)

    empty = cassette()
    fixture = replace(empty.manifest.fixture, items=items)
    return empty._replace(manifest=replace(empty.manifest, fixture=fixture))


def test_a_feature_goes_with_what_it_builds_on() -> None:
    old = chain(("a", ()), ("b", ("a",)), ("c", ("b",)), ("d", ()))
    texts = {"a": "", "b": "it failed", "c": "", "d": ""}
    assert kept_features(old, texts, frozenset(), all_or_none=False)[0] == ("d",)
    assert kept_features(old, texts, frozenset({"a"}), all_or_none=False)[0] == ("a", "d")
    assert kept_features(old, {"a": "", "b": "", "c": "no"}, frozenset({"b"}), all_or_none=False)[0] == ("a", "b")
    assert kept_features(old, texts, frozenset(), all_or_none=True)[0] == ()
    assert kept_features(old, dict.fromkeys("abcd", ""), frozenset(), all_or_none=True) == (("a", "b", "c", "d"), ())
    assert affected_features(old, {"b"}) == ("a", "b", "c")


def line(kind: str, more: str = "") -> bytes:
    return f'{{"type":"{kind}"{more}}}\n'.encode()


def test_the_rest_that_a_story_ends_with() -> None:
    delivered, held = line("feature.delivered"), line("feature.held", ',"hold":"person","code":"x"')
    assert stop_of_trace(delivered) == ("delivered", "")
    assert stop_of_trace(held + line("phase.started")) == ("held", "person x")
    assert stop_of_trace(held + line("feature.hold-released") + line("phase.started")) == ("", "")
    assert rejection_reason(held, delivered, "") == ""
    assert rejection_reason(held, held, "") == ""
    assert rejection_reason(delivered, held, "") == "it was delivered in the recording, but is held (person x) now"
    assert rejection_reason(None, held, "").startswith("it was delivered")
    assert rejection_reason(delivered, None, "it never began") == "it never began"
