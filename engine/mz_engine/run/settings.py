"""Loads the settings of a repository from its `mz.yaml`, the environment and the flags of a command.

Flags win over `MZ_*` variables, these over the file, the file over the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from mz_engine.config.configure import SettingInfo, list_settings, to_config, without_key_paths
from mz_engine.config.schema import FILE_NAME, ConfigForm
from mz_engine.decoding.structs import DecodeError, decode_errors, without_empty_keys
from mz_engine.decoding.text_file import read_text
from mz_engine.decoding.yaml import YamlDocument, decode_document, parse_yaml
from mz_engine.errors.diagnostics import Diagnostic, MzError, SourceLocation
from mz_engine.model.config import Config
from mz_engine.run.calibration_file import read_calibration

WRONG_NAMES = ("mz.yml", ".mz.yaml", ".mz.yml")
"""Likely wrong names of the file."""


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
        config = msgspec.structs.replace(layers.finish(), calibration=read_calibration(root))
    except MzError as error:
        raise MzError.from_diagnostics((*error.diagnostics, *warnings)) from error
    return LoadedConfig(
        config=config,
        origins=layers.origins,
        file_exists=os.path.lexists(root / FILE_NAME),
        warnings=warnings,
        locations=layers.locations(),
        values=layers.values(),
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
        plain, errors, self.incomplete_agents = _split_valid(document)
        self.document = document
        self.merged = plain
        self.known_settings = known_settings
        self.origins = {setting.name: self.origin(setting.name) for setting in known_settings}
        for section in ("commands", "agents"):
            self.origins |= {f"{section}.{name}": self.origin(section, name) for name in plain.get(section, ())}
        self.diagnostics: list[Diagnostic] = list(errors)

    def origin(self, setting: str, *inner_path: str) -> str:
        key_path = (*setting.split("."), *inner_path)
        return str(self.document.key_locations[key_path]) if key_path in self.document.key_locations else "default"

    def locations(self) -> dict[str, SourceLocation]:
        return {
            name: self.document.location(*name.split("."))
            for name, origin in self.origins.items()
            if origin.startswith(FILE_NAME)
        }

    def values(self) -> dict[str, object]:
        values: dict[str, object] = {}
        for setting in self.known_settings:
            value: Any = self.merged
            for key in setting.name.split("."):
                value = value.get(key)
            entries = value if isinstance(value, dict) else {}
            values |= {f"{setting.name}.{name}": entry for name, entry in entries.items()} or {setting.name: value}
        return values

    def override(self, setting: SettingInfo, value: object, origin: str) -> None:
        self.origins[setting.name] = origin
        errors = list(decode_errors(value, setting.type))
        if isinstance(value, str) and not value.isascii() and not _is_text(value):
            errors = [
                DecodeError(key_path=(), code="MZ2011", message="it is not UTF-8 text", hint="set it to UTF-8 text")
            ]
        self.diagnostics += [self.diagnostic(error, origin) for error in errors]
        if not errors:
            *sections, key = setting.name.split(".")
            target = self.merged
            for section in sections:
                target = target.setdefault(section, {})
            target[key] = value

    def finish(self) -> Config:
        config, errors = to_config(msgspec.convert(self.merged, ConfigForm))
        for error in errors:
            if (
                error.key_path[0] == "agents"
                and len(error.key_path) > 2
                and error.key_path[1] in self.incomplete_agents
            ):
                continue
            origin = self.origins.get(
                ".".join(str(part) for part in error.key_path if isinstance(part, str)), FILE_NAME
            )
            if origin.startswith(FILE_NAME):
                location = self.document.location(*error.key_path)
                self.diagnostics.append(
                    Diagnostic(code=error.code, message=error.message, hint=error.hint, location=location)
                )
            else:
                self.diagnostics.append(self.diagnostic(error, origin))
        self.diagnostics += self.name_clashes(config)
        if self.diagnostics:
            raise MzError.from_diagnostics(
                sorted(self.diagnostics, key=lambda diagnostic: diagnostic.location.line if diagnostic.location else 0)
            )
        return config

    def name_clashes(self, config: Config) -> Iterator[Diagnostic]:
        """Report described agents named like a built-in one: their calls would silently differ from recordings."""
        if not config.agents:
            return
        from mz_engine.agents.registry import built_in_adapters  # Slow: it imports every adapter.

        for name in sorted(built_in_adapters().keys() & config.agents.keys()):
            message = f"`agents.{name}`: mz has a built-in agent of that name"
            location = self.document.key_location("agents", name)
            yield Diagnostic(code="MZ2013", message=message, hint="give yours another name", location=location)

    def diagnostic(self, error: DecodeError, origin: str) -> Diagnostic:
        return Diagnostic(code="MZ2011", message=f"{origin}: {error.message}", hint=error.hint)


def _split_valid(document: YamlDocument) -> tuple[dict[str, Any], tuple[Diagnostic, ...], frozenset[str | int]]:
    """Return the file's valid values, the errors of the others, and the agents with errors.

    The valid values are checked further, so that all errors are reported at once; not so the other values of an agent
    with errors, since these depend on each other.
    """
    try:
        return msgspec.to_builtins(decode_document(document, ConfigForm)), (), frozenset()
    except MzError as error:
        form = msgspec.inspect.type_info(ConfigForm)
        valid = without_empty_keys(document.value, form)
        incomplete_agents: set[str | int] = set()
        while key_paths := [mismatch.key_path for mismatch in decode_errors(valid, form)]:
            incomplete_agents |= {path[1] for path in key_paths if path[:1] == ("agents",) and len(path) > 1}
            valid = without_key_paths(valid, key_paths)
        return msgspec.to_builtins(msgspec.convert(valid, ConfigForm)), error.diagnostics, frozenset(incomplete_agents)


def _parse_variable(text: str, setting: SettingInfo) -> object:
    """Convert a variable's text to a number if the setting accepts only a number."""
    plain = text.strip()
    if any(decode_errors(plain, setting.type)) and plain.isascii() and plain.isdigit() and len(plain) <= 15:
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
