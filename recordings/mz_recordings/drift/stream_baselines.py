"""Baselines of stream shapes as reviewable files, `<agent>-<version>.yaml`, of `mz` and of a library; comparison of
cassettes with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import get_args

import msgspec
import yaml
from mz_engine.agents.registry import all_adapters
from mz_engine.decoding.yaml import format_yaml, load_yaml

from mz_recordings.cassette.model import Cassette, RecordedCall
from mz_recordings.cassette.safe_files import TEXT_BYTES_MAX, CassetteUnreadable, read_plain
from mz_recordings.drift.model import AgentDescriptions, Difference
from mz_recordings.drift.stream_shape import (
    Field,
    ObservedStreams,
    StreamShape,
    Use,
    compare_shapes,
    observe_streams,
    parent_path,
    shape_differences,
)
from mz_recordings.findings.model import UPDATE_BASELINE, Finding

FOLDER = "wire"
"""Folder of a library."""
BUILT_IN = "baselines"
"""Folder of the package."""
HEADER = """\
# What {agent} {version} writes, and what mz does with each field: it is read or ignored.
# absent: asked for and never seen. `type?`: not always there. Made from recordings by `mz drift --update-baseline`.
"""


class BaselineFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agent: str
    version: str
    reason: str
    """Why it was created or changed."""
    events: dict[str, dict[Use, dict[str, str]]]
    """By event and use: types by path, such as `string|null?`."""


def built_in_folder() -> Path:
    """Return the folder of the baselines that are part of `mz`."""
    return Path(str(files("mz_recordings") / BUILT_IN))


def load_baselines(folders: tuple[Path, ...]) -> dict[tuple[str, str], StreamShape]:
    """Read all baselines by agent and version; those of later folders win. Raises CassetteUnreadable."""
    baselines = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            shape = read_baseline(path)
            baselines[shape.agent, shape.version] = shape
    return baselines


def read_baseline(path: Path) -> StreamShape:
    """Read one file. Raises CassetteUnreadable."""
    try:
        values = load_yaml(read_plain(path, TEXT_BYTES_MAX))
        baseline = msgspec.convert(values, BaselineFile)
        events = {event: _fields(uses) for event, uses in baseline.events.items()}
        return StreamShape(agent=baseline.agent, version=baseline.version, events=events)
    except (CassetteUnreadable, yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise CassetteUnreadable(path, " ".join(str(error).split())) from error


def _fields(uses: Mapping[Use, Mapping[str, str]]) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for use, paths in uses.items():
        for path, types in paths.items():
            type_names = tuple(sorted(name for name in types.removesuffix("?").split("|") if name))
            is_always_present = bool(type_names) and not types.endswith("?")
            fields[path] = Field(types=type_names, use=use, is_always_present=is_always_present)
    return fields


def write_baseline(shape: StreamShape, reason: str, folder: Path) -> Path:
    """Write the file of this agent and version; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_file_name_part(shape.agent)}-{_file_name_part(shape.version)}.yaml"
    header = HEADER.format(agent=shape.agent, version=shape.version)
    values = {"agent": shape.agent, "version": shape.version, "reason": reason, "events": _to_values(shape)}
    path.write_text(header + format_yaml(values), "utf-8")
    return path


def _file_name_part(text: str) -> str:
    """Return the text as part of a file name; a version comes from a stream, which may contain anything."""
    return re.sub(r"[^A-Za-z0-9.+_-]", "_", text).strip(".")[:64] or "unknown"


def _to_values(shape: StreamShape) -> dict[str, dict[Use, dict[str, str]]]:
    values: dict[str, dict[Use, dict[str, str]]] = {}
    for event, fields in sorted(shape.events.items()):
        uses: dict[Use, dict[str, str]] = {use: {} for use in get_args(Use)}
        for path, field in sorted(fields.items()):
            types = "|".join(field.types) + ("" if field.is_always_present else "?")
            uses[field.use][path] = types
        values[event] = {use: paths for use, paths in uses.items() if paths}
    return values


