"""All error codes, from `codes.toml`."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import msgspec

from mz_engine.errors.exits import Exit


class ErrorCode(msgspec.Struct, frozen=True):
    code: str
    exit: Exit
    title: str
    explanation: str
    is_warning: bool = False


def _load() -> dict[str, ErrorCode]:
    table = tomllib.loads((files("mz_engine.errors") / "codes.toml").read_text("utf-8"))
    return {
        code: ErrorCode(code, Exit[entry.pop("exit")], explanation=" ".join(entry.pop("explanation").split()), **entry)
        for code, entry in table.items()
    }


CODES = _load()
"""By code, in order."""
