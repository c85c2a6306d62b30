"""Adapter: stands in for a standard stream that was closed before the program began (`mz status >&-`)."""

from __future__ import annotations

import os
import sys

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_closed() -> None:
    """Nobody gives or reads anything there, as with /dev/null. The descriptor is taken too: a database or a child's
    pipe that was opened under its number would get what is meant for a terminal."""
    for number, (name, mode) in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
