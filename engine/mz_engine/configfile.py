"""Adapter: the settings of a repository, from its `mz.yaml`, the environment and the flags of a command.

Flags win over `MZ_*` variables, these over the file, the file over the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from mz_engine.adapters.calibrationfile import read_calibration
from mz_engine.config import Config
from mz_engine.configform import FILE_NAME, ConfigForm
from mz_engine.configure import SettingInfo, leave_out, settings, to_config
from mz_engine.errors import Diagnostic, MzError, Place
from mz_engine.shape import Mismatch, mismatches, without_empty
from mz_engine.textfile import read_text
from mz_engine.yamlfile import Document, convert_document, load

OTHER_NAMES = ("mz.yml", ".mz.yaml", ".mz.yml")
"""What people also call such a file."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    origins: dict[str, str]
    """By setting, as the file names it (`budget.run`), and by command (`commands.test`): `default`, `mz.yaml:14:7`,
    `MZ_BUDGET_RUN` or `command line`."""
    found: bool
    """There is an `mz.yaml`."""
    warnings: tuple[Diagnostic, ...] = ()
    places: dict[str, Place] = {}
    """Of the values of the settings that the file has."""
    values: dict[str, object] = {}
    """By setting, as the file would have it; a command is a setting of its own, `commands.NAME`."""

    def blamed(self, setting: str, error: MzError) -> MzError:
        """The same error, told of the place that the setting's value came from."""
        place, origin = self.places.get(setting), self.origins[setting]
        said = error.message if place or origin == "default" else f"{origin}: {error.message}"
        return MzError(error.code, said, hint=error.hint, place=place)


def load_config(root: Path, environment: Mapping[str, str], flags: Mapping[str, object]) -> Loaded:
    """The settings of the repository at `root`. `flags` go by setting (`parallel_max`, `budget.run`); a value of None
    was not given. Raises MzError (MZ20nn) with all that is wrong."""
    known = settings()
    warnings = tuple(_near_misses(environment, known))
    try:
        _refuse_other_names(root)
        layers = _layers(root, environment, flags, known)
        config = msgspec.structs.replace(layers.finish(), calibration=read_calibration(root))
    except MzError as error:
        raise MzError.of((*error.diagnostics, *warnings)) from error
    return Loaded(
        config=config,
        origins=layers.origins,
        found=os.path.lexists(root / FILE_NAME),
        warnings=warnings,
        places=layers.places(),
        values=layers.values(),
    )


def _layers(
    root: Path, environment: Mapping[str, str], flags: Mapping[str, object], known: tuple[SettingInfo, ...]
) -> _Layers:
    path = root / FILE_NAME
    document = load(read_text(path, FILE_NAME) if os.path.lexists(path) else "", FILE_NAME)
    layers = _Layers(document, known)
    for setting in known:
        if setting.scalar and (text := environment.get(setting.variable, "")):
            layers.put(setting, _typed(text, setting), setting.variable)
        if (value := flags.get(setting.name)) is not None:
            layers.put(setting, list(value) if isinstance(value, tuple) else value, "command line")
    return layers


def _refuse_other_names(root: Path) -> None:
    """Settings that nobody reads are worse than none."""
    for name in OTHER_NAMES:
        if os.path.lexists(root / name):
            both = os.path.lexists(root / FILE_NAME)
            message = f"there are {FILE_NAME} and {name}" if both else f"settings in {name} are not read"
            hint = f"keep what you need in {FILE_NAME} and remove {name}" if both else f"rename it to {FILE_NAME}"
            raise MzError("MZ2014", message, hint=hint, place=Place(name))


