"""The current project of a replay: its settings, pipelines, templates and rules."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace
from mz_engine.agents.registry import all_adapters
from mz_engine.decoding.quantity import decode_quantity, encode_quantity
from mz_engine.decoding.text_file import read_text
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import FILE_NAME, Budget, Config
from mz_engine.model.pins import Pins
from mz_engine.pipelines.load import PIPELINES_FOLDER, load_pipeline, load_valid_pipeline_files, pin_files
from mz_engine.run.settings import load_config
from mz_events.names import parse_path

from mz_recordings.cassette.model import FIXTURE_DEFAULTS, FIXTURE_KEYS, MANIFEST, Manifest
from mz_recordings.cassette.repository import FixtureUnavailable

REPOSITORY_SETTINGS = ("base", "branch_prefix")
"""Settings of the recorded repository, which a replay need not match."""


class CurrentProject(NamedTuple):
    """What the current project means for a cassette."""

    pins: Pins
    overridden_settings: tuple[str, ...]
    """Names of settings, such as `commands.test`, whose value in `mz.yaml` a replay ignores in favour of the
    fixture's."""


def current_project(
    project: Path, environment: Mapping[str, str], manifest: Manifest, parallel: int, command_id: str = ""
) -> CurrentProject:
    """Read the current pipeline with the cassette's name, of the project or else of `mz`, and the current settings
    except those of the fixture. With the `command_id` of a command, an earlier result of that command is returned.

    Raises MzError, and FixtureUnavailable if this `mz` does not know the fixture's settings or its agent.
    """
    read = _read_project if command_id else _read_project.__wrapped__
    fixture_config, variables = msgspec.json.encode(manifest.fixture.config), tuple(environment.items())
    parallel = manifest.fixture.parallel or parallel
    current = read(command_id, project, variables, manifest.agent, manifest.pipeline, fixture_config, parallel)
    return current._replace(pins=replace(current.pins, memory=manifest.fixture.memory))


@lru_cache(maxsize=32)
def _read_project(
    command_id: str,
    root: Path,
    environment: tuple[tuple[str, str], ...],
    agent: str,
    pipeline_name: str,
    fixture_config: bytes,
    parallel: int,
) -> CurrentProject:
    loaded = load_config(root, dict(environment), {"agent": agent})
    if agent not in all_adapters(loaded.config.agents):
        message = f"it was recorded with the agent {agent!r}, which neither this mz has nor mz.yaml describes"
        raise FixtureUnavailable(message)
    settings: dict[str, object] = msgspec.json.decode(fixture_config)
    config, material = replay_config(loaded.config, settings, parallel), load_valid_pipeline_files(root)
    name = pipeline_name
    if loaded.config.pipeline != name and loaded.origins["pipeline"] != "default":
        configured_pipeline = load_pipeline(loaded.config.pipeline, root)[0].pipeline
        name = loaded.config.pipeline if configured_pipeline == pipeline_name else name
    pipeline, _ = load_pipeline(name, root, material, config)
    pins = pin_files(pipeline, material, config)
    return CurrentProject(pins, _overridden_settings(loaded.config, settings))


def replay_config(config: Config, settings: Mapping[str, object], parallel: int) -> Config:
    """Return the settings with those of the fixture, without side effects outside the machine and without a budget."""
    fixture_settings = {key: value for key, value in settings.items() if key in FIXTURE_KEYS}
    try:
        fixture_config = msgspec.convert(fixture_settings, Config, dec_hook=decode_quantity)
        for path in (*fixture_config.workspace.copy, *fixture_config.workspace.keep_ignored):
            parse_path(path)
    except ValueError as error:
        raise FixtureUnavailable(f"this mz does not know the settings of its fixture: {error}") from error
    # Commands that only the current settings have belong to new gates.
    fixture_config = replace(fixture_config, commands={**config.commands, **fixture_config.commands})
    return replace(
        replace(config, papers="branch", commits="phases", **FIXTURE_DEFAULTS),  # Of cassettes that do not say.
        **{key: getattr(fixture_config, key) for key in fixture_settings},
        parallel_max=parallel,
        budget=Budget(),
        pull_requests=replace(config.pull_requests, strategy="none"),
    )


def _overridden_settings(config: Config, settings: Mapping[str, object]) -> tuple[str, ...]:
    explicit = replace(config, papers=config.place_of_papers)  # As the recorder writes it.
    current_settings = msgspec.to_builtins(explicit, enc_hook=encode_quantity)
    fixture_config = msgspec.convert(settings, Config, dec_hook=decode_quantity)
    fixture_settings = msgspec.to_builtins(fixture_config, enc_hook=encode_quantity)
    names: list[str] = []
    for key in FIXTURE_KEYS:
        recorded_value, current_value = fixture_settings[key], current_settings[key]
        if key in REPOSITORY_SETTINGS or key not in settings:
            continue
        if isinstance(recorded_value, dict) and isinstance(current_value, dict):
            names += [f"{key}.{name}" for name in recorded_value if recorded_value[name] != current_value.get(name)]
        elif recorded_value != current_value:
            names.append(key)
    return tuple(names)


def project_texts(project: Path, cassette: Path) -> dict[str, str]:
    """Return the texts that findings can point at, by path relative to the project: settings, pipelines, templates,
    rule sets, and the manifest of a cassette within the project. Unreadable files are left out."""
    texts: dict[str, str] = {}
    patterns = ("*.yaml", "rules/*.yaml", "templates/**/*.j2")
    pipeline_files = sorted(path for pattern in patterns for path in (project / PIPELINES_FOLDER).glob(pattern))
    for path in (project / FILE_NAME, *pipeline_files, cassette / MANIFEST):
        with suppress(MzError, ValueError):
            name = path.absolute().relative_to(project.absolute()).as_posix()
            texts[name] = read_text(path, name)
    return texts
