"""The corpus of stored payloads, one a type and schema, that every version must be able to read.

`python -m tests.support.golden` makes the missing ones. `--renew` also rewrites those that no longer fit: right only
for a schema that was never released; otherwise raise `SCHEMA` and write the upcaster.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mz_events.codec import ALL_EVENTS, CODEC

from tests.support.samples import sample
from tests.support.tree import ROOT

CORPUS = ROOT / "tests/cases/events"


def path_of(name: str, schema: int) -> Path:
    """Where the payload of a type and schema is kept."""
    return CORPUS / f"{name}.{schema}.json"


def write(renew: bool) -> tuple[Path, ...]:
    """Makes what is missing, with `renew` also what has changed; returns what it wrote."""
    written = []
    for kind in ALL_EVENTS:
        name, schema, payload = CODEC.encode(sample(kind))
        path = path_of(name, schema)
        text = payload + b"\n"
        if not path.exists() or (renew and path.read_bytes() != text):
            path.write_bytes(text)
            written.append(path)
    return tuple(written)


if __name__ == "__main__":
    for made in write(renew="--renew" in sys.argv[1:]):
        print(made.name)
