"""What the log teaches: evidence, uses, and the rules that interpret them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import ComposedLearning, ContextComposed, LearningLeftOut
from mz_events.catalog.feature import (
    Blocked,
    FeatureDelivered,
    FeatureFailed,
    HumanAnswered,
    HumanRequested,
    PhaseStarted,
    QuestionKind,
    RolledBack,
    UnitCompleted,
    UnitStarted,
)
from mz_events.catalog.memory import (
    CapturedLearning,
    LearningArchived,
    LearningOffered,
    LearningPromoted,
    LearningsCaptured,
    LearningShared,
)
from mz_events.catalog.run import Verdict
from mz_events.catalog.validation import ArtifactValidated, Change, ChangesChecked, Violation
from mz_events.names import PROJECT_STREAM, USER_STREAM, Digest, Path, StreamId
from mz_events.store import Recorded
from mz_projections.feature.state import InPhase
from mz_projections.feature.unit import failure_of
from mz_projections.memory.evidence import Kind, fold_memory, learning_id, rule_signature
from mz_projections.memory.learnings import DAY_US, Learning, MemoryRules, learning_text, learnings

from tests.support.samples import sample
from tests.support.steps import BASE, COMMAND, DIGEST, OPENED, OTHER, gate, recorded, ref, refused_reply, state_after

FAILED = replace(gate("test", False), signature="s1")
PASSED = gate("test", True)
NOTE = Digest("e" * 64)
ACTOR = Digest("a" * 64)
RULES = MemoryRules()
L1 = learning_id("failure", "test s1")
Log = Iterable[Recorded[Event]]


def taught(*events: Recorded[Event], rules: MemoryRules = RULES, now_us: int = 0) -> dict[str, Learning]:
    """Learnings by key."""
    return {learning.key: learning for learning in learnings(fold_memory(events), rules, now_us)}


def text_of(learning: Learning, texts: Mapping[Digest, str] | None = None, is_repeated: bool = True) -> str:
    return learning_text(learning, (texts or {}).__getitem__, is_repeated)


def changed(path: str) -> ChangesChecked:
    return ChangesChecked(ref=ref("build"), tree=BASE, changes=(Change(path=Path(path), kind="modified"),))


MENDED = (changed("broken.py"), FAILED, replace(changed("mended.py"), tree=OTHER), PASSED)


def test_what_passed_the_gate_after_a_failure_is_remembered() -> None:
    learning = taught(*recorded(*MENDED))["test s1"]
    assert (learning.id, learning.kind, learning.paths) == (L1, "failure", (Path("mended.py"),))
    assert (learning.layer, learning.confidence, learning.status) == ("feature", 1.0, "active")
    (evidence,) = learning.evidence
    assert (evidence.event_ref, evidence.mended) == ("run/r1/a@2", "run/r1/a@4")
    assert (evidence.before, evidence.after) == (BASE, OTHER)
    assert text_of(learning) == "This failure was seen before; it was mended by changing mended.py."


def test_a_failure_that_a_call_may_meet_is_told_with_its_output() -> None:
    report = json.dumps(["the command `test` (make) failed with exit 1; it printed:\nKeyError: 'x'\n\n  in pager.py"])
    events = recorded(changed("a"), replace(FAILED, report=NOTE), changed("pager.py"), PASSED)
    text = text_of(taught(*events)["test s1"], {NOTE: report}, is_repeated=False)
    assert text == "`test` failed before: KeyError: 'x' | in pager.py; it was mended by changing pager.py."


@pytest.mark.parametrize("events", [
    (changed("broken.py"), FAILED, FAILED),
    (FAILED, changed("x"), replace(PASSED, gate="lint")),
    (FAILED, changed("x"), replace(PASSED, unit="u2")),
    (FAILED, PASSED),
])  # fmt: skip
def test_what_mends_nothing_teaches_nothing(events: tuple[Event, ...]) -> None:
    assert taught(*recorded(*events)) == {}


def test_streams_do_not_mix() -> None:
    assert taught(*recorded(FAILED), *recorded(changed("x"), PASSED, stream="run/r1/b")) == {}


def test_a_fork_knows_nothing_that_its_source_did_not() -> None:
    """Its copies are told by their causation; what it mends itself is learned."""
    own = recorded(*MENDED)
    copies = tuple(
        replace(item, stream=StreamId("run/r2/a"), position=item.position + 10, causation=item.event_ref)
        for item in own
    )
    assert taught(*own, *copies) == taught(*own)
    live = recorded(changed("x"), FAILED, changed("other.py"), PASSED, stream="run/r2/a")
    later = tuple(replace(item, observed_at_us=10**9) for item in live[2:])
    assert "other.py" in text_of(taught(*own, *copies[:2], *later)["test s1"])


BLOCKED = Blocked(phase="build", unit="u1", cause="code", check="test")
ANSWER = HumanAnswered(run_version=2, verdict=Verdict.RETRY, note=NOTE, actor=NOTE)


def test_attempts_that_were_used_up_leave_a_learning() -> None:
    events = recorded(changed("a.py"), FAILED, changed("b.py"), FAILED, BLOCKED)
    assert text_of(taught(*events)["test s1"]) == "All attempts at this failed before."
    answered = taught(*recorded(FAILED, BLOCKED, ANSWER))
    assert text_of(answered["test s1"], {NOTE: "use\n"}) == (
        "All attempts at this failed before. A person then answered: use"
    )
    assert len(answered) == 1, "the answer is part of it"
    mended = recorded(FAILED, BLOCKED, ANSWER, changed("c.py"), PASSED)
    assert "c.py" in text_of(taught(*mended)["test s1"], {NOTE: ""})


def broken(rule: str = "plan.json") -> ArtifactValidated:
    return ArtifactValidated(ref=ref("plan"), violations=(Violation(rule=rule),), report=NOTE)


def test_a_rule_that_nobody_met_leaves_a_learning() -> None:
    question = HumanRequested(phase="plan", unit="", question_kind=QuestionKind.EXHAUSTED, code="plan.json")
    learning = taught(*recorded(question, ANSWER))["plan.json"]
    assert text_of(learning, {NOTE: "use"}) == "All attempts at this failed before. A person then answered: use"


def test_a_rule_is_a_learning_once_it_was_broken_again() -> None:
    assert taught(*recorded(broken())) == {}
    learning = taught(*recorded(broken(), broken()))["plan.json"]
    texts = {NOTE: json.dumps(["it is no object"])}
    assert text_of(learning, texts, is_repeated=False) == (
        "Earlier replies broke the rule `plan.json`: it is no object"
    )
    assert text_of(learning, texts) == "", "the rework quotes the message already"
    assert taught(*recorded(broken()), rules=MemoryRules(rule_replies=1))


def test_an_answer_is_kept_with_its_question() -> None:
    question = HumanRequested(phase="plan", unit="", question_kind=QuestionKind.APPROVAL, code="size", detail=DIGEST)
    (learning,) = taught(*recorded(question, ANSWER)).values()
    texts = {DIGEST: "Too large?", NOTE: "Split it."}
    assert (learning.kind, learning.layer) == ("answer", "feature")
    assert text_of(learning, texts) == "A person decided earlier. The question: Too large?\nThe answer: Split it."
    approved = replace(ANSWER, note=None)
    assert taught(*recorded(question, approved)) == {}
    (again,) = taught(*recorded(question, ANSWER, question, approved)).values()
    assert text_of(again, texts) == text_of(learning, texts), "what is approved later takes nothing back"


@pytest.mark.parametrize(
    ("answers", "layer"),
    [((NOTE,), "feature"), ((NOTE, NOTE), "project"), ((NOTE, ACTOR), "feature"), ((NOTE, ACTOR, ACTOR), "project")],
    ids=["one", "alike", "another", "the last two"],
)
def test_an_answer_that_people_give_alike_in_two_features_reaches_all(answers: tuple[Digest, ...], layer: str) -> None:
    question = HumanRequested(phase="plan", unit="", question_kind=QuestionKind.APPROVAL, code="size", detail=DIGEST)
    (learning,) = taught(*features(*((question, replace(ANSWER, note=answer)) for answer in answers))).values()
    assert (learning.layer, len(learning.features)) == (layer, len(answers))
    stricter, laxer, stream = MemoryRules(answer_features=3), MemoryRules(project_features=1), (question, ANSWER)
    assert taught(*features(stream, stream), rules=stricter)[learning.key].layer == "feature"
    assert taught(*features(stream), rules=laxer)[learning.key].layer == "project"


def test_the_next_call_asks_for_the_rule_that_was_violated() -> None:
    opened = (*OPENED, PhaseStarted(phase="plan", iteration=1), UnitStarted(phase="plan", unit="", iteration=1))
    state = state_after(*opened, *refused_reply(ref("plan")))
    assert isinstance(state, InPhase)
    assert state.unit_run is not None
    assert failure_of(state.unit_run) == rule_signature("plan.json")


# uses, layers, statuses -----------------------------------------------------------------------------------------------
START, END = UnitStarted(phase="build", unit="u1", iteration=1), UnitCompleted(phase="build", unit="u1")
KEY = "r1/a/build/u1/1/1/agent.builder"


def tells(*names: str, is_repeated: bool = False, **left_out: str) -> ContextComposed:
    return ContextComposed(
        key=KEY,
        learnings=tuple(ComposedLearning(id=name, text=NOTE, is_repeated=is_repeated) for name in names),
        left_out=tuple(LearningLeftOut(id=L1, reason="holdout") for _ in left_out),
    )


HELPED = (START, tells(L1), PASSED, END)
DID_NOT = (START, tells(L1), FAILED, changed("again.py"), PASSED, END)


def features(*streams: tuple[Event, ...]) -> tuple[Recorded[Event], ...]:
    return tuple(item for name, events in enumerate(streams) for item in recorded(*events, stream=f"run/r1/f{name}"))


@pytest.mark.parametrize(("streams", "uses", "status", "layer"), [
    ((MENDED,), (1, 1), "active", "feature"),
    ((MENDED, HELPED), (2, 2), "active", "feature"),
    ((MENDED, MENDED, MENDED), (1, 1), "active", "project"),
    ((MENDED, (*HELPED[:2], *HELPED[1:])), (2, 2), "active", "feature"),
    ((MENDED, HELPED[:3]), (1, 1), "active", "feature"),
    ((MENDED, DID_NOT), (1, 2), "active", "feature"),
    ((MENDED, DID_NOT, DID_NOT), (1, 3), "suppressed", "feature"),
    ((MENDED, (START, FAILED, tells(L1, is_repeated=True), changed("x"), PASSED, END)), (1, 1), "active", "feature"),
    ((MENDED, (START, FAILED, tells(L1, is_repeated=True), FAILED)), (1, 1), "active", "feature"),
    ((MENDED, *[(START, FAILED, tells(L1, is_repeated=True), FAILED)] * 2), (1, 1), "active", "feature"),
    ((MENDED, (START, tells(holdout=""), FAILED, changed("x"), PASSED, END)), (1, 1), "active", "feature"),
], ids=[
    "mended", "helped", "project", "again", "open", "no help", "suppressed", "rework", "vain", "vain twice", "out",
])  # fmt: skip
def test_confidence_is_helped_of_uses(
    streams: tuple[tuple[Event, ...], ...], uses: tuple[int, int], status: str, layer: str
) -> None:
    learning = taught(*features(*streams))["test s1"]
    assert (learning.helped, learning.uses) == uses
    assert (learning.status, learning.layer) == (status, layer)


def test_an_old_learning_expires_and_returns_with_new_rules() -> None:
    now_us = 100 * DAY_US
    assert taught(*recorded(*MENDED), now_us=now_us)["test s1"].status == "expired"
    assert taught(*recorded(*MENDED), now_us=now_us, rules=MemoryRules(expire_days=101))["test s1"].status == "active"


def test_a_decision_of_a_person_wins_and_the_last_counts() -> None:
    def decided(*kinds: type[LearningPromoted | LearningArchived]) -> Learning:
        acts = [kind(id=L1, actor=ACTOR, reason=NOTE) for kind in kinds]
        events = *features(MENDED, DID_NOT, DID_NOT, DID_NOT), *recorded(*acts, stream=PROJECT_STREAM)
        return taught(*events)["test s1"]

    assert (decided(LearningPromoted).status, decided(LearningPromoted).layer) == ("active", "project")
    assert decided(LearningPromoted, LearningArchived).status == "archived"
    assert decided(LearningArchived, LearningPromoted).decision is not None


def captured(kind: Kind) -> LearningsCaptured:
    item = CapturedLearning(kind=kind, key="cursor", text=NOTE, tags=("api",))
    return LearningsCaptured(phase="retro", unit="", artifact="lessons", learnings=(item,))


DELIVERED = sample(FeatureDelivered)
GREEN = replace(COMMAND, passed=3)


@pytest.mark.parametrize(("kind", "streams", "verified"), [
    ("pattern", [(GREEN, DELIVERED), (DELIVERED,), (DELIVERED,)], True),
    ("pattern", [(DELIVERED,), (DELIVERED,), (DELIVERED,)], False),
    ("pattern", [(GREEN, DELIVERED), (DELIVERED,)], False),
    ("pattern", [(GREEN, DELIVERED), (DELIVERED,), (DELIVERED,), (sample(FeatureFailed),)], False),
    ("anti_pattern", [(FAILED,), (FAILED,)], True),
    ("anti_pattern", [(FAILED,), (DELIVERED,)], False),
    ("convention", [(GREEN, DELIVERED), (DELIVERED,), (DELIVERED,)], False),
])  # fmt: skip
def test_patterns_are_verified_by_evidence(kind: Kind, streams: list[tuple[Event, ...]], verified: bool) -> None:
    assert taught(*features(*((captured(kind), *events) for events in streams)))["cursor"].verified is verified


@pytest.mark.parametrize(("last", "uses"), [
    ((DELIVERED,), (1, 1)),
    ((sample(FeatureFailed),), (0, 1)),
    ((RolledBack(source="check", to="build"), DELIVERED), (0, 1)),
    ((), (0, 0)),
])  # fmt: skip
def test_a_lesson_helps_where_nothing_was_rolled_back(last: tuple[Event, ...], uses: tuple[int, int]) -> None:
    lesson = learning_id("pattern", "cursor")
    learning = taught(*features((captured("pattern"),), (START, tells(lesson), END, *last)))["cursor"]
    assert (learning.helped, learning.uses) == uses
    assert text_of(learning, {NOTE: "Use a cursor."}) == "Use a cursor."


@given(st.lists(st.sampled_from([*MENDED, *DID_NOT, BLOCKED, ANSWER, broken(), captured("pattern"), DELIVERED])))
def test_any_order_of_events_folds(events: list[Event]) -> None:
    for learning in taught(*recorded(*events)).values():
        assert 0 <= learning.helped <= learning.uses
        assert learning.id == learning_id(learning.kind, learning.key)
        assert text_of(learning, {NOTE: '["text"]', DIGEST: '["text"]'}) is not None


def shared(text: str, kind: str = "convention") -> LearningShared:
    item = CapturedLearning(kind=kind, key="cents", text=Digest(text * 64), phases=("build",))
    return LearningShared(learning=item, project=Digest("d" * 64), actor=ACTOR, reason=NOTE)


ARCHIVED = LearningArchived(id=learning_id("convention", "cents"), actor=ACTOR, reason=NOTE)


def test_a_shared_learning_is_global_and_stays_until_it_is_withdrawn() -> None:
    (learning,) = taught(*recorded(shared("1"), shared("2"), stream=USER_STREAM), now_us=400 * DAY_US).values()
    assert (learning.layer, learning.status, learning.features, learning.phases) == ("global", "active", (), ("build",))
    assert text_of(learning, {Digest("2" * 64): "Totals are in cents."}) == "Totals are in cents.", "the last text"
    assert taught(*recorded(shared("1", "failure"), stream=USER_STREAM))["cents"].layer == "global"
    without = replace(shared("1"), learning=replace(shared("1").learning, phases=()))
    assert taught(*recorded(without, stream=USER_STREAM))["cents"].phases == (), "not of a reviewer, who has no phase"
    assert not taught(*recorded(shared("1"), ARCHIVED, stream=USER_STREAM))
    assert taught(*recorded(shared("1"), ARCHIVED, shared("1"), stream=USER_STREAM))


def offered(project: str, text: str = "1") -> LearningOffered:
    return LearningOffered(learning=shared(text).learning, project=Digest(project * 64))


@pytest.mark.parametrize(("events", "text"), [
    ((offered("a"),), ""),
    ((offered("a"), offered("a", "2")), ""),
    ((offered("a"), offered("b", "2")), "2"),
    ((offered("a"), shared("3")), "3"),
    ((shared("3"), offered("a"), offered("b")), "3"),
    ((offered("a"), offered("b"), ARCHIVED), ""),
    ((offered("a"), offered("b"), ARCHIVED, offered("c")), ""),
], ids=["one", "one twice", "two", "a person", "a person before", "withdrawn", "offered again"])  # fmt: skip
def test_what_two_projects_offer_is_global(events: tuple[Event, ...], text: str) -> None:
    learned = taught(*recorded(*events, stream=USER_STREAM)).values()
    assert [(item.layer, item.evidence[0].text) for item in learned] == [("global", text * 64)] * bool(text)


def test_what_a_project_learned_itself_is_quoted_before_what_was_shared_with_it() -> None:
    item = CapturedLearning(kind="convention", key="cents", text=Digest("3" * 64))
    stated = recorded(LearningsCaptured(phase="build", unit="", artifact="lessons", learnings=(item,)))
    both = *stated, *recorded(shared("1"), stream=USER_STREAM)
    (learning,) = taught(*both).values()
    assert (learning.layer, len(learning.features)) == ("global", 1)
    assert text_of(learning, {Digest("3" * 64): "Cents."}) == "Convention: Cents."
    assert taught(*both, *recorded(ARCHIVED, stream=PROJECT_STREAM))["cents"].status == "archived"


def test_ids_are_stable() -> None:
    assert learning_id("failure", "test s1") == "L-" + sha256(b"failure\0test s1").hexdigest()[:10]
