"""Tolerant reading of JSON lines that an agent wrote; values of another type are ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, DecimalException, localcontext
from typing import TypeAlias

import msgspec

Json: TypeAlias = Mapping[str, object]

TOKENS_MAX = 10**12
NANOUSD_PER_USD = 10**9
NANOUSD_MAX = 10**15
"""A million dollars for one call; larger numbers are ignored."""
STDERR_BYTES_READ = 20_000

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_decoder = msgspec.json.Decoder(float_hook=Decimal)


def decode_lines(stdout: bytes) -> Iterator[dict[str, object] | None]:
    """Decode each non-empty line; None for a line that is no JSON object."""
    for line in stdout.split(b"\n"):
        if line.strip():
            yield decode_object(line)


def decode_object(line: bytes) -> dict[str, object] | None:
    """Decode a JSON object, fractions as Decimal; None for anything else."""
    event = decode_value(line)
    return event if isinstance(event, dict) else None


def decode_value(data: bytes) -> object:
    """Decode any JSON value, fractions as Decimal; None if invalid."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, DecimalException, ValueError):
        return None


def mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def string(value: object) -> str:
    return value if isinstance(value, str) else ""


def has_types(event: Json, types_by_event: Mapping[str, Mapping[str, type]]) -> bool:
    """Return True if the fields of an event have the types for its `type`."""
    types = types_by_event.get(string(event.get("type")))
    return types is not None and all(isinstance(event.get(name), type_) for name, type_ in types.items())


def session_id(value: object) -> str | None:
    """Return a session id. It becomes an argument of a later call, so a text that looks like an option is rejected:
    commands that an agent runs may write into its output."""
    text = string(value)
    return text if text and not text.startswith("-") else None


def objects(value: object) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def count(value: object) -> int | None:
    """Return a token count or a status; None if it is no integer in the valid range."""
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else None


def token_count(numbers: Json, name: str) -> int:
    """Return the token count in a field; 0 if missing or invalid."""
    return count(numbers.get(name)) or 0


def nanousd(value: object) -> int | None:
    """Convert an amount in USD (number or text) to nano-dollars; None if invalid."""
    try:
        with localcontext() as context:
            context.prec = 60
            amount = Decimal(value) if isinstance(value, int | str) and not isinstance(value, bool) else value
            if not isinstance(amount, Decimal) or not amount.is_finite() or not 0 <= amount < NANOUSD_MAX:
                return None
            nano = int((amount * NANOUSD_PER_USD).to_integral_value())
    except (DecimalException, ValueError):
        return None
    return nano if nano <= NANOUSD_MAX else None


def time_us(value: object) -> int | None:
    """Return an ISO 8601 time in microseconds since the epoch, UTC by default; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(value)
        elapsed = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)) - EPOCH
        return elapsed // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None


def stderr_tail(stderr: bytes) -> str:
    return stderr[-STDERR_BYTES_READ:].decode("utf-8", "replace").strip()
