"""Messages of the Messages API, as Claude Code and others write them: tools, text, and token counts as `Usage`.

The API's `input_tokens` excludes cache reads and writes; `Usage.input` includes them. Cache writes without a lifetime
count as five minutes, the API's default. An invalid number counts as zero.
"""

from __future__ import annotations

from mz_events.catalog.call import Usage

from mz_engine.agents.reading import records
from mz_engine.agents.reading.json_lines import Json, mapping, objects, string, token_count
from mz_engine.agents.reading.records import Records
from mz_engine.pricing.models import is_same_model

STANDARD_TIERS = ("", "standard", "default")
"""Names of the standard service tier."""


def request_usage(model: str, numbers: Json, subagent: str = "") -> Usage:
    """Convert the API's `usage` of one request."""
    read = token_count(numbers, "cache_read_input_tokens")
    cache_writes = token_count(numbers, "cache_creation_input_tokens")
    split = mapping(numbers.get("cache_creation"))
    hour, short = token_count(split, "ephemeral_1h_input_tokens"), token_count(split, "ephemeral_5m_input_tokens")
    if hour + short != cache_writes:
        hour, short = 0, cache_writes
    output = token_count(numbers, "output_tokens")
    thoughts = token_count(mapping(numbers.get("output_tokens_details")), "thinking_tokens")
    tier = "fast" if string(numbers.get("speed")) == "fast" else string(numbers.get("service_tier"))
    return Usage(
        model=model,
        input=token_count(numbers, "input_tokens") + read + cache_writes,
        output=output,
        cache_read=read,
        cache_write_5m=short,
        cache_write_1h=hour,
        reasoning=min(thoughts, output),
        requests=1,
        tier="" if tier in STANDARD_TIERS else tier,
        subagent=subagent,
    )


def model_usage(model: str, numbers: Json) -> Usage:
    """Convert an entry of Claude Code's `modelUsage`: all requests to one model. It has lifetimes of cache writes since
    2.1.3, before, all count as five minutes; and since 2.1.259 what an own name means."""
    read, cache_writes = token_count(numbers, "cacheReadInputTokens"), token_count(numbers, "cacheCreationInputTokens")
    hour = token_count(numbers, "cacheCreationEphemeral1hInputTokens")
    output, meaning = token_count(numbers, "outputTokens"), string(numbers.get("canonicalModel"))
    return Usage(
        model=f"{model} ({meaning})" if meaning and not is_same_model(model, meaning) else model,
        input=token_count(numbers, "inputTokens") + read + cache_writes,
        output=output,
        cache_read=read,
        cache_write_5m=cache_writes - min(hour, cache_writes),
        cache_write_1h=min(hour, cache_writes),
        reasoning=min(token_count(numbers, "thinkingTokens"), output),
    )


def has_cache_lifetimes(numbers: Json) -> bool:
    """Return True if the API's `usage` has lifetimes of its cache writes, or no cache writes."""
    return bool(mapping(numbers.get("cache_creation"))) or not token_count(numbers, "cache_creation_input_tokens")


def tool_uses(content: object) -> list[records.ToolUse]:
    """Return the tool calls of a message."""
    return [
        records.ToolUse.named(block.get("name"), block.get("id"))
        for block in objects(content)
        if block.get("type") in ("tool_use", "server_tool_use")
    ]


def assistant_texts(content: object, *, continues: bool) -> Records:
    """Yield the text of a message. A line holds one block of a message, so several lines may form one text."""
    texts = [string(block.get("text")) for block in objects(content) if block.get("type") == "text"]
    text = content if isinstance(content, str) else "\n".join(text for text in texts if text)
    if text:
        yield records.AssistantText(text=f"\n{text}" if continues else text, continues=continues)


def has_tool_result(content: object) -> bool:
    return any(block.get("type") == "tool_result" for block in objects(content))
