"""Facts: what an error code is."""

from __future__ import annotations

import msgspec

from mz_engine.exits import Exit


class ErrorCode(msgspec.Struct, frozen=True):
    code: str
    exit: Exit
    title: str
    explanation: str
    """Why it is an error and how to mend it, for a person who sees it for the first time."""
    warns: bool = False
    """It is only ever a warning: nothing ends for it, so it has no exit code."""
