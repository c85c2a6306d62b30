"""Prices that agents use and the price table lacks."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

AGENT_PRICES: Mapping[str, tuple[Mapping[str, Decimal], ...]] = {
    "claude-sonnet-5": (
        # The introductory price became permanent; Claude Code 2.1.198 to 2.1.206 reports costs by this one.
        {
            "input": Decimal("3"),
            "output": Decimal("15"),
            "cache_read": Decimal("0.30"),
            "cache_write_5m": Decimal("3.75"),
            "cache_write_1h": Decimal("6"),
        },
    ),
}
"""By the table's name of the model: US dollars per million tokens."""
