"""Fold of the records of one call's output to a parsed reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.usage import sum_all, sum_by_model, with_lifetimes

from mz_engine.agents.classify import CallEnd, ProblemPatterns, classify
from mz_engine.agents.reading import records
from mz_engine.agents.reading.json_lines import decode_lines, session_id, stderr_tail
from mz_engine.agents.reading.records import Reader
from mz_engine.ports import CallResult, ParsedReply
from mz_engine.pricing.models import common_names, rename_models

NO_ERROR = records.ErrorReported()
ObjectObserver = Callable[[dict[str, object]], dict[str, object]]
"""Receives each decoded object of a stream before the parser, and returns one of equal content, which may record what
the parser reads."""


class CallOutput(msgspec.Struct, kw_only=True):
    """Facts of one call's output, without the conclusions."""

    undecodable_lines: int = 0
    session: str | None = None
    version: str = ""
    texts: list[str] = []
    """Pieces of the newest text of the main conversation."""
    requests: dict[str, Usage] = {}
    """By id; of several lines about a request, the one with the most tokens."""
    ends: list[records.StreamEnd] = []
    end: records.StreamEnd | None = None
    """The last end, unless a turn was started after it."""
    error: records.ErrorReported = NO_ERROR
    """The newest error that ended nothing; empty if it was overcome."""
    has_unreported_work: bool = False
    """The agent worked since it last reported its tokens."""

    @property
    def ending(self) -> Literal["success", "error", "no-terminal"]:
        return "no-terminal" if self.end is None else self.end.status

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def error_text(self) -> str:
        """The error message of a call without success."""
        return "" if self.ending == "success" else (self.end.detail if self.end else "") or self.error.message

    def add(self, record: records.TranscriptRecord) -> None:
        match record:
            case records.SessionInfo():
                self.session, self.version = session_id(record.session) or self.session, record.version or self.version
            case records.AssistantText() if record.text:
                self.texts = [*(self.texts if record.continues else ()), record.text]
            case records.ModelRequest():
                usage, previous = replace(record.usage, subagent=""), self.requests.get(record.id)
                if previous is None or usage.input + usage.output >= previous.input + previous.output:
                    self.requests[record.id] = usage
            case records.RequestStarted():
                self.requests.setdefault(record.id, Usage(model=record.model, input=0, output=0, requests=1))
            case records.TurnStarted():
                self.end = None
            case records.StreamEnd():
                self.end = record
                self.ends.append(record)
                self.has_unreported_work = self.has_unreported_work and record.status == "error"
            case records.ErrorReported():
                self.error = record
            case records.WorkReported():
                self.error, self.has_unreported_work = NO_ERROR, True

    # tokens and money -------------------------------------------------------------------------------------------------
    def usage(self) -> tuple[Usage, ...]:
        """Return usage per request if the requests add up to the totals by model; else per model; else of the last
        turn."""
        requests, totals = tuple(self.requests.values()), self.totals()
        turn = self.ends[-1].turn_usage if self.ends else None
        if not totals:
            return (turn,) if turn is not None and turn.model else requests
        shown = tuple(rename_models(requests, self._model_names(totals)))
        return shown if _sums_by_model(shown) == _sums_by_model(totals) else totals

    def totals(self) -> tuple[Usage, ...]:
        """Return the totals by model that the ends report. If they lack lifetimes of cache writes, these come from the
        turns where the sums agree, else from the requests."""
        usages = [usage for end in self._counted_ends() for usage in end.usage]
        usages = [usage for usage in usages if usage.model and (usage.input or usage.output)]
        names = self._model_names(usages)
        sums = sum_by_model(rename_models(usages, names))
        shown = sum_by_model(rename_models(self.requests.values(), names))
        turns = [end.turn_usage for end in self.ends if end.turn_usage is not None]
        hour, short = sum(turn.cache_write_1h for turn in turns), sum(turn.cache_write_5m for turn in turns)
        for model, usage in sums.items():
            if not usage.cache_write_1h and hour + short == usage.cache_write_5m:
                sums[model] = replace(usage, cache_write_5m=short, cache_write_1h=hour)
            elif model in shown:
                sums[model] = with_lifetimes(usage, shown[model])
            sums[model] = replace(sums[model], requests=shown[model].requests if model in shown else None)
        return tuple(sums[model] for model in sorted(sums))

    def _model_names(self, totals: Iterable[Usage]) -> dict[str, str]:
        """Return the names of the totals, which were asked for, by model name."""
        common = common_names(sum_by_model(self.requests.values()), sum_by_model(totals))
        total_names = {common[usage.model]: usage.model for usage in totals}
        return {name: total_names.get(row, row) for name, row in common.items()}

    def reported_nanousd(self) -> int | None:
        """Return the money that the ends report; None if any amount is unknown."""
        total = sum_all(end.reported_nanousd for end in self._counted_ends())
        # A killed call may end with a result of zeros: if tokens were used, zero money means unknown, not free.
        return total or (None if self.usage() else total)

    def _counted_ends(self) -> list[records.StreamEnd]:
        """Return the ends that together cover the call, each part of it once."""
        return self.ends[-1:] if self.ends and self.ends[-1].cumulative else self.ends


def read_call(reader: Reader, stdout: bytes, watch: ObjectObserver | None = None) -> CallOutput:
    """Read the lines of a call's output in one pass; `watch` observes what the reader reads."""
    output = CallOutput()
    for event in decode_lines(stdout):
        if event is None:
            output.undecodable_lines += 1
            continue
        for record in reader.read_object(watch(event) if watch else event):
            output.add(record)
    return output


def parsed_reply(
    output: CallOutput,
    result: CallResult,
    parser: str,
    patterns: ProblemPatterns,
    *,
    stderr: str | None = None,
    status: int | None = None,
    stop_reasons: Iterable[str] = (),
    retry_after_seconds: int | None = None,
) -> ParsedReply:
    """Return the reply, with the problem that the call ended with. The optional arguments replace or, for
    `stop_reasons`, extend what the records say."""
    end, error = output.end or records.StreamEnd(status="error"), output.error
    text, error_text = end.text or output.text, output.error_text
    stderr = stderr_tail(result.stderr) if stderr is None else stderr
    call_end = CallEnd(
        own_problem=result.problem,
        ending=output.ending,
        exit=result.exit,
        stop_reasons=tuple(filter(None, (*end.stop_reasons, error.reason, *stop_reasons))),
        status=status or end.http_status or error.http_status,
        error_text="\n".join(part for part in (stderr, error_text) if part),
        text=text,
        retry_after_seconds=retry_after_seconds or end.retry_after_seconds or error.retry_after_seconds,
    )
    problem = classify(call_end, patterns)
    return ParsedReply(
        parser=parser,
        ending=output.ending,
        text=text or error_text,
        session=output.session,
        usage=output.usage(),
        reported_nanousd=output.reported_nanousd(),
        problem=problem,
        problem_detail=(error_text or stderr or text) if problem else "",
        undecodable_lines=output.undecodable_lines,
        version=output.version or result.version,
        usage_incomplete=output.has_unreported_work,
    )


def _sums_by_model(usages: tuple[Usage, ...]) -> dict[str, tuple[int, ...]]:
    return {
        model: (usage.input, usage.output, usage.cache_read, usage.cache_write_5m + usage.cache_write_1h)
        for model, usage in sum_by_model(usages).items()
    }
