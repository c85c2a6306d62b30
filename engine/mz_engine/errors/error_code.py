"""The Struct of an error code."""

from __future__ import annotations

import msgspec

from mz_engine.errors.exits import Exit


class ErrorCode(msgspec.Struct, frozen=True):
    code: str
    exit: Exit
    title: str
    explanation: str
    """Why it is an error and how to fix it, for a person who sees it for the first time."""
    is_warning: bool = False
    """Always a warning: no command ends with it, so it has no exit code."""
