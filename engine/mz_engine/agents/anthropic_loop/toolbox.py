"""Runs the tools that the model calls, of those that it was offered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from mz_engine.agents.anthropic_loop import files, shell
from mz_engine.agents.anthropic_loop.place import Place, Refused
from mz_engine.agents.anthropic_loop.wording import OFFERED, clean
from mz_engine.pipelines.definition import Tool

OFFSET_MAX = 10**9


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of tool inputs."""


class ReadFile(Asked, frozen=True, kw_only=True):
    path: str
    offset: int = 1
    limit: int = files.SHOWN_LINES


class ListFiles(Asked, frozen=True, kw_only=True):
    pattern: str = ""
    path: str = "."


class SearchFiles(Asked, frozen=True, kw_only=True):
    expression: str
    pattern: str = ""
    path: str = "."


class WriteFile(Asked, frozen=True, kw_only=True):
    path: str
    content: str


class EditFile(Asked, frozen=True, kw_only=True):
    path: str
    old: str
    new: str
    all: bool = False


class RunCommand(Asked, frozen=True, kw_only=True):
    command: str
    timeout_seconds: int = shell.TIMEOUT_SECONDS


FORMS: Mapping[str, type[Asked]] = {
    "read_file": ReadFile, "list_files": ListFiles, "search_files": SearchFiles, "write_file": WriteFile,
    "edit_file": EditFile, "run_command": RunCommand,
}  # fmt: skip


class Toolbox:
    """The tools of one call. `heartbeat` is called while a command runs."""

    def __init__(
        self, place: Place, tools: tuple[Tool, ...], environment: Mapping[str, str], alive: Callable[[], None]
    ) -> None:
        self._place, self._environment, self._alive = place, environment, alive
        self._known = frozenset(str(tool["name"]) for kind in tools for tool in OFFERED[kind])

    def use(self, name: str, arguments: object) -> tuple[str, bool]:
        """Run a tool; return its result for the model and whether it failed. Never raises for a model's input."""
        if name not in self._known:
            return f"there is no tool {name!r}; there are: {', '.join(sorted(self._known)) or 'none'}", True
        try:
            tool_input = msgspec.convert(arguments, FORMS[name])
            text, failed = self._carry_out(tool_input)
        except msgspec.ValidationError as error:
            return f"{name} was called wrongly: {error}", True
        except Refused as error:
            return str(clean(str(error))), True
        except (OSError, MemoryError, RecursionError) as error:
            return str(clean(f"{name} failed: {error}")), True
        return str(clean(text)), failed

    def _carry_out(self, tool_input: Asked) -> tuple[str, bool]:
        place = self._place
        match tool_input:
            case ReadFile(path=path, offset=offset, limit=limit):
                return files.read_file(place, path, min(offset, OFFSET_MAX), limit), False
            case ListFiles(pattern=pattern, path=path):
                return files.list_files(place, pattern, path), False
            case SearchFiles(expression=expression, pattern=pattern, path=path):
                return files.search_files(place, expression, pattern, path), False
            case WriteFile(path=path, content=content):
                return files.write_file(place, path, content), False
            case EditFile(path=path, old=old, new=new, all=replace_all):
                return files.edit_file(place, path, old, new, replace_all), False
            case RunCommand(command=command, timeout_seconds=seconds):
                return shell.run_command(place, command, seconds, self._environment, self._alive)
        raise Refused("there is no such tool")
