"""What may stand in any field of JSON, drawn by hypothesis."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def some_of(items: list[T]) -> st.SearchStrategy[list[T]]:
    """From one to three of them, the last as often as all others: to spoil each takes long and shows no more."""
    index = st.integers(0, len(items) - 1) | st.just(len(items) - 1)
    return st.lists(index, min_size=1, max_size=3, unique=True).map(lambda chosen: [items[at] for at in chosen])
