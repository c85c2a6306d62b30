"""Names of all settings, their checks across several keys, and JSON Schemas (draft 7, which editors read) of settings,
pipelines and the lines of `mz log --json`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect
from mz_events.catalog.base import Event
from mz_events.codec import ALL_EVENTS, type_of

from mz_engine.decoding import regex
from mz_engine.decoding.quantity import encode_quantity, quantity_schema
from mz_engine.decoding.structs import DecodeError, KeyPath, format_key_path
from mz_engine.model.agent_description import (
    MODEL,
    SESSION,
    TOOLS,
    AgentDescription,
    ObjectMatch,
    Selector,
    UsageSelector,
)
from mz_engine.model.config import ContainerSettings, PriceRow, Settings, SpecDocuments
from mz_engine.model.pipeline import Pipeline

PLACEHOLDER = re.compile(r"\{[a-z_]+\}")
PROMPT_PLACEHOLDERS = ("{prompt}", "{prompt_file}")
PROGRAM = re.compile(r"[A-Za-z0-9_][\w.+-]*\Z")
SECRET = re.compile(r"(?i)(key|token|secret|passw|credential)")

JSON_SCHEMA_DRAFT = "http://json-schema.org/draft-07/schema#"
TEXT, NUMBER = {"type": "string"}, {"type": "integer", "minimum": 1}
VERSION_LINE = {
    "description": "The first line.",
    "type": "object",
    "required": ["type", "schema"],
    "properties": {"type": {"const": "version"}, "schema": {"const": "mz.log/1"}},
}


def check_settings(settings: Settings) -> Iterator[DecodeError]:
    """Yield errors of agent descriptions, container and prices that the types of single keys do not show."""
    for name, description in settings.agents.items():
        for inner_path, fault in description_errors(description):
            key_path = ("agents", name, *inner_path)
            message, hint = f"`{format_key_path(key_path)}`: {fault}", "see `mz help MZ2013` for valid values"
            yield DecodeError(key_path=key_path, code="MZ2013", message=message, hint=hint)
    if settings.container != ContainerSettings() and None in (settings.container.engine, settings.container.image):
        message, hint = "`container` needs `engine` and `image`", "add what is missing, or remove `container`"
        yield DecodeError(key_path=("container",), code="MZ2013", message=message, hint=hint)
    yield from check_prices(settings.prices)
    yield from check_specs(settings.specs)


def check_specs(specs: Mapping[str, SpecDocuments]) -> Iterator[DecodeError]:
    """Yield an error for each unusable expression, and for each kind that does not exist or does not cite."""
    for name, documents in specs.items():
        expressions: list[tuple[KeyPath, str, int]] = [(("ids",), documents.ids, 1)] if documents.ids else []
        faults: list[tuple[KeyPath, str]] = []
        for kind, expression in documents.cites.items():
            if cited := specs.get(kind):
                expressions.append((("cites", kind), expression, 2 if cited.local else 1))
            else:
                faults.append((("cites", kind), f"there is no kind `{kind}` in `specs`"))
        for key, kinds in (("cited_by", documents.cited_by), ("cited_once_by", documents.cited_once_by)):
            for index, kind in enumerate(kinds):
                if kind not in specs or name not in specs[kind].cites:
                    faults.append(((key, index), f"`specs.{kind}.cites` has no `{name}`"))
        for path, expression, groups in expressions:
            info = regex.inspect_expression(expression)
            if info.error:
                faults.append((path, f"{expression[:80]!r} is not a valid RE2 regular expression: {info.error}"))
            elif info.groups != groups:
                faults.append((path, f"{expression[:80]!r} has {info.groups} groups; it needs {groups}"))
        for path, fault in faults:
            key_path = ("specs", name, *path)
            message, hint = f"`{format_key_path(key_path)}`: {fault}", "see docs/specs.md"
            yield DecodeError(key_path=key_path, code="MZ2013", message=message, hint=hint)


def check_prices(rows: tuple[PriceRow, ...]) -> Iterator[DecodeError]:
    """Yield an error for each model that has two prices from the same day. Key paths begin with `prices`."""
    first_rows: dict[tuple[str, str | None], int] = {}
    for index, row in enumerate(rows):
        first = first_rows.setdefault((row.model.lower(), row.since), index)
        if first != index:
            since = f" from {row.since}" if row.since else ""
            duplicate, original = format_key_path(("prices", index)), format_key_path(("prices", first))
            message = f"`{duplicate}`: {row.model}{since} already has prices in `{original}`"
            yield DecodeError(
                key_path=("prices", index, "model"), code="MZ2013", message=message, hint="remove one of the two"
            )


# descriptions of agents -----------------------------------------------------------------------------------------------
DescriptionError = tuple[KeyPath, str]
"""Route within the description, and the error there."""


def description_errors(description: AgentDescription) -> Iterator[DescriptionError]:
    """Yield all errors of a description; none if it is usable."""
    if not description.command:
        yield ("command",), "it names no program"
    elif not PROGRAM.match(description.command[0]):
        yield (
            ("command", 0),
            f"{description.command[0][:80]!r} is not the name of a program on PATH; for one in the repository, "
            "write `sh` or its interpreter, and its path as an argument",
        )
    if description.version is not None and description.version[:1] and not PROGRAM.match(description.version[0]):
        yield ("version", 0), f"{description.version[0][:80]!r} is not the name of a program on PATH"
    if MODEL in "\0".join(description.command) and not description.models.mid:
        yield ("models",), "the command names {model}, and there is no model for the tier `mid`"
    yield from _check_arguments(description)
    for name, value in description.environment.items():
        route = ("environment", name)
        if name.startswith("MZ_"):
            yield route, f"{name} is reserved for mz"
        elif SECRET.search(name) and value:
            yield route, f"{name} looks like a secret; do not store it in a file, name it under `passes` instead"
        if "\0" in value:
            yield route, "a value cannot hold a NUL"
    for at, name in enumerate(description.login.variables):
        if name not in description.passes:
            yield ("login", "variables", at), f"{name} is not under `passes`, so the program would not see it"
    yield from _check_output(description)
    yield from _check_ends(description)
    yield from _check_expressions(description)


def _check_arguments(description: AgentDescription) -> Iterator[DescriptionError]:
    session = description.session
    lists: tuple[tuple[KeyPath, tuple[str, ...], tuple[str, ...]], ...] = (
        (("command",), description.command, (MODEL, TOOLS)),
        (("version",), description.version or (), ()),
        *((("allowed", name), getattr(description.allowed, name), ()) for name in ("read", "write", "shell")),
        *((("denied", name), getattr(description.denied, name), ()) for name in ("read", "write", "shell")),
        *((("session", name), getattr(session, name), (SESSION,)) for name in ("new", "resume") if session),
    )
    for route, arguments, allowed in lists:
        for index, argument in enumerate(arguments):
            if "\0" in argument:
                yield (*route, index), "an argument cannot hold a NUL"
            for placeholder in PLACEHOLDER.findall(argument):
                if placeholder not in allowed:
                    yield (*route, index), _unknown_placeholder(placeholder, allowed)
    if session is not None:
        if SESSION not in "\0".join(session.resume):
            yield ("session", "resume"), "it does not name {session}"
        if SESSION not in "\0".join(session.new) and description.output.session is None:
            yield ("session", "new"), "it must name {session}, or `output.session` must find the session's id"


def _unknown_placeholder(placeholder: str, allowed: tuple[str, ...]) -> str:
    if placeholder in PROMPT_PLACEHOLDERS:
        return (
            f"{placeholder} is not allowed in an argument, which everybody on the machine can read; the prompt comes "
            "on standard input; pass /dev/stdin to a program that needs a file"
        )
    return f"{placeholder} is not a placeholder here; valid: {', '.join(allowed) or 'none'}"


def _check_output(description: AgentDescription) -> Iterator[DescriptionError]:
    output = description.output
    if output.form == "text":
        for name in output.__struct_fields__:
            if isinstance(getattr(output, name), Selector | UsageSelector):
                yield ("output", name), "it needs JSON objects, and the output is plain text (`form: text`)"
        if output.stream != "stdout":
            yield ("output", "stream"), "it selects the stream with JSON, and the output is plain text (`form: text`)"
        return
    if output.text is None and output.stream == "stdout":
        yield ("output",), "`text` is missing: it selects the agent's final text"


def _check_ends(description: AgentDescription) -> Iterator[DescriptionError]:
    ends, route = description.ends, ("ends",)
    if description.output.form == "text":
        if not ends.exits and ends.proof is None:
            yield route, "with plain text output, `proof` or `exits` must define success"
        for name in ("success", "error", "open", "last"):
            if getattr(ends, name):
                yield (*route, name), "it needs JSON objects, and the output is plain text (`form: text`)"
        return
    if not ends.success:
        yield route, "it has no object under `success`, so no call could succeed"
    for name, proof in (("proof", ends.proof), ("disproof", ends.disproof)):
        if proof is not None and proof.stream == description.output.stream:
            yield (*route, name, "stream"), f"{proof.stream} has the JSON; text is on the other stream"
    wheres: list[tuple[KeyPath, ObjectMatch]] = [(("last",), ends.last)] if ends.last is not None else []
    for name in ("success", "error", "open"):
        wheres += [((name, at), where) for at, where in enumerate(getattr(ends, name))]
    for inner_route, where in wheres:
        if not where:
            yield (*route, *inner_route), "it is empty and would match every object"


def _check_expressions(description: AgentDescription) -> Iterator[DescriptionError]:
    expressions: list[tuple[KeyPath, str]] = [
        (("output", "remove", at), expression) for at, expression in enumerate(description.output.remove)
    ]
    for name, proof in (("proof", description.ends.proof), ("disproof", description.ends.disproof)):
        if proof is not None:
            expressions.append((("ends", name, "pattern"), proof.pattern))
    if description.output.version_pattern:
        expressions.append((("output", "version_pattern"), description.output.version_pattern))
    for number, problem in enumerate(description.problems):
        expressions += [
            (("problems", number, "patterns", at), expression) for at, expression in enumerate(problem.patterns)
        ]
    for route, expression in expressions:
        info = regex.inspect_expression(expression)
        if info.error:
            yield route, f"{expression[:80]!r} is not a valid RE2 regular expression: {info.error}"
            continue
        if info.matches_empty and route[0] != "output":
            yield route, f"{expression[:80]!r} also matches an empty line"
        if route[-1] == "version_pattern" and info.groups != 1:
            groups = f"{info.groups} groups; it needs exactly one, which matches the version"
            yield route, f"{expression[:80]!r} has {groups}"


# schemas --------------------------------------------------------------------------------------------------------------
def config_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 7, which editors read) of `mz.yaml`."""
    return json_schema(Settings, "mz.yaml")


