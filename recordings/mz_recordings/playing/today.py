"""Adapter: what a cassette is played through: today's pipeline, rules, templates and settings of a project."""

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
"""Where a run took place: nobody expects a replay to do so there."""


def pins_of(project: Path, environment: Mapping[str, str], manifest: Manifest, parallel: int) -> Pins:
    """Today's pipeline of the cassette's name: the project's, else the one that comes with `mz`. Settings are today's
    too, but for those that belong to the world. Raises MzError, and WorldMissing where the world's settings or its
    agent are none that this `mz` knows."""
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
    """The settings with the world's own in them: nothing leaves the machine, and nothing costs."""
    world = {key: value for key, value in manifest.world.config.items() if key in WORLD_KEYS}
    try:
        there = msgspec.convert(world, Config)
        for path in (*there.workspace.copy, *there.workspace.keep):
            parse_path(path)
    except ValueError as error:
        raise WorldMissing(f"the settings of its world are none that this mz knows: {error}") from error
    # A command that the world does not know is one that a gate of today's wants.
    there = replace(there, commands={**config.commands, **there.commands})
    return replace(
        config,
        **{key: getattr(there, key) for key in world},
        parallel_max=parallel,
        budget=Budget(),
        pull_requests=replace(config.pull_requests, strategy="none"),
    )


def held_settings(project: Path, environment: Mapping[str, str], manifest: Manifest) -> tuple[str, ...]:
    """Names of settings, such as `commands.test`, that `mz.yaml` has otherwise than the world of the cassette, whose
    word counts in a replay. Raises MzError."""
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
    """What findings can point at, by path relative to the project: its settings, pipelines, templates and rule sets,
    and the manifest of a cassette that lies in it. What cannot be read as text is left out."""
    found: dict[str, str] = {}
    patterns = ("*.yaml", "rules/*.yaml", "templates/**/*.j2")
    own = sorted(path for pattern in patterns for path in (project / FOLDER).glob(pattern))
    for path in (project / FILE_NAME, *own, cassette / MANIFEST):
        with suppress(MzError, ValueError):
            name = path.absolute().relative_to(project.absolute()).as_posix()
            found[name] = read_text(path, name)
    return found
