"""The bench of prices: the same requests each time, priced alike by both sides."""

from __future__ import annotations

import pytest
from mz_engine.pricing.table import GenaiPrices

from tools.bench.pricing import MODELS, RATIO_MIN, priced, pricing, reference, requests


def test_both_sides_come_to_the_same_sums() -> None:
    some = requests(200)
    assert some == requests(200)
    assert {usage.model for usage, _ in some} == set(MODELS)
    assert priced(GenaiPrices(), some) == reference(some)
    assert None not in priced(GenaiPrices(), some)


@pytest.mark.slow
def test_it_is_measured() -> None:
    (figure,) = pricing(requests_count=500, references_count=50, rounds=1)
    assert (figure.name, figure.goal, figure.better) == ("pricing.requests", RATIO_MIN, "higher")
    assert figure.value > 0 < figure.reference_value
