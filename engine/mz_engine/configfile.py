"""Adapter: the settings of a repository, from its `mz.yaml`, the environment and the flags of a command.

Flags win over `MZ_*` variables, these over the file, the file over the defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from mz_engine.config import Config
from mz_engine.configform import FILE_NAME, ConfigForm
from mz_engine.configure import SettingInfo, settings, to_config
from mz_engine.errors import Diagnostic, MzError
from mz_engine.shape import Mismatch, mismatches
from mz_engine.textfile import read_text
from mz_engine.yamlfile import Document, convert_document, load


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    origins: dict[str, str]
    """By setting, as the file names it (`budget.run`): `default`, `mz.yaml:14:7`, `MZ_BUDGET_RUN` or `command line`."""
    found: bool
    """There is an `mz.yaml`."""
    warnings: tuple[Diagnostic, ...] = ()


def load_config(root: Path, environment: Mapping[str, str], flags: Mapping[str, object]) -> Loaded:
    """The settings of the repository at `root`. `flags` go by setting (`parallel_max`, `budget.run`); a value of None
    was not given. Raises MzError (MZ20nn) with all that is wrong."""
    path = root / FILE_NAME
    found = path.exists()
    document = load(read_text(path, FILE_NAME) if found else "", FILE_NAME)
    known = settings()
    layers = _Layers(document, msgspec.to_builtins(convert_document(document, ConfigForm)), known)
    for setting in known:
        if setting.scalar and (text := environment.get(setting.variable, "")):
            layers.put(setting, _typed(text, setting), setting.variable)
        if (value := flags.get(setting.name)) is not None:
            layers.put(setting, list(value) if isinstance(value, tuple) else value, "command line")
    config = layers.finish()
    warnings = tuple(_near_misses(environment, known))
    return Loaded(config=config, origins=layers.origins, found=found, warnings=warnings)


class _Layers:
    """The file's values, with those of higher layers put over them; remembers what came from where."""

    def __init__(self, document: Document, plain: dict[str, Any], known: tuple[SettingInfo, ...]) -> None:
        self.document = document
        self.merged = plain
        self.origins = {each.name: self.origin(each) for each in known}
        self.found: list[Diagnostic] = []

    def origin(self, setting: SettingInfo) -> str:
        route = tuple(setting.name.split("."))
        return str(self.document.keys[route]) if route in self.document.keys else "default"

    def put(self, setting: SettingInfo, value: object, origin: str) -> None:
        self.origins[setting.name] = origin
        wrong = list(mismatches(value, setting.type))
        if isinstance(value, str) and not value.isascii() and not _is_text(value):
            wrong = [Mismatch(route=(), code="MZ2011", message="it is not UTF-8 text")]
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
            origin = self.origins.get(".".join(str(part) for part in each.route if isinstance(part, str)), FILE_NAME)
            if origin.startswith(FILE_NAME):
                place = self.document.place(*each.route)
                self.found.append(Diagnostic(code=each.code, message=each.message, hint=each.hint, place=place))
            else:
                self.found.append(self.diagnostic(each, origin))
        if self.found:
            raise MzError.of(sorted(self.found, key=lambda each: each.place.line if each.place else 0))
        return config

    def diagnostic(self, wrong: Mismatch, origin: str) -> Diagnostic:
        return Diagnostic(code="MZ2011", message=f"{origin}: {wrong.message}", hint=wrong.hint)


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
