"""Adapter: what a cassette is played through: today's pipeline, rules, templates and settings of a project."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace
from mz_engine.agents.registry import built_in
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


def pins_of(project: Path, environment: Mapping[str, str], manifest: Manifest, parallel: int) -> Pins:
    """Today's pipeline of the cassette's name: the project's, else the one that comes with `mz`. Settings are today's
    too, but for those that belong to the world. Raises MzError, and WorldMissing where the world's settings or its
    agent are none that this `mz` knows."""
    if manifest.agent not in built_in():
        raise WorldMissing(f"it was recorded with the agent {manifest.agent!r}, which this mz does not have")
    loaded = load_config(project, environment, {"agent": manifest.agent})
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
    return replace(
        config,
        **{key: getattr(there, key) for key in world},
        parallel_max=parallel,
        budget=Budget(),
        pull_requests=replace(config.pull_requests, strategy="none"),
    )


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
