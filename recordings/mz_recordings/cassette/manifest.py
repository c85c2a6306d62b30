"""Parser and writer of `cassette.yaml` as plain values.

The file may come from anywhere, so aliases, which can expand a few lines beyond any memory, and deep nesting are
rejected.

SHA256SUMS of a cassette, in the format of `sha256sum`.

Reveals a manual change of any byte, also where no other digest covers it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

import yaml

DEPTH_MAX = 40
EVIDENCE = "\nevidence:"
"""Start of the last and largest part; text in other parts is indented."""

CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
NUMERIC = frozenset("+-.0123456789")
INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
"""The part of YAML 1.2's core schema that a cassette needs; all other scalars are strings."""

_END = yaml.CollectionEndEvent
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C loader, if PyYAML has it, is ten times as fast."""


def parse_manifest_text(text: str, evidence: bool = True) -> Any:
    """Return plain values; without `evidence`, that part is empty. Raises ValueError with the line of a defect."""
    if not evidence and (at := text.find(EVIDENCE)) >= 0:
        text = f"{text[:at]}{EVIDENCE} {{}}\n"
    try:
        nodes = (event for event in yaml.parse(text, Loader=_LOADER) if isinstance(event, yaml.NodeEvent | _END))
        value = _read_value(first, nodes, DEPTH_MAX) if (first := next(nodes, None)) else None
        if (event := next(nodes, None)) is not None:
            raise _error(event, "begins a second document")
        return value
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _read_value(event: Any, nodes: Iterator[yaml.Event], depth: int) -> Any:
    if isinstance(event, yaml.AliasEvent):
        raise _error(event, "has an alias, which a cassette may not have")
    if event.tag is not None:
        raise _error(event, "has a tag, which a cassette may not have")
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    if not depth:
        raise _error(event, "is nested too deeply")
    children = takewhile(lambda child: not isinstance(child, _END), nodes)
    if isinstance(event, yaml.SequenceStartEvent):
        return [_read_value(child, nodes, depth - 1) for child in children]
    values: dict[str, Any] = {}
    for child in children:
        key = _read_value(child, nodes, depth - 1)
        if not isinstance(key, str) or key in values:
            raise _error(child, "has a duplicate key, or a key that is not a string")
        values[key] = _read_value(next(nodes), nodes, depth - 1)
    return values


def _scalar(event: yaml.ScalarEvent) -> str | int | float | bool | None:
    text = str(event.value)
    if not event.implicit[0] or event.style:
        return text
    if text in CONSTANTS:
        return CONSTANTS[text]
    if text[0] not in NUMERIC:
        return text
    if INTEGER.fullmatch(text):
        return int(text)
    return float(text) if FLOAT.fullmatch(text) else text


def _error(event: yaml.Event, defect: str) -> ValueError:
    return ValueError(f"line {event.start_mark.line + 1} {defect}" if event.start_mark else f"it {defect}")


def write_yaml(content: Any) -> str:
    """Return YAML for review: keys in their order, multi-line strings as blocks."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """Writes multi-line strings as blocks and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_data(self, data: Any) -> yaml.Node:
        if isinstance(data, str) and "\n" in data and all(line == line.rstrip() for line in data.split("\n")):
            return self.represent_scalar("tag:yaml.org,2002:str", data, style="|")
        return super().represent_data(data)


SUMS = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64})  ([^\x00-\x1f\\]+)")


def write_sums(digests: Mapping[str, str]) -> bytes:
    """Return the file's content from sha256 digests in hexadecimal digits by path relative to the cassette."""
    return "".join(f"{digests[path]}  {path}\n" for path in sorted(digests)).encode()


def parse_sums(data: bytes) -> dict[str, str]:
    """Return the digests by path. Raises ValueError for anything that `write_sums` would not have written."""
    digests: dict[str, str] = {}
    for line in data.decode().split("\n"):
        if line:
            match = LINE.fullmatch(line)
            if match is None:
                raise ValueError(f"{line[:80]!r} is not a digest and a path")
            digests[match[2]] = match[1]
    if write_sums(digests) != data:
        raise ValueError("it was edited or reordered")
    return digests
