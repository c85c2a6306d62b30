"""Adapter: how much the property tests try: a few examples in `make quick`, hypothesis' own number elsewhere."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("quick", max_examples=15, deadline=None)
settings.register_profile("full", deadline=None)
settings.load_profile("full")
