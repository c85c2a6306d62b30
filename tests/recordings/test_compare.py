"""What a replay says, and how findings of one cause become one: without a process."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace
from mz_engine.model.config import Config
from mz_engine.model.pins import Pins, encode_pins
from mz_engine.model.pipeline import Pipeline
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallOverBudget, CallRef, ForbiddenChange, ReplyParsed, Usage
from mz_events.catalog.feature import (
    FeatureHeld,
    HumanAnswered,
    HumanRequested,
    PhaseCompleted,
    PhaseStarted,
    QuestionKind,
)
from mz_events.catalog.run import Hold, Verdict
from mz_events.catalog.validation import ArtifactParsed, Change, ChangesChecked, GateChecked
from mz_events.names import Commit, Digest, FeatureId, Path
from mz_events.redaction.redactor import Secrets
from mz_qa.simulation import trial
from mz_recordings.cassette.files import digest
from mz_recordings.cassette.model import Accepted, Cassette, Identity, Item, RecordedCall
from mz_recordings.cassette.trace import (
    EventDifference,
    encode_trace,
    event_differences,
    feature_trace,
    with_produced_requests,
)
from mz_recordings.findings.model import ACCEPTABLE, CallMismatch, Finding, ReplayResult, group_results
from mz_recordings.replay.accept import accept_differences, new_secrets, prune
from mz_recordings.replay.commands import parse_effect_key
from mz_recordings.replay.compare import (
    ReplayOutcome,
    compare_replay,
    is_expired,
    nearest,
    prompt_cause_of,
    trace_divergences,
)

from tests.support.tapes import cassette, recording


def first_difference(recorded: bytes, produced: bytes) -> EventDifference | None:
    return next(event_differences(recorded, produced), None)


TREE = "1" * 40
TODAY = datetime(2026, 6, 2, tzinfo=UTC)
IDENTITY = Identity(pipeline="monozukuri", feature="f", phase="prd")
STARTED, DONE = PhaseStarted(phase="prd", iteration=1), PhaseCompleted(phase="prd")
NOTHING = Digest("0" * 64)


def requested(prompt: str, model: str = "m") -> AgentRequested:
    ref = CallRef(key="r/f/prd/-/1/1/agent.builder", phase="prd", unit="", iteration=1, attempt=1, role="builder")
    return AgentRequested(
        ref=ref, agent="claude-code", model=model, prompt=Digest(digest(prompt.encode())), template="prd.md.j2",
        full_prompt=True, session="s", resumes=False, tree=Commit(TREE), estimated_tokens=len(prompt),
        estimated_nanousd=5,
    )  # fmt: skip


def happened(**more: object) -> ReplayOutcome:
    pins = Pins(pipeline=Pipeline(pipeline="p", version=1, phases=()), rules={}, templates={}, config=Config())
    plain = ReplayOutcome({IDENTITY: CallMismatch()}, (), {IDENTITY: requested("x")}, {}, {}, pins)
    return plain._replace(**more)  # type: ignore[arg-type]


def tape(**world: object) -> Cassette:
    made = cassette(recording(TREE))
    return made._replace(
        manifest=msgspec.structs.replace(made.manifest, fixture=msgspec.structs.replace(made.manifest.fixture, **world))
    )


# stories --------------------------------------------------------------------------------------------------------------
def test_a_story_has_no_money_no_names_and_no_waiting_for_others() -> None:
    held = FeatureHeld(hold=Hold.BUDGET)
    waits = CallOverBudget(feature=FeatureId("f"), key="k", role="builder", nanousd=1)
    answered = HumanAnswered(run_version=1, verdict=Verdict.APPROVE, actor=Digest("a" * 64))
    events = feature_trace([STARTED, waits, held, FeatureHeld(hold=Hold.TIMER), answered, requested("x"), DONE])
    other = msgspec.structs.replace(answered, actor=Digest("b" * 64))
    cheaper = msgspec.structs.replace(requested("x"), estimated_nanousd=None)
    assert events == feature_trace([STARTED, FeatureHeld(hold=Hold.TIMER), other, cheaper, DONE])


def test_stories_part_where_the_first_event_differs() -> None:
    data, two = encode_trace([STARTED, DONE]), encode_trace([STARTED, PhaseCompleted(phase="spec")])
    parted = first_difference(data, two)
    assert parted is not None
    assert (parted.position, parted.lines()) == (2, ("  phase.completed", '-   phase: "prd"', '+   phase: "spec"'))
    assert first_difference(data, data) is None
    shorter = first_difference(data, encode_trace([STARTED]))
    assert shorter is not None
    assert shorter.lines() == ("- phase.completed", "+ nothing: the trace ended here")


def test_a_field_that_events_did_not_have_yet_is_no_other_story() -> None:
    """Events gain fields; recordings of before stay good as long as these say nothing."""
    trace = encode_trace([FeatureHeld(hold=Hold.TIMER)])
    before = trace.replace(b'"code":null,', b"")
    assert before != trace
    assert first_difference(before, trace) is None
    assert first_difference(before, encode_trace([FeatureHeld(hold=Hold.TIMER, code="rate-limit")])) is not None


def test_a_prompt_that_changed_is_no_other_story() -> None:
    data, two = (
        encode_trace(feature_trace([STARTED, requested("x"), DONE])),
        encode_trace(feature_trace([STARTED, requested("yy"), DONE])),
    )
    assert first_difference(data, two) is not None
    assert first_difference(with_produced_requests(data, two), two) is None


def test_the_first_event_that_differs_names_the_class() -> None:
    def classes(old: list[Event], new: list[Event]) -> list[str]:
        return [parting.kind for parting in trace_divergences(encode_trace(old), encode_trace(new))]

    def checked(passed: bool, cause: str = "") -> GateChecked:
        return GateChecked(phase="prd", unit="", gate="test", passed=passed, cause=cause)

    def read(**more: object) -> ReplyParsed:
        fields = {"parser": "a/1", "ending": "success", "session": None, "text": NOTHING, **more}
        return ReplyParsed(ref=requested("x").ref, **fields)  # type: ignore[arg-type]

    parsed = ArtifactParsed(artifact="prd", phase="prd", unit="", path=None, digest=NOTHING)
    changed = ChangesChecked(ref=requested("x").ref, tree=Commit(TREE))
    waits = HumanRequested(phase="prd", unit="", question_kind=QuestionKind.APPROVAL)
    usage = (Usage(model="m", input=1, output=1),)
    replace = msgspec.structs.replace
    assert classes([STARTED, DONE], [STARTED, DONE]) == []
    assert classes([DONE], [PhaseCompleted(phase="spec")]) == ["TRACE"]
    assert classes([checked(True)], [checked(False)]) == ["DECISION"]
    assert classes([checked(True), DONE], [DONE]) == ["DECISION"]
    assert classes([DONE], [waits]) == ["DECISION"]
    assert classes([changed], [replace(changed, forbidden_changes=(ForbiddenChange(kind="denied", path="x"),))]) == [
        "DECISION"
    ]
    assert classes([changed], [replace(changed, changes=(Change(path=Path("x"), kind="added"),))]) == ["FILES"]
    assert classes([parsed], [replace(parsed, fields={"severity": "LOW"})]) == ["ARTIFACT"]
    assert classes([read()], [read(ending="error")]) == ["STREAM"]
    assert classes([read(), DONE], [read(usage=usage), DONE]) == ["COST"]
    assert classes([read(), checked(True)], [read(usage=usage), checked(False)]) == ["COST", "DECISION"]
    assert classes([read()], [read(parser="a/2")]) == [], "another parser that reads the same"
    other = replace(parsed, fields={"severity": "LOW"})
    assert classes([read(), parsed, checked(True)], [read(bad_lines=1), other, checked(False)]) == [
        "STREAM", "ARTIFACT", "DECISION",
    ]  # fmt: skip
    elsewhere = replace(changed, changes=(Change(path=Path("x"), kind="added"),))
    assert classes([changed, checked(True)], [elsewhere, checked(False)]) == ["FILES", "DECISION"]
    assert classes([checked(True), DONE], [checked(True, "x"), waits]) == ["DECISION"], "each class once"
    assert classes([parsed, checked(True)], [replace(parsed, artifact="spec"), checked(False)]) == ["ARTIFACT"], (
        "nothing is said of what follows another step"
    )
    assert classes([STARTED, checked(True)], [PhaseStarted(phase="prd", iteration=2), checked(False)]) == ["TRACE"]


# findings -------------------------------------------------------------------------------------------------------------
def test_nothing_to_say_of_what_is_as_it_was() -> None:
    assert compare_replay(tape(), happened(), TODAY) == ()


def test_a_miss_names_the_nearest_and_hides_what_could_not_be_reached() -> None:
    missed = Identity(pipeline="monozukuri", feature="f", phase="prd", attempt=2)
    (finding,) = compare_replay(tape(), happened(mismatches={}, missing_calls=(missed,)), TODAY)
    assert (finding.kind, finding.call, finding.detail) == ("MISSING", "prd.a2", ("  nearest: f/prd (attempt 1)",))
    assert nearest(cassette(), missed) is None


def test_what_builds_on_a_feature_that_stopped_is_not_blamed() -> None:
    items = tuple(
        Item(feature=name, title="t", body="b", priority=1, depends_on=below)
        for name, below in (("e", ()), ("f", ("e",)))
    )
    missed = Identity(pipeline="monozukuri", feature="e", phase="prd")
    item = tape(items=items)._replace(traces={"e": b"", "f": b""})
    findings = compare_replay(item, happened(mismatches={}, missing_calls=(missed,)), TODAY)
    assert [finding.kind for finding in findings] == ["MISSING"]


def test_a_cassette_without_recordings_proves_nothing() -> None:
    nothing = happened(mismatches={}, requests={})
    assert [finding.message for finding in compare_replay(cassette(), nothing, TODAY)] == [
        "the cassette has no recordings"
    ]


def test_unused_recordings() -> None:
    (finding,) = compare_replay(tape(), happened(mismatches={}), TODAY)
    assert (finding.kind, finding.message) == ("UNUSED", "1 of 1 recordings of f are unused")


def test_an_answer_that_predates_its_prompt_expires() -> None:
    plain = recording(TREE).recording
    accepted = msgspec.structs.replace(
        plain, accepted=Accepted(kinds=("PROMPT",), reason="r", at="2026-03-01T00:00:00Z")
    )
    assert not is_expired(plain, None, TODAY)
    assert is_expired(accepted, None, TODAY)
    assert not is_expired(accepted, 30, TODAY)
    assert is_expired(plain, 0, TODAY)


def test_one_edited_line_is_one_finding() -> None:
    def prompt(call: str, template: str, *lines: str) -> Finding:
        return Finding(kind="PROMPT", message="w", feature="f", call=call, cause=template, detail=lines, fix="m")

    results = (
        ReplayResult(
            path="a", name="a", findings=(prompt("prd", "prd.md.j2", "-x", "+y"), prompt("code", "code.md.j2", "-p"))
        ),
        ReplayResult(path="b", name="b", findings=(prompt("spec", "spec.md.j2", "@@", "-x", "+y"),)),
        ReplayResult(
            path="c", name="c", findings=(prompt("spec", "spec.md.j2", "-z"), Finding(kind="COPIED", message="s"))
        ),
    )
    first, second, third = group_results(results)
    assert [first.kind, second.kind, third.kind] == ["PROMPT", "PROMPT", "COPIED"]
    by_cause = {finding_group.causes: finding_group for finding_group in (first, second)}
    shared = by_cause["prd.md.j2", "spec.md.j2"]
    assert shared.message == "prd.md.j2, spec.md.j2: 3 prompts differ from the recording"
    assert shared.cassettes == ("a", "b", "c")


def test_renewing_keeps_the_answer_and_nothing_else() -> None:
    item = tape()
    identity = item.calls[0].recording.identity
    replay_outcome = happened(
        mismatches={identity: CallMismatch(prompt="in <HOME>\n")}, traces={"f": encode_trace([STARTED])}
    )
    renewed, texts = accept_differences(item, replay_outcome, ("PROMPT",), "why not", "2026-06-02T00:00:00Z")
    (made,) = renewed.calls
    assert made.contents["prd.prompt.md"] == b"in <_HOME>\n"
    assert made.contents["prd.stream-json"] == item.calls[0].contents["prd.stream-json"]
    assert made.recording.accepted == Accepted(kinds=("PROMPT",), reason="why not", at="2026-06-02T00:00:00Z")
    assert texts == ("accepted new inputs, kept the replies: f/prd",)
    assert renewed.manifest.traces == {}, "no story is written that nobody has accepted"
    assert accept_differences(item, replay_outcome, ("CONFIG",), "why not", "2026-06-02T00:00:00Z") == (item, ())


@pytest.mark.parametrize(
    "more",
    [
        {"missing_calls": (Identity(pipeline="monozukuri", feature="f", phase="sign"),)},
        {"mismatches": {IDENTITY: CallMismatch(tree="2" * 40)}},
        {"mismatches": {IDENTITY: CallMismatch(rejection="does not apply")}},
        {"mismatches": {}},
    ],
)
def test_a_story_that_was_cut_short_is_never_renewed(more: dict[str, object]) -> None:
    """Nor is that of what builds on it: what was recorded would be lost."""
    items = tuple(
        Item(feature=name, title="t", body="b", priority=1, depends_on=below)
        for name, below in (("f", ()), ("g", ("f",)), ("h", ()))
    )
    recorded = dict.fromkeys(("f", "g", "h"), encode_trace([STARTED, DONE]))
    item = tape(items=items)._replace(traces=recorded)
    replay_outcome = happened(traces={"f": encode_trace([STARTED]), "g": b"", "h": encode_trace([STARTED])}, **more)
    assert "TRACE" in {
        finding.kind for finding in compare_replay(item, replay_outcome, TODAY) if finding.feature == "h"
    }
    renewed, texts = accept_differences(item, replay_outcome, ACCEPTABLE, "r", "2026-06-02T00:00:00Z")
    assert renewed.traces == {**recorded, "h": encode_trace([STARTED])}
    assert texts == ("updated the trace of h",)


def test_what_is_no_longer_asked_for_is_dropped_and_the_story_accepted_at_once() -> None:
    item = tape()._replace(traces={"f": encode_trace([STARTED, DONE])})
    replay_outcome = happened(mismatches={}, traces={"f": encode_trace([STARTED])})
    left, _ = prune(item, replay_outcome, compare_replay(item, replay_outcome, TODAY))
    assert accept_differences(left, replay_outcome, ("TRACE",), "r", "2026-06-02T00:00:00Z")[0].traces == {
        "f": encode_trace([STARTED])
    }


def test_a_verdict_is_never_accepted_with_something_else() -> None:
    parsed = ArtifactParsed(artifact="prd", phase="prd", unit="", path=None, digest=NOTHING)
    gate = GateChecked(phase="prd", unit="", gate="test", passed=True)
    replace = msgspec.structs.replace
    item = tape()._replace(traces={"f": encode_trace([parsed, gate])})
    replay_outcome = happened(
        traces={"f": encode_trace([replace(parsed, fields={"severity": "LOW"}), replace(gate, passed=False)])}
    )
    assert [finding.kind for finding in compare_replay(item, replay_outcome, TODAY)] == ["ARTIFACT", "DECISION"]
    assert accept_differences(item, replay_outcome, ("ARTIFACT",), "r", "2026-06-02T00:00:00Z") == (item, ())
    assert accept_differences(item, replay_outcome, ("ARTIFACT", "DECISION"), "r", "2026-06-02T00:00:00Z")[1] == (
        "updated the trace of f",
    )


def test_a_story_is_renewed_where_all_its_classes_are_accepted() -> None:
    reads = [
        ReplyParsed(ref=requested("x").ref, parser="a/1", ending="success", session=None, text=NOTHING, bad_lines=bad)
        for bad in (0, 1)
    ]
    item = tape()._replace(traces={"f": encode_trace([reads[0]])})
    replay_outcome = happened(traces={"f": encode_trace([reads[1]])})
    assert accept_differences(item, replay_outcome, ("TRACE", "DECISION"), "r", "2026-06-02T00:00:00Z") == (item, ())
    renewed, texts = accept_differences(item, replay_outcome, ("STREAM",), "r", "2026-06-02T00:00:00Z")
    assert (renewed.traces, texts) == ({"f": encode_trace([reads[1]])}, ("updated the trace of f",))
    (finding,) = compare_replay(item, replay_outcome, TODAY)
    assert (finding.kind, finding.call, finding.fix) == (
        "STREAM", "prd", "mz replay {cassette} --accept STREAM -m TEXT",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "effect"),
    [
        ("r/f/code/-/1/0/gate.test", ("f", "code", "gate.test")),
        ("r/f/code/u1/2/1/prepare.a/b", ("f", "code u1", "prepare.a/b")),
        ("r/f/setup/-/1/2/agent.builder", ("f", "setup", "agent.builder")),
        ("r/f/setup/npm ci", ("f", "", "npm ci")),
        ("r/f/setup/a/b/1/2/\nc", ("f", "", "a/b/1/2/\nc")),
        ("r/f/setup", ("f", "", "setup")),
        ("check", ("", "", "")),
    ],
)
def test_whoever_wanted_the_network_is_named(key: str, effect: tuple[str, str, str]) -> None:
    assert parse_effect_key(key) == effect
    findings = [
        item for item in compare_replay(tape(), happened(network_attempts={key: 2}), TODAY) if item.kind == "NETWORK"
    ]
    assert [finding.feature for finding in findings] == [effect[0]]
    assert [not effect[1]] == ["set `sandbox.online_in_replays` to [setup]" in finding.fix for finding in findings]


def test_a_secret_in_json_in_the_arguments_of_a_call_is_one() -> None:
    old, secrets = tape(), Secrets({"API_KEY": "tell/nobody/ever"})
    argv = msgspec.structs.replace(old.calls[0].recording, argv=(r'{"key": "tell\/nobody\/ever"}',))
    new = old._replace(calls=(RecordedCall(argv, old.calls[0].contents),))
    assert [finding.call for finding in new_secrets(old, new, secrets)] == ["prd"]


def test_what_is_renewed_may_bring_no_secret() -> None:
    key = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
    old, secrets = tape(), Secrets({"API_KEY": "tell-nobody"})
    manifest = msgspec.structs.replace(old.manifest, evidence={"templates": {"a.j2": f"say\n{key}"}})
    entry = old.calls[0]
    reason = Accepted(kinds=("PROMPT",), reason="tell-nobody", at="2026-06-01T10:00:00Z")
    argv = msgspec.structs.replace(entry.recording, accepted=reason)
    name = f"{entry.recording.identity.name}.prompt.md"
    recorded_call = RecordedCall(argv, {**entry.contents, name: b"tell-nobody"})
    new = old._replace(manifest=manifest, calls=(recorded_call,), traces={"f": b"tell-nobody"})
    findings = list(new_secrets(old, new, secrets))
    assert [(finding.kind, finding.feature, finding.call) for finding in findings] == [
        ("SECRET", "", ""), ("SECRET", "f", ""), ("SECRET", "f", "prd"), ("SECRET", "f", "prd"),
    ]  # fmt: skip
    assert "cassette.yaml (evidence.templates.a.j2)" in findings[0].message
    assert not any(key in item.message or "tell-nobody" in item.message for item in findings)
    assert not [*new_secrets(old._replace(manifest=manifest), old._replace(manifest=manifest), secrets)]


@pytest.mark.parametrize(
    ("changed_template", "changed_rules", "cause"),
    [
        ("", (), "trial/plan.md.j2"),
        ("trial/plan.md.j2", (), "trial/plan.md.j2"),
        ("", ("plan",), "rules/plan.yaml"),
        ("", ("note",), "trial/plan.md.j2"),
        ("trial/plan.md.j2", ("plan", "note"), "trial/plan.md.j2 and rules/plan.yaml"),
    ],
)
def test_a_changed_rule_set_is_blamed_and_no_template(
    changed_template: str, changed_rules: tuple[str, ...], cause: str
) -> None:
    """The recorded rule sets and templates are in the cassette."""
    pins = trial.pins()
    templates = {name: text + "x" * (name == changed_template) for name, text in pins.templates.items()}
    rules = {
        name: replace(rule_set, rules=rule_set.rules[1:]) if name in changed_rules else rule_set
        for name, rule_set in pins.rules.items()
    }
    evidence = msgspec.json.decode(encode_pins(replace(pins, rules=rules, templates=templates)))
    made = cassette()
    recorded = made._replace(manifest=replace(made.manifest, evidence=evidence))
    call = Identity(pipeline="trial", feature="bread", phase="plan")
    assert prompt_cause_of(recorded, call, "trial/plan.md.j2", pins) == cause
    assert prompt_cause_of(made, call, "trial/plan.md.j2", pins) == "trial/plan.md.j2", "without evidence"
