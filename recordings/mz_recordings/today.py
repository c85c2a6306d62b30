"""Adapter: what a cassette is played through: today's pipeline, rules, templates and settings of a project."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace
from mz_engine.agents.registry import built_in
from mz_engine.config import Budget, Config
from mz_engine.configfile import load_config
from mz_engine.pins import Pins
from mz_engine.pipelines.load import find_pipeline, load_pipeline
from mz_engine.pipelines.own import sound_material
from mz_engine.planning import known_names

from mz_recordings.cassette import WORLD_KEYS, Manifest
from mz_recordings.scratch import WorldMissing


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
    except msgspec.ValidationError as error:
        raise WorldMissing(f"the settings of its world are none that this mz knows: {error}") from error
    return replace(
        config,
        **{key: getattr(there, key) for key in world},
        parallel_max=parallel,
        budget=Budget(),
        pull_requests=replace(config.pull_requests, strategy="none"),
    )