# comparison -----------------------------------------------------------------------------------------------------------
Baselines = Mapping[tuple[str, str], StreamShape]
CLI_PROVENANCES = ("live", "scripted-model")
"""Provenances whose streams the real CLI wrote."""


def check_streams(cassette: Cassette, baselines: Baselines, described: AgentDescriptions) -> Iterator[Difference]:
    """Yield stream differences, one comparison per agent and version in the cassette. Only streams that a CLI wrote are
    compared."""
    if cassette.manifest.provenance not in CLI_PROVENANCES:
        return
    agents = all_adapters(described)
    for observed in observe_cassette(cassette, described):
        shape = observed.shape
        baseline = nearest_baseline(shape, baselines)
        label = f"the baseline of {baseline.agent} {baseline.version}" if baseline else ""
        missing = ""
        if baseline is None:
            missing = f"there is no baseline of {shape.agent}"
        elif shape.version and baseline.version != shape.version:
            missing = f"there is no baseline of {shape.agent} {shape.version}; compared with {label}"
        if missing:
            yield Difference(
                Finding(kind="STREAM", message=missing, cause=shape.agent, fix=UPDATE_BASELINE, risk="low")
            )
        if baseline is not None:
            changes = compare_shapes(baseline, observed, agents[shape.agent])
            yield from shape_differences(changes, observed, label, UPDATE_BASELINE)


def observe_cassette(cassette: Cassette, described: AgentDescriptions) -> Iterator[ObservedStreams]:
    """Yield the stream shape of each agent and version in the cassette; calls without a stream are left out."""
    agents = all_adapters(described)
    groups: dict[tuple[str, str], list[RecordedCall]] = {}
    for call in cassette.calls:
        stdout = call.recording.find("stdout")
        # Prose has no shape; a recording keeps it as `.txt`.
        if stdout is not None and not stdout.name.endswith(".txt") and call.contents[stdout.name]:
            groups.setdefault((call.recording.agent, call.recording.version), []).append(call)
    for (agent, _), calls in sorted(groups.items()):
        if agent in agents:
            yield observe_streams(calls, agents[agent])


def nearest_baseline(shape: StreamShape, baselines: Baselines) -> StreamShape | None:
    """Return the baseline of the version, else the newest one before it, else the oldest."""
    agent_baselines = sorted(
        (baseline for (agent, _), baseline in baselines.items() if agent == shape.agent),
        key=lambda baseline: version_key(baseline.version),
    )
    if not shape.version:
        return agent_baselines[-1] if agent_baselines else None
    not_newer = [entry for entry in agent_baselines if version_key(entry.version) <= version_key(shape.version)]
    return next(iter(not_newer[-1:] or agent_baselines), None)


def version_key(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d{1,9}", version)[:4])


def extend_baseline(baseline: StreamShape | None, observed: StreamShape) -> StreamShape:
    """Return the known stream shape of a version, extended by the observed one."""
    if baseline is None:
        return observed
    events = {**baseline.events}
    for name, fields in observed.events.items():
        events[name] = _merge_fields(baseline.events[name], fields) if name in baseline.events else fields
    return StreamShape(agent=observed.agent, version=observed.version, events=events)


def _merge_fields(old_fields: dict[str, Field], new_fields: dict[str, Field]) -> dict[str, Field]:
    merged = {}
    for path in sorted(old_fields.keys() | new_fields.keys()):
        same, parent = [fields[path] for fields in (old_fields, new_fields) if path in fields], parent_path(path)
        parent_is_in_both = not parent or (parent in old_fields and parent in new_fields)
        types = {name for field in same for name in field.types}
        is_ignored = all(field.use == "ignored" for field in same)
        merged[path] = Field(
            types=tuple(sorted(types)),
            use="ignored" if is_ignored else "read" if types else "absent",
            is_always_present=all(field.is_always_present for field in same)
            and (len(same) == 2 or not parent_is_in_both),
        )
    return merged
