"""Last output of a working agent, from the spool of its call, whichever process that runs in."""

from __future__ import annotations

import os
from pathlib import Path

from mz_engine.agents.spool import directory

from mz_cli.render.said import last_words

TAIL_BYTES = 64 * 1024
WORDS_KEPT = 3
CALLS_KEPT = 100


class Spools:
    """Reader of one repository's spools; each is read again only when it has grown."""

    def __init__(self, spools: Path) -> None:
        """`spools`: their directory, two levels below the repository."""
        self._spools, self._home = spools, str(spools.parent.parent)
        self._seen: dict[str, tuple[int, tuple[str, ...]]] = {}

    def last_words(self, key: str) -> tuple[str, ...]:
        """Return the last lines of the call with that key, the newest last; empty without output."""
        try:
            with open(directory(self._spools, key) / "stdout", "rb") as file:
                size = os.fstat(file.fileno()).st_size
                known = self._seen.get(key)
                if known is None or known[0] != size:
                    file.seek(max(0, size - TAIL_BYTES))
                    self._remember(key, size, last_words(file.read(TAIL_BYTES), WORDS_KEPT, self._home))
        except OSError:
            return ()
        return self._seen[key][1]

    def _remember(self, key: str, size: int, words: tuple[str, ...]) -> None:
        if len(self._seen) >= CALLS_KEPT:
            self._seen.clear()
        self._seen[key] = size, words
