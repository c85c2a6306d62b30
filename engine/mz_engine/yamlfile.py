"""Pure: the YAML border. Text becomes plain values that remember where they stood, and those become a frozen Struct.

PyYAML's safe loader reads; the scalars are those of YAML 1.2's core schema, so `no` is text and `012` is twelve, and
there are no dates, no merge keys and no tags. Depth, number of nodes and the growth of aliases are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from mz_engine.errors import Diagnostic, MzError, Place
from mz_engine.shape import EXPLAINED, Route, mismatches, without_empty

DEPTH_MAX = 40
NODES_MAX = 20_000
INTEGER_MAX = 2**53
SYNTAX = "`mz explain MZ2003` lists the usual causes"
TAGS = "leave the tag out; texts, numbers, true, false, lists and mappings need none"

T = TypeVar("T")


class Document(msgspec.Struct, frozen=True):
    """Plain values (dict, list, str, int, float, bool, None) and the places of their values and keys by route."""

    name: str
    value: object
    values: dict[Route, Place]
    keys: dict[Route, Place]

    def place(self, *route: str | int) -> Place:
        """Of the value at this route, or of the nearest one around it that is there."""
        while route and route not in self.values:
            route = route[:-1]
        return self.values.get(route, Place(self.name))

    def key_place(self, *route: str | int) -> Place:
        """Of the key that ends this route, or else as `place`."""
        return self.keys.get(route) or self.place(*route)


Resolvers = dict[str, list[tuple[str, re.Pattern[str]]]]


def _core_schema() -> Resolvers:
    """Which plain scalars are more than text, by their first character."""
    rules = (
        ("null", ["~", "n", "N", ""], r"(?:~|null|Null|NULL|)\Z"),
        ("bool", [*"tTfF"], r"(?:true|True|TRUE|false|False|FALSE)\Z"),
        ("int", [*"-+0123456789"], r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
        ("float", [*"-+.0123456789"], r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"),
    )
    found: Resolvers = {}
    for tag, firsts, pattern in rules:
        for first in firsts:
            found.setdefault(first, []).append((f"tag:yaml.org,2002:{tag}", re.compile(pattern)))
    return found


class _Loader(yaml.SafeLoader):
    """Composes nodes only; `_Values` turns them into values."""

    yaml_implicit_resolvers = _core_schema()

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        self.nodes = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        self.depth += 1
        self.nodes += 1
        if self.depth > DEPTH_MAX or self.nodes > NODES_MAX:
            raise _TooBig(self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _TooBig(Exception):
    def __init__(self, mark: yaml.Mark) -> None:
        self.mark = mark


def load(text: str, name: str) -> Document:
    """Reads one YAML document; an empty one is an empty mapping. `name` is what messages call it. Raises MzError:
    MZ2003 syntax, MZ2004 duplicate keys, MZ2006 a key or scalar of a kind that is not used here, MZ2008 too big."""
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        values = _Values(name)
        value = values.build(node, ()) if node else None
    except _TooBig as error:
        why = f"nested deeper than {DEPTH_MAX} or more than {NODES_MAX:,} values"
        raise MzError("MZ2008", why, hint="make it simpler", place=_place(name, error.mark)) from None
    except yaml.YAMLError as error:
        raise MzError.of([_syntax(error, text, name)]) from error
    finally:
        if loader is not None:
            loader.dispose()
    if values.found:
        raise MzError.of(values.found)
    return Document(name, {} if value is None else value, {(): Place(name, 1, 1), **values.values}, values.keys)


def convert(text: str, name: str, wanted: type[T]) -> T:
    """A frozen Struct from text: `load`, then `convert_document`."""
    return convert_document(load(text, name), wanted)


def convert_document(document: Document, wanted: type[T]) -> T:
    """A frozen Struct from a document; an optional key without a value counts as not written. Raises MzError with all
    of MZ2005 unknown key, MZ2006 wrong value, MZ2007 missing key that are in it, each with its place."""
    try:
        return msgspec.convert(without_empty(document.value, msgspec.inspect.type_info(wanted)), wanted)
    except msgspec.ValidationError as error:
        found = list(_located(document, wanted)) or [
            Diagnostic(code="MZ2006", message=str(error), hint=EXPLAINED, place=Place(document.name))
        ]
        raise MzError.of(found) from error


def _located(document: Document, wanted: type[object]) -> Iterator[Diagnostic]:
    kind = msgspec.inspect.type_info(wanted)
    for each in mismatches(without_empty(document.value, kind), kind):
        of_key = each.code == "MZ2005"
        place = document.key_place(*each.route) if of_key else document.place(*each.route)
        yield Diagnostic(code=each.code, message=each.message, hint=each.hint, place=place)


class _Values:
    """Turns nodes into values. Aliases are expanded, so the nodes are counted again, as often as they are used."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes = 0
        self.values: dict[Route, Place] = {}
        self.keys: dict[Route, Place] = {}
        self.found: list[Diagnostic] = []

    def build(self, node: Node, route: Route) -> object:
        self.nodes += 1
        if self.nodes > NODES_MAX or len(route) > DEPTH_MAX:
            raise _TooBig(node.start_mark)
        self.values[route] = _place(self.name, node.start_mark)
        match node:
            case MappingNode() if node.tag == "tag:yaml.org,2002:map":
                return self.mapping(node, route)
            case SequenceNode() if node.tag == "tag:yaml.org,2002:seq":
                return [self.build(each, (*route, position)) for position, each in enumerate(node.value)]
            case ScalarNode():
                return self.scalar(node)
        return self.refuse(node, f"the tag `{node.tag}` is not used here", TAGS)

    def mapping(self, node: MappingNode, route: Route) -> dict[str, object]:
        built: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self.scalar(key_node) if isinstance(key_node, ScalarNode) else None
            if not isinstance(key, str):
                self.refuse(key_node, "keys are text here", "put quotes around it")
            elif key in built:
                first = self.keys[(*route, key)].line
                place = _place(self.name, key_node.start_mark)
                said = f"the key `{key[:80]}` stands twice, first in line {first}"
                self.found.append(Diagnostic(code="MZ2004", message=said, hint="keep one of the two", place=place))
            else:
                self.keys[(*route, key)] = _place(self.name, key_node.start_mark)
                built[key] = self.build(value_node, (*route, key))
        return built

    def scalar(self, node: ScalarNode) -> object:
        text = node.value
        match node.tag.removeprefix("tag:yaml.org,2002:"):
            case "str":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                return self.integer(node)
            case "float":
                return float(text)
        return self.refuse(node, f"the tag `{node.tag}` is not used here", TAGS)

    def integer(self, node: ScalarNode) -> object:
        text = node.value
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        if len(text) <= 20 and abs(number := int(text, base)) <= INTEGER_MAX:
            return -number if text.startswith("-") and number > 0 else number
        return self.refuse(node, "the number is too big", "put quotes around it if it is text")

    def refuse(self, node: Node, said: str, hint: str) -> object:
        place = _place(self.name, node.start_mark)
        self.found.append(Diagnostic(code="MZ2006", message=said, hint=hint, place=place))
        return None


