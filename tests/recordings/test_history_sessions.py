"""A past run in sessions, through today's core: as recorded, and a session that ends otherwise is found."""

from __future__ import annotations

import pytest
from mz_events.catalog.call import AgentRequested, AgentSwitched, SessionBroken, SessionEnd

from tests.support.pasts import Past, edited, index_of, renumbered, talking_past


@pytest.fixture(scope="module")
def past() -> Past:
    return talking_past()


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "recomputed"])
@pytest.mark.parametrize("feature", "abc")
def test_what_nobody_changed_is_as_recorded(past: Past, feature: str, answered: bool) -> None:
    replayed = past.replay(past.stream(feature), answered)
    assert replayed.divergences == ()
    assert (replayed.unfollowed, dict(replayed.left)) == (0, {})


def test_the_past_has_every_way_in_which_a_session_goes_on_and_ends(past: Past) -> None:
    log = [one.event for one in past.world.store.log]
    ends = {event.reason for event in log if isinstance(event, SessionBroken)}
    assert {SessionEnd.ROLLBACK, SessionEnd.MISSING, SessionEnd.FAILED, SessionEnd.LOST} <= ends
    assert any(isinstance(event, AgentSwitched) for event in log)
    assert any(isinstance(event, AgentRequested) and event.resumes for event in log)


def test_a_session_that_today_would_end_is_found(
    past: Past,
) -> None:
    """The record says that a session ended, and today's code goes on in it."""
    events = past.stream("a")
    at = index_of(events, SessionBroken)
    shorter = renumbered([*events[:at], *events[at + 1 :]])
    for answered in (True, False):
        found = past.replay(shorter, answered).divergences
        assert found
        assert found[0].produced == "session.broken"


def test_another_reason_is_found(past: Past) -> None:
    events = past.stream("a")
    at = index_of(events, SessionBroken)
    other = edited(events, at, reason=SessionEnd.FORK)
    for answered in (True, False):
        found = past.replay(other, answered).divergences
        assert [one.place for one in found][:1] == [f"run/r1/a@{at + 1}"]
