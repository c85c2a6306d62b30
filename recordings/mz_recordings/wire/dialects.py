"""Facts about agents' streams that their parsers do not tell: names of events, content of models and tools, whose shape
is ignored, and events that the parsers skip."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """Stream of JSON lines of one agent. Paths are `EVENT:FIELD.FIELD[ITEM].FIELD`; `*` stands for any event."""

    kind: tuple[str, ...] = ("type", "subtype")
    """Fields (nested as `FIELD.FIELD`) that together name an event, such as `system/init`."""
    terminal: frozenset[str] = frozenset()
    """First parts of the names of events that end the stream."""
    opaque: frozenset[str] = frozenset()
    """Values that a model or a tool defines."""
    maps: frozenset[str] = frozenset()
    """Objects whose keys are values, such as names of models."""
    passed_over: frozenset[str] = frozenset()
    """Known events that the parser does not need."""


DIALECTS: Mapping[str, Dialect] = {
    "claude-code": Dialect(
        terminal=frozenset({"result"}),
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
        passed_over=frozenset(
            {
                "user", "stream_event", "rate_limit_event", "system/status", "system/hook_started",
                "system/hook_response", "system/task_started", "system/task_progress", "system/task_updated",
                "system/task_notification", "system/permission_denied", "system/compact_boundary",
            }
        ),
    ),
    "anthropic": Dialect(
        kind=("type",),
        terminal=frozenset({"end"}),
        opaque=frozenset({"tool:input"}),
        passed_over=frozenset({"tool", "tool_result", "retry", "progress", "note", "count"}),
    ),
    "codex": Dialect(
        kind=("type", "item.type"),
        terminal=frozenset({"turn.completed", "turn.failed"}),
        opaque=frozenset(
            f"item.{event}/mcp_tool_call:item.{field}"
            for event in ("started", "completed")
            for field in ("arguments", "result")
        ),
        passed_over=frozenset({"turn.started"}),
    ),
    "gemini": Dialect(
        kind=("type",),
        terminal=frozenset({"result"}),
        opaque=frozenset({"tool_use:parameters", "tool_result:output"}),
        maps=frozenset({"result:stats.models"}),
        passed_over=frozenset({"tool_result"}),
    ),
}  # fmt: skip
"""By agent. The events of claude-code are those of its versions 2.1.4 to 2.1.259."""
PLAIN = Dialect()
"""For an agent without an entry."""


def dialect_of(agent: str) -> Dialect:
    return DIALECTS.get(agent, PLAIN)
