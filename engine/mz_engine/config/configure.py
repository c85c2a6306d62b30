"""Parses the written settings into `Config`, and makes their JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import inspect
from mz_events.names import InvalidName, parse_name, parse_path

from mz_engine.config.agent_checks import description_errors
from mz_engine.config.prices import to_rows
from mz_engine.config.schema import CommandForm, ConfigForm, LimitsForm
from mz_engine.decoding.quantity import parse_duration, parse_usd
from mz_engine.decoding.structs import DecodeError, KeyPath, format_key_path
from mz_engine.model.agent_description import AgentDescription
from mz_engine.model.config import Budget, Command, Config, Limits, Models, PriceRow, PullRequests, WorkspaceSettings
from mz_engine.path_patterns import is_pattern

V = TypeVar("V")
R = TypeVar("R")

JSON_SCHEMA_DRAFT = "http://json-schema.org/draft-07/schema#"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NOT_A_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{|^[-/@]|(?:^|/)\.|\.lock(?:/|\Z)|[./]\Z|^\Z")
"""Names that git rejects as refs, and names with a leading `-` or `@`."""


def to_config(form: ConfigForm) -> tuple[Config, tuple[DecodeError, ...]]:
    """Return the settings and all errors in them; the settings are valid only without errors."""
    parser = _FormParser()
    limits = form.limits
    config = Config(
        pipeline=parser.parse(("pipeline",), form.pipeline, _non_empty, ""),
        agent=parser.parse(("agent",), form.agent, parse_name, ""),
        failover=parser.parse_each(("failover",), form.failover, parse_name),
        sessions=form.sessions,
        agents=dict(parser.parse_agents(form)),
        base=parser.parse_optional(("base",), form.base, _branch_name),
        backlog=parser.parse(("backlog",), form.backlog, parse_path, ""),
        branch_prefix=parser.parse(("branch_prefix",), form.branch_prefix, _branch_name, ""),
        autonomy=form.autonomy,
        parallel_max=form.parallel_max,
        sanitize=form.sanitize,
        models=Models(**msgspec.structs.asdict(form.models)),
        commands=dict(parser.parse_commands(form)),
        workspace=parser.parse_workspace(form),
        pull_requests=parser.parse_pull_requests(form),
        budget=Budget(
            run_nanousd=parser.parse_optional(("budget", "run"), form.budget.run, parse_usd, "MZ2010"),
            feature_nanousd=parser.parse_optional(("budget", "feature"), form.budget.feature, parse_usd, "MZ2010"),
        ),
        limits=_limits(
            limits,
            parser.parse_duration(("limits", "wait_max"), limits.wait_max),
            parser.parse_duration(("limits", "failover_wait"), limits.failover_wait),
        ),
        denied_paths=parser.parse_each(("denied_paths",), form.denied_paths, _gitignore_pattern),
        pass_environment=parser.parse_each(("pass_environment",), form.pass_environment, _variable_name),
        recordings=parser.parse(("recordings",), form.recordings, parse_path, ""),
        prices=parser.parse_prices(form),
    )
    return config, tuple(parser.errors)


class _FormParser:
    """Applies parsers that raise ValueError, and collects the errors."""

    def __init__(self) -> None:
        self.errors: list[DecodeError] = []

    def parse(self, key_path: KeyPath, value: V, parser: Callable[[V], R], fallback: R, code: str = "MZ2013") -> R:
        try:
            return parser(value)
        except ValueError as error:
            self.errors.append(
                DecodeError(
                    key_path=key_path,
                    code=code,
                    message=f"`{format_key_path(key_path)}`: {error}",
                    hint=_hint_for(code),
                )
            )
            return fallback

    def parse_optional(
        self, key_path: KeyPath, value: V | None, parser: Callable[[V], R], code: str = "MZ2013"
    ) -> R | None:
        return None if value is None else self.parse(key_path, value, parser, None, code)

    def parse_each(self, key_path: KeyPath, values: Iterable[str], parser: Callable[[str], R]) -> tuple[R, ...]:
        parsed = [self.parse((*key_path, index), value, parser, None) for index, value in enumerate(values)]
        return tuple(value for value in parsed if value is not None)

    def parse_duration(self, key_path: KeyPath, written: int | str) -> int:
        return self.parse(key_path, written, parse_duration, 0, "MZ2009")

    def parse_commands(self, form: ConfigForm) -> Iterator[tuple[str, Command]]:
        for name, written in form.commands.items():
            key_path = ("commands", name)
            command = CommandForm(run=written) if isinstance(written, str) else written
            self.parse(key_path, name, parse_name, "")
            run = self.parse((*key_path, "run"), command.run, _non_empty, "")
            yield name, Command(run=run, timeout_seconds=self.parse_duration((*key_path, "timeout"), command.timeout))

    def parse_agents(self, form: ConfigForm) -> Iterator[tuple[str, AgentDescription]]:
        for name, description in form.agents.items():
            self.parse(("agents", name), name, parse_name, "")
            for inner_path, fault in description_errors(description):
                key_path = ("agents", name, *inner_path)
                message = f"`{format_key_path(key_path)}`: {fault}"
                self.errors.append(
                    DecodeError(key_path=key_path, code="MZ2013", message=message, hint=_hint_for("MZ2013"))
                )
            yield name, description

    def parse_prices(self, form: ConfigForm) -> tuple[PriceRow, ...]:
        rows, errors = to_rows(form.prices)
        self.errors += errors
        return rows

    def parse_pull_requests(self, form: ConfigForm) -> PullRequests:
        written = form.pull_requests
        return PullRequests(
            strategy=written.strategy,
            remote=self.parse(("pull_requests", "remote"), written.remote, _branch_name, ""),
            checks_wait_seconds=self.parse_duration(("pull_requests", "checks_wait"), written.checks_wait),
            checks_poll_seconds=self.parse_duration(("pull_requests", "checks_poll"), written.checks_poll),
            checks_grace_seconds=self.parse_duration(("pull_requests", "checks_grace"), written.checks_grace),
            flaky=self.parse_each(("pull_requests", "flaky"), written.flaky, _non_empty),
            reruns_max=written.reruns_max,
        )

    def parse_workspace(self, form: ConfigForm) -> WorkspaceSettings:
        return WorkspaceSettings(
            setup=self.parse_each(("workspace", "setup"), form.workspace.setup, _non_empty),
            copy=self.parse_each(("workspace", "copy"), form.workspace.copy, parse_path),
            keep=self.parse_each(("workspace", "keep"), form.workspace.keep, parse_path),
        )


def _limits(form: LimitsForm, wait_seconds: int, failover_seconds: int) -> Limits:
    numbers = msgspec.structs.asdict(form)
    del numbers["wait_max"], numbers["failover_wait"]
    return Limits(**numbers, wait_minutes_max=-(-wait_seconds // 60), failover_wait_seconds=failover_seconds)


def _non_empty(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise InvalidName("it is empty")
    return text


def _branch_name(text: str) -> str:
    if _NOT_A_REF.search(text):
        raise InvalidName(f"{text[:80]!r} is not usable as a branch or remote name")
    return text


def _variable_name(text: str) -> str:
    if not _VARIABLE.match(text):
        raise InvalidName(f"{text[:80]!r} is not the name of an environment variable")
    return text


def _gitignore_pattern(text: str) -> str:
    if not is_pattern(_non_empty(text)):
        raise InvalidName(f"{text[:80]!r} is not a pattern as in .gitignore")
    return text


def _hint_for(code: str) -> str:
    return {
        "MZ2009": "write seconds (600), or a text such as 90s, 30m, 1h30m",
        "MZ2010": 'write US dollars as a quoted decimal, such as "5.00"',
    }.get(code, f"see `mz explain {code}` for valid values")


def without_key_paths(value: object, key_paths: Iterable[KeyPath]) -> object:
    """Return a document's value without the parts at these key paths; an empty mapping if the root is no mapping.

    A list with such an item is left out as a whole, so that positions do not change.
    """
    removed = list(key_paths)
    if () in removed or not isinstance(value, dict):
        return {}
    kept = {}
    for key, item in value.items():
        inner = [path[1:] for path in removed if path[0] == key]
        if inner and isinstance(item, dict) and () not in inner:
            kept[key] = without_key_paths(item, inner)
        elif not inner:
            kept[key] = item
    return kept


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 7, which editors read) of `mz.yaml`."""
    return json_schema(ConfigForm, "mz.yaml")


