"""Pure: tokens as the Messages API and Claude Code count them, in `Usage`. Total: what is no number counts as none.

The API's `input_tokens` leaves out what a cache had or took; ours is all of it. Cache writes without a lifetime count
as those of five minutes, the API's default.
"""

from __future__ import annotations

from mz_events.catalog.call import Usage

from mz_engine.agents.jsonline import Json, mapping, string, tokens

STANDARD = ("", "standard", "default")
"""Names of the service tier that needs no mention."""


def request_usage(model: str, numbers: Json, part: str = "") -> Usage:
    """Of one request: the API's `usage`."""
    read, written = tokens(numbers, "cache_read_input_tokens"), tokens(numbers, "cache_creation_input_tokens")
    split = mapping(numbers.get("cache_creation"))
    hour, short = tokens(split, "ephemeral_1h_input_tokens"), tokens(split, "ephemeral_5m_input_tokens")
    if hour + short != written:
        hour, short = 0, written
    output = tokens(numbers, "output_tokens")
    thoughts = tokens(mapping(numbers.get("output_tokens_details")), "thinking_tokens")
    return Usage(
        model=model,
        input=tokens(numbers, "input_tokens") + read + written,
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
    read, written = tokens(numbers, "cacheReadInputTokens"), tokens(numbers, "cacheCreationInputTokens")
    hour = tokens(numbers, "cacheCreationEphemeral1hInputTokens")
    output = tokens(numbers, "outputTokens")
    return Usage(
        model=model,
        input=tokens(numbers, "inputTokens") + read + written,
        output=output,
        cache_read=read,
        cache_write_5m=written - min(hour, written),
        cache_write_1h=min(hour, written),
        reasoning=min(tokens(numbers, "thinkingTokens"), output),
    )


def tier_of(numbers: Json) -> str:
    """Service tier of a request; empty: the standard one. Fast mode counts as one."""
    if string(numbers.get("speed")) == "fast":
        return "fast"
    tier = string(numbers.get("service_tier"))
    return "" if tier in STANDARD else tier


def has_lifetimes(numbers: Json) -> bool:
    """Whether the API's `usage` says how long its cache writes live, or there are none."""
    return bool(mapping(numbers.get("cache_creation"))) or not tokens(numbers, "cache_creation_input_tokens")
