"""Items delivered by any run, so that no run delivers them again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.feature import FeatureDelivered
from mz_events.catalog.run import ItemAdded
from mz_events.names import Digest
from mz_events.store import Recorded

from mz_projections.read_models.model import Key, ReadModel


class Delivery(msgspec.Struct, frozen=True):
    """One item in one run."""

    run: str
    feature: str
    source: str
    """Location of the item: `file#id`."""
    text_sha256: str
    """`text_digest` of the item."""
    delivered_by: str = ""
    """`stream@version` of its delivery; empty: not delivered."""
    position: int = 0
    """Position of that event."""
    head: str = ""
    """Delivered commit."""


def text_digest(title: Digest, body: Digest) -> Digest:
    """Return one digest for title and body: it differs if the text has changed."""
    return Digest(hashlib.sha256(f"{title} {body}".encode()).hexdigest())


def evolve(find: Callable[[Key], Delivery | None], recorded: Recorded[Event]) -> tuple[Delivery, ...]:
    """Return the item that the event adds or delivers."""
    _, run, *feature = recorded.stream.split("/", 2)
    match recorded.event:
        case ItemAdded() as item:
            return (Delivery(run, item.feature, item.source, text_digest(item.title, item.body)),)
        case FeatureDelivered(head=head) if delivery := find((run, *feature)):
            return (replace(delivery, delivered_by=recorded.event_ref, position=recorded.position, head=head),)
    return ()


def latest_deliveries(deliveries: Iterable[Delivery]) -> dict[str, Delivery]:
    """Return the last delivery of each delivered source."""
    in_order = sorted(
        (delivery for delivery in deliveries if delivery.delivered_by), key=lambda delivery: delivery.position
    )
    return {delivery.source: delivery for delivery in in_order}


DELIVERED = ReadModel(
    name="delivered", row=Delivery, key=("run", "feature"), types=(ItemAdded, FeatureDelivered), evolve=evolve
)
