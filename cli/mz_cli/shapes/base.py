"""Base of all JSON documents. Adding a field keeps the schema's number; any other change raises it.

Money is a decimal string of USD or null; times are ISO 8601 in UTC; null means unknown or none.
"""

from __future__ import annotations

import msgspec


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of every `--json` object."""


class Tests(Shape, frozen=True, kw_only=True):
    passed: int
    failed: int


class Tokens(Shape, frozen=True, kw_only=True):
    input: int | None
    output: int | None
