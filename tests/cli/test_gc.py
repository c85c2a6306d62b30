"""`mz clean --blobs` as a command; what goes and what stays is shown in tests/engine/test_collect.py."""

from __future__ import annotations

import os
import time

import msgspec

from tests.cli.drive import Mz
from tests.cli.stored_run import StoredRun


def test_what_it_frees_is_said(stored_run: StoredRun, mz: Mz) -> None:
    path = stored_run.blobs.path(stored_run.blob("nobody cites this"))
    long_ago = time.time() - 48 * 3600
    os.utime(path, (long_ago, long_ago))
    stored_run.blob("nor this, but it is young")
    size = path.stat().st_size
    dry = mz("clean", "--blobs", "--dry-run")
    assert path.is_file()
    assert dry.out.startswith(f"kind\tcount\tbytes\treason\nblobs\t1\t{size}\t")
    assert dry.err.startswith(f"would free {size} B; ")
    summary = msgspec.json.decode(mz("clean", "--blobs", "--json").out)
    assert summary["blobs"] == {"count": 1, "size_bytes": size}
    assert (summary["freed_bytes"], summary["recent_blobs"]["count"]) == (size, 1)
    assert not path.exists()
    assert mz("audit", "--verify").exit == 0


def test_where_nothing_ran(home: object, mz: Mz) -> None:
    assert mz("clean", "--blobs").exit == 2
