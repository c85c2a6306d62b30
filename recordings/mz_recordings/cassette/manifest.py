"""Files of a cassette that describe it: `cassette.yaml` as plain values, and SHA256SUMS.

`cassette.yaml` may come from anywhere, so aliases, which can expand a few lines beyond any memory, and deep nesting are
rejected. SHA256SUMS, in the format of `sha256sum`, reveals a manual change of any byte, also where no other digest
covers it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

DEPTH_MAX = 40
EVIDENCE = "\nevidence:"
"""Start of the last and largest part; text in other parts is indented."""
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C loader, if PyYAML has it, is ten times as fast."""


def parse_manifest_text(text: str, evidence: bool = True) -> Any:
    """Return plain values; without `evidence`, that part is empty. Raises ValueError with the line of a defect."""
    if not evidence and (at := text.find(EVIDENCE)) >= 0:
        text = f"{text[:at]}{EVIDENCE} {{}}\n"
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent):
                raise _error(event, "has an alias, which a cassette may not have")
            if depth > DEPTH_MAX:
                raise _error(event, "is nested too deeply")
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


class _Loader(_SafeLoader):  # type: ignore[misc]
    """Reads what `_Dumper` writes, and rejects duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        values: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(values) != len(node.value):
            raise _error(node, "begins a mapping with a duplicate key")
        return values


def _error(at: Any, defect: str) -> ValueError:
    return ValueError(f"line {at.start_mark.line + 1} {defect}")


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
