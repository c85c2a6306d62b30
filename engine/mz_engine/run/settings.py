"""Loads the settings of a repository from its `mz.yaml`, the environment and the flags of a command.

Flags win over `MZ_*` variables, these over the file, the file over the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from mz_projections.memory.learnings import DEFAULT_RULES, MemoryRules

from mz_engine.config.schema import SettingInfo, check_settings, list_settings
from mz_engine.decoding.quantity import decode_quantity, encode_quantity
from mz_engine.decoding.structs import decode_value, similar_name_hint
from mz_engine.decoding.text_file import read_text
from mz_engine.decoding.yaml import YamlDocument, decode_yaml, format_yaml, parse_yaml
from mz_engine.errors.diagnostics import Diagnostic, MzError, SourceLocation
from mz_engine.model.config import FILE_NAME, WRONG_NAMES, Coefficients, Config, Settings
from mz_engine.ports import RemoteError
from mz_engine.run.routing import RoutingSource, merge_routing, read_routing, without_agents

WRONG_TEXT = "MZ2013"
"""Code of an error of a text that has the right type."""
CALIBRATION_FILE = "calibration.yaml"
"""Beside `mz.yaml`: written by `mz calibrate --write`, committed, read by every run."""
CALIBRATION_HEADER = """\
# Written by `mz calibrate --write`, from what past calls took. Commit it: runs estimate and reserve by it.
"""
MEMORY_FILE = "memory.yaml"
"""Beside `mz.yaml`: the rules of the memory; every run pins them."""
RUN_OPTIONS = frozenset({"agent", "autonomy", "parallel_max"})
READ_AT_USE = frozenset({"backlog", "integration", "notify", "recordings", "sources", "specs", "tracker"})
"""Settings that are read when they are used, but for `sources` in merges: their changes are no warning."""
SETTINGS_TYPE = msgspec.inspect.type_info(Settings)


class LoadedConfig(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    origins: dict[str, str]
    """By setting, as the file names it (`budget.run`), and by command (`commands.test`): `default`, `mz.yaml:14:7`,
    `MZ_BUDGET_RUN` or `command line`."""
    document: YamlDocument
    routing: tuple[RoutingSource, ...]
    """Of `mz.yaml`, then of `routing.yaml`; the configuration has both, without agents if a flag names one."""
    file_exists: bool
    """True if there is an `mz.yaml`."""
    warnings: tuple[Diagnostic, ...] = ()
    values: dict[str, object] = {}
    """Values by setting, as the file would have them; each command is its own setting, `commands.NAME`."""

    def location(self, setting: str) -> SourceLocation | None:
        """Return the location of a value that comes from the file."""
        return self.document.location(*setting.split(".")) if self.origins[setting].startswith(FILE_NAME) else None

    def with_location(self, setting: str, error: MzError) -> MzError:
        """Return the same error with the location or the origin of the setting's value."""
        location, origin = self.location(setting), self.origins[setting]
        message = error.message if location or origin == "default" else f"{origin}: {error.message}"
        return MzError(error.code, message, hint=error.hint, location=location)

    def unknown_agents(self) -> Iterator[Diagnostic]:
        """Yield an error for each chosen agent that is neither built in nor described."""
        return _unknown_agents(self.config, self.document, self.origins)

    def unknown_tracker(self, root: Path, environment: Mapping[str, str]) -> Iterator[Diagnostic]:
        """Yield an error for a tracker that names no repository, if the remote does not either."""
        if self.config.tracker is not None:
            from mz_engine.forge.github import GhForge  # Others need no forge.

            try:
                GhForge.of_tracker(root, self.config, environment)
            except RemoteError as error:
                hint = "write github:OWNER/REPO, or set `pull_requests.remote`"
                wrong = MzError("MZ2013", f"`tracker`: {error}", hint=hint)
                yield from self.with_location("tracker", wrong).diagnostics


