"""Pure: tokens as the Messages API and Claude Code count them, in `Usage`. Total: what is no number counts as none.

The API's `input_tokens` leaves out what a cache had or took; ours is all of it. Cache writes without a lifetime count
as those of five minutes, the API's default.
"""

from __future__ import annotations

from mz_events.catalog.call import Usage

from mz_engine.agents.jsonline import Json, count, mapping, string

STANDARD = ("", "standard", "default")
"""Names of the service tier that needs no mention."""


def request_usage(model: str, numbers: Json, part: str = "") -> Usage:
    """Of one request: the API's `usage`."""
    read = count(numbers.get("cache_read_input_tokens")) or 0
    written = count(numbers.get("cache_creation_input_tokens")) or 0
    split = mapping(numbers.get("cache_creation"))
    hour = count(split.get("ephemeral_1h_input_tokens")) or 0
    short = count(split.get("ephemeral_5m_input_tokens")) or 0
    if hour + short != written:
        hour, short = 0, written
    output = count(numbers.get("output_tokens")) or 0
    thoughts = count(mapping(numbers.get("output_tokens_details")).get("thinking_tokens")) or 0
    return Usage(
        model=model,
        input=(count(numbers.get("input_tokens")) or 0) + read + written,
        output=output,
        cache_read=read,
        cache_write_5m=short,
        cache_write_1h=hour,
        reasoning=min(thoughts, output),
        requests=1,
        tier=tier_of(numbers),
        part=part,
    )


def model_usage(model: str, numbers: Json) -> Usage:
    """Of all requests to one model: an entry of Claude Code's `modelUsage`. Lifetimes of cache writes stand in it since
    2.1.3; before, all count as five minutes."""
    read = count(numbers.get("cacheReadInputTokens")) or 0
    written = count(numbers.get("cacheCreationInputTokens")) or 0
    hour = count(numbers.get("cacheCreationEphemeral1hInputTokens")) or 0
    output = count(numbers.get("outputTokens")) or 0
    return Usage(
        model=model,
        input=(count(numbers.get("inputTokens")) or 0) + read + written,
        output=output,
        cache_read=read,
        cache_write_5m=written - min(hour, written),
        cache_write_1h=min(hour, written),
        reasoning=min(count(numbers.get("thinkingTokens")) or 0, output),
    )


def tier_of(numbers: Json) -> str:
    """Service tier of a request; empty: the standard one. Fast mode counts as one."""
    if string(numbers.get("speed")) == "fast":
        return "fast"
    tier = string(numbers.get("service_tier"))
    return "" if tier in STANDARD else tier


def has_lifetimes(numbers: Json) -> bool:
    """Whether the API's `usage` says how long its cache writes live, or there are none."""
    written = count(numbers.get("cache_creation_input_tokens")) or 0
    return not written or bool(mapping(numbers.get("cache_creation")))
