"""Adapter: the price table of `genai-prices`, behind the port `Prices`. Offline: its data lie in the installed package.

Prices are asked per usage entry at the time of the request. A model without a price is named, never counted as zero.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cached_property
from pathlib import Path

from mz_events.catalog.call import Usage

from mz_engine.ports import Price

PACKAGE = "genai-prices"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NANOUSD_PER_USD = Decimal(10**9)
LONG_CONTEXT = "[1m]"
"""Claude Code's mark for the long context window; not part of the model's name."""


class GenaiPrices:
    """Implements `mz_engine.ports.Prices`. The table is loaded when the first price is asked (0.3 s)."""

    def price(self, usage: tuple[Usage, ...], at_us: int) -> Price:
        """What the entries cost at that time. `nanousd` is None when any of their models has no price."""
        priced = [(entry.model, self._entry(entry, at_us)) for entry in usage]
        unpriced = tuple(sorted({model for model, nanousd in priced if nanousd is None}))
        total = None if unpriced else sum(nanousd for _, nanousd in priced if nanousd is not None)
        return Price(nanousd=total, unpriced=unpriced, prices=self.table)

    def estimate(self, model: str, input_tokens: int, output_tokens: int, at_us: int) -> int | None:
        """Nano-dollars without any cache; None: the model has no price."""
        return self._entry(Usage(model=model, input=input_tokens, output=output_tokens), at_us)

    @cached_property
    def table(self) -> str:
        """`genai-prices <version> sha256:<digest of its data module>`: the package names no version of its data."""
        import genai_prices

        data = Path(genai_prices.__file__).with_name("data.py").read_bytes()
        version = importlib.metadata.version(PACKAGE)
        return f"{PACKAGE} {version} sha256:{hashlib.sha256(data).hexdigest()}"

    def _entry(self, usage: Usage, at_us: int) -> int | None:
        import genai_prices

        written = usage.cache_write_5m + usage.cache_write_1h
        try:
            found = genai_prices.calc_price(
                genai_prices.Usage(
                    input_tokens=max(usage.input, usage.cache_read + written),
                    output_tokens=usage.output,
                    cache_read_tokens=usage.cache_read,
                    cache_write_tokens=written,
                    cache_write_1h_tokens=usage.cache_write_1h,
                ),
                model_ref=usage.model.removesuffix(LONG_CONTEXT),
                genai_request_timestamp=EPOCH + timedelta(microseconds=at_us),
            )
        except LookupError:
            return None
        return int((found.total_price * NANOUSD_PER_USD).to_integral_value(ROUND_HALF_EVEN))
