"""What the envelope of an event says beside its place."""

from __future__ import annotations

import pytest
from mz_events.catalog.feature import PhaseCompleted
from mz_events.names import StreamId
from mz_events.store import Recorded


@pytest.mark.parametrize(
    ("stream", "causation", "expected"),
    [
        ("run/r2/a", "run/r1/a@7", True),
        ("run/r2/a", "run/r2/a@7", False),
        ("run/r2/a", "run/r2@7", False),
        ("run/r2", "run/r1@7", False),
        ("run/r2/a", "", False),
    ],
)
def test_an_event_caused_by_another_feature_stream_is_a_copy_of_a_fork(
    stream: str, causation: str, expected: bool
) -> None:
    event = PhaseCompleted(phase="plan")
    recorded = Recorded(StreamId(stream), 1, 1, 0, 0, event, causation)
    assert recorded.is_forked_copy is expected
