"""Facts: one difference between two recordings of the same calls, and what noise may name of it."""

from __future__ import annotations

from typing import NamedTuple

from mz_recordings.cassette import Cassette, Identity, Taken
from mz_recordings.findings import Finding


class Pair(NamedTuple):
    """Two recordings of one call, by identity, and where they come from."""

    old: Taken
    new: Taken
    olds: Cassette
    news: Cassette

    @property
    def identity(self) -> Identity:
        return self.old.recording.identity


class Atom(NamedTuple):
    """The smallest part of a difference that noise can name."""

    path: str
    """A field, such as `usage.output`, or an artifact's text, such as `prd.text`."""
    old: str = ""
    """Of a text: a line that is there no more. Of a number: what it was."""
    new: str = ""


class Difference(NamedTuple):
    finding: Finding
    atoms: tuple[Atom, ...] = ()
    """Empty: it can never be noise."""
