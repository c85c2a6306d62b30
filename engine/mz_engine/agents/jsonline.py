"""Pure: reads JSON that an agent wrote, line by line, field by field. Total: what has another shape is passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, DecimalException, localcontext
from typing import TypeAlias

import msgspec

from mz_engine.agents.contract import Watch

Json: TypeAlias = Mapping[str, object]

TOKENS_MAX = 10**12
NANOUSD_PER_USD = 10**9
NANOUSD_MAX = 10**15
"""A million dollars for one call: beyond it the number is noise."""
STDERR_BYTES_READ = 20_000

_decoder = msgspec.json.Decoder(float_hook=Decimal)


def objects(stdout: bytes) -> Iterator[dict[str, object] | None]:
    """What each line holds, empty ones left out; None for a line that is no JSON object."""
    for line in stdout.split(b"\n"):
        if line.strip():
            yield decode(line)


def each_object(stdout: bytes, note: Callable[[Json], None], watch: Watch | None = None) -> int:
    """Notes every object of a stream, in order, as `watch` hands it on where there is one; returns how many lines are
    none."""
    bad = 0
    for event in objects(stdout):
        if event is None:
            bad += 1
        else:
            note(watch(event) if watch else event)
    return bad


def decode(line: bytes) -> dict[str, object] | None:
    """A JSON object, with its fractions as Decimal; None for anything else."""
    event = decode_any(line)
    return event if isinstance(event, dict) else None


def decode_any(data: bytes) -> object:
    """Any JSON value, with its fractions as Decimal; None for what is none."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, DecimalException, ValueError):
        return None


def mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def string(value: object) -> str:
    return value if isinstance(value, str) else ""


def session_id(value: object) -> str | None:
    """The id of a session. A later call has it among its arguments, so it is none where a program would take it for an
    option: what an agent runs may write into its output."""
    found = string(value)
    return found if found and not found.startswith("-") else None


def strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def count(value: object) -> int | None:
    """A number of tokens, or a status: an integer within reason."""
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else None


def tokens(numbers: Json, name: str) -> int:
    """So many as a field counts; none where it is no such number, or not there."""
    value = numbers.get(name)
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else 0


def nanousd(value: object) -> int | None:
    """A sum in USD as a number or its text, rounded to a nano-dollar; None where it is not one."""
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


def last_words(stderr: bytes) -> str:
    """The end of standard error, as text."""
    return stderr[-STDERR_BYTES_READ:].decode("utf-8", "replace").strip()
