"""Scenarios that run inside a small file system: `python -m tests.projections.small_disk full|read-only DIRECTORY`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mz_events.adapters.sqlite_log import SqliteStore
from mz_projections.read_models.store import ReadModelStore

from tests.events.small_disk import fill
from tests.projections.test_runner import MODELS, SMALL, append, exact


def main(what: str, directory: Path) -> None:
    path = directory / "views.sqlite"
    with SqliteStore(directory / "mz.db") as store:
        append(store, SMALL)
    if what == "read-only":
        subprocess.run(["mount", "-o", "remount,bind,ro", directory], check=True)
    else:
        fill(directory / "filler")
    with SqliteStore(directory / "mz.db", read_only=True) as store, ReadModelStore(path, store, MODELS) as views:
        views.refresh()
        assert exact(views, store)
        assert views.path is None


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
