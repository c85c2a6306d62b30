"""Texts of blobs that events cite."""

from __future__ import annotations

from collections.abc import Callable

from mz_events.names import Digest
from mz_events.store import BlobMissing, Blobs


def text_loader(blobs: Blobs) -> Callable[[Digest | None], str]:
    """Return a function from digest to text; empty for None and for an erased blob."""

    def load_text(digest: Digest | None) -> str:
        if digest is None:
            return ""
        try:
            return blobs.get(digest).decode("utf-8", "replace")
        except BlobMissing:
            return ""

    return load_text
