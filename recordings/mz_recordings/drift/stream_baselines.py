"""Baselines of stream shapes as reviewable files, `<agent>-<version>.yaml`, of `mz` and of a library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path

import msgspec
import yaml

from mz_recordings.cassette.safe_files import TEXT_BYTES_MAX, CassetteUnreadable, read_plain
from mz_recordings.drift.stream_shape import Field, StreamShape, Use

FOLDER = "wire"
"""Folder of a library."""
BUILT_IN = "baselines"
"""Folder of the package."""
USES: tuple[Use, ...] = ("read", "kept", "ignored")
ABSENT = "absent"
HEADER = """\
# What {agent} {version} writes, and what mz does with each field: it is read, kept (handed on as it is) or ignored.
# absent: asked for and never seen. `type?`: not always there. Made from recordings by `mz drift --update-baseline`.
"""


class BaselineInvalid(Exception):
    """A baseline cannot be read; names the file."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class BaselineFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of a file."""

    agent: str
    version: str
    reason: str
    """Why it was created or changed."""
    events: dict[str, dict[str, dict[str, str]]]
    """By event and use: types by path, such as `string|null?`."""


def built_in_folder() -> Path:
    """Return the folder of the baselines that are part of `mz`."""
    return Path(str(files("mz_recordings") / BUILT_IN))


def load_baselines(folders: tuple[Path, ...]) -> dict[tuple[str, str], StreamShape]:
    """Read all baselines by agent and version; those of later folders win. Raises BaselineInvalid."""
    baselines = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            shape = read_baseline(path)
            baselines[shape.agent, shape.version] = shape
    return baselines


def read_baseline(path: Path) -> StreamShape:
    """Read one file. Raises BaselineInvalid."""
    try:
        values = yaml.load(read_plain(path, TEXT_BYTES_MAX), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        baseline = msgspec.convert(values, BaselineFile)
        return StreamShape(agent=baseline.agent, version=baseline.version, events=dict(_events(baseline.events)))
    except (CassetteUnreadable, yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise BaselineInvalid(path, " ".join(str(error).split())) from error


def _events(values: Mapping[str, Mapping[str, Mapping[str, str]]]) -> Iterator[tuple[str, dict[str, Field]]]:
    for event, uses in values.items():
        fields: dict[str, Field] = {}
        for use, paths in uses.items():
            if use not in (*USES, ABSENT):
                raise ValueError(f"{event} has {use!r}; known: {', '.join((*USES, ABSENT))}")
            for path, types in paths.items():
                type_names = tuple(sorted(name for name in types.removesuffix("?").split("|") if name))
                field_use: Use = next((name for name in USES if name == use), "read")
                is_always_present = bool(type_names) and not types.endswith("?")
                fields[path] = Field(types=type_names, use=field_use, is_always_present=is_always_present)
        yield event, fields


def write_baseline(shape: StreamShape, reason: str, folder: Path) -> Path:
    """Write the file of this agent and version; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_file_name_part(shape.agent)}-{_file_name_part(shape.version)}.yaml"
    header = HEADER.format(agent=shape.agent, version=shape.version)
    values = {"agent": shape.agent, "version": shape.version, "reason": reason, "events": _to_values(shape)}
    path.write_text(header + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110), "utf-8")
    return path


def _file_name_part(text: str) -> str:
    """Return the text as part of a file name; a version comes from a stream, which may contain anything."""
    return re.sub(r"[^A-Za-z0-9.+_-]", "_", text).strip(".")[:64] or "unknown"


def _to_values(shape: StreamShape) -> dict[str, dict[str, dict[str, str]]]:
    values: dict[str, dict[str, dict[str, str]]] = {}
    for event, fields in sorted(shape.events.items()):
        uses: dict[str, dict[str, str]] = {}
        for path, field in sorted(fields.items()):
            types = "|".join(field.types) + ("" if field.is_always_present else "?")
            uses.setdefault(field.use if field.types else ABSENT, {})[path] = types
        values[event] = {use: uses[use] for use in (*USES, ABSENT) if use in uses}
    return values
