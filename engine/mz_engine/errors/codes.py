"""All error codes, from `codes.toml`, and the texts of the exit codes, from `exits.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import msgspec

from mz_engine.errors.diagnostics import Exit


class ErrorCode(msgspec.Struct, frozen=True):
    code: str
    exit: Exit
    title: str
    explanation: str
    is_warning: bool = False


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads((files("mz_engine.errors") / name).read_text("utf-8"))


CODES = {
    code: ErrorCode(code, Exit[entry.pop("exit")], explanation=" ".join(entry.pop("explanation").split()), **entry)
    for code, entry in _load("codes.toml").items()
}
"""By code, in order."""

PROBLEMS: Mapping[str, tuple[str, str]] = {code: (entry[0], entry[1]) for code, entry in _load("problems.toml").items()}
"""Meaning and next step of each problem; `exit-N` stands for every exit code of an agent."""

_EXITS = {Exit[name]: entry for name, entry in _load("exits.toml").items()}
MEANINGS: dict[Exit, str] = {code: entry["meaning"] for code, entry in _EXITS.items()}
"""The meaning of each exit code, in one sentence."""
NEXT_STEPS = {code: " ".join(entry["next"].split()) for code, entry in _EXITS.items() if "next" in entry}
"""What to do next."""
