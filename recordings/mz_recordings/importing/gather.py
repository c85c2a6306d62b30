"""Records of a file segment, collected: each request once, everything else as counts.

Only names and numbers pass; names are sanitised for the log, so that no content of a file can do harm in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.usage import plus

from mz_recordings.importing.names import label, model, name, request_key
from mz_recordings.transcripts.facts import (
    Asked,
    Bad,
    Billed,
    Ended,
    Opened,
    Remark,
    Requested,
    Sighting,
    Unknown,
    Used,
)
from mz_recordings.transcripts.notes import LACKS
from mz_recordings.transcripts.sums import includes

SINCE_US = 946_684_800_000_000
"""2000-01-01: earlier times are invalid."""
UNTIL_US = 7_258_118_400_000_000
"""2200-01-01"""
KINDS_MAX = 200
"""Limit of distinct tools, and of distinct unknown line types, against hostile files."""
SESSIONS_MAX = 10_000
"""Limit of sessions that a file names; branches name a few."""
OTHERS = "others"
NANOUSD_MAX = 1 << 62
"""Limit of what a database row can hold."""
TOKENS_MAX = 10**10
"""Limit for one request, and for all of a call; higher counts are wrong."""


class Seen(msgspec.Struct, gc=False):
    """One request, as the file reports it."""

    at_us: int
    dated: bool
    usage: Usage
    reported_nanousd: int | None


class Gathered(msgspec.Struct):
    """Statistics of one segment of a file; they grow with each record."""

    agent: str
    section: str = ""
    """Session that this section of a stream is about; empty: the first."""
    head: str = ""
    """sha256 of the section's first line."""
    fresh: bool = False
    """True if nothing of the section was read before."""
    part: str | None = None
    """Subagent whose file this is, empty for a main conversation; None: unknown yet. The first record counts, since in
    old versions lines of subagents are among the others."""
    at_us: int = 0
    """Last time in the file; before the first one, a guess."""
    requests: dict[str, Seen] = {}
    """By id, in order of first occurrence."""
    sessions: dict[str, None] = {}
    """Ids that the file names, in order."""
    version: str = ""
    cwd: str = ""
    parent: str = ""
    undated: int = 0
    prompts: int = 0
    tools: dict[str, int] = {}
    failed: int = 0
    lines: int = 0
    bad: int = 0
    unknown: dict[str, int] = {}
    lacks: dict[str, None] = {}
    """Codes of notes that say that tokens are missing."""
    told: dict[str, Usage] = {}
    """Totals at the file's end, by model."""
    reported_nanousd: int | None = None
    """Money at the file's end."""
    before: dict[str, Usage] = {}
    before_nanousd: int | None = None
    """Totals that the processes before the last one reported at their ends."""
    last: Ended | None = None
    session: str = ""
    """Id of the session that was named last."""
    last_session: str = ""
    """Id of the session at the last end."""
    group: int = 0
    since: int = 0
    """Input tokens since the process started, and since the last end."""

    def take(self, sighting: Sighting) -> None:
        """Add a record."""
        TAKING.get(type(sighting), _nothing)(self, sighting)

    def keyed(self) -> dict[str, Seen]:
        """Return the requests by their keys in the log."""
        return {request_key(self.agent, id_): seen for id_, seen in self.requests.items()}


def total(usage: Usage) -> int:
    """Return the token count by which the fuller of two occurrences of a request is chosen."""
    return usage.input + usage.output


def _dated(self: Gathered, at_us: int | None) -> bool:
    if at_us is None or not SINCE_US <= at_us < UNTIL_US:
        return False
    self.at_us = at_us
    return True


def _opened(self: Gathered, seen: Opened) -> None:
    _dated(self, seen.at_us)
    if seen.session:
        self.session = name(seen.session)
        if len(self.sessions) < SESSIONS_MAX:
            self.sessions.setdefault(self.session)
    self.version = name(seen.version) or self.version
    self.cwd = seen.cwd or self.cwd
    self.parent = name(seen.parent) or self.parent
    if self.part is None:
        self.part = label(seen.part)


def _asked(self: Gathered, seen: Asked) -> None:
    _dated(self, seen.at_us)
    self.prompts += 1


