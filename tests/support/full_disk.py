"""A run on a disk that fills up in the middle and is freed again: `python -m tests.support.full_disk PLACE`.

PLACE is the mount point of a small file system, which holds the repository.
Prints what happened, as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from tests.support.bench import Bench
from tests.support.tree import AGENT_STATE

FILL = f"""
import time
from pathlib import Path
answer()
own = Path.home() / "{AGENT_STATE}"
(own / 'ready').touch()
while not (own / 'filler').exists(): time.sleep(0.05)
time.sleep(1)
"""


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="mz-") as outside:
        bench = Bench(Path(outside), root=folder / "tally")
        bench.act("group-thousands", "prd", FILL)
        process = bench.start("run", "--feature", "group-thousands")
        own = bench.home / AGENT_STATE
        wait_for(own / "ready")
        fill(folder / "filler")
        (own / "filler").touch()
        out, err = process.communicate(timeout=120)
        full = {"code": process.returncode, "err": err, "out": out}
        readable = bench.mz("status", "--json", code=None)
        (folder / "filler").unlink()
        resumed = bench.mz("run", code=None)
        print(
            json.dumps(
                {
                    "full": full,
                    "status": readable.exit,
                    "resumed": resumed.exit,
                    "words": resumed.err[-2000:],
                    "calls": dict(bench.calls()),
                    "statuses": bench.statuses(),
                }
            )
        )


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.05)


def fill(path: Path) -> None:
    """Until nothing goes onto the disk any more."""
    with open(path.with_suffix(".part"), "wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    path.with_suffix(".part").rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
