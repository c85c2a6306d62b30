"""Parses the written settings into `Config`, and makes their JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec
import pathspec
from msgspec import inspect
from mz_events.names import BadName, parse_name, parse_path

from mz_engine.agents.generic_check import faults
from mz_engine.agents.generic_form import AgentDescription
from mz_engine.config import Budget, Command, Config, Limits, Models, PriceRow, PullRequests, WorkspaceSettings
from mz_engine.configform import CommandForm, ConfigForm, LimitsForm
from mz_engine.priceform import to_rows
from mz_engine.quantity import parse_duration, parse_usd
from mz_engine.shape import Mismatch, Route, describe

V = TypeVar("V")
R = TypeVar("R")

DRAFT = "http://json-schema.org/draft-07/schema#"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NOT_A_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{|^[-/@]|(?:^|/)\.|\.lock(?:/|\Z)|[./]\Z|^\Z")
"""Names that git rejects as refs, and names with a leading `-` or `@`."""


def to_config(form: ConfigForm) -> tuple[Config, tuple[Mismatch, ...]]:
    """Return the settings and all errors in them; the settings are valid only without errors."""
    reader = _Reader()
    limits = form.limits
    config = Config(
        pipeline=reader.parse(("pipeline",), form.pipeline, _filled, ""),
        agent=reader.parse(("agent",), form.agent, parse_name, ""),
        failover=reader.every(("failover",), form.failover, parse_name),
        sessions=form.sessions,
        agents=dict(reader.agents(form)),
        base=reader.optional(("base",), form.base, _branch),
        backlog=reader.parse(("backlog",), form.backlog, parse_path, ""),
        branch_prefix=reader.parse(("branch_prefix",), form.branch_prefix, _branch, ""),
        autonomy=form.autonomy,
        parallel_max=form.parallel_max,
        sanitize=form.sanitize,
        models=Models(**msgspec.structs.asdict(form.models)),
        commands=dict(reader.commands(form)),
        workspace=reader.workspace(form),
        pull_requests=reader.pull_requests(form),
        budget=Budget(
            run_nanousd=reader.optional(("budget", "run"), form.budget.run, parse_usd, "MZ2010"),
            feature_nanousd=reader.optional(("budget", "feature"), form.budget.feature, parse_usd, "MZ2010"),
        ),
        limits=_limits(
            limits,
            reader.duration(("limits", "wait_max"), limits.wait_max),
            reader.duration(("limits", "failover_wait"), limits.failover_wait),
        ),
        denied_paths=reader.every(("denied_paths",), form.denied_paths, _pattern),
        pass_environment=reader.every(("pass_environment",), form.pass_environment, _variable),
        recordings=reader.parse(("recordings",), form.recordings, parse_path, ""),
        prices=reader.prices(form),
    )
    return config, tuple(reader.found)


class _Reader:
    """Applies parsers that raise ValueError, and collects the errors."""

    def __init__(self) -> None:
        self.found: list[Mismatch] = []

    def parse(self, route: Route, value: V, parser: Callable[[V], R], spare: R, code: str = "MZ2013") -> R:
        try:
            return parser(value)
        except ValueError as error:
            self.found.append(
                Mismatch(route=route, code=code, message=f"`{describe(route)}`: {error}", hint=_advice(code))
            )
            return spare

    def optional(self, route: Route, value: V | None, parser: Callable[[V], R], code: str = "MZ2013") -> R | None:
        return None if value is None else self.parse(route, value, parser, None, code)

    def every(self, route: Route, values: Iterable[str], parser: Callable[[str], R]) -> tuple[R, ...]:
        parsed = [self.parse((*route, index), value, parser, None) for index, value in enumerate(values)]
        return tuple(value for value in parsed if value is not None)

    def duration(self, route: Route, written: int | str) -> int:
        return self.parse(route, written, parse_duration, 0, "MZ2009")

    def commands(self, form: ConfigForm) -> Iterator[tuple[str, Command]]:
        for name, written in form.commands.items():
            route = ("commands", name)
            command = CommandForm(run=written) if isinstance(written, str) else written
            self.parse(route, name, parse_name, "")
            run = self.parse((*route, "run"), command.run, _filled, "")
            yield name, Command(run=run, timeout_seconds=self.duration((*route, "timeout"), command.timeout))

    def agents(self, form: ConfigForm) -> Iterator[tuple[str, AgentDescription]]:
        for name, description in form.agents.items():
            self.parse(("agents", name), name, parse_name, "")
            for inner_path, fault in faults(description):
                route = ("agents", name, *inner_path)
                message = f"`{describe(route)}`: {fault}"
                self.found.append(Mismatch(route=route, code="MZ2013", message=message, hint=_advice("MZ2013")))
            yield name, description

    def prices(self, form: ConfigForm) -> tuple[PriceRow, ...]:
        rows, errors = to_rows(form.prices)
        self.found += errors
        return rows

    def pull_requests(self, form: ConfigForm) -> PullRequests:
        written = form.pull_requests
        return PullRequests(
            strategy=written.strategy,
            remote=self.parse(("pull_requests", "remote"), written.remote, _branch, ""),
            checks_wait_seconds=self.duration(("pull_requests", "checks_wait"), written.checks_wait),
            checks_poll_seconds=self.duration(("pull_requests", "checks_poll"), written.checks_poll),
            checks_grace_seconds=self.duration(("pull_requests", "checks_grace"), written.checks_grace),
            flaky=self.every(("pull_requests", "flaky"), written.flaky, _filled),
            reruns_max=written.reruns_max,
        )

    def workspace(self, form: ConfigForm) -> WorkspaceSettings:
        return WorkspaceSettings(
            setup=self.every(("workspace", "setup"), form.workspace.setup, _filled),
            copy=self.every(("workspace", "copy"), form.workspace.copy, parse_path),
            keep=self.every(("workspace", "keep"), form.workspace.keep, parse_path),
        )


def _limits(form: LimitsForm, wait_seconds: int, failover_seconds: int) -> Limits:
    numbers = msgspec.structs.asdict(form)
    del numbers["wait_max"], numbers["failover_wait"]
    return Limits(**numbers, wait_minutes_max=-(-wait_seconds // 60), failover_wait_seconds=failover_seconds)


def _filled(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise BadName("it is empty")
    return text


def _branch(text: str) -> str:
    if _NOT_A_REF.search(text):
        raise BadName(f"{text[:80]!r} is not usable as a branch or remote name")
    return text


def _variable(text: str) -> str:
    if not _VARIABLE.match(text):
        raise BadName(f"{text[:80]!r} is not the name of an environment variable")
    return text


def _pattern(text: str) -> str:
    try:
        pathspec.GitIgnoreSpec.from_lines([_filled(text)])
    except BadName:
        raise
    except ValueError:
        raise BadName(f"{text[:80]!r} is not a pattern as in .gitignore") from None
    return text


def _advice(code: str) -> str:
    return {
        "MZ2009": "write seconds (600), or a text such as 90s, 30m, 1h30m",
        "MZ2010": 'write US dollars as a quoted decimal, such as "5.00"',
    }.get(code, f"see `mz explain {code}` for valid values")


def leave_out(value: object, key_paths: Iterable[Route]) -> object:
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
            kept[key] = leave_out(item, inner)
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
    schema = {"$schema": DRAFT, **root, "title": title, "definitions": definitions}
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


def settings(kind: type[object] = ConfigForm, prefix: str = "") -> tuple[SettingInfo, ...]:
    """Return all settings in the order of the form. Sections are expanded; `commands` is one setting."""
    struct = inspect.type_info(kind)
    assert isinstance(struct, inspect.StructType)
    infos: list[SettingInfo] = []
    for field in struct.fields:
        name, bare = prefix + field.encode_name, field.type
        description = ""
        while isinstance(bare, inspect.Metadata):
            description = description or str((bare.extra_json_schema or {}).get("description", ""))
            bare = bare.type
        if isinstance(bare, inspect.StructType):
            infos.extend(settings(bare.cls, f"{name}."))
        else:
            scalar = not isinstance(bare, inspect.VarTupleType | inspect.DictType)
            infos.append(SettingInfo(name=name, description=description, type=field.type, scalar=scalar))
    return tuple(infos)
