"""Last output of a working agent, from the spool of its call, whichever process that runs in."""

from __future__ import annotations

import os
from pathlib import Path

from mz_engine.agents.spool import spool_directory

from mz_cli.render.said import recent_output

TAIL_BYTES = 64 * 1024
LINES_SHOWN = 3
CALLS_KEPT = 100


class SpoolReader:
    """Reader of one repository's spools; each is read again only when it has grown."""

    def __init__(self, spools: Path) -> None:
        """`spools`: their directory, two levels below the repository."""
        self._spools, self._home = spools, str(spools.parent.parent)
        self._output_by_key: dict[str, tuple[int, tuple[str, ...]]] = {}

    def recent_output(self, key: str) -> tuple[str, ...]:
        """Return the last lines of the call with that key, the newest last; empty without output."""
        try:
            with open(spool_directory(self._spools, key) / "stdout", "rb") as file:
                size = os.fstat(file.fileno()).st_size
                cached = self._output_by_key.get(key)
                if cached is None or cached[0] != size:
                    file.seek(max(0, size - TAIL_BYTES))
                    self._remember(key, size, recent_output(file.read(TAIL_BYTES), LINES_SHOWN, self._home))
        except OSError:
            return ()
        return self._output_by_key[key][1]

    def _remember(self, key: str, size: int, lines: tuple[str, ...]) -> None:
        if len(self._output_by_key) >= CALLS_KEPT:
            self._output_by_key.clear()
        self._output_by_key[key] = size, lines
