"""Parser of `claude -p --output-format stream-json` output; accepts any bytes.

`is_error` of the last `result` decides, never the exit code; a subtype that names an error is an error too, but the
subtype `success` proves nothing. Tokens come from `modelUsage`, since `usage` is incomplete (side models, budget stops,
several results, which are cumulative).
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.usage import add_usage

from mz_engine.agents.classify import CallEnd, ProblemPatterns, classify
from mz_engine.agents.contract import ObjectObserver
from mz_engine.agents.reading.anthropic_usage import model_usage, request_usage
from mz_engine.agents.reading.json_lines import (
    Json,
    count,
    mapping,
    nanousd,
    scan_objects,
    session_id,
    stderr_tail,
    string,
    strings,
)
from mz_engine.ports import CallResult, ParsedReply

SINCE_LAST_RESULT = "model_usage_since_last_result"
STEADY_WAIT_MS = 1000
"""The API asks for whole seconds; the agent's own delays have a random part."""
WAIT_MS_MAX = 10**10
"""About four months; beyond it the number is noise."""


class StreamSummary(msgspec.Struct, kw_only=True):
    """Facts from the lines of one stream, collected in one pass."""

    bad_lines: int = 0
    session: str | None = None
    version: str = ""
    model: str = ""
    result: Json | None = None
    results: list[Json] = []
    text: str = ""
    """Newest text of the main conversation."""
    requests: dict[str, Usage] = {}
    """By message id, since every content block has a line with the id."""
    api_error: str = ""
    """The agent's name for an API error, if the newest message is one."""
    retry_after_seconds: int | None = None


def read_stream(
    result: CallResult, parser: str, patterns: ProblemPatterns, watch: ObjectObserver | None = None
) -> ParsedReply:
    """Parse the output of one call. Never raises: unreadable lines are counted, a missing end is a problem."""
    summary = summarize_stream(result.stdout, watch)
    last_result: Json = summary.result or {}
    text = string(last_result.get("result"))
    error_text = "\n".join([text, *strings(last_result.get("errors"))]).strip()
    stderr = stderr_tail(result.stderr)
    ending = _ending_of(summary.result)
    usage = _call_usage(summary)
    call_end = CallEnd(
        own_problem=result.problem,
        ending=ending,
        exit=result.exit,
        stop_reasons=_stop_reasons(summary, last_result),
        status=count(last_result.get("api_error_status")),
        error_text="\n".join(part for part in (stderr, error_text) if part),
        text=text,
        retry_after_seconds=summary.retry_after_seconds,
    )
    problem = classify(call_end, patterns)
    return ParsedReply(
        parser=parser,
        ending=ending,
        text=text or error_text or summary.text,
        session=summary.session,
        usage=usage,
        # A killed call may end with a result of zeros: if tokens were used, zero money means unknown, not free.
        reported_nanousd=_reported_nanousd(summary) or (None if usage or not last_result else 0),
        problem=problem,
        problem_detail=(error_text or stderr or summary.text) if problem else "",
        undecodable_lines=summary.bad_lines,
        version=summary.version or result.version,
        usage_incomplete=ending == "error" and bool(summary.requests) and not _has_totals(summary),
    )


def summarize_stream(stdout: bytes, watch: ObjectObserver | None = None) -> StreamSummary:
    """Summarise the lines in one pass; unknown types and fields are ignored."""
    summary = StreamSummary()
    summary.bad_lines = scan_objects(stdout, lambda event: _apply_event(summary, event), watch)
    return summary


def _apply_event(summary: StreamSummary, event: Json) -> None:
    summary.session = session_id(event.get("session_id")) or summary.session
    match event.get("type"), event.get("subtype"):
        case "system", "init":
            summary.version = string(event.get("claude_code_version")) or summary.version
            summary.model = string(event.get("model")) or summary.model
        case "system", "api_retry":
            summary.retry_after_seconds = _requested_wait_seconds(event)
        case "assistant", _:
            _apply_message(summary, event)
        case "result", _:
            summary.result = event
            summary.results.append(event)
        case _:
            pass


def _apply_message(summary: StreamSummary, event: Json) -> None:
    summary.api_error = string(event.get("error"))
    message = mapping(event.get("message"))
    name, model = string(message.get("id")), string(message.get("model"))
    if name and model and model != "<synthetic>":
        usage = request_usage(model, mapping(message.get("usage")))
        previous = summary.requests.get(name)
        if previous is None or usage.input + usage.output >= previous.input + previous.output:
            summary.requests[name] = usage
    if event.get("parent_tool_use_id") is None and (text := "\n".join(_text_blocks(message.get("content")))):
        summary.text = text


