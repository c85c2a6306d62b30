"""Adapter: what holds for every test: how much property tests try (a few examples in `make quick`), and signals."""

from __future__ import annotations

import signal

from hypothesis import settings

settings.register_profile("quick", max_examples=15, deadline=None)
settings.register_profile("full", deadline=None)
settings.load_profile("full")

# A shell starts what it puts into the background with SIGINT ignored, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
