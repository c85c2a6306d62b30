"""Runs the tools that the model calls, of those that it was offered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from mz_engine.agents.anthropic_api import files, shell
from mz_engine.agents.anthropic_api.prompts import TOOL_DEFINITIONS, replace_surrogates
from mz_engine.agents.anthropic_api.sandbox import Sandbox, ToolError
from mz_engine.model.pipeline import Tool

OFFSET_MAX = 10**9


class ToolInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of tool inputs."""


class ReadFile(ToolInput, frozen=True, kw_only=True):
    path: str
    offset: int = 1
    limit: int = files.SHOWN_LINES_MAX


class ListFiles(ToolInput, frozen=True, kw_only=True):
    pattern: str = ""
    path: str = "."


class SearchFiles(ToolInput, frozen=True, kw_only=True):
    expression: str
    pattern: str = ""
    path: str = "."


class WriteFile(ToolInput, frozen=True, kw_only=True):
    path: str
    content: str


class EditFile(ToolInput, frozen=True, kw_only=True):
    path: str
    old: str
    new: str
    all: bool = False


class RunCommand(ToolInput, frozen=True, kw_only=True):
    command: str
    timeout_seconds: int = shell.TIMEOUT_SECONDS


INPUT_TYPES: Mapping[str, type[ToolInput]] = {
    "read_file": ReadFile, "list_files": ListFiles, "search_files": SearchFiles, "write_file": WriteFile,
    "edit_file": EditFile, "run_command": RunCommand,
}  # fmt: skip


class Toolbox:
    """The tools of one call. `heartbeat` is called while a command runs."""

    def __init__(
        self, sandbox: Sandbox, tools: tuple[Tool, ...], environment: Mapping[str, str], heartbeat: Callable[[], None]
    ) -> None:
        self._sandbox, self._environment, self._heartbeat = sandbox, environment, heartbeat
        self._tool_names = frozenset(str(tool["name"]) for kind in tools for tool in TOOL_DEFINITIONS[kind])

    def use(self, name: str, arguments: object) -> tuple[str, bool]:
        """Run a tool; return its result for the model and whether it failed. Never raises for a model's input."""
        if name not in self._tool_names:
            return f"there is no tool {name!r}; there are: {', '.join(sorted(self._tool_names)) or 'none'}", True
        try:
            tool_input = msgspec.convert(arguments, INPUT_TYPES[name])
            text, failed = self._execute(tool_input)
        except msgspec.ValidationError as error:
            return f"{name} was called wrongly: {error}", True
        except ToolError as error:
            return str(replace_surrogates(str(error))), True
        except (OSError, MemoryError, RecursionError) as error:
            return str(replace_surrogates(f"{name} failed: {error}")), True
        return str(replace_surrogates(text)), failed

    def _execute(self, tool_input: ToolInput) -> tuple[str, bool]:
        sandbox = self._sandbox
        match tool_input:
            case ReadFile(path=path, offset=offset, limit=limit):
                return files.read_file(sandbox, path, min(offset, OFFSET_MAX), limit), False
            case ListFiles(pattern=pattern, path=path):
                return files.list_files(sandbox, pattern, path), False
            case SearchFiles(expression=expression, pattern=pattern, path=path):
                return files.search_files(sandbox, expression, pattern, path), False
            case WriteFile(path=path, content=content):
                return files.write_file(sandbox, path, content), False
            case EditFile(path=path, old=old, new=new, all=replace_all):
                return files.edit_file(sandbox, path, old, new, replace_all), False
            case RunCommand(command=command, timeout_seconds=seconds):
                return shell.run_command(sandbox, command, seconds, self._environment, self._heartbeat)
        raise ToolError("there is no such tool")
