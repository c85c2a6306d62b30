"""Pure: reads what `claude -p --output-format stream-json` wrote. Total over any bytes.

The verdict is `is_error` of the last `result`, never the exit code; a subtype that names an error is one all the same,
one that says `success` proves nothing. Tokens come from `modelUsage`, which is right where `usage` falls short (side
models, budget stops, several results: they are cumulative).
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.usage import plus

from mz_engine.agents.classify import Ending, Patterns, classify
from mz_engine.agents.claude_usage import model_usage, request_usage
from mz_engine.agents.contract import Watch
from mz_engine.agents.jsonline import (
    Json,
    count,
    each_object,
    last_words,
    mapping,
    nanousd,
    session_id,
    string,
    strings,
)
from mz_engine.ports import CallResult, Reading

NEW = "model_usage_since_last_result"
STEADY_WAIT_MS = 1000
"""A wait in whole seconds was asked for by the API; the agent's own waits have a random part."""
WAIT_MS_MAX = 10**10
"""About four months; beyond it the number is noise."""


class Told(msgspec.Struct, kw_only=True):
    """What the lines of one stream say, gathered in one pass."""

    bad_lines: int = 0
    session: str | None = None
    version: str = ""
    model: str = ""
    result: Json | None = None
    results: list[Json] = []
    said: str = ""
    """The newest text of the main conversation."""
    requests: dict[str, Usage] = {}
    """By message id: one line per content block repeats the id."""
    error: str = ""
    """The agent's name for an API error, where its newest message is one."""
    wait_seconds: int | None = None


def read_stream(result: CallResult, parser: str, patterns: Patterns, watch: Watch | None = None) -> Reading:
    """What one call said. Never raises: unreadable lines are counted, a missing end is a problem."""
    told = gather(result.stdout, watch)
    last: Json = told.result or {}
    text = string(last.get("result"))
    words = "\n".join([text, *strings(last.get("errors"))]).strip()
    stderr = last_words(result.stderr)
    terminal = _terminal(told.result)
    usage = _usage(told)
    ending = Ending(
        ours=result.problem,
        terminal=terminal,
        exit=result.exit,
        stops=_stops(told, last),
        status=count(last.get("api_error_status")),
        words="\n".join(part for part in (stderr, words) if part),
        text=text,
        retry_after_seconds=told.wait_seconds,
    )
    problem = classify(ending, patterns)
    return Reading(
        parser=parser,
        terminal=terminal,
        text=text or words or told.said,
        session=told.session,
        usage=usage,
        # A killed call may end in a result full of zeros: with tokens used, nothing reported is not "free".
        reported_nanousd=_money(told) or (None if usage or not last else 0),
        problem=problem,
        problem_detail=(words or stderr or told.said) if problem else "",
        bad_lines=told.bad_lines,
        version=told.version or result.version,
        untold=terminal == "error" and bool(told.requests) and not _is_summed(told),
    )


def gather(stdout: bytes, watch: Watch | None = None) -> Told:
    """One pass over the lines; unknown types and fields are passed over."""
    told = Told()
    told.bad_lines = each_object(stdout, lambda event: _note(told, event), watch)
    return told


def _note(told: Told, event: Json) -> None:
    told.session = session_id(event.get("session_id")) or told.session
    match event.get("type"), event.get("subtype"):
        case "system", "init":
            told.version = string(event.get("claude_code_version")) or told.version
            told.model = string(event.get("model")) or told.model
        case "system", "api_retry":
            told.wait_seconds = _asked_wait(event)
        case "assistant", _:
            _note_message(told, event)
        case "result", _:
            told.result = event
            told.results.append(event)
        case _:
            pass


def _note_message(told: Told, event: Json) -> None:
    told.error = string(event.get("error"))
    message = mapping(event.get("message"))
    name, model = string(message.get("id")), string(message.get("model"))
    if name and model and model != "<synthetic>":
        usage = request_usage(model, mapping(message.get("usage")))
        earlier = told.requests.get(name)
        if earlier is None or usage.input + usage.output >= earlier.input + earlier.output:
            told.requests[name] = usage
    if event.get("parent_tool_use_id") is None and (said := "\n".join(_text_blocks(message.get("content")))):
        told.said = said


