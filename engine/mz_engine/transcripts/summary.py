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
from mz_projections.usage import TOKEN_FIELDS, add_usage, sum_all, sum_by_model

from mz_engine.agents.reading.records import (
    NOTES,
    REPORTS_FIELD,
    AssistantText,
    CostReported,
    Format,
    ModelRequest,
    Note,
    SessionInfo,
    StreamEnd,
    ToolUse,
    TranscriptRecord,
    UndecodableLine,
    UnknownLine,
    UserPrompt,
)


def includes_previous_end(end: StreamEnd, previous: StreamEnd, input_tokens: int) -> bool:
    """Return True if an end's money and totals include those of the previous end in the same session. A file may hold
    the output of several processes one after the other: then numbers fall, or are not enough for the input tokens of
    the requests since the process started."""
    if end == previous:
        return True
    is_cumulative = end.cumulative and previous.cumulative and input_tokens > 0
    if not is_cumulative or (end.reported_nanousd or 0) < (previous.reported_nanousd or 0):
        return False
    sums, nothing = sum_by_model(end.usage), Usage(model="", input=0, output=0)
    return not sums or (
        sum(usage.input for usage in sums.values()) >= input_tokens
        and all(
            sums.get(model, nothing).input >= usage.input and sums.get(model, nothing).output >= usage.output
            for model, usage in sum_by_model(previous.usage).items()
        )
    )


Status: TypeAlias = Literal["success", "error", "no-terminal"]
SINCE_US, UNTIL_US = 1_577_836_800_000_000, 4_102_444_800_000_000
"""2020 and 2100."""
LIFETIME = "cache-lifetime"
UNKNOWN_MAX = 20
"""Number of unknown line types that are listed by name."""
TEXT_MAX = 10 * 1024 * 1024
"""Limit in characters of the text of one turn."""


