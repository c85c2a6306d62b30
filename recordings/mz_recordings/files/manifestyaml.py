"""Pure: the text of `cassette.yaml` and the plain values in it.

It may come from anywhere: aliases, which can make a few lines into more than any memory holds, are refused, and so is
what lies too deep.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

DEPTH_MAX = 40
EVIDENCE = "\nevidence:"
"""Begins the last and largest part; texts within others are indented."""

WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
NUMERIC = frozenset("+-.0123456789")
INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
"""Of YAML 1.2's core schema, what a cassette needs: other words are text."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C, where PyYAML was built with it, takes a tenth of the time."""


def parse_manifest_text(text: str, evidence: bool = True) -> Any:
    """The values; without `evidence`, that part is empty. Raises ValueError with the place of what is wrong."""
    if not evidence and (at := text.find(EVIDENCE)) >= 0:
        text = f"{text[:at]}{EVIDENCE} {{}}\n"
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    return builder.root


class _Builder:
    """Values of events, one by one, without recursion."""

    def __init__(self) -> None:
        self.root: Any = None
        self._open: list[tuple[Any, list[Any]]] = []
        """What is being filled; of a mapping also the key that waits for its value."""

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._add(_scalar(event), event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            _refuse_tag(event)
            made: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            self._add(made, event)
            self._open.append((made, []))
            if len(self._open) > DEPTH_MAX:
                raise _wrong(event, "lies too deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
        elif isinstance(event, yaml.AliasEvent):
            raise _wrong(event, "has an alias; a cassette has none")

    def _add(self, value: Any, event: yaml.Event) -> None:
        if not self._open:
            self.root = value
            return
        into, key = self._open[-1]
        if isinstance(into, list):
            into.append(value)
        elif key:
            into[key.pop()] = value
        elif not isinstance(value, str) or value in into:
            raise _wrong(event, "has a key that is no text, or a second time the same")
        else:
            key.append(value)


def _scalar(event: yaml.ScalarEvent) -> str | int | float | bool | None:
    _refuse_tag(event)
    text = str(event.value)
    if not event.implicit[0] or event.style:
        return text
    if text in WORDS:
        return WORDS[text]
    if text[0] not in NUMERIC:
        return text
    if INTEGER.fullmatch(text):
        return int(text)
    return float(text) if FLOAT.fullmatch(text) else text


def _refuse_tag(event: Any) -> None:
    if event.tag is not None:
        raise _wrong(event, "has a tag; a cassette has none")


def _wrong(event: yaml.Event, what: str) -> ValueError:
    return ValueError(f"line {event.start_mark.line + 1} {what}" if event.start_mark else f"it {what}")


def write_yaml(content: Any) -> str:
    """As people read it in a review: keys as they come, texts of several lines as blocks."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stand as blocks; nothing refers to what stood before."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_data(self, data: Any) -> yaml.Node:
        if isinstance(data, str) and "\n" in data and all(line == line.rstrip() for line in data.split("\n")):
            return self.represent_scalar("tag:yaml.org,2002:str", data, style="|")
        return super().represent_data(data)
