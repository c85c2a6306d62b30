"""Pure: what a log means, as plain values that can be kept beside it and compared field by field.

Fields that projections gained since do not count: what was kept says nothing of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from mz_events.catalog.base import Event
from mz_events.codec import CODEC
from mz_events.envelope import FEATURE_DEPTH, Recorded
from mz_events.names import StreamId
from mz_projections.cost import costs
from mz_projections.feature import fold
from mz_projections.overview import overview
from mz_projections.queue import decisions, queue
from mz_projections.run import fold_run
from mz_recordings.recording.story import story, write

SHOWN_MAX = 160


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a log that was written down, its payload as it was."""

    stream: str
    version: int
    position: int
    type: str
    schema: int
    recorded_at_us: int
    observed_at_us: int
    causation: str
    payload: msgspec.Raw


_LINE = msgspec.json.Decoder(Line)


def read_log(data: bytes) -> tuple[Recorded[Event], ...]:
    """The events of a log that was written down, a line each, lifted to today's schemas. Raises UnknownEvent,
    StoreUnusable and msgspec.DecodeError."""
    return tuple(_recorded(_LINE.decode(line)) for line in data.splitlines() if line)


def _recorded(line: Line) -> Recorded[Event]:
    place = f"{line.stream}@{line.version}"
    return Recorded(
        stream=StreamId(line.stream),
        version=line.version,
        position=line.position,
        recorded_at_us=line.recorded_at_us,
        observed_at_us=line.observed_at_us,
        event=CODEC.decode(line.type, line.schema, bytes(line.payload), place),
        causation=line.causation,
        chain=b"",
    )


def projected(events: Sequence[Recorded[Event]]) -> dict[str, Any]:
    """By run and feature, what is folded of these events: states, views, money, questions, and the stories' digests.

    Builtins only: maps, lists, texts, numbers.
    """
    streams: dict[str, list[Recorded[Event]]] = {}
    for recorded in events:
        streams.setdefault(recorded.stream, []).append(recorded)
    found: dict[str, Any] = {}
    for name, own in streams.items():
        if name.startswith("run/") and name.count("/") == FEATURE_DEPTH:
            digest = hashlib.sha256(write(story(one.event for one in own))).hexdigest()
            found[name] = {"state": fold(own), "story": digest}
        elif name.startswith("run/"):
            run = name.removeprefix("run/")
            whole = [one for one in events if one.stream == name or one.stream.startswith(f"{name}/")]
            found[name] = {
                "state": fold_run(own), "view": overview(run, whole), "costs": costs(whole),
                "questions": queue(whole), "decisions": decisions(whole),
            }  # fmt: skip
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found, order="deterministic"))
    return plain


def differences(kept: Any, now: Any, path: str = "") -> Iterator[str]:
    """What is otherwise than it was kept, a line each: `- before`, `+ now`."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for name in kept:
            if name in now:
                yield from differences(kept[name], now[name], f"{path}.{name}")
            else:
                yield f"- {path}.{name}"
    elif isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        for at, (old, new) in enumerate(zip(kept, now, strict=True)):
            yield from differences(old, new, f"{path}[{at}]")
    elif kept != now:
        yield f"- {path}: {_short(kept)}"
        yield f"+ {path}: {_short(now)}"


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