def load_config(root: Path, environment: Mapping[str, str], flags: Mapping[str, object]) -> LoadedConfig:
    """Load the settings of the repository at `root`.

    `flags` are by setting (`parallel_max`, `budget.run`); None means not given. Raises MzError (MZ20nn) with everything
    that is wrong.
    """
    known_settings = list_settings(SETTINGS_TYPE)
    warnings, variables = list[Diagnostic](), [setting.variable for setting in known_settings if setting.scalar]
    for name in sorted(environment):
        if name.startswith("MZ_") and name not in variables:
            for near in get_close_matches(name, variables, n=1, cutoff=0.85):
                message = f"the variable {name} is not a setting and has no effect"
                hint = f"did you mean `{near}`?"
                warnings.append(Diagnostic(code="MZ2012", message=message, hint=hint, severity="warning"))
    try:
        for name in WRONG_NAMES:  # They would be ignored silently.
            if os.path.lexists(root / name):
                both = os.path.lexists(root / FILE_NAME)
                message = f"both {FILE_NAME} and {name} exist" if both else f"settings in {name} are not read"
                hint = f"merge the settings into {FILE_NAME} and remove {name}" if both else f"rename it to {FILE_NAME}"
                raise MzError("MZ2014", message, hint=hint, location=SourceLocation(name))
        document = parse_yaml(_read_if_exists(root, FILE_NAME), FILE_NAME)
        overrides = dict[str, tuple[object, str]]()  # Value and origin; a flag wins over a variable.
        for setting in known_settings:
            if setting.scalar and (text := environment.get(setting.variable, "")):
                overrides[setting.name] = _parse_variable(text, setting), setting.variable
            if (value := flags.get(setting.name)) is not None:
                overrides[setting.name] = list(value) if isinstance(value, tuple) else value, "command line"
        merged, settings = _merge(document, overrides, known_settings)
        values = {name: getattr(settings, name) for name in Settings.__struct_fields__}
        learned = read_routing(root)
        routing = merge_routing(settings.routing, learned[1])
        if settings.request.startswith("@"):
            values["request"] = read_text(root / settings.request[1:], settings.request[1:])
        values["routing"] = without_agents(routing) if flags.get("agent") is not None else routing
        config = Config(**values, calibration=read_calibration(root))
    except MzError as error:
        raise MzError.from_diagnostics((*error.diagnostics, *warnings)) from error
    names = [setting.name for setting in known_settings]
    names += [f"{section}.{name}" for section in ("commands", "agents") for name in getattr(settings, section)]
    origins = {name: str(document.key_locations.get(tuple(name.split(".")), "default")) for name in names}
    return LoadedConfig(
        config=config,
        origins=origins | {name: origin for name, (_, origin) in overrides.items()},
        document=document,
        routing=((document, settings.routing), learned),
        file_exists=os.path.lexists(root / FILE_NAME),
        warnings=tuple(warnings),
        values=_values(merged, settings, known_settings),
    )


def kept_settings(run: str, kept: Config, loaded: LoadedConfig, own: tuple[str, ...] = ()) -> Iterator[Diagnostic]:
    """Yield a warning for each setting that has another value now than the unfinished run keeps, except those that are
    its `own`. A default of an option of `mz run` may be how it always was, beside the option."""
    pinned, current = (msgspec.to_builtins(config, enc_hook=encode_quantity) for config in (kept, loaded.config))
    for name in (setting.name for setting in list_settings(SETTINGS_TYPE)):
        value, new, origin = _nested(pinned, name), _nested(current, name), loaded.origins[name]
        is_option = origin == "default" and name in RUN_OPTIONS
        if new != value and not is_option and name.partition(".")[0] not in (*READ_AT_USE, *own):
            values = f"`{name}: {value}`", f"`{new}` ({origin})"
            if isinstance(value or new, dict | tuple):
                values = f"`{name}`", f"that of {origin}"
            message = f"run {run} keeps {values[0]}, with which it began; {values[1]} is ignored"
            hint = f"to use it, cancel the run and start another: mz cancel {run} && mz run"
            yield Diagnostic(code="MZ5003", message=message, hint=hint, severity="warning")


def _read_if_exists(root: Path, name: str) -> str:
    return read_text(root / name, name) if os.path.lexists(root / name) else ""


def _merge(
    document: YamlDocument, overrides: Mapping[str, tuple[object, str]], known_settings: tuple[SettingInfo, ...]
) -> tuple[dict[str, Any], Settings]:
    """Return the file's values with the overrides, as written and as settings. Raises MzError with all errors.

    What is wrong in itself is left out, so that the rest can be checked together.
    """
    errors = decode_value(document.value, SETTINGS_TYPE)[1]
    diagnostics = [document.diagnostic(error) for error in errors]
    merged: Any = deepcopy(document.value) if isinstance(document.value, dict) else {}
    for error in errors:
        section, *names = error.key_path or ("",)
        if section == "agents" and names and isinstance(merged.get("agents"), dict):
            if error.code != WRONG_TEXT:  # Else it can be decoded, and checked.
                merged["agents"].pop(names[0], None)
        else:
            merged.pop(section, None)
    types = {setting.name: setting.type for setting in known_settings}
    for name, (value, origin) in overrides.items():
        if wrong := decode_value(value, types[name])[1]:
            diagnostics += [Diagnostic(code="MZ2011", message=f"{origin}: {e.message}", hint=e.hint) for e in wrong]
            continue
        *sections, key = name.split(".")
        target = merged
        for section in sections:
            target[section] = target.get(section) or {}
            target = target[section]
        target[key] = value
    settings = msgspec.convert(decode_value(merged, SETTINGS_TYPE)[0], Settings, dec_hook=decode_quantity)
    diagnostics += [*map(document.diagnostic, check_settings(settings)), *_name_clashes(document, settings)]
    if diagnostics:
        diagnostics += _unknown_agents(settings, document, {name: origin for name, (_, origin) in overrides.items()})
        raise MzError.from_diagnostics(sorted(diagnostics, key=lambda d: d.location.position if d.location else (0, 0)))
    return merged, settings


