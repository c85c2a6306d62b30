"""What the log knows about failures and what mended them."""

from __future__ import annotations

from msgspec.structs import replace
from mz_events.catalog.feature import Blocked, HumanAnswered, HumanRequested, PhaseStarted, QuestionKind, UnitStarted
from mz_events.catalog.run import Verdict
from mz_events.catalog.validation import Change, ChangesChecked
from mz_events.names import Digest, Path, StreamId
from mz_projections.failure_hints import Learning, learnings, prompt_hint, rule_signature
from mz_projections.feature.state import InPhase
from mz_projections.feature.unit import failure_of

from tests.support.steps import BASE, OPENED, gate, recorded, ref, refused_reply, state_after

FAILED = replace(gate("test", False), signature="s1")
PASSED = gate("test", True)


def changed(path: str) -> ChangesChecked:
    return ChangesChecked(ref=ref("code"), tree=BASE, changes=(Change(path=Path(path), kind="modified"),))


def test_what_passed_the_gate_after_a_failure_is_remembered() -> None:
    events = recorded(changed("broken.py"), FAILED, changed("mended.py"), PASSED)
    assert learnings(events) == {"s1": Learning(fix=(Path("mended.py"),))}
    assert "mended.py" in (prompt_hint("s1", events, str) or "")
    assert prompt_hint("s2", events, str) is None


def test_a_failure_that_was_never_mended_has_no_remedy() -> None:
    assert learnings(recorded(changed("broken.py"), FAILED, FAILED)) == {}


def test_another_gate_or_another_cell_mends_nothing() -> None:
    other_gate = replace(PASSED, gate="lint")
    other_cell = replace(PASSED, unit="u2")
    assert learnings(recorded(FAILED, changed("x"), other_gate, other_cell)) == {}


def test_streams_do_not_mix() -> None:
    first = recorded(FAILED)
    second = recorded(changed("x"), PASSED, stream="run/r1/b")
    assert learnings((*first, *second)) == {}


def test_a_fork_knows_nothing_that_its_source_did_not() -> None:
    """Its copies are told by their causation; what it mends itself is learned."""
    own = recorded(FAILED, changed("mended.py"), PASSED)
    copies = tuple(
        replace(item, stream=StreamId("run/r2/a"), position=item.position + 10, causation=item.event_ref)
        for item in own
    )
    assert learnings((*own, *copies)) == learnings(own)
    live = recorded(FAILED, changed("other.py"), PASSED, stream="run/r2/a")
    assert learnings((*own, *copies[:1], *live[1:])) == {"s1": Learning(fix=(Path("other.py"),))}


NOTE = Digest("e" * 64)
BLOCKED = Blocked(phase="build", unit="u1", cause="code", check="test")
ANSWER = HumanAnswered(run_version=2, verdict=Verdict.RETRY, note=NOTE, actor=NOTE)


def test_attempts_that_were_used_up_leave_a_learning() -> None:
    events = recorded(changed("a.py"), FAILED, changed("b.py"), FAILED, BLOCKED)
    assert prompt_hint("s1", events, str) == "All attempts at this failed before."
    answered = recorded(FAILED, BLOCKED, ANSWER)
    assert prompt_hint("s1", answered, {NOTE: "use\n"}.__getitem__) == (
        "All attempts at this failed before. A person then answered: use"
    )
    mended = recorded(FAILED, BLOCKED, ANSWER, changed("c.py"), PASSED)
    assert learnings(mended) == {"s1": Learning(fix=(Path("c.py"),), exhausted=True, note=NOTE)}
    assert "c.py" in (prompt_hint("s1", mended, str) or "")


def test_rules_that_nobody_met_leave_a_learning() -> None:
    question = HumanRequested(phase="plan", unit="", question_kind=QuestionKind.EXHAUSTED, code="plan.json")
    events = recorded(question, ANSWER)
    assert learnings(events) == {rule_signature("plan.json"): Learning(exhausted=True, note=NOTE)}
    assert learnings(recorded(replace(question, question_kind=QuestionKind.RETRIES), ANSWER)) == {}


def test_the_next_call_asks_for_the_rule_that_was_violated() -> None:
    opened = (*OPENED, PhaseStarted(phase="plan", iteration=1), UnitStarted(phase="plan", unit="", iteration=1))
    state = state_after(*opened, *refused_reply(ref("plan")))
    assert isinstance(state, InPhase)
    assert state.unit_run is not None
    assert failure_of(state.unit_run) == rule_signature("plan.json")
