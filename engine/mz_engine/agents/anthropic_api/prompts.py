"""The system prompt, the tool definitions and the cache marks of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mz_engine.agents.anthropic_api.model import Block
from mz_engine.model.pipeline import Tool

SYSTEM = """\
You work on a software project by yourself; nobody is there to answer questions. Working directory: {cwd}
Do what the message asks, with the tools that you have, then say in a few words what you did.
Paths are relative to the working directory, and nothing outside it is open to you. A tool that fails says why: mend
what was wrong, or go another way. Read a file before you change it. Say that you are blocked only where a person must
decide something."""

CACHE_MARK: Mapping[str, Any] = {"cache_control": {"type": "ephemeral"}}
"""The API keeps the cached part for five minutes after its last use."""


def _tool(name: str, description: str, required: tuple[str, ...], **properties: tuple[str, str]) -> Block:
    schemas = {key: {"type": kind, "description": text} for key, (kind, text) in properties.items()}
    schema = {"type": "object", "properties": schemas, "required": list(required), "additionalProperties": False}
    return {"name": name, "description": description, "input_schema": schema}


PATH = ("string", "Path of the file, relative to the working directory.")

TOOL_DEFINITIONS: Mapping[Tool, tuple[Block, ...]] = {
    "read": (
        _tool(
            "read_file",
            "Shows a text file. A long one is cut; go on with `offset`.",
            ("path",),
            path=PATH,
            offset=("integer", "First line to show, from 1."),
            limit=("integer", "How many lines to show."),
        ),
        _tool(
            "list_files",
            "Lists files, one path a line, without those that git ignores.",
            (),
            pattern=("string", "Only files that match, as in .gitignore: `*.py`, `src/**/*.ts`."),
            path=("string", "Only below this directory."),
        ),
        _tool(
            "search_files",
            "Searches text files for a regular expression (Python's), line by line; answers `path:line: text`.",
            ("expression",),
            expression=("string", "The regular expression."),
            pattern=("string", "Only files that match, as in .gitignore."),
            path=("string", "Only below this directory."),
        ),
    ),
    "write": (
        _tool(
            "write_file",
            "Writes a file, whole; makes its directories, and replaces what was there.",
            ("path", "content"),
            path=PATH,
            content=("string", "All that the file is to hold."),
        ),
        _tool(
            "edit_file",
            "Replaces a text in a file by another. The old text must be there exactly once, unless `all` is set.",
            ("path", "old", "new"),
            path=PATH,
            old=("string", "The text to replace, exactly as it stands in the file, indentation and line ends too."),
            new=("string", "What comes in its place."),
            all=("boolean", "Replace every occurrence."),
        ),
    ),
    "shell": (
        _tool(
            "run_command",
            "Runs a shell command in the working directory, without input, and shows its output and exit code. "
            "What it leaves running is ended with it.",
            ("command",),
            command=("string", "The command, for `sh -c`."),
            timeout_seconds=("integer", "When to end it; 120 unless told, 600 at most."),
        ),
    ),
}


def system_prompt(cwd: str) -> list[Block]:
    return [{"type": "text", "text": SYSTEM.format(cwd=cwd), **CACHE_MARK}]


def tool_definitions(tools: tuple[Tool, ...]) -> list[Block]:
    """Return the definitions of these tools; the last one carries a cache mark."""
    definitions = [tool for kind in TOOL_DEFINITIONS if kind in tools for tool in TOOL_DEFINITIONS[kind]]
    return [*definitions[:-1], {**definitions[-1], **CACHE_MARK}] if definitions else []


def add_cache_marks(messages: list[Block]) -> list[Block]:
    """Add cache marks to the user's last two messages: the part before the first is cached already, the part before the
    second is cached for the next request."""
    marked_positions = [at for at, message in enumerate(messages) if message["role"] == "user"][-2:]
    return [_add_cache_mark(message) if at in marked_positions else message for at, message in enumerate(messages)]


def _add_cache_mark(message: Block) -> Block:
    *before, last = message["content"]
    return {**message, "content": [*before, {**last, **CACHE_MARK}]}


def user_message(prompt: str) -> Block:
    return {"role": "user", "content": [{"type": "text", "text": prompt}]}


def replace_surrogates(value: Any) -> Any:
    """Replace unpaired surrogates, which file names and models may contain and UTF-8 cannot encode."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {replace_surrogates(name): replace_surrogates(item) for name, item in value.items()}
        case list() | tuple():
            return [replace_surrogates(item) for item in value]
        case _:
            return value