def _asked_wait(event: Json) -> int | None:
    delay = event.get("retry_delay_ms")
    if event.get("error_status") != 429 or isinstance(delay, bool) or not isinstance(delay, int | Decimal):
        return None
    if not 0 < delay <= WAIT_MS_MAX or delay % STEADY_WAIT_MS:
        return None
    return int(delay // STEADY_WAIT_MS)


def _terminal(result: Json | None) -> Literal["success", "error", "no-terminal"]:
    if result is None:
        return "no-terminal"
    failed, subtype = result.get("is_error"), string(result.get("subtype"))
    if failed is None:
        return "success" if subtype == "success" else "error"
    # Some versions leave `is_error` false where the turns or the budget ran out.
    return "success" if failed is False and not subtype.startswith("error") else "error"


def _stops(told: Told, last: Json) -> tuple[str, ...]:
    named = (string(last.get("subtype")), string(last.get("terminal_reason")), told.error)
    return tuple(name for name in named if name)


# tokens and money -----------------------------------------------------------------------------------------------------
def _usage(told: Told) -> tuple[Usage, ...]:
    """Per request where the requests add up to what the models used; else per model; else what is left."""
    requests = tuple(told.requests.values())
    totals = tuple(total for total in _totals(told) if total.input or total.output)
    if not totals:
        main = mapping((told.result or {}).get("usage"))
        whole = replace(request_usage(told.model, main), requests=None) if told.model else None
        return (whole,) if whole is not None and (whole.input or whole.output) else requests
    if _added_up(requests) == _added_up(totals):
        return requests
    return totals


def _is_summed(told: Told) -> bool:
    """Whether the result says what all requests took. What their lines say is less: they tell output as it begins."""
    main = request_usage(told.model, mapping((told.result or {}).get("usage")))
    return any(total.input or total.output for total in (main, *_totals(told)))


def _totals(told: Told) -> tuple[Usage, ...]:
    """By model. Newer versions count on where a session is resumed, and say of each result what is new."""
    if not told.results or not isinstance(told.results[-1].get(NEW), dict):
        models = mapping((told.result or {}).get("modelUsage"))
        return tuple(_usage_of_model(told, name, mapping(numbers)) for name, numbers in sorted(models.items()))
    sums: dict[str, Usage] = {}
    for result in told.results:
        for name, numbers in mapping(result.get(NEW)).items():
            usage, so_far = model_usage(name, mapping(numbers)), sums.get(name)
            sums[name] = usage if so_far is None else plus(so_far, usage)
    return tuple(replace(sums[name], requests=_requests_to(told, name)) for name in sorted(sums))


def _money(told: Told) -> int | None:
    """As told for the call: of a resumed session that is less than what the result says of all of it."""
    if not told.results or not isinstance(told.results[-1].get(NEW), dict):
        return nanousd((told.result or {}).get("total_cost_usd"))
    news = [numbers for result in told.results for numbers in mapping(result.get(NEW)).values()]
    amounts = [nanousd(mapping(numbers).get("costUSD")) for numbers in news]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _requests_to(told: Told, model: str) -> int | None:
    return sum(1 for request in told.requests.values() if request.model == model) or None


def _usage_of_model(told: Told, model: str, numbers: Json) -> Usage:
    """`modelUsage` tells how long cache writes live in newer versions only; the turns' `usage` does, where its sum is
    this model's."""
    usage = model_usage(model, numbers)
    turns = [request_usage(model, mapping(result.get("usage"))) for result in told.results]
    hour, short = sum(turn.cache_write_1h for turn in turns), sum(turn.cache_write_5m for turn in turns)
    if not usage.cache_write_1h and hour + short == usage.cache_write_5m:
        usage = replace(usage, cache_write_5m=short, cache_write_1h=hour)
    return replace(usage, requests=_requests_to(told, model))


def _added_up(usages: tuple[Usage, ...]) -> dict[str, tuple[int, ...]]:
    sums: dict[str, tuple[int, ...]] = {}
    for usage in usages:
        so_far = sums.get(usage.model, (0, 0, 0, 0))
        written = usage.cache_write_5m + usage.cache_write_1h
        numbers = (usage.input, usage.output, usage.cache_read, written)
        sums[usage.model] = tuple(a + b for a, b in zip(so_far, numbers, strict=True))
    return sums


# shapes ---------------------------------------------------------------------------------------------------------------
def _text_blocks(content: object) -> Iterator[str]:
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "text":
            yield string(block.get("text"))
