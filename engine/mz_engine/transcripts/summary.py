"""Summary of a transcript, folded from its records.

Every request counts once, with the most tokens that any line reports for it. Where the agent reports totals that exceed
the sum of its requests, the difference is added, model by model; where they are lower, the requests count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.usage import TOKEN_FIELDS, sum_all, sum_by_model, usage_since, with_lifetimes

from mz_engine.agents.reading import records
from mz_engine.pricing.models import common_names, rename_models


def includes_previous_end(
    end: records.StreamEnd, previous: records.StreamEnd, input_tokens: int, has_messages: bool = True
) -> bool:
    """Return True if an end's money and totals include those of the previous end in the same session. A file may hold
    the output of several processes one after the other: then numbers fall, or are not enough for the input tokens of
    the requests since the process started, or, if it shows no messages, are those of its turn alone."""
    if end == previous:
        return True
    is_cumulative = end.cumulative and previous.cumulative and input_tokens > 0
    if not is_cumulative or (end.reported_nanousd or 0) < (previous.reported_nanousd or 0):
        return False
    sums, nothing = sum_by_model(end.usage), Usage(model="", input=0, output=0)
    turn_tokens = 0 if has_messages or end.turn_usage is None else token_total(end.turn_usage)
    if turn_tokens and turn_tokens in [
        token_total(sums[usage.model]) for usage in previous.usage if usage.model in sums
    ]:
        return False
    return not sums or (
        sum(usage.input for usage in sums.values()) >= input_tokens
        and all(
            sums.get(model, nothing).input >= usage.input and sums.get(model, nothing).output >= usage.output
            for model, usage in sum_by_model(previous.usage).items()
        )
    )


SINCE_US, UNTIL_US = 946_684_800_000_000, 7_258_118_400_000_000
"""2000 and 2200: other times are invalid."""
LIFETIME = "cache-lifetime"
TOOLS_MAX, UNKNOWN_MAX, SESSIONS_MAX = 200, 20, 10_000
"""Limits of distinct tools, unknown line types and sessions that are listed by name, against hostile files."""
NAME_CHARS_MAX = 1024
"""Limit of each of these names."""
OTHERS = "others"
TEXT_MAX = 10 * 1024 * 1024
"""Limit in characters of the text of one turn."""


class TranscriptStats(msgspec.Struct, kw_only=True):
    """Records of a transcript or of a part of one, collected: each request once, everything else as counts."""

    session: str = ""
    """The one that was named last."""
    sessions: dict[str, None] = {}
    """All that are named, in order."""
    version: str = ""
    cwd: str = ""
    parent: str = ""
    model: str = ""
    """The requested one."""
    subagent: str | None = None
    """Subagent whose file this is, empty for a main conversation; None: unknown yet. The first record counts, since in
    old versions lines of subagents are among the others."""
    at_us: int | None = None
    """The last time."""
    requests: dict[str, records.ModelRequest] = {}
    """By id, in order of first occurrence; each with the most tokens that any line reports for it."""
    undated: set[str] = set()
    """Ids of the requests without a time of their own: they have the last one before them."""
    prompts: int = 0
    tools: dict[str, int] = {}
    failed: int = 0
    texts: list[str] = []
    text_chars: int = 0
    unknown: dict[str, int] = {}
    undecodable_lines: int = 0
    notes: dict[str, None] = {}
    end: records.StreamEnd | None = None
    """The last one."""
    end_count: int = 0
    has_cache_lifetimes: bool = True
    processes: list[list[records.StreamEnd]] = []
    """The ends with totals or money of each process; its last one includes the others."""
    ended_session: str = ""
    process_input: int = 0
    input_since_end: int = 0
    """Input tokens since the start of the process whose results are cumulative, and since the last result."""
    ids_since_end: set[str] = set()
    running_totals: dict[str, Usage] = {}
    """Totals of the session so far by model, in a session log."""
    running_nanousd: int | None = None

    def add(self, record: records.TranscriptRecord) -> None:
        match record:
            case records.ModelRequest():
                self._add_request(record)
            case records.SessionInfo():
                self._set_time(record.at_us)
                if record.session:
                    self.session = record.session
                    if len(self.sessions) < SESSIONS_MAX:
                        self.sessions.setdefault(record.session[:NAME_CHARS_MAX])
                self.version = record.version or self.version
                self.cwd = record.cwd or self.cwd
                self.parent = record.parent or self.parent
                self.model = record.model or self.model
                if self.subagent is None:
                    self.subagent = record.subagent
            case records.AssistantText():
                if not record.continues:
                    self.texts, self.text_chars = [], 0
                if self.text_chars < TEXT_MAX:
                    self.texts.append(record.text)
                    self.text_chars += len(record.text)
            case records.ToolUse():
                _count(self.tools, record.tool, TOOLS_MAX)
                self.failed += record.failed
            case records.UserPrompt():
                self._set_time(record.at_us)
                self.prompts += 1
            case records.StreamEnd():
                self._add_end(record)
            case records.CostReported():
                self.running_totals = {**self.running_totals, **{usage.model: usage for usage in record.usage}}
                if record.reported_nanousd is not None:
                    self.running_nanousd = record.reported_nanousd
            case records.Note():
                self.notes[record.code] = None
            case records.UnknownLine():
                _count(self.unknown, record.type, UNKNOWN_MAX)
            case records.UndecodableLine():
                self.undecodable_lines += 1

    def _set_time(self, at_us: int | None) -> bool:
        """Set the last time; return False if there is none or it is invalid."""
        if at_us is None or not SINCE_US <= at_us < UNTIL_US:
            return False
        self.at_us = at_us
        return True

    def _add_request(self, request: records.ModelRequest) -> None:
        is_dated, earlier = self._set_time(request.at_us), self.requests.get(request.id)
        if earlier is None:
            self.process_input += request.usage.input
            self.input_since_end += request.usage.input
            if not is_dated:
                self.undated.add(request.id)
                request = replace(request, at_us=self.at_us)
        elif _weight(request.usage) <= _weight(earlier.usage):
            if earlier.reported_nanousd is None and request.reported_nanousd is not None:
                self.requests[request.id] = replace(earlier, reported_nanousd=request.reported_nanousd)
            return
        else:
            is_newly_dated = is_dated and request.id in self.undated
            if is_newly_dated:
                self.undated.remove(request.id)
            request = replace(
                request,
                at_us=request.at_us if is_newly_dated else earlier.at_us,
                usage=replace(request.usage, subagent=request.usage.subagent and earlier.usage.subagent),
                reported_nanousd=(
                    earlier.reported_nanousd if request.reported_nanousd is None else request.reported_nanousd
                ),
            )
        self.ids_since_end.add(request.id)
        self.requests[request.id] = request

    def _add_end(self, end: records.StreamEnd) -> None:
        """Add an end. Totals that include those of the end before replace them; others are added. An end with nothing
        but zeros is that of a killed call: unknown."""
        self.end, self.end_count = end, self.end_count + 1
        if not end.usage and not end.reported_nanousd:
            return
        if (
            not self.processes
            or self.session != self.ended_session
            or not includes_previous_end(end, self.processes[-1][-1], self.process_input, bool(self.input_since_end))
        ):
            self.processes.append([])
            self.process_input = self.input_since_end
        self.processes[-1].append(end)
        self.has_cache_lifetimes &= end.has_cache_lifetimes
        self.ended_session, self.input_since_end = self.session, 0
        self.ids_since_end.clear()

    def ended_totals(self) -> dict[str, Usage]:
        """Return the totals by model of all ends."""
        return sum_by_model(usage for ends in self.processes for usage in ends[-1].usage)


def _count(counts: dict[str, int], kind: str, kinds_max: int) -> None:
    kind = kind[:NAME_CHARS_MAX]
    if kind not in counts and len(counts) >= kinds_max:
        kind = OTHERS
    counts[kind] = counts.get(kind, 0) + 1


def token_total(usage: Usage) -> int:
    """Return the token count by which the fuller of two occurrences of a request is chosen."""
    return usage.input + usage.output


def _weight(usage: Usage) -> tuple[int, bool]:
    """Return what decides which occurrence of a request counts: the fuller one, else that of the main conversation."""
    return token_total(usage), not usage.subagent


Status: TypeAlias = Literal["success", "error", "no-terminal"]


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
    tools: dict[str, int]
    reported_nanousd: int | None
    final_text: str | None
    undecodable_lines: int
    unknown_lines: dict[str, int]
    notes: tuple[str, ...]
    """Codes of `records.NOTES`, in the order of that table."""


class SummaryBuilder(TranscriptStats, kw_only=True):
    """Collects a transcript's records: call `add` for each, and `build` at any time."""

    format: records.Format

    def build(self) -> TranscriptSummary:
        """Return the summary of the records so far."""
        usages, notes = self._usages()
        end = self.end
        stop_reason = next(iter(end.stop_reasons), "") if end is not None and end.status == "error" else ""
        models = dict.fromkeys(entry.usage.model for entry in usages if entry.usage.model)
        return TranscriptSummary(
            agent=self.format.agent,
            format=self.format.name,
            version=self.version or None,
            session=self.session or None,
            status=end.status if end is not None else "no-terminal",
            detail=end.detail or stop_reason if end is not None else "",
            models=tuple(models) or ((self.model,) if self.model else ()),
            usages=usages,
            unreported_fields=self._unreported_fields(usages, notes),
            requests=len(self.requests),
            tools=dict(self.tools),
            reported_nanousd=self._reported_nanousd(),
            final_text=end.text if end is not None and end.text is not None else "".join(self.texts) or None,
            undecodable_lines=self.undecodable_lines,
            unknown_lines=dict(self.unknown),
            notes=tuple(code for code in records.NOTES if code in {*notes, *self._notes(usages)}),
        )

    def _usages(self) -> tuple[tuple[UsageAtTime, ...], set[str]]:
        """Return all tokens, each once, and the codes of notes about how they were computed."""
        entries = [
            UsageAtTime(usage=request.usage, at_us=self.at_us if request.at_us is None else request.at_us)
            for request in self.requests.values()
        ]
        notes: set[str] = set()
        requests = [request.usage for request in self.requests.values()]
        totals = self.ended_totals() if self.processes else self.running_totals
        names = common_names(sum_by_model(requests), totals)
        by_request = sum_by_model(rename_models(requests, names))
        later = (self.requests[id_].usage for id_ in self.ids_since_end) if self.processes else ()
        for model, sums in sum_by_model(rename_models((*totals.values(), *later), names)).items():
            reported = replace(sums, requests=None, subagent="", tier="")
            counted = by_request.get(model, Usage(model=model, input=0, output=0))
            difference = _difference(reported, counted)
            if difference is None and token_total(reported) <= token_total(counted):
                notes.add("result-short")
            elif difference is None:
                entries = [entry for entry in entries if names.get(entry.usage.model, "") != model]
                entries.append(UsageAtTime(usage=reported, at_us=self.at_us))
                notes |= {"hidden-requests", "per-call"} | (set() if self.has_cache_lifetimes else {LIFETIME})
            elif token_total(difference):
                request_count = None if token_total(counted) else sums.requests
                entries.append(UsageAtTime(usage=replace(difference, requests=request_count), at_us=self.at_us))
                notes |= {"stub-output"} if token_total(counted) and not difference.input else {"per-call"}
                notes |= {"hidden-requests"} if self.requests and difference.input else set()
                cache_writes = difference.cache_write_5m + difference.cache_write_1h
                notes |= {LIFETIME} if cache_writes and not self.has_cache_lifetimes else set()
        return tuple(entry for entry in entries if token_total(entry.usage)), notes

    def _reported_nanousd(self) -> int | None:
        """Return the reported money: of the processes' ends, else of the session, else of all requests; None if any
        part is unknown."""
        if self.processes:
            is_last_unknown = self.end is not self.processes[-1][-1] and bool(self.ids_since_end)
            total = None if is_last_unknown else sum_all(ends[-1].reported_nanousd for ends in self.processes)
        elif self.end is not None:
            total = self.end.reported_nanousd
        elif self.running_nanousd is not None:
            total = self.running_nanousd
        else:
            total = sum_all(
                request.reported_nanousd for request in self.requests.values() if token_total(request.usage)
            )
        # A killed call may end in a result full of zeros, which does not mean that its tokens were free.
        return total or (None if any(token_total(request.usage) for request in self.requests.values()) else total)

    def _unreported_fields(self, usages: tuple[UsageAtTime, ...], notes: set[str]) -> tuple[str, ...]:
        """Return the fields of Usage that no line reports: unknown, not zero."""
        names = [name for name in self.format.unreported_fields if f"{records.REPORTS_FIELD}{name}" not in self.notes]
        if LIFETIME in notes or LIFETIME in self.notes:
            names.append("cache_write_1h")
        return tuple(name for name in names if not any(getattr(entry.usage, name) for entry in usages))

    def _notes(self, usages: tuple[UsageAtTime, ...]) -> Iterator[str]:
        yield from (code for code in self.notes if not code.startswith(records.REPORTS_FIELD))
        if self.unknown:
            yield "unknown-lines"
        if self.end is None:
            yield "session-log" if self.format.is_session_log else "no-terminal"
        elif self.end.status == "error":
            yield "error"
        if self.end_count > 1:
            yield "several-ends"
        if len(self.sessions) > 1:
            yield "several-sessions"
        if any(entry.usage.subagent for entry in usages):
            yield "sub-agents"
        if not usages:
            yield "no-usage"
        elif not all(entry.usage.model for entry in usages):
            yield "no-model"
        if usages and any(entry.at_us is None for entry in usages):
            yield "no-times"
        if self.end is None and self.running_nanousd is not None:
            yield "reported-elsewhere"


def usage_totals(transcript: TranscriptSummary) -> dict[str, int | None]:
    """Return `usage` of mz.transcript/1; None for a field that the file does not report."""
    sums = {name: sum(getattr(entry.usage, name) for entry in transcript.usages) for name in TOKEN_FIELDS}
    return {
        name: None if not transcript.usages or name in transcript.unreported_fields else sums[name]
        for name in TOKEN_FIELDS
    }


def _difference(reported: Usage, counted: Usage) -> Usage | None:
    """Return what is reported beyond what was counted; None if anything is reported lower. If the report does not
    distinguish cache writes by lifetime, the lifetimes of the requests apply."""
    reasoning = max(reported.reasoning, counted.reasoning)
    return usage_since(replace(with_lifetimes(reported, counted), reasoning=reasoning), counted)
