"""The current project, as far as a replay uses it: pipeline, rules, templates and settings."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace
from mz_engine.agents.registry import adapters
from mz_engine.config import Budget, Config
from mz_engine.configfile import load_config
from mz_engine.configform import FILE_NAME
from mz_engine.errors import MzError
from mz_engine.pins import Pins
from mz_engine.pipelines.load import FOLDER, find_pipeline, load_pipeline
from mz_engine.pipelines.own import sound_material
from mz_engine.planning import known_names
from mz_engine.textfile import read_text
from mz_events.names import parse_path

from mz_recordings.cassette import MANIFEST, WORLD_KEYS, Manifest
from mz_recordings.recording.scratch import WorldMissing

OF_THE_PLACE = ("base", "branch_prefix")
"""Settings of the recorded repository, which a replay need not match."""


def pins_of(project: Path, environment: Mapping[str, str], manifest: Manifest, parallel: int) -> Pins:
    """Return the pins of a replay: the current pipeline with the cassette's name, of the project or else of `mz`, and
    the current settings except those of the fixture.

    Raises MzError, and FixtureUnavailable if this `mz` does not know the fixture's settings or its agent.
    """
    loaded = load_config(project, environment, {"agent": manifest.agent})
    if manifest.agent not in adapters(loaded.config.agents):
        said = f"it was recorded with the agent {manifest.agent!r}, which neither this mz has nor mz.yaml describes"
        raise WorldMissing(said)
    config, material = in_world(loaded.config, manifest, parallel), sound_material(project)
    name = manifest.pipeline
    if loaded.config.pipeline != name and loaded.origins["pipeline"] != "default":
        named = find_pipeline(loaded.config.pipeline, project).pipeline.pipeline
        name = loaded.config.pipeline if named == manifest.pipeline else name
    pipeline, _ = load_pipeline(name, project, known_names(config, material))
    return Pins(pipeline=pipeline, rules=material.rules, templates=material.templates, config=config)


def in_world(config: Config, manifest: Manifest, parallel: int) -> Config:
    """Return the settings with those of the fixture, without side effects outside the machine and without a budget."""
    world = {key: value for key, value in manifest.world.config.items() if key in WORLD_KEYS}
    try:
        there = msgspec.convert(world, Config)
        for path in (*there.workspace.copy, *there.workspace.keep):
            parse_path(path)
    except ValueError as error:
        raise WorldMissing(f"this mz does not know the settings of its fixture: {error}") from error
    # Commands that only the current settings have belong to new gates.
    there = replace(there, commands={**config.commands, **there.commands})
    return replace(
        config,
        **{key: getattr(there, key) for key in world},
        parallel_max=parallel,
        budget=Budget(),
        pull_requests=replace(config.pull_requests, strategy="none"),
    )


def held_settings(project: Path, environment: Mapping[str, str], manifest: Manifest) -> tuple[str, ...]:
    """Return names of settings, such as `commands.test`, whose value in `mz.yaml` a replay ignores in favour of the
    fixture's. Raises MzError."""
    today = msgspec.to_builtins(load_config(project, environment, {"agent": manifest.agent}).config)
    there = msgspec.to_builtins(msgspec.convert(manifest.world.config, Config))
    found: list[str] = []
    for key in WORLD_KEYS:
        was, now = there[key], today[key]
        if key in OF_THE_PLACE or key not in manifest.world.config:
            continue
        if isinstance(was, dict) and isinstance(now, dict):
            found += [f"{key}.{name}" for name in was if was[name] != now.get(name)]
        elif was != now:
            found.append(key)
    return tuple(found)


def texts_of(project: Path, cassette: Path) -> dict[str, str]:
    """Return the texts that findings can point at, by path relative to the project: settings, pipelines, templates,
    rule sets, and the manifest of a cassette within the project. UnreadableFileError files are left out."""
    found: dict[str, str] = {}
    patterns = ("*.yaml", "rules/*.yaml", "templates/**/*.j2")
    own = sorted(path for pattern in patterns for path in (project / FOLDER).glob(pattern))
    for path in (project / FILE_NAME, *own, cassette / MANIFEST):
        with suppress(MzError, ValueError):
            name = path.absolute().relative_to(project.absolute()).as_posix()
            found[name] = read_text(path, name)
    return found