def _place(name: str, mark: yaml.Mark) -> Place:
    return Place(name, mark.line + 1, mark.column + 1)


def _syntax(error: yaml.YAMLError, text: str, name: str) -> Diagnostic:
    if isinstance(error, yaml.MarkedYAMLError) and (mark := error.problem_mark or error.context_mark):
        return Diagnostic(
            code="MZ2003", message=f"not YAML: {_problem(error)}", hint=_advice(error), place=_place(name, mark)
        )
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position].rsplit("\n", 1)
        place = Place(name, text.count("\n", 0, error.position) + 1, len(before[-1]) + 1)
        said = f"not YAML: the character U+{ord(text[error.position]):04X} is not allowed"
        return Diagnostic(code="MZ2003", message=said, hint="take it out", place=place)
    return Diagnostic(code="MZ2003", message=f"not YAML: {error}", hint=SYNTAX, place=Place(name))


def _problem(error: yaml.MarkedYAMLError) -> str:
    return ": ".join(part for part in (error.context, error.problem) if part)


def _advice(error: yaml.MarkedYAMLError) -> str:
    problem = _problem(error)
    if "'\\t'" in problem:
        return "indent with spaces; YAML allows no tabs there"
    if "mapping values are not allowed" in problem:
        return "put quotes around a text that holds `: `"
    if "single document" in problem:
        return "keep one document; take out the second `---`"
    return SYNTAX
