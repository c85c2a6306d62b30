"""The store and the blobs in memory do what their ports promise."""

from __future__ import annotations

import pytest
from mz_events.adapters.memory import MemoryBlobs, MemoryStore
from mz_events.names import Digest
from mz_events.store import Append, BlobMissing

from tests.events.conformance import FIRST, NOW, OTHER, StoreConformance, units


@pytest.fixture
def log() -> MemoryStore:
    return MemoryStore()


class TestMemoryStore(StoreConformance):
    pass


def test_a_copy_begins_alike_and_goes_its_own_way(log: MemoryStore) -> None:
    log.append([Append(FIRST, 0, units(2)), Append(OTHER, 0, units(1))], NOW)
    copy = MemoryStore()
    log.copy_to(copy, 2)
    assert tuple(copy.read_all()) == tuple(log.read_all())[:2]
    assert copy.streams() == ((FIRST, 2),)
    copy.append([Append(FIRST, 2, units(1))], NOW)
    assert log.streams() == ((FIRST, 2), (OTHER, 1))


def test_a_blob_is_found_by_its_content() -> None:
    blobs = MemoryBlobs()
    digest = blobs.put(b"text")
    assert blobs.get(digest) == b"text"
    assert blobs.put(b"text") == digest != blobs.put(b"other")
    with pytest.raises(BlobMissing):
        blobs.get(Digest("0" * 64))
