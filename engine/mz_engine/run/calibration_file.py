"""`calibration.yaml` beside `mz.yaml`: written by `mz calibrate --write`, committed, read by every run."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from mz_engine.decoding.text_file import read_text
from mz_engine.decoding.yaml import decode_yaml
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Coefficients

FILE_NAME = "calibration.yaml"
FILE_HEADER = """\
# Written by `mz calibrate --write`, from what past calls took. Commit it: runs estimate and reserve by it.
"""


class CalibrationFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    calibration: tuple[Coefficients, ...] = ()


def read_calibration(root: Path) -> tuple[Coefficients, ...]:
    """Read the file; empty without one. Raises MzError (MZ20nn) with the location of the error."""
    path = root / FILE_NAME
    if not os.path.lexists(path):
        return ()
    return decode_yaml(read_text(path, FILE_NAME), FILE_NAME, CalibrationFile).calibration


def write_calibration(root: Path, coefficients: tuple[Coefficients, ...]) -> Path:
    """Write the file atomically. Raises MzError (MZ1007)."""
    path = root / FILE_NAME
    temporary = path.with_name(f".{FILE_NAME}.new")
    try:
        temporary.write_text(FILE_HEADER + format_calibration(coefficients), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise MzError("MZ1007", f"{path}: {error.strerror}", hint="make it writable, then calibrate again") from None
    return path


def format_calibration(coefficients: tuple[Coefficients, ...]) -> str:
    """Format as YAML, with strings in JSON quotes."""
    lines = ["calibration:" if coefficients else "calibration: []"]
    for row in coefficients:
        prefix = "-"
        for name, value in msgspec.structs.asdict(row).items():
            if value != "":
                lines.append(f"{prefix} {name}: {msgspec.json.encode(value).decode()}")
                prefix = " "
    return "\n".join(lines) + "\n"
