"""Savings by continued sessions: estimated for one run, or measured against a run of the same work.

Within one run only prompts can be compared: the size of each as sent, and of the full prompt. Effects on what agents
read again and on a provider's cache only show against another run of the same features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.call import SessionDropped
from mz_events.envelope import Recorded

from mz_projections.cost.totals import totals
from mz_projections.feature.calls import Call, paid_calls


class SessionCalls(msgspec.Struct, frozen=True):
    """Calls and dropped sessions of one feature, or of a run."""

    name: str
    calls: tuple[Call, ...] = ()
    dropped: Counter[str] = msgspec.field(default_factory=Counter)
    """Dropped sessions, by reason."""

    @property
    def continued(self) -> tuple[Call, ...]:
        """The calls that continued a session."""
        return tuple(call for call in self.calls if call.continued_prompt)

    @property
    def sessions_kept(self) -> int:
        """Sessions started to be continued."""
        return sum(call.keeps_session and not call.continued_prompt for call in self.calls)

    @property
    def sent_tokens(self) -> int:
        """Estimate: the prompts of continued calls, as sent."""
        return sum(call.continued_prompt[0] for call in self.calls if call.continued_prompt)

    @property
    def full_prompt_tokens(self) -> int:
        """Estimate: the full prompts of the same calls."""
        return sum(call.continued_prompt[1] for call in self.calls if call.continued_prompt)

    @property
    def calls_without_usage(self) -> int:
        return sum(not call.usage for call in self.calls)


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, without (`before`) and with (`after`) continued sessions."""

    figure: str
    before: int
    after: int

    @property
    def percent(self) -> float | None:
        """Positive: saved. None: nothing to save."""
        return None if self.before == 0 else 100 * (self.before - self.after) / self.before


def session_calls(events: Iterable[Recorded[Event]]) -> tuple[SessionCalls, ...]:
    """Return the calls by feature, in the order of their first calls. Events copied by a fork are ignored."""
    own_events = [recorded for recorded in events if not recorded.is_forked_copy]
    features: dict[str, list[Call]] = {}
    for call in paid_calls(own_events):
        features.setdefault(call.feature, []).append(call)
    dropped: dict[str, Counter[str]] = {}
    for recorded in own_events:
        if isinstance(event := recorded.event, SessionDropped):
            dropped.setdefault(recorded.stream.rpartition("/")[2], Counter())[event.reason.value] += 1
    return tuple(SessionCalls(name, tuple(calls), dropped.get(name, Counter())) for name, calls in features.items())


def sum_sessions(name: str, features: Iterable[SessionCalls]) -> SessionCalls:
    parts = tuple(features)
    calls = tuple(call for part in parts for call in part.calls)
    return SessionCalls(name, calls, sum((part.dropped for part in parts), Counter()))


def estimated_saving(session: SessionCalls) -> Saving:
    """Return the saving on prompts that continued a session: as sent against the full prompts."""
    return Saving(figure="prompts", before=session.full_prompt_tokens, after=session.sent_tokens)


def measured_savings(session: SessionCalls, baseline: SessionCalls) -> tuple[Saving, ...]:
    """Return the savings on the same work: with sessions against calls that each started anew."""
    before, after = _figures(baseline), _figures(session)
    return tuple(Saving(figure=figure, before=before[figure], after=after[figure]) for figure in before)


def _figures(session: SessionCalls) -> dict[str, int]:
    sums = totals(session.calls)
    return {
        "input": sums.input or 0,
        "new input": (sums.input or 0) - (sums.cache_read or 0),
        "cache reads": sums.cache_read or 0,
        "output": sums.output or 0,
        "money": sums.charged_nanousd or 0,
        "calls": sums.calls,
    }
