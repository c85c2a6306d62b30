"""A past run in sessions, through today's core: as recorded, and a session that ends otherwise is found."""

from __future__ import annotations

import pytest
from mz_engine.effects.call import REPLY_TOKENS
from mz_events.catalog.call import AgentRequested, AgentSwitched, SessionDropped, SessionDropReason

from tests.support.pasts import Past, edited, index_of, renumbered, talking_past


@pytest.fixture(scope="module")
def past() -> Past:
    return talking_past()


@pytest.mark.parametrize("feature", "abc")
def test_what_nobody_changed_is_as_recorded(past: Past, feature: str) -> None:
    replayed = past.replay(past.stream(feature))
    assert replayed.divergences == ()
    assert (replayed.not_compared, dict(replayed.not_recomputed)) == (0, {})


def test_the_past_has_every_way_in_which_a_session_goes_on_and_ends(past: Past) -> None:
    log = [recorded.event for recorded in past.world.store.log]
    ends = {event.reason for event in log if isinstance(event, SessionDropped)}
    assert {
        SessionDropReason.ROLLBACK,
        SessionDropReason.MISSING,
        SessionDropReason.FAILED,
        SessionDropReason.LOST,
    } <= ends
    assert any(isinstance(event, AgentSwitched) for event in log)
    requests = [event for event in log if isinstance(event, AgentRequested)]
    assert {(event.resumes, event.counted_tokens is None) for event in requests} == {
        (a, b) for a in (True, False) for b in (True, False)
    }


def test_a_session_that_today_would_end_is_found(past: Past) -> None:
    """The record says that a session ended, and today's code goes on in it."""
    events = past.stream("a")
    at = index_of(events, SessionDropped)
    shorter = renumbered([*events[:at], *events[at + 1 :]])
    result = past.replay(shorter).divergences
    assert result
    assert result[0].produced == "session.dropped"


def test_another_reason_is_found(past: Past) -> None:
    events = past.stream("a")
    at = index_of(events, SessionDropped)
    other = edited(events, at, reason=SessionDropReason.FORK)
    result = past.replay(other).divergences
    assert [divergence.event_ref for divergence in result][:1] == [f"run/r1/a@{at + 1}"]


def test_what_was_counted_is_the_worlds_to_say_and_the_estimate_follows_from_it(past: Past) -> None:
    """Nobody is asked again: another count in the record makes another estimate."""
    events = past.stream("b")
    at = next(
        at
        for at, recorded in enumerate(events)
        if isinstance(recorded.event, AgentRequested) and recorded.event.counted_tokens
    )
    result = past.replay(edited(events, at, counted_tokens=77)).divergences
    assert [divergence.event_ref for divergence in result][:1] == [f"run/r1/b@{at + 1}"]
    produced = {
        event_field_difference.field: event_field_difference.produced
        for event_field_difference in result[0].differences
    }
    assert produced["estimated_tokens"] == str(77 + REPLY_TOKENS)
    assert "counted_tokens" not in produced
