"""Amounts of money: integers of cents inside, text with two decimals outside."""

from __future__ import annotations

import re

AMOUNT = re.compile(r"(-?)(\d+)\.(\d\d)")


def read(text: str) -> int:
    """The cents in a text such as `12.40` or `-0.05`; raises ValueError for anything else."""
    match = AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount: write it as 12.40")
    sign, whole, cents = match.groups()
    amount = int(whole) * 100 + int(cents)
    return -amount if sign else amount


def show(cents: int) -> str:
    """The text for an amount, which `read` understands: `show(1240)` is `12.40`."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}"
