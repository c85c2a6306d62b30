"""Answers of the Messages API made by hand: what no scripted model says, such as other reasons to stop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.endpoint import Garbage, server_event

USAGE = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def use(name: object, value: object, number: int = 1) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": value}


def answer(stop: object, *blocks: dict[str, Any], usage: object = USAGE) -> Garbage:
    """A whole answer that ends for this reason."""
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    contents = [_event("message_start", message=message)]
    for index, block in enumerate(blocks):
        contents += _block(index, block)
    contents += [_event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=usage)]
    return Garbage(b"".join([*contents, _event("message_stop")]))


def breaks_off(kind: str, message: str) -> Garbage:
    """An answer that begins, and then says that it failed."""
    begun = answer("end_turn", text("half")).data.partition(b"event: message_delta")[0]
    return Garbage(begun + _event("error", error={"type": kind, "message": message}))


def sent(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Blocks of a request, without the marks for the cache."""
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]


def _block(index: int, block: dict[str, Any]) -> list[bytes]:
    delta: dict[str, Any] | None
    match block.get("type"):
        case "text":
            begun, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        case "tool_use":
            begun, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": _json(block["input"])}
        case _:
            begun, delta = block, None
    contents = [_event("content_block_start", index=index, content_block=begun)]
    if delta is not None:
        contents.append(_event("content_block_delta", index=index, delta=delta))
    return [*contents, _event("content_block_stop", index=index)]


def _json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _event(kind: str, **fields: Any) -> bytes:
    return server_event({"type": kind, **fields}, kind)
