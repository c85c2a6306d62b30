"""Every event has its line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import NODEFAULT
from msgspec.structs import fields, replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied, AgentRequested, CallReserved, ReplyParsed
from mz_events.catalog.feature import (
    Blocked,
    FeatureHeld,
    FeatureStarted,
    HoldReleased,
    HumanAnswered,
    HumanRequested,
    QuestionKind,
    UnitCompleted,
)
from mz_events.catalog.inbox import CancelPosted
from mz_events.catalog.run import FeatureOutcome, FeatureStopped, Hold
from mz_events.catalog.validation import ArtifactValidated, CommandRan, GateChecked, Violation
from mz_events.codec import ALL_EVENTS, type_of
from mz_events.names import Commit, Digest, run_stream
from mz_events.store import Recorded
from mz_projections.views.timeline import DESCRIPTIONS, describe, timeline

from tests.support.samples import sample, samples


def test_every_event_type_has_words() -> None:
    assert set(DESCRIPTIONS) == set(ALL_EVENTS)


@pytest.mark.parametrize("event", samples(), ids=type_of)
def test_words_are_one_line_with_names_in_it_also_where_fields_are_left_at_their_defaults(event: Event) -> None:
    text = describe(event)
    assert text.strip() == text
    assert text
    assert "  " not in text
    assert len(text) < 300
    for line in (text, describe(replace(event, **dict(defaults(type(event)))))):
        assert "\n" not in line
        assert "None" not in line


def defaults(kind: type[Event]) -> Iterator[tuple[str, object]]:
    for field in fields(kind):
        if field.default is not NODEFAULT:
            yield field.name, field.default


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (sample(UnitCompleted), "phase/unit"),
        (replace(sample(UnitCompleted), unit=""), "phase"),
        (replace(sample(FeatureStopped), status=FeatureOutcome.HELD, code=None), "feat-001 stopped: held (timer)"),
        (
            replace(sample(FeatureStopped), status=FeatureOutcome.CANCELLED, code="checkpoint", hold=None),
            "feat-001 stopped: cancelled",
        ),
        (
            replace(sample(HumanRequested), question_kind=QuestionKind.APPROVAL, code="checkpoint", codes=(), unit=""),
            "phase: question to a person, approval",
        ),
        (sample(HumanAnswered), sample(HumanAnswered).verdict.value),
        (replace(sample(FeatureHeld), hold=Hold.TIMER, code="", template="", line=None), "by a timer"),
        (replace(sample(HoldReleased), hold=Hold.TIMER), "no longer held by a timer"),
        (
            replace(sample(GateChecked), passed=False, judged_by="", violations=(Violation(rule="gate"),)),
            "phase/unit: gate gate failed",
        ),
        (
            replace(sample(FeatureStopped), status=FeatureOutcome.DELIVERED, code=None, hold=None),
            "feat-001 stopped: delivered",
        ),
        (
            replace(sample(FeatureStarted), starts_from=tuple(Commit(f"{n}" * 40) for n in range(1, 6))),
            "branch branch for target from 11111111, 22222222, 33333333 and 2 more",
        ),
        (replace(sample(CallReserved), nanousd=None), "unpriced reserved for key"),
        (replace(sample(CallReserved), nanousd=1_234_500_000), "$1.2345 reserved for key"),
        (
            replace(sample(AgentReplied), exit=None, duration_ms=7),
            "phase/unit iteration 9 attempt 7 (role): exit unknown, salvaged after 7 ms",
        ),
        (
            replace(sample(CommandRan), exit=None, passed=None, unit="", new_failures=None),
            "setup name phase: killed at its time limit, 11 ms",
        ),
        (
            replace(sample(CommandRan), exit=0, passed=None, unit="", new_failures=None),
            "setup name phase: exit 0, 11 ms, for environment environment",
        ),
        (
            replace(
                sample(GateChecked),
                passed=False,
                judged_by="",
                violations=(Violation(rule="test"), Violation(rule="lint", path="a.py")),
            ),
            "phase/unit: gate gate failed: test, lint a.py",
        ),
        (replace(sample(ArtifactValidated), violations=()), "phase/unit iteration 9 attempt 7 (role): valid"),
        (
            replace(sample(ReplyParsed), usage=(), reported_nanousd=None, problem=None),
            "phase/unit iteration 9 attempt 7 (role): ending, tokens unknown, reported unpriced",
        ),
        (replace(sample(Blocked), path=""), "phase/unit: check, cause cause"),
        (replace(sample(CancelPosted), feature=None), "cancel the run"),
    ],
)
def test_words_of(event: Event, text: str) -> None:
    assert describe(event) == text


def test_a_prompt_that_goes_on_is_told_from_a_whole_one() -> None:
    assert "full prompt" in describe(sample(AgentRequested))
    assert "continued session" in describe(replace(sample(AgentRequested), full_prompt=False))


def test_the_line_has_time_place_and_type() -> None:
    recorded = Recorded(run_stream("r"), 3, 9, 1000, 999, sample(UnitCompleted), "")
    (line,) = timeline([recorded])
    assert (line.recorded_at_us, line.event_ref) == (1000, "run/r@3")
    assert (line.type, line.text) == ("unit.completed", "phase/unit")


def test_no_digest_of_prose_stands_in_words() -> None:
    assert not any(Digest("5e" * 32)[:12] in describe(event) for event in samples())
