"""Decodes YAML: text becomes plain values with locations, and these become a frozen Struct.

PyYAML's safe loader parses; scalars are those of YAML 1.2's core schema, so `no` is text and `012` is twelve, and there
are no dates, merge keys or tags. Depth, number of nodes and the expansion of aliases are limited.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from mz_engine.decoding.quantity import decode_quantity
from mz_engine.decoding.structs import EXPLAIN_HINT, DecodeError, KeyPath, decode_value
from mz_engine.errors.diagnostics import Diagnostic, MzError, SourceLocation

if TYPE_CHECKING or yaml.__with_libyaml__:
    from yaml import CSafeDumper as CSafeDumper
    from yaml import CSafeLoader as CSafeLoader
else:
    CSafeDumper, CSafeLoader = yaml.SafeDumper, yaml.SafeLoader  # It was built without libyaml.

DEPTH_MAX = 40
NODES_MAX = 20_000
INTEGER_MAX = 2**53
SYNTAX_HINT = "`mz help MZ2003` lists the usual causes"
SYNTAX_HINTS = {
    "'\\t'": "indent with spaces; YAML allows no tabs there",
    "mapping values are not allowed": "put quotes around a text that holds `: `",
    "single document": "keep one document; remove the second `---`",
}
"""By a part of the parser's message."""
SURROGATE = re.compile("[\ud800-\udfff]")
TAG_HINT = "remove the tag; texts, numbers, true, false, lists and mappings need none"

T = TypeVar("T")


class YamlDocument(msgspec.Struct, frozen=True):
    """Plain values (dict, list, str, int, float, bool, None), and the locations of values and keys by key path."""

    name: str
    value: object
    value_locations: dict[KeyPath, SourceLocation]
    key_locations: dict[KeyPath, SourceLocation]

    def location(self, *key_path: str | int) -> SourceLocation:
        """Return the location of the value at this key path, or of its nearest parent that exists."""
        while key_path and key_path not in self.value_locations:
            key_path = key_path[:-1]
        return self.value_locations.get(key_path, SourceLocation(self.name))

    def key_location(self, *key_path: str | int) -> SourceLocation:
        """Return the location of the last key in this key path, or else the value's location."""
        return self.key_locations.get(key_path) or self.location(*key_path)

    def diagnostic(self, error: DecodeError) -> Diagnostic:
        """Return an error with the location of its value, or of an unknown key."""
        locate = self.key_location if error.code == "MZ2005" else self.location
        location = locate(*error.key_path)
        return Diagnostic(code=error.code, message=error.message, hint=error.hint, location=location)


PLAIN_SCALARS = (
    ("null", r"(?:~|null|Null|NULL|)\Z", ["~", "n", "N", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)\Z", [*"tTfF"]),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z", [*"-+0123456789"]),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", [*"-+.0123456789"]),
)
"""Plain scalars that are not text: tag, pattern, first characters."""
PATTERNS = {tag: re.compile(pattern) for tag, pattern, _ in PLAIN_SCALARS}
RESOLVERS = {
    first: [(f"tag:yaml.org,2002:{tag}", PATTERNS[tag]) for tag, _, firsts in PLAIN_SCALARS if first in firsts]
    for first in ("", *"~nNtTfF-+.0123456789")
}


class _LimitedComposer(Composer):
    """Composes nodes only; `_ValueBuilder` converts them to values."""

    yaml_implicit_resolvers = RESOLVERS
    depth = nodes = 0
    nodes_max: int
    sizes: dict[int, int]
    """Number of nodes in a node, by its identity."""

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        before = self.nodes
        self.depth += 1
        self.nodes += 1
        if self.depth > DEPTH_MAX or self.nodes > self.nodes_max:
            raise _TooBig(cast("_ExplainingLoader", self).peek_event().start_mark)  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        self.depth -= 1
        self.nodes = before + self.sizes.setdefault(id(node), self.nodes - before)  # Aliases count as what they repeat.
        return node


class _Loader(_LimitedComposer, CSafeLoader):
    def __init__(self, text: str, nodes_max: int) -> None:
        CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self.nodes_max, self.sizes = nodes_max, {}


class _ExplainingLoader(_LimitedComposer, yaml.SafeLoader):
    """Reads five times more slowly, and says better what is wrong."""

    def __init__(self, text: str, nodes_max: int) -> None:
        yaml.SafeLoader.__init__(self, text)
        self.nodes_max, self.sizes = nodes_max, {}


class _TooBig(Exception):
    def __init__(self, mark: yaml.Mark) -> None:
        self.mark = mark


def parse_yaml(text: str, name: str, nodes_max: int = NODES_MAX) -> YamlDocument:
    """Parse one YAML document of at most so many values; an empty one is an empty mapping. Messages call it `name`.

    Raises MzError: MZ2003 syntax, MZ2004 duplicate keys, MZ2006 unsupported key or scalar, MZ2008 too big.
    """
    try:
        try:
            node = _Loader(text, nodes_max).get_single_node()
        except yaml.YAMLError:
            node = _ExplainingLoader(text, nodes_max).get_single_node()
        values = _ValueBuilder(name, nodes_max)
        value = values.build(node, ()) if node else None
    except _TooBig as error:
        message = f"nested deeper than {DEPTH_MAX} or more than {nodes_max:,} values"
        raise MzError("MZ2008", message, hint="make it simpler", location=_location(name, error.mark)) from None
    except yaml.YAMLError as error:
        raise MzError.from_diagnostics([_syntax_error(error, text, name)]) from error
    if values.diagnostics:
        raise MzError.from_diagnostics(values.diagnostics)
    return YamlDocument(
        name,
        {} if value is None else value,
        {(): SourceLocation(name, 1, 1), **values.value_locations},
        values.key_locations,
    )


