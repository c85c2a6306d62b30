"""Summary of a transcript, folded from its records.

Every request counts once, with the most tokens that any line reports for it. Where the agent reports totals that exceed
the sum of its requests, the difference is added, model by model; where they are lower, the requests count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.usage import NUMBERS

from mz_recordings.transcripts.facts import (
    TELLS,
    Asked,
    Bad,
    Billed,
    Ended,
    Format,
    Opened,
    Remark,
    Requested,
    Said,
    Sighting,
    Unknown,
    Used,
)
from mz_recordings.transcripts.sums import Sums, add, includes, less, parts_of

Status: TypeAlias = Literal["success", "error", "no-terminal"]
SINCE_US, UNTIL_US = 1_577_836_800_000_000, 4_102_444_800_000_000
"""2020 and 2100."""
LIFETIME = "cache-lifetime"
UNKNOWN_MAX = 20
"""Number of unknown line types that are listed by name."""
TEXT_MAX = 10 * 1024 * 1024
"""Limit in characters of the text of one turn."""


class Priced(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens to be priced together."""

    usage: Usage
    at_us: int | None


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a file, before prices."""

    agent: str
    format: str
    version: str | None
    session: str | None
    cwd: str | None
    status: Status
    detail: str
    """The agent's error message."""
    models: tuple[str, ...]
    """Models that replied, in order of appearance; if none did, the requested model."""
    priced: tuple[Priced, ...]
    """All tokens of the file, each counted once."""
    untold: tuple[str, ...]
    """Fields of Usage that the format does not contain."""
    requests: int
    prompts: int
    tools: dict[str, int]
    reported_nanousd: int | None
    final_text: str | None
    lines: int
    bad_lines: int
    unknown: dict[str, int]
    notes: tuple[str, ...]
    """Codes of `notes.NOTES`, in the order of that table."""


