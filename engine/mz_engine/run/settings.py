"""Loads the settings of a repository from its `mz.yaml`, the environment and the flags of a command.

Flags win over `MZ_*` variables, these over the file, the file over the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from mz_engine.config.schema import SettingInfo, check_settings, list_settings
from mz_engine.decoding.quantity import decode_quantity, encode_quantity
from mz_engine.decoding.structs import DecodeError, KeyPath, decode_value
from mz_engine.decoding.text_file import read_text
from mz_engine.decoding.yaml import YamlDocument, parse_yaml
from mz_engine.errors.diagnostics import Diagnostic, MzError, SourceLocation
from mz_engine.model.config import FILE_NAME, Config, Settings
from mz_engine.run.calibration_file import read_calibration

WRONG_NAMES = ("mz.yml", ".mz.yaml", ".mz.yml")
"""Likely wrong names of the file."""
SETTINGS_TYPE = msgspec.inspect.type_info(Settings)


class LoadedConfig(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    origins: dict[str, str]
    """By setting, as the file names it (`budget.run`), and by command (`commands.test`): `default`, `mz.yaml:14:7`,
    `MZ_BUDGET_RUN` or `command line`."""
    file_exists: bool
    """True if there is an `mz.yaml`."""
    warnings: tuple[Diagnostic, ...] = ()
    locations: dict[str, SourceLocation] = {}
    """Locations of the values in the file, by setting."""
    values: dict[str, object] = {}
    """Values by setting, as the file would have them; each command is its own setting, `commands.NAME`."""

    def with_location(self, setting: str, error: MzError) -> MzError:
        """Return the same error with the location or the origin of the setting's value."""
        location, origin = self.locations.get(setting), self.origins[setting]
        message = error.message if location or origin == "default" else f"{origin}: {error.message}"
        return MzError(error.code, message, hint=error.hint, location=location)


def load_config(root: Path, environment: Mapping[str, str], flags: Mapping[str, object]) -> LoadedConfig:
    """Load the settings of the repository at `root`.

    `flags` are by setting (`parallel_max`, `budget.run`); None means not given. Raises MzError (MZ20nn) with everything
    that is wrong.
    """
    known_settings = list_settings()
    warnings = tuple(_near_misses(environment, known_settings))
    try:
        _reject_wrong_names(root)
        layers = _merge_layers(root, environment, flags, known_settings)
        finished = layers.finish()
        settings = {name: getattr(finished, name) for name in Settings.__struct_fields__}
        config = Config(**settings, calibration=read_calibration(root))
    except MzError as error:
        raise MzError.from_diagnostics((*error.diagnostics, *warnings)) from error
    return LoadedConfig(
        config=config,
        origins=layers.origins,
        file_exists=os.path.lexists(root / FILE_NAME),
        warnings=warnings,
        locations=layers.locations(),
        values=layers.values(finished),
    )


def _merge_layers(
    root: Path, environment: Mapping[str, str], flags: Mapping[str, object], known_settings: tuple[SettingInfo, ...]
) -> _SettingLayers:
    path = root / FILE_NAME
    document = parse_yaml(read_text(path, FILE_NAME) if os.path.lexists(path) else "", FILE_NAME)
    layers = _SettingLayers(document, known_settings)
    for setting in known_settings:
        if setting.scalar and (text := environment.get(setting.variable, "")):
            layers.override(setting, _parse_variable(text, setting), setting.variable)
        if (value := flags.get(setting.name)) is not None:
            layers.override(setting, list(value) if isinstance(value, tuple) else value, "command line")
    return layers


def _reject_wrong_names(root: Path) -> None:
    """Reject files with a similar name, which would be ignored silently."""
    for name in WRONG_NAMES:
        if os.path.lexists(root / name):
            both = os.path.lexists(root / FILE_NAME)
            message = f"both {FILE_NAME} and {name} exist" if both else f"settings in {name} are not read"
            hint = f"merge the settings into {FILE_NAME} and remove {name}" if both else f"rename it to {FILE_NAME}"
            raise MzError("MZ2014", message, hint=hint, location=SourceLocation(name))


