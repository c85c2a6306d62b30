"""How many examples a property is tried with."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""What a profile tries that is not to be quick."""


def examples(count: int) -> settings:
    """`count` of them, without a deadline; as few as the profile says where that is a quick one."""
    tried = settings().max_examples
    return settings(max_examples=tried if tried < USUAL else count, deadline=None)