def schema_text() -> bytes:
    """Return the JSON Schema of `mz.yaml` as the content of a file."""
    return msgspec.json.format(msgspec.json.encode(config_schema()), indent=2) + b"\n"


def json_schema(kind: type[object], title: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of a Struct, self-contained, as plain values."""
    (reference,), definitions = msgspec.json.schema_components([kind], ref_template="#/definitions/{name}")
    root = definitions.pop(reference["$ref"].rpartition("/")[2])
    schema = {"$schema": JSON_SCHEMA_DRAFT, **root, "title": title, "definitions": definitions}
    return dict(msgspec.to_builtins(schema))


class SettingInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the file, as docs, origins and variables call it."""

    name: str
    """Dotted, such as `budget.run`."""
    description: str
    type: inspect.Type
    scalar: bool
    """Can come from a variable or a flag."""

    @property
    def variable(self) -> str:
        return "MZ_" + self.name.replace(".", "_").upper()


def list_settings(kind: type[object] = ConfigForm, prefix: str = "") -> tuple[SettingInfo, ...]:
    """Return all settings in the order of the form. Sections are expanded; `commands` is one setting."""
    struct = inspect.type_info(kind)
    assert isinstance(struct, inspect.StructType)
    infos: list[SettingInfo] = []
    for field in struct.fields:
        name, field_type = prefix + field.encode_name, field.type
        description = ""
        while isinstance(field_type, inspect.Metadata):
            description = description or str((field_type.extra_json_schema or {}).get("description", ""))
            field_type = field_type.type
        if isinstance(field_type, inspect.StructType):
            infos.extend(list_settings(field_type.cls, f"{name}."))
        else:
            scalar = not isinstance(field_type, inspect.VarTupleType | inspect.DictType)
            infos.append(SettingInfo(name=name, description=description, type=field.type, scalar=scalar))
    return tuple(infos)
