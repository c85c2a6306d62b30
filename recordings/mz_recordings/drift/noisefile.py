"""`noise.yaml` of a library, which people review like code."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import msgspec
import yaml

from mz_recordings.drift.noise import Noise
from mz_recordings.files.plainfiles import TEXT_BYTES_MAX, Unreadable, locked, read_plain

NAME = "noise.yaml"
"""File name in a library."""
HEAD = """\
# What may differ between two recordings of the same thing. Each entry hides differences, so review it like code.
"""


KEYED = re.compile(r"^noise[ \t]*:", re.MULTILINE)
EMPTY = re.compile(r"^noise[ \t]*:[ \t]*(?:\[\s*\]|~|null\b)", re.MULTILINE)
"""An empty list."""


class NoiseUnusable(Exception):
    """The file is invalid; names it and the reason."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    noise: tuple[Noise, ...] | None = None


def read_noise(library: Path) -> tuple[Noise, ...]:
    """Return its entries; none if there is no file. Raises NoiseFileInvalid."""
    path = library / NAME
    if not path.exists() and not path.is_symlink():
        return ()
    try:
        return _parsed(read_plain(path, TEXT_BYTES_MAX))
    except (Unreadable, yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise NoiseUnusable(f"{path}: {' '.join(str(error).split())}") from error


def add_noise(library: Path, entries: tuple[Noise, ...]) -> Path:
    """Append entries, keeping the text and comments of the file; atomic. Raises NoiseFileInvalid."""
    library.mkdir(parents=True, exist_ok=True)
    path = library / NAME
    with locked(library, alone=True):
        before = read_noise(library)
        text = path.read_text("utf-8") if path.exists() else HEAD
        partial = library / f".{NAME}.partial"
        partial.write_text(with_entries(text, before, entries), "utf-8")
        partial.replace(path)
    return path


def with_entries(text: str, before: tuple[Noise, ...], entries: tuple[Noise, ...]) -> str:
    """Return the file's text with more entries. If they cannot be appended in its style, the file is generated again,
    with all comments at the top."""
    kept, more = text.rstrip("\n"), _yaml(entries)
    opened = EMPTY.sub("noise:", kept) if EMPTY.search(kept) else kept if KEYED.search(kept) else f"{kept}\nnoise:"
    made = f"{opened}\n{more}"
    if _reads(made) == (*before, *entries):
        return made
    comments = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("#"))
    return f"{comments or HEAD}noise:\n{_yaml((*before, *entries))}"


def _reads(text: str) -> tuple[Noise, ...]:
    try:
        return _parsed(text)
    except (yaml.YAMLError, msgspec.ValidationError, ValueError):
        return ()


def _parsed(text: str | bytes) -> tuple[Noise, ...]:
    plain = yaml.safe_load(text)
    return msgspec.convert(plain if plain is not None else {}, _File).noise or ()


def _yaml(entries: tuple[Noise, ...]) -> str:
    plain = [msgspec.to_builtins(entry, builtin_types=(date,)) for entry in entries]
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110))
