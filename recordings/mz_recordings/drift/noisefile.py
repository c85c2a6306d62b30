"""Adapter: `noise.yaml` of a library: entries that people review like code."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import msgspec
import yaml

from mz_recordings.drift.noise import Noise
from mz_recordings.files.plainfiles import TEXT_BYTES_MAX, Unreadable, read_plain

NAME = "noise.yaml"
"""In a library."""
HEAD = """\
# What may differ between two recordings of the same thing. Each entry hides differences, so review it like code.
"""


class NoiseUnusable(Exception):
    """The file cannot be read as what it is; names it and says why."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    noise: tuple[Noise, ...] = ()


def read_noise(library: Path) -> tuple[Noise, ...]:
    """Its entries, as they stand; none where there is no file. Raises NoiseUnusable."""
    path = library / NAME
    if not path.exists() and not path.is_symlink():
        return ()
    try:
        plain = yaml.safe_load(read_plain(path, TEXT_BYTES_MAX))
        return msgspec.convert(plain if plain is not None else {}, _File).noise
    except (Unreadable, yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise NoiseUnusable(f"{path}: {' '.join(str(error).split())}") from error


def add_noise(library: Path, entries: tuple[Noise, ...]) -> Path:
    """Adds entries below those that are there, whose text and comments stay. Raises NoiseUnusable."""
    before = read_noise(library)
    library.mkdir(parents=True, exist_ok=True)
    path = library / NAME
    text = path.read_text("utf-8") if before else f"{HEAD}noise:\n"
    path.write_text(text.rstrip("\n") + "\n" + _yaml(entries), "utf-8")
    if _reads(library) != (*before, *entries):  # Written in another style: nothing but the entries can be kept.
        path.write_text(f"{HEAD}noise:\n{_yaml((*before, *entries))}", "utf-8")
    return path


def _reads(library: Path) -> tuple[Noise, ...]:
    try:
        return read_noise(library)
    except NoiseUnusable:
        return ()


def _yaml(entries: tuple[Noise, ...]) -> str:
    plain = [msgspec.to_builtins(entry, builtin_types=(date,)) for entry in entries]
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110))
