"""Savings by continued sessions: estimated for one run, or measured against a run of the same work.

Within one run only prompts can be compared: the size of each as sent, and of the full prompt. Effects on what agents
read again and on a provider's cache only show against another run of the same features.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallSettled, ReplyRead, SessionBroken, Usage
from mz_events.envelope import Recorded


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of calls, as reported by their agents."""

    input: int = 0
    """All model input over all requests, including repeated and cached input."""
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    nanousd: int = 0
    """Charged to budgets."""

    @property
    def new(self) -> int:
        """Uncached input."""
        return self.input - self.cache_read


class Continued(msgspec.Struct, frozen=True, kw_only=True):
    """Continued calls and sessions of one feature, or of a run."""

    name: str
    calls: int = 0
    continued: int = 0
    """Calls that continued a session."""
    kept: int = 0
    """Sessions started to be continued."""
    broken: dict[str, int] = {}
    """Dropped sessions, by reason."""
    sent_tokens: int = 0
    """Estimate: the prompts of continued calls, as sent."""
    whole_tokens: int = 0
    """Estimate: the full prompts of the same calls."""
    unread: int = 0
    """Calls with unknown usage, missing in `usage`."""
    used: Used = Used()


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, without (`before`) and with (`after`) continued sessions."""

    figure: str
    before: int
    after: int

    @property
    def percent(self) -> float | None:
        """Positive: saved. None: nothing to save."""
        return None if self.before == 0 else 100 * (self.before - self.after) / self.before


def continued(events: Iterable[Recorded[Event]]) -> tuple[Continued, ...]:
    """Return the sessions by feature, in the order of their first calls. Events copied by a fork are ignored."""
    found: dict[str, Continued] = {}
    reads: dict[str, tuple[str, ReplyRead]] = {}
    for recorded in events:
        if recorded.copied:
            continue
        name = recorded.stream.rpartition("/")[2]
        match recorded.event:
            case ReplyRead() as read:
                reads[read.ref.key] = name, read
            case AgentRequested() | SessionBroken() | CallSettled() as event if recorded.stream.count("/") > 1:
                found[name] = _counted(found.get(name) or Continued(name=name), event)
    for name, read in reads.values():
        one = found.get(name) or Continued(name=name)
        used = _with(one.used, read.usage)
        found[name] = replace(one, used=used, unread=one.unread - bool(read.usage))
    return tuple(found.values())


def _counted(one: Continued, event: AgentRequested | SessionBroken | CallSettled) -> Continued:
    match event:
        case CallSettled(nanousd=nanousd):
            return replace(one, used=replace(one.used, nanousd=one.used.nanousd + nanousd))
        case SessionBroken(reason=reason):
            return replace(one, broken={**one.broken, reason.value: one.broken.get(reason.value, 0) + 1})
    one = replace(one, calls=one.calls + 1, unread=one.unread + 1)
    if event.resumes and event.prompt_tokens is not None and event.whole_tokens is not None:
        return replace(
            one,
            continued=one.continued + 1,
            sent_tokens=one.sent_tokens + event.prompt_tokens,
            whole_tokens=one.whole_tokens + event.whole_tokens,
        )
    return replace(one, kept=one.kept + event.kept)


def _with(used: Used, usage: tuple[Usage, ...]) -> Used:
    return replace(
        used,
        input=used.input + sum(one.input for one in usage),
        cache_read=used.cache_read + sum(one.cache_read for one in usage),
        cache_write=used.cache_write + sum(one.cache_write_5m + one.cache_write_1h for one in usage),
        output=used.output + sum(one.output for one in usage),
    )


def together(name: str, parts: Iterable[Continued]) -> Continued:
    """Return the sum."""
    total = Continued(name=name)
    for one in parts:
        broken = dict(total.broken)
        for reason, times in one.broken.items():
            broken[reason] = broken.get(reason, 0) + times
        total = Continued(
            name=name,
            calls=total.calls + one.calls,
            continued=total.continued + one.continued,
            kept=total.kept + one.kept,
            broken=broken,
            sent_tokens=total.sent_tokens + one.sent_tokens,
            whole_tokens=total.whole_tokens + one.whole_tokens,
            unread=total.unread + one.unread,
            used=_sum(total.used, one.used),
        )
    return total


def _sum(one: Used, other: Used) -> Used:
    return Used(**{name: getattr(one, name) + getattr(other, name) for name in Used.__struct_fields__})


def estimated(one: Continued) -> Saving:
    """Return the saving on prompts that continued a session: as sent against the full prompts."""
    return Saving(figure="prompts", before=one.whole_tokens, after=one.sent_tokens)


def measured(one: Continued, baseline: Continued) -> tuple[Saving, ...]:
    """Return the savings on the same work: with sessions against calls that each started anew."""
    mine, theirs = one.used, baseline.used
    figures = (
        ("input", theirs.input, mine.input),
        ("new input", theirs.new, mine.new),
        ("cache reads", theirs.cache_read, mine.cache_read),
        ("output", theirs.output, mine.output),
        ("money", theirs.nanousd, mine.nanousd),
        ("calls", baseline.calls, one.calls),
    )
    return tuple(Saving(figure=figure, before=before, after=after) for figure, before, after in figures)