class _Layers:
    """The file's values, with those of higher layers put over them; remembers what came from where."""

    def __init__(self, document: Document, known: tuple[SettingInfo, ...]) -> None:
        plain, wrong, self.half = _of_form(document)
        self.document = document
        self.merged = plain
        self.known = known
        self.origins = {each.name: self.origin(each.name) for each in known}
        for named in ("commands", "agents"):
            self.origins |= {f"{named}.{name}": self.origin(named, name) for name in plain.get(named, ())}
        self.found: list[Diagnostic] = list(wrong)

    def origin(self, setting: str, *inside: str) -> str:
        route = (*setting.split("."), *inside)
        return str(self.document.keys[route]) if route in self.document.keys else "default"

    def places(self) -> dict[str, Place]:
        return {
            name: self.document.place(*name.split("."))
            for name, origin in self.origins.items()
            if origin.startswith(FILE_NAME)
        }

    def values(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for setting in self.known:
            value: Any = self.merged
            for key in setting.name.split("."):
                value = value.get(key)
            inside = {f"{setting.name}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {}
            found |= inside or {setting.name: value}
        return found

    def put(self, setting: SettingInfo, value: object, origin: str) -> None:
        self.origins[setting.name] = origin
        wrong = list(mismatches(value, setting.type))
        if isinstance(value, str) and not value.isascii() and not _is_text(value):
            wrong = [Mismatch(route=(), code="MZ2011", message="it is not UTF-8 text", hint="set it to UTF-8 text")]
        self.found += [self.diagnostic(each, origin) for each in wrong]
        if not wrong:
            *sections, key = setting.name.split(".")
            target = self.merged
            for section in sections:
                target = target.setdefault(section, {})
            target[key] = value

    def finish(self) -> Config:
        config, wrong = to_config(msgspec.convert(self.merged, ConfigForm))
        for each in wrong:
            if each.route[0] == "agents" and len(each.route) > 2 and each.route[1] in self.half:
                continue
            origin = self.origins.get(".".join(str(part) for part in each.route if isinstance(part, str)), FILE_NAME)
            if origin.startswith(FILE_NAME):
                place = self.document.place(*each.route)
                self.found.append(Diagnostic(code=each.code, message=each.message, hint=each.hint, place=place))
            else:
                self.found.append(self.diagnostic(each, origin))
        self.found += self.taken_names(config)
        if self.found:
            raise MzError.of(sorted(self.found, key=lambda each: each.place.line if each.place else 0))
        return config

    def taken_names(self, config: Config) -> Iterator[Diagnostic]:
        """Agents that mz has by itself would be called otherwise than their recordings, and nobody would see it."""
        if not config.agents:
            return
        from mz_engine.agents.registry import built_in  # Every adapter there is: only for who describes one.

        for name in sorted(built_in().keys() & config.agents.keys()):
            said = f"`agents.{name}`: mz has an agent of that name by itself"
            place = self.document.key_place("agents", name)
            yield Diagnostic(code="MZ2013", message=said, hint="give yours another name", place=place)

    def diagnostic(self, wrong: Mismatch, origin: str) -> Diagnostic:
        return Diagnostic(code="MZ2011", message=f"{origin}: {wrong.message}", hint=wrong.hint)


def _of_form(document: Document) -> tuple[dict[str, Any], tuple[Diagnostic, ...], frozenset[str | int]]:
    """The file's values without those that are of another form, and what is wrong with these: what is left can be
    parsed all the same, so that everything is told at once. And the agents of whose descriptions something was left
    out: their parts hang together, so what else seems wrong with the rest may only follow from that."""
    try:
        return msgspec.to_builtins(convert_document(document, ConfigForm)), (), frozenset()
    except MzError as error:
        form = msgspec.inspect.type_info(ConfigForm)
        rest = without_empty(document.value, form)
        half: set[str | int] = set()
        while routes := [each.route for each in mismatches(rest, form)]:
            half |= {route[1] for route in routes if route[:1] == ("agents",) and len(route) > 1}
            rest = leave_out(rest, routes)
        return msgspec.to_builtins(msgspec.convert(rest, ConfigForm)), error.diagnostics, frozenset(half)


def _typed(text: str, setting: SettingInfo) -> object:
    """A variable is text; it becomes a number where only a number would do."""
    plain = text.strip()
    if any(mismatches(plain, setting.type)) and plain.isascii() and plain.isdigit() and len(plain) <= 15:
        return int(plain)
    return plain


def _is_text(value: str) -> bool:
    """Bytes that are no text come into the environment and the command line as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _near_misses(environment: Mapping[str, str], known: tuple[SettingInfo, ...]) -> Iterator[Diagnostic]:
    variables = [each.variable for each in known if each.scalar]
    for name in sorted(environment):
        if name.startswith("MZ_") and name not in variables:
            near = get_close_matches(name, variables, n=1, cutoff=0.85)
            if near:
                said = f"the variable {name} is no setting and has no effect"
                yield Diagnostic(code="MZ2012", message=said, hint=f"did you mean `{near[0]}`?", severity="warning")
