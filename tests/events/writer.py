"""A process that appends until it is done or killed: `python -m tests.events.writer PATH NAME COUNT SIZE`.

It prints the last version of its stream after each append that was acknowledged.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.names import feature_stream
from mz_events.store import Append

from tests.events.conformance import FIRST, NOW, units


def main(path: str, name: str, count: int, size: int) -> None:
    stream = feature_stream("r", name)
    with SqliteStore(Path(path)) as store:
        version = dict(store.streams(stream)).get(stream, 0)
        for _ in range(count):
            store.append([Append(stream, version, units(size, version + 1)), Append(FIRST, None, units(1))], NOW)
            version += size
            print(version, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
