"""Replace standard streams that were closed before the program started (`mz status >&-`)."""

from __future__ import annotations

import os
import sys

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_closed_streams() -> None:
    """Open /dev/null for each closed stream, and for its descriptor: a database or pipe opened under that number would
    receive terminal output."""
    for number, (name, mode) in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
