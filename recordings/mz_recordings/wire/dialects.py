"""Facts about agents' streams that their parsers do not tell: names of events, content of models and tools, whose shape
is ignored, and events that the parsers skip."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class StreamDialect(msgspec.Struct, frozen=True, kw_only=True):
    """Stream of JSON lines of one agent. Paths are `EVENT:FIELD.FIELD[ITEM].FIELD`; `*` stands for any event."""

    name_fields: tuple[str, ...] = ("type", "subtype")
    """Fields (nested as `FIELD.FIELD`) that together name an event, such as `system/init`."""
    final_events: frozenset[str] = frozenset()
    """First parts of the names of events that end the stream."""
    opaque: frozenset[str] = frozenset()
    """Values that a model or a tool defines."""
    maps: frozenset[str] = frozenset()
    """Objects whose keys are values, such as names of models."""
    skipped_events: frozenset[str] = frozenset()
    """Known events that the parser does not need."""


DIALECTS: Mapping[str, StreamDialect] = {
    "claude-code": StreamDialect(
        final_events=frozenset({"result"}),
        opaque=frozenset(
            {
                "assistant:message.content[tool_use].input",
                "user:message.content[tool_result].content",
                "user:tool_use_result",
                "result/success:structured_output",
                "stream_event:event",
            }
        ),
        maps=frozenset({"*:modelUsage"}),
        skipped_events=frozenset(
            {
                "user", "stream_event", "rate_limit_event", "system/status", "system/hook_started",
                "system/hook_response", "system/task_started", "system/task_progress", "system/task_updated",
                "system/task_notification", "system/permission_denied", "system/compact_boundary",
            }
        ),
    ),
    "anthropic": StreamDialect(
        name_fields=("type",),
        final_events=frozenset({"end"}),
        opaque=frozenset({"tool:input"}),
        skipped_events=frozenset({"tool", "tool_result", "retry", "progress", "note", "count"}),
    ),
    "codex": StreamDialect(
        name_fields=("type", "item.type"),
        final_events=frozenset({"turn.completed", "turn.failed"}),
        opaque=frozenset(
            f"item.{event}/mcp_tool_call:item.{field}"
            for event in ("started", "completed")
            for field in ("arguments", "result")
        ),
        skipped_events=frozenset({"turn.started"}),
    ),
    "gemini": StreamDialect(
        name_fields=("type",),
        final_events=frozenset({"result"}),
        opaque=frozenset({"tool_use:parameters", "tool_result:output"}),
        maps=frozenset({"result:stats.models"}),
        skipped_events=frozenset({"tool_result"}),
    ),
}  # fmt: skip
"""By agent. The events of claude-code are those of its versions 2.1.4 to 2.1.259."""
DEFAULT_DIALECT = StreamDialect()
"""For an agent without an entry."""


def dialect_of(agent: str) -> StreamDialect:
    return DIALECTS.get(agent, DEFAULT_DIALECT)