def schema_text() -> bytes:
    """Return the JSON Schema of `mz.yaml` as the content of a file."""
    return msgspec.json.format(msgspec.json.encode(config_schema()), indent=2) + b"\n"


def json_schema(kind: type[object], title: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of a Struct, self-contained, as plain values."""
    (reference,), definitions = msgspec.json.schema_components(
        [kind], ref_template="#/definitions/{name}", schema_hook=quantity_schema
    )
    for struct in _structs(inspect.type_info(kind)):
        name = struct.cls.__name__
        for field in struct.fields:
            if field.default_factory is not msgspec.NODEFAULT:
                default = msgspec.to_builtins(field.default_factory(), enc_hook=encode_quantity)
                definitions[name]["properties"][field.encode_name]["default"] = default
        if short_form := getattr(struct.cls, "SHORT_FORM", None):
            definitions[name] = {"anyOf": [definitions[name]["properties"][short_form], definitions[name]]}
    root = definitions.pop(reference["$ref"].rpartition("/")[2])
    schema = {"$schema": JSON_SCHEMA_DRAFT, **root, "title": title, "definitions": definitions}
    return dict(msgspec.to_builtins(schema))


def _structs(kind: inspect.Type) -> Iterator[inspect.StructType]:
    """Yield all Structs within a type, outermost first."""
    match kind:
        case inspect.StructType():
            yield kind
            for field in kind.fields:
                yield from _structs(field.type)
        case inspect.Metadata():
            yield from _structs(kind.type)
        case inspect.VarTupleType():
            yield from _structs(kind.item_type)
        case inspect.DictType():
            yield from _structs(kind.value_type)
        case inspect.UnionType():
            for member in kind.types:
                yield from _structs(member)


def pipeline_schema() -> dict[str, Any]:
    """Return the schema of `pipelines/NAME.yaml`."""
    return json_schema(Pipeline, "a pipeline of mz")


def events_schema() -> dict[str, Any]:
    """Return the schema of one line of `mz log --json`: the version line, or an event of any type."""
    schemas, definitions = msgspec.json.schema_components(ALL_EVENTS, ref_template="#/definitions/{name}")
    names = [schema["$ref"].rpartition("/")[2] for schema in schemas]
    for schema in (definitions[name] for name in names):  # Without the type, which a line has next to the event.
        schema["properties"].pop("type")
        schema["required"] = [name for name in schema.get("required", ()) if name != "type"]
    lines = [_line_schema(kind, schema) for kind, schema in zip(ALL_EVENTS, schemas, strict=True)]
    return {
        "$schema": JSON_SCHEMA_DRAFT,
        "title": "a line of mz log --json",
        "anyOf": [VERSION_LINE, *lines],
        "definitions": definitions,
    }


def _line_schema(kind: type[Event], event: dict[str, Any]) -> dict[str, Any]:
    properties = {
        "type": {"const": type_of(kind)},
        "role": {"enum": ["intent", "outcome", "external", "derived"]},
        "event_ref": {"type": "string", "pattern": "@[0-9]+$", "description": "`stream@version`."},
        "stream": TEXT,
        "version": NUMBER,
        "position": NUMBER,
        "recorded_at": TEXT,
        "observed_at": TEXT,
        "causation": {"type": ["string", "null"], "description": "Reference of the event that caused it."},
        "event": event,
    }
    return {"type": "object", "properties": properties, "required": list(properties)}


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


def list_settings(kind: inspect.Type | None = None, prefix: str = "") -> tuple[SettingInfo, ...]:
    """Return all settings in their order. Sections are expanded; `commands` is one setting."""
    struct = kind or inspect.type_info(Settings)
    assert isinstance(struct, inspect.StructType)
    infos: list[SettingInfo] = []
    for field in struct.fields:
        name, field_type = prefix + field.encode_name, field.type
        description = ""
        while isinstance(field_type, inspect.Metadata):
            description = description or str((field_type.extra_json_schema or {}).get("description", ""))
            field_type = field_type.type
        if isinstance(field_type, inspect.StructType):
            infos.extend(list_settings(field_type, f"{name}."))
        else:
            scalar = not isinstance(field_type, inspect.VarTupleType | inspect.DictType)
            infos.append(SettingInfo(name=name, description=description, type=field.type, scalar=scalar))
    return tuple(infos)