class _SettingLayers:
    """The file's values overridden by those of higher layers, with the origin of each."""

    def __init__(self, document: YamlDocument, known_settings: tuple[SettingInfo, ...]) -> None:
        self.document, self.known_settings = document, known_settings
        _, errors = decode_value(document.value, SETTINGS_TYPE)
        self.diagnostics = [document.diagnostic(error) for error in errors]
        self.merged, self.incomplete_agents = _without_errors(document.value, errors)
        self.origins = {setting.name: self.origin(setting.name) for setting in known_settings}
        for section in ("commands", "agents"):
            names = self.merged.get(section) or ()
            self.origins |= {f"{section}.{name}": self.origin(section, name) for name in names}

    def origin(self, setting: str, *inner_path: str) -> str:
        key_path = (*setting.split("."), *inner_path)
        return str(self.document.key_locations[key_path]) if key_path in self.document.key_locations else "default"

    def locations(self) -> dict[str, SourceLocation]:
        return {
            name: self.document.location(*name.split("."))
            for name, origin in self.origins.items()
            if origin.startswith(FILE_NAME)
        }

    def values(self, finished: Settings) -> dict[str, object]:
        """Return scalars and lists as they were written, entries of mappings with their defaults filled in."""
        complete = msgspec.to_builtins(finished, enc_hook=encode_quantity)
        values: dict[str, object] = {}
        for setting in self.known_settings:
            value: Any = _nested(self.merged, setting.name)
            value = _nested(complete, setting.name) if value is None else value
            entries = value if isinstance(value, dict) else {}
            values |= {
                f"{setting.name}.{name}": complete[setting.name][name] if isinstance(entry, dict) else entry
                for name, entry in entries.items()
            } or {setting.name: value}
        return values

    def override(self, setting: SettingInfo, value: object, origin: str) -> None:
        self.origins[setting.name] = origin
        _, errors = decode_value(value, setting.type)
        if isinstance(value, str) and not value.isascii() and not _is_text(value):
            errors = [
                DecodeError(key_path=(), code="MZ2011", message="it is not UTF-8 text", hint="set it to UTF-8 text")
            ]
        self.diagnostics += [
            Diagnostic(code="MZ2011", message=f"{origin}: {error.message}", hint=error.hint) for error in errors
        ]
        if not errors:
            *sections, key = setting.name.split(".")
            target = self.merged
            for section in sections:
                target[section] = target.get(section) or {}
                target = target[section]
            target[key] = value

    def finish(self) -> Settings:
        settings = msgspec.convert(decode_value(self.merged, SETTINGS_TYPE)[0], Settings, dec_hook=decode_quantity)
        self.diagnostics += [
            self.document.diagnostic(error)
            for error in check_settings(settings)
            if error.key_path[0] != "agents" or error.key_path[1] not in self.incomplete_agents
        ]
        self.diagnostics += self.name_clashes(settings)
        if self.diagnostics:
            raise MzError.from_diagnostics(sorted(self.diagnostics, key=_position))
        return settings

    def name_clashes(self, settings: Settings) -> Iterator[Diagnostic]:
        """Report described agents named like a built-in one: their calls would silently differ from recordings."""
        if not settings.agents:
            return
        from mz_engine.agents.registry import built_in_adapters  # Slow: it imports every adapter.

        for name in sorted(built_in_adapters().keys() & settings.agents.keys()):
            message = f"`agents.{name}`: mz has a built-in agent of that name"
            location = self.document.key_location("agents", name)
            yield Diagnostic(code="MZ2013", message=message, hint="give yours another name", location=location)


def _position(diagnostic: Diagnostic) -> tuple[int, int]:
    location = diagnostic.location
    return (location.line, location.column) if location else (0, 0)


def _nested(values: object, setting: str) -> object:
    for key in setting.split("."):
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _without_errors(value: object, errors: Iterable[DecodeError]) -> tuple[dict[str, Any], frozenset[str | int]]:
    """Return the file's values without those that have errors, and the agents with errors.

    The other values are checked further, so that all errors are reported at once; not so the other values of an agent
    with errors, since these depend on each other. A list with an error is left out as a whole, so that positions do not
    change.
    """
    incomplete_agents: set[str | int] = set()
    valid: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value)) if isinstance(value, dict) else {}
    while key_paths := [error.key_path for error in errors]:
        incomplete_agents |= {path[1] for path in key_paths if path[:1] == ("agents",) and len(path) > 1}
        valid = _without_key_paths(valid, key_paths)
        _, errors = decode_value(valid, SETTINGS_TYPE)
    return valid, frozenset(incomplete_agents)


def _without_key_paths(value: object, removed: list[KeyPath]) -> dict[str, Any]:
    if () in removed or not isinstance(value, dict):
        return {}
    kept = {}
    for key, item in value.items():
        inner = [path[1:] for path in removed if path[0] == key]
        if inner and isinstance(item, dict) and () not in inner:
            kept[key] = _without_key_paths(item, inner)
        elif not inner:
            kept[key] = item
    return kept


def _parse_variable(text: str, setting: SettingInfo) -> object:
    """Convert a variable's text to a number if the setting accepts only a number."""
    plain = text.strip()
    if decode_value(plain, setting.type)[1] and plain.isascii() and plain.isdigit() and len(plain) <= 15:
        return int(plain)
    return plain


def _is_text(value: str) -> bool:
    """Return False for lone surrogates, which stand for undecodable bytes in the environment and in arguments."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _near_misses(environment: Mapping[str, str], known_settings: tuple[SettingInfo, ...]) -> Iterator[Diagnostic]:
    variables = [setting.variable for setting in known_settings if setting.scalar]
    for name in sorted(environment):
        if name.startswith("MZ_") and name not in variables:
            near = get_close_matches(name, variables, n=1, cutoff=0.85)
            if near:
                message = f"the variable {name} is not a setting and has no effect"
                yield Diagnostic(code="MZ2012", message=message, hint=f"did you mean `{near[0]}`?", severity="warning")