def _unknown_agents(settings: Settings, document: YamlDocument, origins: Mapping[str, str]) -> Iterator[Diagnostic]:
    from mz_engine.agents.registry import UnknownAgent, built_in_adapters  # Slow: it imports every adapter.

    # Of a description with errors, only the name is known.
    described = _nested(document.value, "agents")
    agent_names = tuple(
        sorted({*built_in_adapters(), *settings.agents, *(described if isinstance(described, dict) else ())})
    )
    for key, name in (("agent", settings.agent), *(("failover", name) for name in settings.failover)):
        if name not in agent_names:
            origin = origins.get(key, FILE_NAME)
            is_in_file = origin.startswith(FILE_NAME)
            message = f"`{key}`: {UnknownAgent(name, agent_names)}"
            yield Diagnostic(
                code="MZ2013",
                message=message if is_in_file else f"{origin}: {message}",
                hint=similar_name_hint(name, agent_names) or "choose one with `agent:` in mz.yaml",
                location=document.location(key) if is_in_file else None,
            )


def _name_clashes(document: YamlDocument, settings: Settings) -> Iterator[Diagnostic]:
    """Report described agents named like a built-in one: their calls would silently differ from recordings."""
    if not settings.agents:
        return
    from mz_engine.agents.registry import built_in_adapters  # Slow: it imports every adapter.

    for name in sorted(built_in_adapters().keys() & settings.agents.keys()):
        message = f"`agents.{name}`: mz has a built-in agent of that name"
        location = document.key_location("agents", name)
        yield Diagnostic(code="MZ2013", message=message, hint="give yours another name", location=location)


def _values(merged: dict[str, Any], settings: Settings, known_settings: tuple[SettingInfo, ...]) -> dict[str, object]:
    """Return scalars and lists as they were written, entries of mappings with their defaults filled in."""
    complete = msgspec.to_builtins(settings, enc_hook=encode_quantity)
    values: dict[str, object] = {}
    for setting in known_settings:
        value: Any = _nested(merged, setting.name)
        value = _nested(complete, setting.name) if value is None else value
        entries = value if isinstance(value, dict) else {}
        values |= {
            f"{setting.name}.{name}": complete[setting.name][name] if isinstance(entry, dict) else entry
            for name, entry in entries.items()
        } or {setting.name: value}
    return values


def _nested(values: object, setting: str) -> object:
    for key in setting.split("."):
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _parse_variable(text: str, setting: SettingInfo) -> object:
    """Convert a variable's text to a number if the setting accepts only a number."""
    plain = text.strip()
    if any("\ud800" <= character <= "\udfff" for character in plain):  # They stand for undecodable bytes.
        message, hint = f"{setting.variable}: it is not UTF-8 text", "set it to UTF-8 text"
        raise MzError("MZ2011", message, hint=hint)
    if decode_value(plain, setting.type)[1] and plain.isascii() and plain.isdigit() and len(plain) <= 15:
        return int(plain)
    return plain


# memory ---------------------------------------------------------------------------------------------------------------
def read_memory_rules(path: Path, name: str = MEMORY_FILE) -> MemoryRules:
    """Read rules of the memory; the defaults without the file. Raises MzError (MZ20nn) with the location of the
    error."""
    rules = decode_yaml(read_text(path, name), name, MemoryRules) if os.path.lexists(path) else DEFAULT_RULES
    return DEFAULT_RULES if rules == DEFAULT_RULES else rules


# calibration ----------------------------------------------------------------------------------------------------------
class CalibrationFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    calibration: tuple[Coefficients, ...] = ()


def read_calibration(root: Path) -> tuple[Coefficients, ...]:
    """Read the file; empty without one. Raises MzError (MZ20nn) with the location of the error."""
    return decode_yaml(_read_if_exists(root, CALIBRATION_FILE), CALIBRATION_FILE, CalibrationFile).calibration


def write_calibration(root: Path, coefficients: tuple[Coefficients, ...]) -> Path:
    """Write the file atomically. Raises MzError (MZ1007)."""
    from mz_engine.git.files import write_project_file  # Whoever only reads starts faster without it.

    write_project_file(root, CALIBRATION_FILE, CALIBRATION_HEADER + format_calibration(coefficients), "calibrate again")
    return root / CALIBRATION_FILE


def format_calibration(coefficients: tuple[Coefficients, ...]) -> str:
    rows = (msgspec.structs.asdict(row).items() for row in coefficients)
    return format_yaml({"calibration": [{name: value for name, value in row if value != ""} for row in rows]})
