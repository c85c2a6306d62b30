"""A past run through today's core: clean where nothing has changed, every kind of divergence found with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_engine.artifacts.feature_rules import FEATURE_RULES
from mz_engine.artifacts.validate import validate
from mz_engine.decoding.quantity import Usd
from mz_engine.effects import call, commands, dispatch, validation
from mz_engine.effects.steps import Effect, SettleCall, emit
from mz_engine.model import pins as pinned
from mz_engine.model.config import Budget
from mz_engine.model.rules import RuleFinding as BrokenRule
from mz_engine.ports import Price
from mz_engine.run.spending_record import SpendingRecord
from mz_events.catalog.base import Event, EventKind
from mz_events.catalog.call import AgentRequested, CallPriced, CallReserved, ReplyParsed, Usage
from mz_events.catalog.feature import Blocked, HumanRequested, PhaseStarted, UnitStarted
from mz_events.catalog.run import FeatureAdmitted, FilesClaimed, RunIdle, Verdict
from mz_events.catalog.validation import ArtifactValidated, GateChecked, Violation
from mz_events.names import Digest, FeatureId
from mz_events.store import BlobMissing, Recorded
from mz_projections.feature.fold import apply_strict
from mz_projections.feature.state import State
from mz_projections.run.spending import DAY_US
from mz_qa.simulation import trial
from mz_qa.simulation.world import NANO_PER_TOKEN, SimulatedAdapter, SimulatedPorts
from mz_recordings.findings.model import FindingKind
from mz_recordings.past_runs import replay as core
from mz_recordings.past_runs.comparison import COMPARED_OUTCOME_FIELDS, PROMPT_FIELDS
from mz_recordings.past_runs.model import (
    Divergence,
    DivergenceKind,
    IntendedChange,
    RunReplay,
    StreamReplay,
    findings_of,
    group_by_cause,
)
from mz_recordings.past_runs.ports import ReplayInputs
from mz_recordings.past_runs.replay import PinsUnreadable, RunReply, RunStreamReplay, replay_run
from mz_recordings.record.recorder import UnknownRun

from tests.engine.test_denied_commands import Running, in_plan
from tests.engine.test_scheduler import THREE, held_by, run_threads, world_of
from tests.support import driving
from tests.support.examples import examples
from tests.support.pasts import Past, Stream, edited, index_of, renumbered, trial_past


@pytest.fixture(scope="module")
def past() -> Past:
    return trial_past()


def kinds(replayed: StreamReplay) -> list[tuple[str, DivergenceKind]]:
    return [(divergence.event_ref, divergence.kind) for divergence in replayed.divergences]


# as recorded ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("feature", "abc")
def test_what_nobody_changed_is_as_recorded(past: Past, feature: str) -> None:
    replayed = past.replay(past.stream(feature))
    assert replayed.divergences == ()
    assert (replayed.not_compared, dict(replayed.not_recomputed)) == (0, {})
    assert replayed.compared > 80


def test_the_stream_of_the_run_is_as_recorded(past: Past) -> None:
    replayed = past.replay_run(past.run())
    assert replayed.divergences == ()
    assert replayed.compared > 40


def test_a_whole_run_writes_nothing(past: Past) -> None:
    before = dict(past.world.blobs.data_by_digest), len(past.world.store.log), dict(past.world.refs)
    history = replay_run(past.world.store, trial.RUN, past.means)
    assert history.divergences == ()
    assert len(history.streams) == 4
    assert (dict(past.world.blobs.data_by_digest), len(past.world.store.log), dict(past.world.refs)) == before


@pytest.mark.parametrize("feature", "ab")
@pytest.mark.slow
def test_every_beginning_of_a_stream_is_as_recorded(past: Past, feature: str) -> None:
    events = past.stream(feature)
    for end in range(1, len(events), 10):
        if not isinstance(events[end].event, CallPriced):  # It is appended together with the event before it.
            assert past.replay(events[:end]).divergences == (), end
    own = past.run()
    for end in range(1, len(own), 5):
        assert past.replay_run(own[:end]).divergences == (), end


# edits of a log, one for each kind ------------------------------------------------------------------------------------
def swapped(events: Stream) -> tuple[Stream, int]:
    at = index_of(events, ReplyParsed)
    return renumbered([*events[:at], events[at + 1], events[at], *events[at + 2 :]]), at


def dropped(events: Stream) -> tuple[Stream, int]:
    at = index_of(events, UnitStarted, 1)
    return renumbered([*events[:at], *events[at + 1 :]]), at


def added(events: Stream) -> tuple[Stream, int]:
    at = index_of(events, PhaseStarted, 1) + 1
    blocked = Blocked(phase="build", unit="", cause="code", check="check")
    return renumbered([*events[:at], replace(events[at], event=blocked), *events[at:]]), at


def other_arguments(events: Stream) -> tuple[Stream, int]:
    at = index_of(events, AgentRequested, 2)
    return edited(events, at, template="plan"), at


def other_result(events: Stream) -> tuple[Stream, int]:
    at = index_of(events, ReplyParsed, 1)
    return edited(events, at, bad_lines=3), at


def other_verdict(events: Stream) -> tuple[Stream, int]:
    at = index_of(events, ArtifactValidated, 1)
    return edited(events, at, violations=(Violation(rule="plan.made", path="plans/a.json", line=3),)), at


EDITS: dict[DivergenceKind, tuple[Callable[[Stream], tuple[Stream, int]], FindingKind]] = {
    "order": (swapped, "TRACE"),
    "extra": (dropped, "TRACE"),
    "missing": (added, "TRACE"),
    "arguments": (other_arguments, "CONFIG"),
    "result": (other_result, "STREAM"),
    "verdict": (other_verdict, "DECISION"),
}


@pytest.mark.parametrize("kind", EDITS)
def test_edits_of_a_log_are_found_with_place_and_kind(past: Past, kind: DivergenceKind) -> None:
    edit, finding = EDITS[kind]
    events, at = edit(past.stream())
    replayed = past.replay(events)
    first = replayed.divergences[0]
    assert (first.event_ref, first.kind, first.finding) == (f"run/r1/a@{at + 1}", kind, finding)
    if kind != "verdict":  # It has consequences.
        assert len(replayed.divergences) == 1
    assert (replayed.not_compared > 0) == (kind in ("order", "extra", "missing", "verdict"))


def test_a_difference_is_told_field_by_field_and_prose_line_by_line(past: Past) -> None:
    events = past.stream()
    at = index_of(events, AgentRequested, 2)
    event = events[at].event
    assert isinstance(event, AgentRequested)
    other = past.world.blobs.put(past.world.blobs.get(event.prompt).replace(b"Build", b"Construct"))
    result = past.replay(edited(events, at, prompt=other)).divergences
    assert [divergence.finding for divergence in result] == ["PROMPT"]
    (field,) = result[0].differences
    assert field.field == "prompt"
    assert [line[:10] for line in field.lines if line[0] in "+-"] == ["-Construct", "+Build u1 "]
    nested = past.replay(edited(events, at, ref=replace(event.ref, attempt=9))).divergences
    assert [
        (event_field_difference.field, event_field_difference.recorded, event_field_difference.produced)
        for event_field_difference in nested[0].differences
    ] == [("ref.attempt", "9", "1")]


# changed code, one for each kind --------------------------------------------------------------------------------------
def gate_before_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(*events: Event) -> Effect:
        return emit(*(events[::-1] if isinstance(events[-1], GateChecked) else events))

    monkeypatch.setattr(validation, "emit", turned)


def no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    def unpriced(key: str, nanousd: int | None, events: tuple[Event, ...], *remaining: bool) -> SettleCall:
        return SettleCall(key, nanousd, events[:1], *remaining)

    monkeypatch.setattr(call, "SettleCall", unpriced)


def unit_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(*events: Event) -> Effect:
        if isinstance(events[0], UnitStarted) and events[0].unit == "u2":
            yield from emit(PhaseStarted(phase="build", iteration=1, units=()))
        yield from emit(*events)

    monkeypatch.setattr(dispatch, "emit", twice)


def another_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "REPLY_TOKENS", 3000)


def another_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    read = SimulatedAdapter.parse_output
    monkeypatch.setattr(
        SimulatedAdapter, "parse_output", lambda self, result: replace(read(self, result), reported_nanousd=1)
    )


def another_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def stricter(*arguments: object) -> tuple[BrokenRule, ...]:
        rule_findings = validate(*arguments)  # type: ignore[arg-type]
        return (*rule_findings, BrokenRule(violation=Violation(rule="new"), message="new [new]"))

    monkeypatch.setattr(validation, "validate", stricter)


CHANGED: dict[DivergenceKind, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "order": (gate_before_command, "command.ran"),
    "missing": (no_price, "call.priced"),
    "extra": (unit_twice, "phase.started"),
    "arguments": (another_model, "agent.requested"),
    "result": (another_parser, "reply.parsed"),
    "verdict": (another_rule, "artifact.validated"),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_changes_of_code_are_found(past: Past, kind: DivergenceKind, monkeypatch: pytest.MonkeyPatch) -> None:
    change, event = CHANGED[kind]
    change(monkeypatch)
    first = past.replay(past.stream("b")).divergences[0]
    assert (first.kind, event in (first.recorded, first.produced)) == (kind, True), first


def test_code_that_breaks_off_is_told_with_its_place(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(validation, "FEATURE_RULES", dict.fromkeys(FEATURE_RULES, broken))
    monkeypatch.setattr(commands, "failure_signature", broken)
    result = past.replay(past.stream("b")).divergences
    assert {divergence.kind for divergence in result} == {"failure"}
    assert result[0].note == "ZeroDivisionError: no"


# after a divergence ---------------------------------------------------------------------------------------------------
def test_later_divergences_are_found_too_and_grouped_by_cause(past: Past) -> None:
    events, first = other_arguments(past.stream())
    later = [index_of(events, AgentRequested, number) for number in (4, 5)]
    for at in later:
        events = edited(events, at, template="plan")
    events = edited(events, index_of(events, ReplyParsed, 6), bad_lines=1)
    replayed = past.replay(events)
    assert kinds(replayed) == [
        *((f"run/r1/a@{at + 1}", "arguments") for at in (first, *later)),
        (f"run/r1/a@{index_of(events, ReplyParsed, 6) + 1}", "result"),
    ]
    groups = group_by_cause(replayed.divergences)
    assert [(group[0].kind, len(group)) for group in groups] == [("arguments", 3), ("result", 1)]
    findings = findings_of(RunReplay(run="r1", mz_version="0", streams=(replayed,)))
    assert [(finding.kind, finding.feature) for finding in findings] == [("CONFIG", "a"), ("STREAM", "a")]
    assert "at run/r1/a@" in findings[0].message
    assert "and 2 more events" in findings[0].message


def test_where_the_record_went_another_way_only_its_first_event_is_told(past: Past) -> None:
    events = past.stream()
    at = index_of(events, PhaseStarted, 1)
    replayed = past.replay(renumbered([*events[:at], *events[at + 30 : at + 50]]))
    assert replayed.divergences[0].event_ref == f"run/r1/a@{at + 1}"
    assert replayed.not_compared > 5


def test_an_intended_change_explains_what_it_explains(past: Past) -> None:
    events, _ = other_arguments(past.stream())
    change = IntendedChange(
        "templates", "9.9", "why not",
        lambda item: item.produced == "agent.requested" and {field.field for field in item.differences} == {"template"},
    )  # fmt: skip
    replayed = past.replay(edited(events, index_of(events, ReplyParsed, 3), bad_lines=1), changes=(change,))
    assert [(divergence.kind, divergence.intended_change) for divergence in replayed.divergences] == [
        ("arguments", "templates"),
        ("result", ""),
    ]
    history = RunReplay(run="r1", mz_version="0", streams=(replayed,))
    assert [len(item) for item in (history.divergences, history.explained)] == [1, 1]


def test_an_explained_divergence_hides_no_later_one(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(state: State, recorded: Recorded[Event]) -> State | None:
        return None if isinstance(recorded.event, HumanRequested) else apply_strict(state, recorded)

    events, _ = other_arguments(past.stream())
    change = IntendedChange(
        "templates", "9.9", "why not", lambda item: [field.field for field in item.differences] == ["template"]
    )
    monkeypatch.setattr(core, "apply_strict", refuses)
    plain = [divergence.event_ref for divergence in past.replay(past.stream()).divergences]
    event_refs = [
        item.event_ref for item in past.replay(events, changes=(change,)).divergences if not item.intended_change
    ]
    assert plain
    assert event_refs == plain


# any single decision --------------------------------------------------------------------------------------------------
class Edit(NamedTuple):
    how: str
    at: int
    events: Stream


def single_edits(events: Stream) -> Iterator[Edit]:
    """Each decision dropped, doubled, or in the place of the next one. What two features asked for at the same time may
    have come in either order."""
    for at, recorded in enumerate(events[:-1]):
        if recorded.event.KIND not in (EventKind.INTENT, EventKind.DERIVED) or isinstance(recorded.event, RunIdle):
            continue
        end = at + 12  # What comes later can change nothing any more.
        yield Edit("drop", at, renumbered([*events[:at], *events[at + 1 : end]]))
        yield Edit("double", at, renumbered([*events[: at + 1], *events[at:end]]))
        after = events[at + 1].event
        apart = getattr(after, "feature", "") != getattr(recorded.event, "feature", "") and isinstance(after, RunReply)
        if after.KIND in (EventKind.INTENT, EventKind.DERIVED) and not (apart and isinstance(recorded.event, RunReply)):
            yield Edit("swap", at, renumbered([*events[:at], events[at + 1], events[at], *events[at + 2 : end]]))


def near(replayed: StreamReplay, at: int) -> bool:
    return any(abs(int(divergence.event_ref.rpartition("@")[2]) - at - 1) <= 3 for divergence in replayed.divergences)


@pytest.mark.slow
def test_any_decision_that_is_dropped_doubled_or_misplaced_is_found(past: Past) -> None:
    for edit in single_edits(past.stream()):
        assert near(past.replay(edit.events), edit.at), edit[:2]
    for edit in single_edits(past.run()):
        assert near(past.replay_run(edit.events), edit.at), edit[:2]


@pytest.mark.slow
@examples(40)
@given(data=st.data())
def test_no_order_of_events_is_a_traceback(past: Past, data: st.DataObject) -> None:
    events = past.stream("b")
    chosen = data.draw(st.lists(st.sampled_from(events), max_size=30))
    begin = data.draw(st.integers(1, 60))
    replayed = past.replay(renumbered([*events[:begin], *chosen]))
    assert replayed.events == begin + len(chosen)
    assert past.replay_run(renumbered(data.draw(st.lists(st.sampled_from(past.run()), min_size=1)))).events


def test_a_fact_that_may_not_come_is_a_divergence(past: Past) -> None:
    events = past.stream()
    start = next(recorded for recorded in events if recorded.event.KIND is EventKind.EXTERNAL)
    replayed = past.replay(renumbered([*events[:9], start, *events[9:30]]))
    assert kinds(replayed) == [("run/r1/a@10", "order")]


# the run --------------------------------------------------------------------------------------------------------------
def test_what_the_run_decided_is_compared_where_it_was_decided(past: Past) -> None:
    events = past.run()
    at = index_of(events, FeatureAdmitted, 1)
    assert kinds(past.replay_run(edited(events, at, stacked_on=FeatureId("c")))) == [(f"run/r1@{at + 1}", "arguments")]
    at = index_of(events, CallReserved, 2)
    assert kinds(past.replay_run(edited(events, at, nanousd=1))) == [(f"run/r1@{at + 1}", "arguments")]
    at = index_of(events, FilesClaimed)
    other = edited(events, at, feature=FeatureId("nobody"))
    assert kinds(past.replay_run(other))[0] == (f"run/r1@{at + 1}", "missing")


# what cannot be computed again ----------------------------------------------------------------------------------------
def test_what_no_price_table_computes_is_counted(past: Past) -> None:
    bare = past._replace(means=replace(past.means, prices=None))
    left = bare.replay(past.stream("b"))
    assert (left.divergences, left.missing_data) == ((), None)
    assert set(left.not_recomputed) == {"prices of another table"}


def test_a_stream_of_an_agent_without_a_parser_is_not_comparable(past: Past) -> None:
    replayed = past._replace(means=replace(past.means, adapters={})).replay(past.stream("b"))
    assert replayed.divergences == ()
    assert "the parser of simulated, which this mz does not have, from run/r1/b@" in (replayed.missing_data or "")


def test_a_stream_is_not_comparable_from_the_event_whose_data_is_gone(past: Past) -> None:
    events = past.stream("b")
    at = index_of(events, ReplyParsed)

    class Erased:
        def put(self, data: bytes) -> Digest:
            raise AssertionError("a replay writes nothing")

        def get(self, digest: Digest) -> bytes:
            if digest == events[at - 1].event.stdout:  # type: ignore[attr-defined]
                raise BlobMissing(digest)
            return past.world.blobs.get(digest)

    erased = past._replace(means=replace(past.means, blobs=Erased()))
    replayed = erased.replay(events)
    assert (replayed.divergences, replayed.not_compared) == ((), len(events) - at)
    assert replayed.missing_data == f"texts that were erased or lost, from run/r1/b@{at + 1} on"
    (finding,) = findings_of(RunReplay(run="r1", mz_version="0", streams=(replayed,)))
    assert (finding.kind, finding.feature) == ("UNREADABLE", "b")
    assert "run/r1/b is not comparable: texts" in finding.message
    treeless = past._replace(means=replace(past.means, trees=None)).replay(events)
    assert (treeless.divergences, treeless.compared > 0) == ((), True)
    assert "captured trees" in (treeless.missing_data or "")


def test_compared_fields_exist() -> None:
    for event, fields in COMPARED_OUTCOME_FIELDS.items():
        assert fields <= set(event.__struct_fields__)
    assert set(AgentRequested.__struct_fields__) >= PROMPT_FIELDS


def test_another_price_table_is_no_divergence(past: Past) -> None:
    class Dearer(SimulatedPorts):
        def price(self, usage: tuple[Usage, ...], at_us: int) -> Price:
            return Price(nanousd=NANO_PER_TOKEN, unpriced=(), prices="simulated/2")

    means = replace(past.means, prices=Dearer(past.world))
    replayed = past._replace(means=means).replay(past.stream("b"))
    assert replayed.divergences == ()
    assert replayed.not_recomputed == {"prices of another table": 8}


def test_the_same_table_must_give_the_same_price(past: Past) -> None:
    events = past.stream("b")
    at = index_of(events, CallPriced)
    priced, *others = past.replay(edited(events, at, computed_nanousd=1)).divergences
    assert (priced.kind, priced.finding) == ("result", "COST")
    assert {divergence.fields for divergence in others} == {("message",)}, "the commit states the cost"


def test_runs_that_cannot_be_replayed(past: Past) -> None:
    store, means = past.world.store, past.means
    with pytest.raises(UnknownRun):
        replay_run(store, "nope", means)

    class Erased:
        def put(self, data: bytes) -> Digest:
            raise AssertionError("a replay writes nothing")

        def get(self, digest: Digest) -> bytes:
            return b'{"pipeline": 1}'

    with pytest.raises(PinsUnreadable, match="cannot read"):
        replay_run(store, trial.RUN, replace(means, blobs=Erased()))
    assert pinned.decode_pins(pinned.encode_pins(past.pins)) == past.pins


def test_divergences_compare_by_value() -> None:
    fields = {"event_ref": "run/r@1", "kind": "order", "finding": "TRACE", "recorded": None, "produced": None}
    assert Divergence(**fields) == Divergence(**fields)  # type: ignore[arg-type]


# budgets --------------------------------------------------------------------------------------------------------------
def test_what_budgets_and_denied_commands_did_is_as_recorded(tmp_path: Path) -> None:
    """What other runs spent is not in the log: a call that did not fit into the day is taken from it."""
    budget = Budget(call_nanousd=Usd(3_000_000), day_nanousd=Usd(4_500_000), run_tokens=10**6)
    world, pins = world_of(items=THREE, denied_commands=("git push",), budget=budget)
    ports = Running(world, in_plan(1))
    record = SpendingRecord(tmp_path, "/one")
    states = [run_threads(world, pins, ports, record)]
    for feature in THREE:
        driving.answer(world, feature, Verdict.ACCEPT)
    for _ in range(3):
        states.append(run_threads(world, pins, ports, record))
        world.now_us += DAY_US
    assert {"day"} == {budget for state in states for budget in held_by(state).values()}
    readers = {"simulated": SimulatedAdapter()}
    means = ReplayInputs(blobs=world.blobs, trees=SimulatedPorts(world).workspace, adapters=readers, prices=ports)
    past = Past(world, pins, means)
    for feature in THREE:
        assert past.replay(past.stream(feature)).divergences == ()
    streams = {feature: past.stream(feature) for feature in THREE}
    assert RunStreamReplay(past.run(), pins, streams).run().divergences == ()
