"""Baselines of stream shapes as reviewable files, `<agent>-<version>.yaml`, of `mz` and of a library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path

import msgspec
import yaml

from mz_recordings.files.plainfiles import TEXT_BYTES_MAX, Unreadable, read_plain
from mz_recordings.wire.wire import Field, Use, Wire

FOLDER = "wire"
"""Folder of a library."""
BUILT_IN = "baselines"
"""Folder of the package."""
USES: tuple[Use, ...] = ("read", "kept", "ignored")
ABSENT = "absent"
HEAD = """\
# What {agent} {version} writes, and what mz does with each field: it is read, kept (handed on as it is) or ignored.
# absent: asked for and never seen. `type?`: not always there. Made from recordings by `mz drift --update-wire`.
"""


class BaselineUnusable(Exception):
    """A baseline cannot be read; names the file."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of a file."""

    agent: str
    version: str
    reason: str
    """Why it was created or changed."""
    events: dict[str, dict[str, dict[str, str]]]
    """By event and use: types by path, such as `string|null?`."""


def built_in_place() -> Path:
    """Return the folder of the baselines that are part of `mz`."""
    return Path(str(files("mz_recordings") / BUILT_IN))


def load_baselines(places: tuple[Path, ...]) -> dict[tuple[str, str], Wire]:
    """Read all baselines by agent and version; those of later folders win. Raises BaselineInvalid."""
    found = {}
    for place in places:
        for path in sorted(place.glob("*.yaml")):
            wire = read_baseline(path)
            found[wire.agent, wire.version] = wire
    return found


def read_baseline(path: Path) -> Wire:
    """Read one file. Raises BaselineInvalid."""
    try:
        plain = yaml.load(read_plain(path, TEXT_BYTES_MAX), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        kept = msgspec.convert(plain, Baseline)
        return Wire(agent=kept.agent, version=kept.version, events=dict(_events(kept.events)))
    except (Unreadable, yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise BaselineUnusable(path, " ".join(str(error).split())) from error


def _events(plain: Mapping[str, Mapping[str, Mapping[str, str]]]) -> Iterator[tuple[str, dict[str, Field]]]:
    for event, uses in plain.items():
        fields: dict[str, Field] = {}
        for use, paths in uses.items():
            if use not in (*USES, ABSENT):
                raise ValueError(f"{event} has {use!r}; known: {', '.join((*USES, ABSENT))}")
            for path, types in paths.items():
                fields[path] = _field(use, types)
        yield event, fields


def _field(use: str, types: str) -> Field:
    known = tuple(sorted(name for name in types.removesuffix("?").split("|") if name))
    named: Use = next((name for name in USES if name == use), "read")
    return Field(types=known, use=named, always=bool(known) and not types.endswith("?"))


def write_baseline(wire: Wire, reason: str, folder: Path) -> Path:
    """Write the file of this agent and version; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_name(wire.agent)}-{_name(wire.version)}.yaml"
    head = HEAD.format(agent=wire.agent, version=wire.version)
    plain = {"agent": wire.agent, "version": wire.version, "reason": reason, "events": _plain(wire)}
    path.write_text(head + yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110), "utf-8")
    return path


def _name(text: str) -> str:
    """Return the text as part of a file name; a version comes from a stream, which may contain anything."""
    return re.sub(r"[^A-Za-z0-9.+_-]", "_", text).strip(".")[:64] or "unknown"


def _plain(wire: Wire) -> dict[str, dict[str, dict[str, str]]]:
    made: dict[str, dict[str, dict[str, str]]] = {}
    for event, fields in sorted(wire.events.items()):
        uses: dict[str, dict[str, str]] = {}
        for path, field in sorted(fields.items()):
            types = "|".join(field.types) + ("" if field.always else "?")
            uses.setdefault(field.use if field.types else ABSENT, {})[path] = types
        made[event] = {use: uses[use] for use in (*USES, ABSENT) if use in uses}
    return made