def _requested(self: Gathered, seen: Requested) -> None:
    dated = _dated(self, seen.at_us)
    before = self.requests.get(seen.id)
    if before is None:
        self.undated += not dated
        self.group += seen.usage.input
        self.since += seen.usage.input
        self.requests[seen.id] = Seen(self.at_us, dated, fit(seen.usage, self.part or ""), seen.reported_nanousd)
    elif total(seen.usage) > total(before.usage):
        usage = replace(fit(seen.usage, self.part or ""), part=before.usage.part)
        reported = before.reported_nanousd if seen.reported_nanousd is None else seen.reported_nanousd
        self.requests[seen.id] = Seen(before.at_us, before.dated, usage, reported)


def fit(usage: Usage, part: str) -> Usage:
    """Return the usage with sanitised names and with numbers within the limits."""
    names = model(usage.model), label(usage.part) or part, label(usage.tier)
    if (
        0 <= usage.input < TOKENS_MAX and 0 <= usage.output < TOKENS_MAX and 0 <= usage.cache_read < TOKENS_MAX
        and 0 <= usage.cache_write_5m < TOKENS_MAX and 0 <= usage.cache_write_1h < TOKENS_MAX
        and 0 <= usage.reasoning < TOKENS_MAX and names == (usage.model, usage.part, usage.tier)
    ):  # fmt: skip
        return usage
    numbers = (usage.input, usage.output, usage.cache_read, usage.cache_write_5m, usage.cache_write_1h, usage.reasoning)
    input_, output, read, short, long, reasoning = (min(max(number, 0), TOKENS_MAX) for number in numbers)
    return Usage(
        model=names[0], part=names[1], tier=names[2], requests=usage.requests, input=input_, output=output,
        cache_read=read, cache_write_5m=short, cache_write_1h=long, reasoning=reasoning,
    )  # fmt: skip


def _used(self: Gathered, seen: Used) -> None:
    _count(self.tools, label(seen.tool) or OTHERS)
    self.failed += seen.failed


def _ended(self: Gathered, seen: Ended) -> None:
    """Add an end. Totals that include the previous ones replace them; others are added. An end with nothing but zeros
    is that of a killed call: unknown."""
    if not seen.usage and not seen.reported_nanousd:
        return
    end = replace(seen, usage=tuple(fit(usage, self.part or "") for usage in seen.usage), text=None, detail="")
    if self.last is None or not _goes_on(self, end, self.last):
        self.before, self.before_nanousd, self.group = self.told, self.reported_nanousd, self.since
    self.last, self.since, self.last_session = end, 0, self.session
    self.told = dict(self.before)
    for usage in end.usage:
        known = self.told.get(usage.model)
        self.told[usage.model] = usage if known is None else plus(known, usage)
    if end.reported_nanousd is not None:
        self.reported_nanousd = min((self.before_nanousd or 0) + end.reported_nanousd, NANOUSD_MAX)


def _goes_on(self: Gathered, end: Ended, last: Ended) -> bool:
    """Return True if this end replaces the previous one."""
    return self.session == self.last_session and includes(
        end, last, requests=self.group > 0, enough=lambda sums: sum(each.input for each in sums.values()) >= self.group
    )


def _unknown(self: Gathered, seen: Unknown) -> None:
    _count(self.unknown, label(seen.type) or OTHERS)


def _bad(self: Gathered, seen: Bad) -> None:
    self.bad += 1


def _billed(self: Gathered, seen: Billed) -> None:
    """Replace the totals of the session so far."""
    self.told.update((usage.model, usage) for usage in (fit(each, self.part or "") for each in seen.usage))
    if seen.reported_nanousd is not None:
        self.reported_nanousd = seen.reported_nanousd


def _remarked(self: Gathered, seen: Remark) -> None:
    if seen.code in LACKS:
        self.lacks.setdefault(seen.code)


def _nothing(self: Gathered, seen: Sighting) -> None:
    """Ignore text."""


def _count(numbers: dict[str, int], what: str) -> None:
    if what not in numbers and len(numbers) >= KINDS_MAX:
        what = OTHERS
    numbers[what] = numbers.get(what, 0) + 1


TAKING: dict[type[Sighting], Callable[[Gathered, Any], None]] = {
    Opened: _opened,
    Asked: _asked,
    Requested: _requested,
    Used: _used,
    Ended: _ended,
    Unknown: _unknown,
    Bad: _bad,
    Billed: _billed,
    Remark: _remarked,
}