class Summary:
    """Fold of a transcript's records: call `add` for each, and `transcript` at any time."""

    def __init__(self, form: Format) -> None:
        self._format = form
        self._opened = Opened()
        self._sessions: set[str] = set()
        self._requests: dict[str, Requested] = {}
        self._group, self._since = Sums(), Sums()
        """Tokens of the requests since the start of the process whose results are cumulative, and since the last
        result."""
        self._ends: list[Ended] = []
        """The last end of each process."""
        self._end_count = 0
        self._end_session = ""
        self._billed: Billed | None = None
        self._said: list[str] = []
        self._prompts = 0
        self._tools: dict[str, int] = {}
        self._bad = 0
        self._unknown: dict[str, int] = {}
        self._remarks: set[str] = set()
        self._latest_us: int | None = None

    def see(self, sighting: Sighting) -> None:
        match sighting:
            case Requested():
                self._note_request(sighting)
            case Said():
                self._note_words(sighting)
            case Used():
                self._tools[sighting.tool] = self._tools.get(sighting.tool, 0) + 1
            case Asked():
                self._prompts += 1
                self._note_time(sighting.at_us)
            case Opened():
                self._note_opened(sighting)
            case Ended():
                self._note_end(sighting)
            case Billed():
                self._billed = sighting
            case Remark():
                self._remarks.add(sighting.code)
            case Unknown():
                known = sighting.type in self._unknown or len(self._unknown) < UNKNOWN_MAX
                name = sighting.type if known else "others"
                self._unknown[name] = self._unknown.get(name, 0) + 1
            case Bad():
                self._bad += 1

    def _note_time(self, at_us: int | None) -> None:
        if (known := _believed(at_us)) is not None:
            self._latest_us = max(known, self._latest_us or known)

    def _note_opened(self, opened: Opened) -> None:
        if opened.session:
            self._sessions.add(opened.session)
        old = self._opened
        self._opened = Opened(
            session=opened.session or old.session,
            version=opened.version or old.version,
            cwd=opened.cwd or old.cwd,
            model=opened.model or old.model,
        )
        self._note_time(opened.at_us)

    def _note_request(self, request: Requested) -> None:
        self._note_time(request.at_us)
        earlier = self._requests.get(request.id)
        if earlier is not None:
            if _size(request.usage) < _size(earlier.usage):
                return
            for sums in (self._group, self._since):
                less(sums, earlier.usage)
            request = replace(
                request,
                at_us=request.at_us if request.at_us is not None else earlier.at_us,
                reported_nanousd=request.reported_nanousd
                if request.reported_nanousd is not None
                else earlier.reported_nanousd,
                usage=replace(request.usage, part=request.usage.part and earlier.usage.part),
            )
        for sums in (self._group, self._since):
            add(sums, request.usage)
        self._requests[request.id] = request

    def _note_words(self, said: Said) -> None:
        if not said.continues:
            self._said = []
        if sum(map(len, self._said)) < TEXT_MAX:
            self._said.append(said.text)

    # ends -------------------------------------------------------------------------------------------------------------
    def _note_end(self, end: Ended) -> None:
        self._end_count += 1
        if self._goes_on(end):
            self._ends[-1] = end
        else:
            self._ends.append(end)
            self._group = Sums(self._since)
        self._since = Sums()
        self._end_session = self._opened.session

    def _goes_on(self, end: Ended) -> bool:
        """Return True if this end replaces the previous one."""
        if not self._ends or self._opened.session != self._end_session:
            return False
        last = self._ends[-1]
        if not (end.cumulative and last.cumulative):
            return False
        return includes(
            end, last, requests=bool(self._requests), enough=lambda sums: sums.holds(self._group, input_only=True)
        )

    def _sums(self) -> Sums:
        """Return the totals that the agent reports, plus the requests after the last report."""
        sums = Sums()
        for end in self._ends:
            for usage in end.usage:
                add(sums, usage)
        if self._ends:
            sums.join(self._since)
        for usage in self._billed.usage if self._billed is not None and not self._ends else ():
            add(sums, usage)
        return sums

    # result -----------------------------------------------------------------------------------------------------------
    def transcript(self) -> Transcript:
        """Return the summary of the records so far."""
        requests = tuple(self._requests.values())
        by_request = Sums()
        for request in requests:
            add(by_request, request.usage)
        priced, notes = self._priced(requests, by_request)
        last = self._ends[-1] if self._ends else None
        text = last.text if last is not None and last.text is not None else "".join(self._said) or None
        models = dict.fromkeys(entry.usage.model for entry in priced if entry.usage.model)
        asked_for = (self._opened.model,) if self._opened.model else ()
        return Transcript(
            agent=self._format.agent,
            format=self._format.name,
            version=self._opened.version or None,
            session=self._opened.session or None,
            cwd=self._opened.cwd or None,
            status=last.status if last is not None else "no-terminal",
            detail=last.detail if last is not None else "",
            models=tuple(models) or asked_for,
            priced=priced,
            untold=self._untold(priced, notes),
            requests=len(requests),
            prompts=self._prompts,
            tools=dict(self._tools),
            reported_nanousd=self._reported(requests),
            final_text=text,
            lines=0,
            bad_lines=self._bad,
            unknown=dict(self._unknown),
            notes=tuple(sorted({*notes, *self._noted(priced)}, key=_order)),
        )

    def _priced(self, requests: Iterable[Requested], by_request: Sums) -> tuple[tuple[Priced, ...], set[str]]:
        """Return all tokens, each once, and the codes of notes about how they were computed."""
        entries = [Priced(usage=each.usage, at_us=_believed(each.at_us) or self._latest_us) for each in requests]
        notes: set[str] = set()
        lifetimes = all(end.lifetimes for end in self._ends)
        for model, told in self._sums().items():
            seen = by_request.of(model)
            rest = told.minus(seen)
            if rest is None and told.size > seen.size:
                entries = [entry for entry in entries if entry.usage.model != model]
                entries.append(Priced(usage=told.usage(model), at_us=self._latest_us))
                notes |= {"hidden-requests", "per-call"} | (set() if lifetimes else {LIFETIME})
            elif rest is None:
                notes.add("result-short")
            elif rest.size:
                usage = replace(rest.usage(model), requests=None if seen.size else self._requests_told(model))
                entries.append(Priced(usage=usage, at_us=self._latest_us))
                notes |= {"stub-output"} if seen.size and not rest.input else {"per-call"}
                notes |= {"hidden-requests"} if self._requests and rest.input else set()
                notes |= {LIFETIME} if rest.written and not lifetimes else set()
        return tuple(entry for entry in entries if _size(entry.usage)), notes

    def _requests_told(self, model: str) -> int | None:
        """Return the number of requests in the ends' totals of a model; None if unknown."""
        told = [usage.requests for end in self._ends for usage in end.usage if usage.model == model]
        known = [requests for requests in told if requests is not None]
        return sum(known) if known and len(known) == len(told) else None

    def _reported(self, requests: Iterable[Requested]) -> int | None:
        """Return the reported money: of the processes' ends, else of the session, else of all requests; None if any
        part is unknown."""
        if self._ends:
            amounts = [end.reported_nanousd for end in self._ends]
        elif self._billed is not None:
            amounts = [self._billed.reported_nanousd]
        else:
            amounts = [each.reported_nanousd for each in requests if _size(each.usage)]
        known = [amount for amount in amounts if amount is not None]
        if not known or len(known) < len(amounts):
            return None
        # A killed call may end in a result full of zeros, which does not mean that its tokens were free.
        return sum(known) or (None if any(_size(each.usage) for each in self._requests.values()) else 0)

    def _untold(self, priced: tuple[Priced, ...], notes: set[str]) -> tuple[str, ...]:
        """Return the fields of Usage that no line reports: unknown, not zero."""
        names = [name for name in self._format.untold if f"{TELLS}{name}" not in self._remarks]
        if LIFETIME in self._remarks | notes:
            names.append("cache_write_1h")
        return tuple(name for name in names if not any(_tells(each, name) for each in priced))

    def _noted(self, priced: tuple[Priced, ...]) -> Iterator[str]:
        yield from (code for code in self._remarks if not code.startswith(TELLS))
        if self._unknown:
            yield "unknown-lines"
        if not self._ends:
            yield "session-log" if self._format.log else "no-terminal"
        elif self._ends[-1].status == "error":
            yield "error"
        if self._end_count > 1:
            yield "several-ends"
        if len(self._sessions) > 1:
            yield "several-sessions"
        if parts_of(entry.usage for entry in priced):
            yield "sub-agents"
        if not priced:
            yield "no-usage"
        elif not all(entry.usage.model for entry in priced):
            yield "no-model"
        if priced and any(entry.at_us is None for entry in priced):
            yield "no-times"
        if self._billed is not None and not self._ends and self._billed.reported_nanousd is not None:
            yield "reported-elsewhere"


def summed(transcript: Transcript) -> dict[str, int | None]:
    """Return `usage` of mz.transcript/1; None for a field that the file does not report."""
    sums = {name: sum(getattr(entry.usage, name) for entry in transcript.priced) for name in NUMBERS}
    return {name: None if not transcript.priced or name in transcript.untold else sums[name] for name in NUMBERS}


def _believed(at_us: int | None) -> int | None:
    """Return the time if it is plausible, else None."""
    return at_us if at_us is not None and SINCE_US <= at_us < UNTIL_US else None


def _size(usage: Usage) -> int:
    return usage.input + usage.output


def _tells(entry: Priced, name: str) -> bool:
    return bool(getattr(entry.usage, name))


def _order(code: str) -> tuple[int, str]:
    from mz_recordings.transcripts.notes import NOTES

    codes = list(NOTES)
    return (codes.index(code) if code in NOTES else len(codes), code)
