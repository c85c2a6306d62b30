"""`noise.yaml` of a library, which people review like code."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import msgspec
import yaml

from mz_recordings.drift.noise import NoiseEntry
from mz_recordings.files.plainfiles import TEXT_BYTES_MAX, UnreadableFileError, locked, read_plain

FILE_NAME = "noise.yaml"
"""File name in a library."""
HEADER = """\
# What may differ between two recordings of the same thing. Each entry hides differences, so review it like code.
"""


NOISE_KEY = re.compile(r"^noise[ \t]*:", re.MULTILINE)
EMPTY_LIST = re.compile(r"^noise[ \t]*:[ \t]*(?:\[\s*\]|~|null\b)", re.MULTILINE)
"""An empty list."""


class NoiseFileInvalid(Exception):
    """The file is invalid; names it and the reason."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    noise: tuple[NoiseEntry, ...] | None = None


def read_noise(library: Path) -> tuple[NoiseEntry, ...]:
    """Return its entries; none if there is no file. Raises NoiseFileInvalid."""
    path = library / FILE_NAME
    if not path.exists() and not path.is_symlink():
        return ()
    try:
        return _parse(read_plain(path, TEXT_BYTES_MAX))
    except (UnreadableFileError, yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise NoiseFileInvalid(f"{path}: {' '.join(str(error).split())}") from error


def add_noise(library: Path, entries: tuple[NoiseEntry, ...]) -> Path:
    """Append entries, keeping the text and comments of the file; atomic. Raises NoiseFileInvalid."""
    library.mkdir(parents=True, exist_ok=True)
    path = library / FILE_NAME
    with locked(library, exclusive=True):
        before = read_noise(library)
        text = path.read_text("utf-8") if path.exists() else HEADER
        partial = library / f".{FILE_NAME}.partial"
        partial.write_text(append_entries(text, before, entries), "utf-8")
        partial.replace(path)
    return path


def append_entries(text: str, before: tuple[NoiseEntry, ...], entries: tuple[NoiseEntry, ...]) -> str:
    """Return the file's text with more entries. If they cannot be appended in its style, the file is generated again,
    with all comments at the top."""
    body, entries_yaml = text.rstrip("\n"), _yaml(entries)
    open_list = EMPTY_LIST.sub("noise:", body) if EMPTY_LIST.search(body) else body if NOISE_KEY.search(body) else f"{body}\nnoise:"
    result = f"{open_list}\n{entries_yaml}"
    if _parse_or_empty(result) == (*before, *entries):
        return result
    comments = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("#"))
    return f"{comments or HEADER}noise:\n{_yaml((*before, *entries))}"


def _parse_or_empty(text: str) -> tuple[NoiseEntry, ...]:
    try:
        return _parse(text)
    except (yaml.YAMLError, msgspec.ValidationError, ValueError):
        return ()


def _parse(text: str | bytes) -> tuple[NoiseEntry, ...]:
    values = yaml.safe_load(text)
    return msgspec.convert(values if values is not None else {}, _File).noise or ()


def _yaml(entries: tuple[NoiseEntry, ...]) -> str:
    values = [msgspec.to_builtins(entry, builtin_types=(date,)) for entry in entries]
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110))
