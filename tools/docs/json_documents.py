"""Documentation page of all JSON documents, from their Structs. `python -m "
"tools.docs.json_documents FILE` writes it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from msgspec import Struct, defstruct, inspect, structs
from mz_cli.inspect.log import LogEntry, LogHeader
from mz_cli.terminal.json import field_rule

from tools.docs.documents import JSON_DOCUMENTS

LOG_DOCUMENT = "log"
HEAD = """# JSON

Output of `--json`; `python -m tools.docs.json_documents docs/json.md` writes this page from the code.

- One object on stdout, indented. Its first key, `schema`, is `mz.<name>/<number>`. A new key keeps the number, so
  readers ignore unknown keys; any other change raises it. See [stability](stability.md).
- `null` means unknown or none; an unknown number is never 0.
- Money is a decimal string of US dollars (`"0.0123"`). Times are ISO 8601 in UTC, with microseconds. Commits and
  digests are printed in full. An event ref is `stream@version`, as `mz log` prints it.
- After an error there is nothing on stdout, and one object [mz.error/1](#mzerror1) on stderr.
- `mz log --json` prints JSON Lines instead: [mz.log/1](#mzlog1).
"""


class KeyRow(NamedTuple):
    key: str
    type: str
    about: str


def markdown_page() -> str:
    """Return the page as Markdown."""
    documents = [_section(f"## mz.{name}/1", shape, "schema") for name, shape in WRITTEN.items() if name < LOG_DOCUMENT]
    documents += [
        _section(f"## mz.{LOG_DOCUMENT}/1", document_type(LogHeader), ""),
        _section("### The other lines", document_type(LogEntry), ""),
    ]
    documents += [
        _section(f"## mz.{name}/1", shape, "schema") for name, shape in WRITTEN.items() if name > LOG_DOCUMENT
    ]
    parts = [_section(f"### {shape_title(shape)}", shape, "") for shape in sorted(nested_shapes(), key=shape_title)]
    return "\n".join([HEAD, *documents, "## Parts\n\nObjects nested in the documents above.\n", *parts])


def _section(heading: str, shape: type[Struct], schema: str) -> str:
    rows = [KeyRow("schema", "text", f"`{heading.removeprefix('## ')}`")] if schema else []
    rows += [
        KeyRow(field.encode_name, type_text(field.type), _field_docs(shape).get(field.name, ""))
        for field in fields(shape)
    ]
    lines = [f"| `{key}` | {type_} | {about} |" for key, type_, about in rows]
    return "\n".join([f"{heading}\n\n{_description(shape)}\n", "| key | type | meaning |", "|---|---|---|", *lines, ""])


@cache
def document_type(shape: type[Struct]) -> type[Struct]:
    """Return the Struct as it is written: with the keys and types that `field_rule` gives its fields, nested ones
    included."""
    fields: list[tuple[str, Any]] = []
    for field in structs.fields(shape):
        key, convert, written_type = field_rule(field)
        may_be_null = field.default == "" or type(None) in get_args(field.type)
        converted_type: Any = written_type | None if may_be_null else written_type
        fields.append((key, converted_type if convert else _written_type(field.type)))
    written = defstruct(shape.__name__, fields, kw_only=True, module=shape.__module__)
    written.__doc__ = shape.__doc__
    SOURCES[written] = shape
    return written


SOURCES: dict[type[Struct], type[Struct]] = {}
"""Struct as it is written -> Struct in the code."""


def _written_type(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, Struct):
        return document_type(kind)
    arguments = get_args(kind)
    if not arguments or get_origin(kind) is Literal:
        return kind
    written = tuple(map(_written_type, arguments))
    origin = get_origin(kind)
    return Union[written] if origin in (Union, UnionType) else origin[written]  # noqa: UP007


def fields(shape: type[Struct]) -> tuple[inspect.Field, ...]:
    kind = inspect.type_info(shape)
    assert isinstance(kind, inspect.StructType)
    return kind.fields


WRITTEN = {name: document_type(shape) for name, shape in JSON_DOCUMENTS.items()}
"""All JSON documents as they are written."""


def type_text(kind: inspect.Type) -> str:
    """Return the type as text, with links to nested objects."""
    match kind:
        case inspect.Metadata():
            return type_text(kind.type)
        case inspect.StructType():
            title = shape_title(kind.cls)
            return f"[{title}](#{title.lower().replace('.', '').replace(' ', '-')})"
        case inspect.VarTupleType():
            return f"list of {type_text(kind.item_type)}"
        case inspect.DictType():
            return f"object of {type_text(kind.value_type)}"
        case inspect.UnionType():
            types = sorted(kind.types, key=lambda member: isinstance(member, inspect.NoneType))
            return " or ".join(map(type_text, types))
        case inspect.LiteralType():
            return " or ".join(f"`{value}`" for value in kind.values)
        case inspect.EnumType():
            return " or ".join(f"`{member.value}`" for member in kind.cls)
    names: dict[type[inspect.Type], str] = {
        inspect.StrType: "text", inspect.IntType: "number", inspect.FloatType: "number with decimals",
        inspect.BoolType: "true or false", inspect.NoneType: "null", inspect.AnyType: "anything",
        inspect.DateType: "text",
    }  # fmt: skip
    return names[type(kind)]


def nested_shapes() -> set[type[Struct]]:
    """Return all Structs nested in documents."""
    shapes: set[type[Struct]] = set()
    pending: list[inspect.Type] = [field.type for shape in WRITTEN.values() for field in fields(shape)]
    while pending:
        kind = pending.pop()
        match kind:
            case inspect.Metadata():
                pending.append(kind.type)
            case inspect.VarTupleType():
                pending.append(kind.item_type)
            case inspect.DictType():
                pending.append(kind.value_type)
            case inspect.UnionType():
                pending += kind.types
            case inspect.StructType() if kind.cls not in shapes:
                shapes.add(kind.cls)
                pending += [field.type for field in kind.fields]
    return shapes


def shape_title(shape: type[object]) -> str:
    """Return the Struct's name, with that of its module if it is not unique."""
    same = [other for other in _all_shapes() if other.__name__ == shape.__name__]
    return shape.__name__ if len(same) < 2 else f"{shape.__module__.rpartition('.')[2]} {shape.__name__}"


@cache
def _all_shapes() -> frozenset[type[Struct]]:
    return frozenset(nested_shapes())


def _description(shape: type[Struct]) -> str:
    return " ".join(cleandoc(shape.__doc__ or "").split())


def _field_docs(shape: type[Struct]) -> dict[str, str]:
    """Return the docstrings of fields, those of base classes included."""
    docs: dict[str, str] = {}
    source = SOURCES[shape]
    for base in reversed(source.__mro__):
        if base.__module__.startswith(("mz_", "tools.")):
            docs |= _module_docs(base.__module__).get(base.__name__, {})
    keys = {field.name: field_rule(field).key for field in structs.fields(source)}
    return {keys[name]: text for name, text in docs.items() if name in keys}


@cache
def _module_docs(name: str) -> dict[str, dict[str, str]]:
    file = sys.modules[name].__file__
    assert file is not None
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {
        definition.name: dict(_class_docs(definition))
        for definition in tree.body
        if isinstance(definition, ast.ClassDef)
    }


def _class_docs(tree: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match text:
                case ast.Expr(value=ast.Constant(value=str(doc))):
                    yield field.target.id, " ".join(doc.split()).replace("|", "\\|").replace("None:", "null:")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown_page(), encoding="utf-8")