def _requested_wait_seconds(event: Json) -> int | None:
    delay = event.get("retry_delay_ms")
    if event.get("error_status") != 429 or isinstance(delay, bool) or not isinstance(delay, int | Decimal):
        return None
    if not 0 < delay <= WAIT_MS_MAX or delay % STEADY_WAIT_MS:
        return None
    return int(delay // STEADY_WAIT_MS)


def _ending_of(result: Json | None) -> Literal["success", "error", "no-terminal"]:
    if result is None:
        return "no-terminal"
    failed, subtype = result.get("is_error"), string(result.get("subtype"))
    if failed is None:
        return "success" if subtype == "success" else "error"
    # Some versions leave `is_error` false when the turns or the budget run out.
    return "success" if failed is False and not subtype.startswith("error") else "error"


def _stop_reasons(summary: StreamSummary, last_result: Json) -> tuple[str, ...]:
    reasons = (string(last_result.get("subtype")), string(last_result.get("terminal_reason")), summary.api_error)
    return tuple(reason for reason in reasons if reason)


# tokens and money -----------------------------------------------------------------------------------------------------
def _call_usage(summary: StreamSummary) -> tuple[Usage, ...]:
    """Return usage per request if the requests add up to the totals by model; else per model; else of the last turn."""
    requests = tuple(summary.requests.values())
    totals = tuple(total for total in _totals_by_model(summary) if total.input or total.output)
    if not totals:
        main = mapping((summary.result or {}).get("usage"))
        total_usage = replace(request_usage(summary.model, main), requests=None) if summary.model else None
        return (total_usage,) if total_usage is not None and (total_usage.input or total_usage.output) else requests
    if _sums_by_model(requests) == _sums_by_model(totals):
        return requests
    return totals


def _has_totals(summary: StreamSummary) -> bool:
    """Return True if the result holds totals. The lines of requests are lower: they report output at its start."""
    main = request_usage(summary.model, mapping((summary.result or {}).get("usage")))
    return any(total.input or total.output for total in (main, *_totals_by_model(summary)))


def _totals_by_model(summary: StreamSummary) -> tuple[Usage, ...]:
    """Return totals by model. Newer versions continue the totals of a resumed session and report each result's
    share."""
    if not summary.results or not isinstance(summary.results[-1].get(SINCE_LAST_RESULT), dict):
        models = mapping((summary.result or {}).get("modelUsage"))
        return tuple(_usage_of_model(summary, name, mapping(numbers)) for name, numbers in sorted(models.items()))
    sums: dict[str, Usage] = {}
    for result in summary.results:
        for name, numbers in mapping(result.get(SINCE_LAST_RESULT)).items():
            usage, so_far = model_usage(name, mapping(numbers)), sums.get(name)
            sums[name] = usage if so_far is None else add_usage(so_far, usage)
    return tuple(replace(sums[name], requests=_request_count(summary, name)) for name in sorted(sums))


def _reported_nanousd(summary: StreamSummary) -> int | None:
    """Return the money reported for this call, without the earlier part of a resumed session."""
    if not summary.results or not isinstance(summary.results[-1].get(SINCE_LAST_RESULT), dict):
        return nanousd((summary.result or {}).get("total_cost_usd"))
    entries = [numbers for result in summary.results for numbers in mapping(result.get(SINCE_LAST_RESULT)).values()]
    amounts = [nanousd(mapping(numbers).get("costUSD")) for numbers in entries]
    reported = [amount for amount in amounts if amount is not None]
    return sum(reported) if len(reported) == len(amounts) else None


def _request_count(summary: StreamSummary, model: str) -> int | None:
    return sum(1 for request in summary.requests.values() if request.model == model) or None


def _usage_of_model(summary: StreamSummary, model: str, numbers: Json) -> Usage:
    """Return one model's usage. Older versions lack cache lifetimes in `modelUsage`; take them from the turns' `usage`
    if the sums agree."""
    usage = model_usage(model, numbers)
    turns = [request_usage(model, mapping(result.get("usage"))) for result in summary.results]
    hour, short = sum(turn.cache_write_1h for turn in turns), sum(turn.cache_write_5m for turn in turns)
    if not usage.cache_write_1h and hour + short == usage.cache_write_5m:
        usage = replace(usage, cache_write_5m=short, cache_write_1h=hour)
    return replace(usage, requests=_request_count(summary, model))


def _sums_by_model(usages: tuple[Usage, ...]) -> dict[str, tuple[int, ...]]:
    sums: dict[str, tuple[int, ...]] = {}
    for usage in usages:
        so_far = sums.get(usage.model, (0, 0, 0, 0))
        cache_writes = usage.cache_write_5m + usage.cache_write_1h
        counts = (usage.input, usage.output, usage.cache_read, cache_writes)
        sums[usage.model] = tuple(a + b for a, b in zip(so_far, counts, strict=True))
    return sums


# content --------------------------------------------------------------------------------------------------------------
def _text_blocks(content: object) -> Iterator[str]:
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "text":
            yield string(block.get("text"))
