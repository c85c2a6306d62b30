"""Durations and amounts of money as people write them, and the types of settings that hold them.

The types are integers: seconds and nano-dollars. msgspec decodes and encodes them with the two hooks below; the encoded
form is what a person would write.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, Self

import msgspec

SECONDS_MAX = 7 * 24 * 3600
NANOUSD_PER_USD = 10**9
USD_MAX = 10**6

_DURATION = re.compile(r"(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s?)?\Z")
_USD = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,9})?\Z")


class Quantity(int):
    """Base of integers that people write in another form."""

    CODE: ClassVar[str]
    """Error code of a value that cannot be parsed."""
    HINT: ClassVar[str]
    EXPECTED: ClassVar[str]
    WRITTEN_TYPES: ClassVar[tuple[type, ...]]
    JSON_SCHEMA: ClassVar[dict[str, Any]]

    @classmethod
    def parse(cls, written: Any) -> Self:
        """Return the quantity. Raises ValueError."""
        raise NotImplementedError

    def format(self) -> str:
        """Return the text that `parse` reads."""
        raise NotImplementedError


class Duration(Quantity):
    """Seconds."""

    CODE = "MZ2009"
    HINT = "write seconds (600), or a text such as 90s, 30m, 1h30m"
    EXPECTED = "a whole number or text"
    WRITTEN_TYPES = (int, str)
    JSON_SCHEMA: ClassVar = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "description": "Seconds, or a text such as 90s, 30m, 1h30m.",
        "examples": ["30m"],
    }

    @classmethod
    def parse(cls, written: int | str) -> Self:
        """Return 1 second to a week, from `600`, `"90s"`, `"30m"`, `"1h30m"`. Raises ValueError."""
        if isinstance(written, str):
            match = _DURATION.match(written.strip().replace(" ", ""))
            if not match or not match[0]:
                raise ValueError(f"{written[:40]!r} is not a duration")
            days, hours, minutes, seconds = (int(digits or 0) for digits in match.groups())
            seconds += ((days * 24 + hours) * 60 + minutes) * 60
        else:
            seconds = written
        if not 1 <= seconds <= SECONDS_MAX:
            raise ValueError(f"{written!r} is not between a second and a week")
        return cls(seconds)

    def format(self) -> str:
        text, seconds = "", int(self)
        for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
            count, seconds = divmod(seconds, size)
            text += f"{count}{unit}" if count else ""
        return text or "0s"


class Usd(Quantity):
    """Nano-dollars."""

    CODE = "MZ2010"
    HINT = 'write US dollars as a quoted decimal, such as "5.00"'
    EXPECTED = "a whole number, a number or text"
    WRITTEN_TYPES = (int, float, str)
    JSON_SCHEMA: ClassVar = {
        "anyOf": [{"type": "number"}, {"type": "string"}],
        "description": "US dollars, best as a quoted decimal.",
        "examples": ["5.00"],
    }

    @classmethod
    def parse(cls, written: float | str) -> Self:
        """Return an exact amount from `5`, `"5.00"`, `0.25`: at least 0, at most nine decimals. Raises ValueError."""
        text = f"{Decimal(str(written)):f}" if isinstance(written, float) else str(written).strip()
        if not _USD.match(text):
            raise ValueError(f"{text[:40]!r} is not an amount of dollars")
        amount = Decimal(text)
        if amount > USD_MAX:
            raise ValueError(f"{text!r} is more than {USD_MAX:,} dollars")
        return cls(amount * NANOUSD_PER_USD)

    def format(self) -> str:
        dollars, fraction = divmod(self, NANOUSD_PER_USD)
        return f"{dollars}.{f'{fraction:09}'.rstrip('0').ljust(2, '0')}"


class UsdPerMillion(Usd):
    """Nano-dollars for a million tokens."""

    HINT = 'write US dollars for a million tokens as a quoted decimal, such as "3.00"'
    JSON_SCHEMA: ClassVar = Usd.JSON_SCHEMA | {
        "description": "US dollars for a million tokens, best as a quoted decimal.",
        "examples": ["3.00"],
    }


def default_duration(text: str) -> Any:
    """Return a Struct field with this duration as its default."""
    return msgspec.field(default_factory=partial(Duration.parse, text))


def decode_quantity(kind: type, written: object) -> object:
    """Decode a quantity: the `dec_hook` of settings, pipelines and pins. Raises ValueError."""
    if not issubclass(kind, Quantity) or isinstance(written, bool) or not isinstance(written, kind.WRITTEN_TYPES):
        raise ValueError(f"expected {getattr(kind, 'EXPECTED', kind.__name__)}")
    return kind.parse(written)


def encode_quantity(value: object) -> str:
    """Encode a quantity: the `enc_hook` of settings, pipelines and pins."""
    if isinstance(value, Quantity):
        return value.format()
    raise NotImplementedError(type(value))


def quantity_schema(kind: type) -> dict[str, Any]:
    """Return the JSON Schema of a quantity: the `schema_hook` of settings and pipelines."""
    return dict(kind.JSON_SCHEMA) if issubclass(kind, Quantity) else {}
