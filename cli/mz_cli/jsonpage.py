"""Documentation page of all JSON documents, from their Structs. `python -m mz_cli.jsonpage FILE` writes it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import NamedTuple

from msgspec import inspect

from mz_cli.documents import DOCUMENTS
from mz_cli.shapes.base import Shape
from mz_cli.shapes.lines import LogEntry, LogHeader

LINES = "log"
HEAD = """# JSON

Output of `--json`; `python -m mz_cli.jsonpage docs/json.md` writes this page from the code.

- One object on stdout, indented. Its first key, `schema`, is `mz.<name>/<number>`. A new key keeps the number, so
  readers ignore unknown keys; any other change raises it. See [stability](stability.md).
- `null` means unknown or none; an unknown number is never 0.
- Money is a decimal string of US dollars (`"0.0123"`). Times are ISO 8601 in UTC, with microseconds. Commits and
  digests are printed in full. An event ref is `stream@version`, as `mz log` prints it.
- After an error there is nothing on stdout, and one object [mz.error/1](#mzerror1) on stderr.
- `mz log --json` prints JSON Lines instead: [mz.log/1](#mzlog1).
"""


class Row(NamedTuple):
    key: str
    type: str
    about: str


def page() -> str:
    """Return the page as Markdown."""
    documents = [_section(f"## mz.{name}/1", shape, "schema") for name, shape in DOCUMENTS.items() if name < LINES]
    documents += [_section(f"## mz.{LINES}/1", LogHeader, ""), _section("### The other lines", LogEntry, "")]
    documents += [_section(f"## mz.{name}/1", shape, "schema") for name, shape in DOCUMENTS.items() if name > LINES]
    parts = [_section(f"### {title_of(shape)}", shape, "") for shape in sorted(parts_of_all(), key=title_of)]
    return "\n".join([HEAD, *documents, "## Parts\n\nObjects nested in the documents above.\n", *parts])


def _section(heading: str, shape: type[Shape], schema: str) -> str:
    rows = [Row("schema", "text", f"`{heading.removeprefix('## ')}`")] if schema else []
    rows += [
        Row(field.encode_name, told(field.type), _documented(shape).get(field.name, "")) for field in fields(shape)
    ]
    lines = [f"| `{key}` | {type_} | {about} |" for key, type_, about in rows]
    return "\n".join([f"{heading}\n\n{_about(shape)}\n", "| key | type | meaning |", "|---|---|---|", *lines, ""])


def fields(shape: type[Shape]) -> tuple[inspect.Field, ...]:
    kind = inspect.type_info(shape)
    assert isinstance(kind, inspect.StructType)
    return kind.fields


def told(kind: inspect.Type) -> str:
    """Return the type as text, with links to nested objects."""
    match kind:
        case inspect.Metadata():
            return told(kind.type)
        case inspect.StructType():
            title = title_of(kind.cls)
            return f"[{title}](#{title.lower().replace('.', '').replace(' ', '-')})"
        case inspect.VarTupleType():
            return f"list of {told(kind.item_type)}"
        case inspect.DictType():
            return f"object of {told(kind.value_type)}"
        case inspect.UnionType():
            types = sorted(kind.types, key=lambda member: isinstance(member, inspect.NoneType))
            return " or ".join(map(told, types))
        case inspect.LiteralType():
            return " or ".join(f"`{value}`" for value in kind.values)
        case inspect.EnumType():
            return " or ".join(f"`{member.value}`" for member in kind.cls)
    names: dict[type[inspect.Type], str] = {
        inspect.StrType: "text", inspect.IntType: "number", inspect.FloatType: "number with decimals",
        inspect.BoolType: "true or false", inspect.NoneType: "null", inspect.AnyType: "anything",
    }  # fmt: skip
    return names[type(kind)]


def parts_of_all() -> set[type[Shape]]:
    """Return all Structs nested in documents."""
    found: set[type[Shape]] = set()
    waiting: list[inspect.Type] = [field.type for shape in DOCUMENTS.values() for field in fields(shape)]
    while waiting:
        kind = waiting.pop()
        match kind:
            case inspect.Metadata():
                waiting.append(kind.type)
            case inspect.VarTupleType():
                waiting.append(kind.item_type)
            case inspect.DictType():
                waiting.append(kind.value_type)
            case inspect.UnionType():
                waiting += kind.types
            case inspect.StructType() if issubclass(kind.cls, Shape) and kind.cls not in found:
                found.add(kind.cls)
                waiting += [field.type for field in kind.fields]
    return found


def title_of(shape: type[object]) -> str:
    """Return the Struct's name, with that of its module if it is not unique."""
    same = [other for other in _all_shapes() if other.__name__ == shape.__name__]
    return shape.__name__ if len(same) < 2 else f"{shape.__module__.rpartition('.')[2]} {shape.__name__}"


@cache
def _all_shapes() -> frozenset[type[Shape]]:
    return frozenset(parts_of_all())


def _about(shape: type[Shape]) -> str:
    return " ".join(cleandoc(shape.__doc__ or "").split())


def _documented(shape: type[Shape]) -> dict[str, str]:
    """Return the docstrings of fields, those of base classes included."""
    found: dict[str, str] = {}
    for each in reversed(shape.__mro__):
        if each.__module__.startswith("mz_cli."):
            found |= _of_module(each.__module__).get(each.__name__, {})
    return found


@cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    file = sys.modules[name].__file__
    assert file is not None
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {each.name: dict(_of_class(each)) for each in tree.body if isinstance(each, ast.ClassDef)}


def _of_class(tree: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match text:
                case ast.Expr(value=ast.Constant(value=str(words))):
                    yield field.target.id, " ".join(words.split()).replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