def load_yaml(text: str | bytes) -> Any:
    """Load one of mz's own files, without limits or locations. Raises yaml.YAMLError."""
    return yaml.load(text, Loader=CSafeLoader)


def format_yaml(value: object) -> str:
    """Return plain values as YAML, with keys in their order."""
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120))


def decode_yaml(text: str, name: str, struct: type[T]) -> T:
    """Decode YAML text to a frozen Struct. Raises MzError."""
    return decode_document(parse_yaml(text, name), struct)


def decode_document(document: YamlDocument, struct: type[T]) -> T:
    """Decode a document to a frozen Struct; an optional key without a value counts as not written.

    Raises MzError with all errors and their locations: MZ2005 unknown key, MZ2006 wrong value, MZ2007 missing key,
    MZ2009 duration, MZ2010 amount, MZ2013 text.
    """
    value, errors = decode_value(document.value, _type_info(cast("Any", struct)))
    if errors:
        raise MzError.from_diagnostics([document.diagnostic(error) for error in errors])
    try:
        return msgspec.convert(value, struct, dec_hook=decode_quantity)
    except msgspec.ValidationError as error:
        location = SourceLocation(document.name)
        raise MzError("MZ2006", str(error), hint=EXPLAIN_HINT, location=location) from error


@cache
def _type_info(struct: type) -> msgspec.inspect.Type:
    return msgspec.inspect.type_info(struct)


class _ValueBuilder:
    """Converts nodes to values. Aliases are expanded, so a node counts as often as it is used."""

    def __init__(self, name: str, nodes_max: int) -> None:
        self.name, self.nodes_max = name, nodes_max
        self.nodes = 0
        self.value_locations: dict[KeyPath, SourceLocation] = {}
        self.key_locations: dict[KeyPath, SourceLocation] = {}
        self.diagnostics: list[Diagnostic] = []

    def build(self, node: Node, key_path: KeyPath) -> object:
        self.nodes += 1
        if self.nodes > self.nodes_max or len(key_path) > DEPTH_MAX:
            raise _TooBig(node.start_mark)
        self.value_locations[key_path] = _location(self.name, node.start_mark)
        match node:
            case MappingNode() if node.tag == "tag:yaml.org,2002:map":
                return self.mapping(node, key_path)
            case SequenceNode() if node.tag == "tag:yaml.org,2002:seq":
                return [self.build(item, (*key_path, position)) for position, item in enumerate(node.value)]
            case ScalarNode():
                return self.scalar(node)
        return self.reject(node, f"the tag `{node.tag}` is not used here", TAG_HINT)

    def mapping(self, node: MappingNode, key_path: KeyPath) -> dict[str, object]:
        built: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self.scalar(key_node) if isinstance(key_node, ScalarNode) else None
            if not isinstance(key, str):
                self.reject(key_node, "keys are text here", "put quotes around it")
            elif key in built:
                first = self.key_locations[(*key_path, key)].line
                location = _location(self.name, key_node.start_mark)
                message = f"duplicate key `{key[:80]}`, first in line {first}"
                hint = "remove one of the two"
                self.diagnostics.append(Diagnostic(code="MZ2004", message=message, hint=hint, location=location))
            else:
                self.key_locations[(*key_path, key)] = _location(self.name, key_node.start_mark)
                built[key] = self.build(value_node, (*key_path, key))
        return built

    def scalar(self, node: ScalarNode) -> object:
        text, tag = node.value, node.tag.removeprefix("tag:yaml.org,2002:")
        if SURROGATE.search(text):
            return self.reject(node, "an unpaired surrogate is no character", "remove it")
        if tag != "str" and (node.style or tag not in PATTERNS or not PATTERNS[tag].match(text)):
            return self.reject(node, f"the tag `{node.tag}` is not used here", TAG_HINT)
        match tag:
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                base = {"0o": 8, "0x": 16}.get(text[:2], 10)
                if len(text) <= 20 and abs(number := int(text, base)) <= INTEGER_MAX:
                    return number
                return self.reject(node, "the number is too big", "put quotes around it if it is text")
            case "float":
                return float(text)
        return text

    def reject(self, node: Node, message: str, hint: str) -> object:
        location = _location(self.name, node.start_mark)
        self.diagnostics.append(Diagnostic(code="MZ2006", message=message, hint=hint, location=location))
        return None


def _location(name: str, mark: yaml.Mark) -> SourceLocation:
    return SourceLocation(name, mark.line + 1, mark.column + 1)


def _syntax_error(error: yaml.YAMLError, text: str, name: str) -> Diagnostic:
    if isinstance(error, yaml.MarkedYAMLError) and (mark := error.problem_mark or error.context_mark):
        problem = ": ".join(part for part in (error.context, error.problem) if part)
        hint = next((hint for part, hint in SYNTAX_HINTS.items() if part in problem), SYNTAX_HINT)
        return Diagnostic(code="MZ2003", message=f"not YAML: {problem}", hint=hint, location=_location(name, mark))
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position].rsplit("\n", 1)
        location = SourceLocation(name, text.count("\n", 0, error.position) + 1, len(before[-1]) + 1)
        message = f"not YAML: the character U+{ord(text[error.position]):04X} is not allowed"
        return Diagnostic(code="MZ2003", message=message, hint="remove it", location=location)
    return Diagnostic(code="MZ2003", message=f"not YAML: {error}", hint=SYNTAX_HINT, location=SourceLocation(name))
