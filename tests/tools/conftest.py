"""What tests of benchmarks share: collections of garbage before a measurement that are short."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def frozen_objects() -> None:
    """Leave what earlier tests keep out of further collections, which take a second each in a long session."""
    gc.collect()
    gc.freeze()