class UsageAtTime(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens to be priced together."""

    usage: Usage
    at_us: int | None


class TranscriptSummary(msgspec.Struct, frozen=True, kw_only=True):
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
    usages: tuple[UsageAtTime, ...]
    """All tokens of the file, each counted once."""
    unreported_fields: tuple[str, ...]
    """Fields of Usage that the format does not contain."""
    requests: int
    prompts: int
    tools: dict[str, int]
    reported_nanousd: int | None
    final_text: str | None
    lines: int
    bad_lines: int
    unknown_lines: dict[str, int]
    notes: tuple[str, ...]
    """Codes of `records.NOTES`, in the order of that table."""


class SummaryBuilder:
    """Fold of a transcript's records: call `add` for each, and `transcript` at any time."""

    def __init__(self, form: Format) -> None:
        self._format = form
        self._session_info = SessionInfo()
        self._sessions: set[str] = set()
        self._requests: dict[str, ModelRequest] = {}
        self._process_input = self._input_since_end = 0
        """Input tokens since the start of the process whose results are cumulative, and since the last result."""
        self._ids_since_end: set[str] = set()
        self._ends: list[StreamEnd] = []
        """The last end of each process."""
        self._end_count = 0
        self._end_session = ""
        self._cost_reported: CostReported | None = None
        self._texts: list[str] = []
        self._prompts = 0
        self._tools: dict[str, int] = {}
        self._undecodable_lines = 0
        self._unknown_lines: dict[str, int] = {}
        self._note_codes: set[str] = set()
        self._latest_us: int | None = None

    def add(self, record: TranscriptRecord) -> None:
        match record:
            case ModelRequest():
                self._add_request(record)
            case AssistantText():
                self._add_text(record)
            case ToolUse():
                self._tools[record.tool] = self._tools.get(record.tool, 0) + 1
            case UserPrompt():
                self._prompts += 1
                self._add_time(record.at_us)
            case SessionInfo():
                self._add_session_info(record)
            case StreamEnd():
                self._add_end(record)
            case CostReported():
                self._cost_reported = record
            case Note():
                self._note_codes.add(record.code)
            case UnknownLine():
                is_listed = record.type in self._unknown_lines or len(self._unknown_lines) < UNKNOWN_MAX
                name = record.type if is_listed else "others"
                self._unknown_lines[name] = self._unknown_lines.get(name, 0) + 1
            case UndecodableLine():
                self._undecodable_lines += 1

    def _add_time(self, at_us: int | None) -> None:
        if (plausible_us := _plausible_time(at_us)) is not None:
            self._latest_us = max(plausible_us, self._latest_us or plausible_us)

    def _add_session_info(self, info: SessionInfo) -> None:
        if info.session:
            self._sessions.add(info.session)
        previous = self._session_info
        self._session_info = SessionInfo(
            session=info.session or previous.session,
            version=info.version or previous.version,
            cwd=info.cwd or previous.cwd,
            model=info.model or previous.model,
        )
        self._add_time(info.at_us)

    def _add_request(self, request: ModelRequest) -> None:
        self._add_time(request.at_us)
        earlier = self._requests.get(request.id)
        if earlier is None:
            self._process_input += request.usage.input
            self._input_since_end += request.usage.input
        elif _token_total(request.usage) < _token_total(earlier.usage):
            return
        else:
            known_nanousd = (request.reported_nanousd, earlier.reported_nanousd)
            request = replace(
                request,
                at_us=earlier.at_us if request.at_us is None else request.at_us,
                reported_nanousd=next((amount for amount in known_nanousd if amount is not None), None),
                usage=replace(request.usage, subagent=request.usage.subagent and earlier.usage.subagent),
            )
        self._ids_since_end.add(request.id)
        self._requests[request.id] = request

    def _add_text(self, record: AssistantText) -> None:
        if not record.continues:
            self._texts = []
        if sum(map(len, self._texts)) < TEXT_MAX:
            self._texts.append(record.text)

    # ends -------------------------------------------------------------------------------------------------------------
    def _add_end(self, end: StreamEnd) -> None:
        self._end_count += 1
        is_same_session = self._session_info.session == self._end_session
        if self._ends and is_same_session and includes_previous_end(end, self._ends[-1], self._process_input):
            self._ends[-1] = end
        else:
            self._ends.append(end)
            self._process_input = self._input_since_end
        self._input_since_end = 0
        self._ids_since_end.clear()
        self._end_session = self._session_info.session

    def _reported_sums(self) -> dict[str, Usage]:
        """Return the totals that the agent reports, plus the requests after the last report."""
        if self._ends:
            later = [request.usage for id_, request in self._requests.items() if id_ in self._ids_since_end]
            return sum_by_model([*(usage for end in self._ends for usage in end.usage), *later])
        return sum_by_model(self._cost_reported.usage if self._cost_reported is not None else ())

    # result -----------------------------------------------------------------------------------------------------------
    def build(self) -> TranscriptSummary:
        """Return the summary of the records so far."""
        requests = tuple(self._requests.values())
        usages, notes = self._usages(requests)
        last = self._ends[-1] if self._ends else None
        text = last.text if last is not None and last.text is not None else "".join(self._texts) or None
        models = dict.fromkeys(entry.usage.model for entry in usages if entry.usage.model)
        requested_models = (self._session_info.model,) if self._session_info.model else ()
        return TranscriptSummary(
            agent=self._format.agent,
            format=self._format.name,
            version=self._session_info.version or None,
            session=self._session_info.session or None,
            cwd=self._session_info.cwd or None,
            status=last.status if last is not None else "no-terminal",
            detail=_error_detail(last) if last is not None else "",
            models=tuple(models) or requested_models,
            usages=usages,
            unreported_fields=self._unreported_fields(usages, notes),
            requests=len(requests),
            prompts=self._prompts,
            tools=dict(self._tools),
            reported_nanousd=self._reported_nanousd(requests),
            final_text=text,
            lines=0,
            bad_lines=self._undecodable_lines,
            unknown_lines=dict(self._unknown_lines),
            notes=tuple(code for code in NOTES if code in {*notes, *self._notes(usages)}),
        )

    def _usages(self, requests: Iterable[ModelRequest]) -> tuple[tuple[UsageAtTime, ...], set[str]]:
        """Return all tokens, each once, and the codes of notes about how they were computed."""
        entries = [
            UsageAtTime(usage=request.usage, at_us=_plausible_time(request.at_us) or self._latest_us)
            for request in requests
        ]
        notes: set[str] = set()
        lifetimes = all(end.has_cache_lifetimes for end in self._ends)
        by_request = sum_by_model(request.usage for request in self._requests.values())
        for model, sums in self._reported_sums().items():
            reported = replace(sums, requests=None, subagent="", tier="")
            counted = by_request.get(model, Usage(model=model, input=0, output=0))
            difference = _difference(reported, counted)
            if difference is None and _token_total(reported) <= _token_total(counted):
                notes.add("result-short")
            elif difference is None:
                entries = [entry for entry in entries if entry.usage.model != model]
                entries.append(UsageAtTime(usage=reported, at_us=self._latest_us))
                notes |= {"hidden-requests", "per-call"} | (set() if lifetimes else {LIFETIME})
            elif _token_total(difference):
                request_count = None if _token_total(counted) else self._reported_request_count(model)
                entries.append(UsageAtTime(usage=replace(difference, requests=request_count), at_us=self._latest_us))
                notes |= {"stub-output"} if _token_total(counted) and not difference.input else {"per-call"}
                notes |= {"hidden-requests"} if self._requests and difference.input else set()
                cache_writes = difference.cache_write_5m + difference.cache_write_1h
                notes |= {LIFETIME} if cache_writes and not lifetimes else set()
        return tuple(entry for entry in entries if _token_total(entry.usage)), notes

    def _reported_request_count(self, model: str) -> int | None:
        """Return the number of requests in the ends' totals of a model; None if unknown."""
        return sum_all(usage.requests for end in self._ends for usage in end.usage if usage.model == model)

    def _reported_nanousd(self, requests: Iterable[ModelRequest]) -> int | None:
        """Return the reported money: of the processes' ends, else of the session, else of all requests; None if any
        part is unknown."""
        if self._ends:
            amounts = [end.reported_nanousd for end in self._ends]
        elif self._cost_reported is not None:
            amounts = [self._cost_reported.reported_nanousd]
        else:
            amounts = [request.reported_nanousd for request in requests if _token_total(request.usage)]
        total = sum_all(amounts)
        # A killed call may end in a result full of zeros, which does not mean that its tokens were free.
        return total or (None if any(_token_total(request.usage) for request in self._requests.values()) else total)

    def _unreported_fields(self, usages: tuple[UsageAtTime, ...], notes: set[str]) -> tuple[str, ...]:
        """Return the fields of Usage that no line reports: unknown, not zero."""
        names = [name for name in self._format.unreported_fields if f"{REPORTS_FIELD}{name}" not in self._note_codes]
        if LIFETIME in self._note_codes | notes:
            names.append("cache_write_1h")
        return tuple(name for name in names if not any(getattr(entry.usage, name) for entry in usages))

    def _notes(self, usages: tuple[UsageAtTime, ...]) -> Iterator[str]:
        yield from (code for code in self._note_codes if not code.startswith(REPORTS_FIELD))
        if self._unknown_lines:
            yield "unknown-lines"
        if not self._ends:
            yield "session-log" if self._format.is_session_log else "no-terminal"
        elif self._ends[-1].status == "error":
            yield "error"
        if self._end_count > 1:
            yield "several-ends"
        if len(self._sessions) > 1:
            yield "several-sessions"
        if any(entry.usage.subagent for entry in usages):
            yield "sub-agents"
        if not usages:
            yield "no-usage"
        elif not all(entry.usage.model for entry in usages):
            yield "no-model"
        if usages and any(entry.at_us is None for entry in usages):
            yield "no-times"
        if self._cost_reported is not None and not self._ends and self._cost_reported.reported_nanousd is not None:
            yield "reported-elsewhere"


def usage_totals(transcript: TranscriptSummary) -> dict[str, int | None]:
    """Return `usage` of mz.transcript/1; None for a field that the file does not report."""
    sums = {name: sum(getattr(entry.usage, name) for entry in transcript.usages) for name in TOKEN_FIELDS}
    return {
        name: None if not transcript.usages or name in transcript.unreported_fields else sums[name]
        for name in TOKEN_FIELDS
    }


def _error_detail(end: StreamEnd) -> str:
    return end.detail or (next(iter(end.stop_reasons), "") if end.status == "error" else "")


def _plausible_time(at_us: int | None) -> int | None:
    """Return the time if it is plausible, else None."""
    return at_us if at_us is not None and SINCE_US <= at_us < UNTIL_US else None


def _token_total(usage: Usage) -> int:
    return usage.input + usage.output


def _difference(reported: Usage, counted: Usage) -> Usage | None:
    """Return what is reported beyond what was counted; None if anything is reported lower. If the report does not
    distinguish cache writes by lifetime, the lifetimes of the requests apply."""
    cache_writes = reported.cache_write_5m + reported.cache_write_1h
    hour = reported.cache_write_1h or min(counted.cache_write_1h, cache_writes)
    reasoning = max(reported.reasoning, counted.reasoning)
    with_lifetimes = replace(reported, cache_write_5m=cache_writes - hour, cache_write_1h=hour, reasoning=reasoning)
    difference = add_usage(with_lifetimes, counted, -1)
    return difference if min(getattr(difference, name) for name in TOKEN_FIELDS) >= 0 else None
