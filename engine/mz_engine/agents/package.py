"""Description of one agent: everything that `mz` knows about it by name. Each agent's folder has one, beside
its formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from mz_engine.agents.reading.json_lines import decode_lines
from mz_engine.agents.reading.records import Format

StdoutEndings = Callable[[dict[str, Any]], Iterator[tuple[str, bytes, int]]]
"""Takes the recorded last line; yields name, bytes and exit code of other last lines."""
StderrEndings = Callable[[bytes, bytes], Iterator[tuple[str, bytes, bytes, int]]]
"""Takes recorded stdout and stderr; yields name, stdout, stderr and exit code of other ends."""
BlockedLines = Callable[[dict[str, Any], str], tuple[Mapping[str, Any], ...]]
"""Takes the recorded last line and a text; returns the last lines of a reply that ends with the text."""
SuccessCheck = Callable[[bytes, bytes], bool]
"""Takes stdout and stderr; returns True if the last terminal event reports success."""
STATUSES = (400, 401, 402, 403, 404, 413, 429, 500, 529)
ODD_VALUES: tuple[object, ...] = (1, 0, "true", "false", [], {})
"""Values that mean nothing as a status. Null is not among them: to Claude Code it is the same as no value."""


def names(text: str) -> tuple[str, ...]:
    """Return the names in a text: long lists are written as one."""
    return tuple(text.split())


class StreamDialect(msgspec.Struct, frozen=True, kw_only=True):
    """Stream of JSON lines of one agent. Paths are `EVENT:FIELD.FIELD[ITEM].FIELD`; `*` stands for any event."""

    name_fields: tuple[str, ...] = ("type", "subtype")
    """Fields (nested as `FIELD.FIELD`) that together name an event, such as `system/init`."""
    final_events: tuple[str, ...] = ()
    """First parts of the names of events that end the stream."""
    later_events: tuple[str, ...] = ()
    """Events that may follow the last final one: work in the background ends after it."""
    opaque: tuple[str, ...] = ()
    """Values that a model or a tool defines."""
    maps: tuple[str, ...] = ()
    """Objects whose keys are values, such as names of models."""
    skipped_events: tuple[str, ...] = ()
    """Known events that the parser does not need."""


class SessionFolders(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent keeps its sessions."""

    variables: tuple[str, ...]
    """The first of these variables that is set names the agent's directory."""
    default: str
    """The agent's directory below HOME, if no variable is set."""
    folders: tuple[str, ...]
    """Folders of sessions in the agent's directory."""

    def paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """Return the folders, existing or not."""
        directories = [environment[name] for name in self.variables if environment.get(name)]
        directory = Path(directories[0]) if directories else home / self.default
        return tuple(directory / folder for folder in self.folders)


class AgentPackage(msgspec.Struct, frozen=True, kw_only=True):
    """One agent. Without an `adapter`, and not `described`, `mz` only reads its files."""

    name: str
    title: str = ""
    """Its name for people."""
    adapter: str = ""
    """`module:class` of its adapter, which is imported when it is needed, since that is slow."""
    described: bool = False
    """`description.yaml` in its folder describes it, instead of an `adapter`."""
    install: str = ""
    """How to get the program of a described agent."""
    tested_version: str = ""
    """The newest version of the program whose real output was read in tests."""
    folder: str = ""
    """Name of its folder, if it is not the agent's."""
    formats: tuple[Format, ...] = ()
    """Formats of its files."""
    session_folders: SessionFolders | None = None
    """As documented or, for Qwen Code, as in the source of its `config/storage.ts`. None: it keeps none there; opencode
    has a database, aider a file in each repository."""
    dialect: StreamDialect = StreamDialect()
    stdout_endings: StdoutEndings | None = None
    """Set if the last line on stdout tells how a call ended."""
    stderr_endings: StderrEndings | None = None
    """Set if stderr tells how a call ended."""
    fault_endings: Mapping[str, str] = {}
    """Name of the ending by fault. Missing faults cannot be expressed by the agent."""
    blocked_lines: BlockedLines | None = None
    success_check: SuccessCheck | None = None
    """Judges a call apart from the parser, which it checks in tests."""

    @property
    def package(self) -> str:
        """Name of its Python package; for an agent without a name, the package of all agents."""
        return f"mz_engine.agents.{self.folder or self.name}".removesuffix(".")


def json_line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def last_event(stream: bytes, *types: str) -> dict[str, Any]:
    """Return the last event of these types; empty if there is none."""
    return next((event for event in reversed([*decode_lines(stream)]) if event and event.get("type") in types), {})


def cut_stderr(stdout: bytes, stderr: bytes) -> Iterator[tuple[str, bytes, bytes, int]]:
    """Yield ends in which stderr is cut off."""
    offset = 0
    for number, line in enumerate(stderr.splitlines(keepends=True)):
        yield f"stderr-cut-after-line-{number}", stdout, stderr[:offset], 0
        yield f"stderr-cut-in-line-{number + 1}", stdout, stderr[: offset + len(line) // 2], 0
        offset += len(line)
