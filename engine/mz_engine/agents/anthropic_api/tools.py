"""The tools that the model calls, of those that it was offered: their forms, which the model sees, and what they do in
the working directory. Nothing outside it is opened."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from mz_engine.agents.anthropic_api.model import Block
from mz_engine.decoding import regex
from mz_engine.errors.diagnostics import replace_surrogates
from mz_engine.model.pipeline import Tool
from mz_engine.path_patterns import is_pattern, matches
from mz_engine.processes.commands import BoundedOutput
from mz_engine.processes.guard import KEY_VARIABLE
from mz_engine.processes.supervise import EndReason, Launch, ProcessLimits, supervise

FILE_BYTES_MAX = 10_000_000
LIST_SECONDS = 30
FILES_MAX = 200_000
SHOWN_CHARS_MAX = 60_000
SHOWN_LINES_MAX = 2000
LISTED_MAX = 1000
MATCHES_MAX = 200
MATCH_CHARS_MAX = 300
SEARCH_SECONDS = 20
SNIFF_BYTES = 8000

COMMAND_SECONDS, COMMAND_SECONDS_MAX = 120, 600
OUTPUT_BYTES_MAX = 60_000
"""Bytes kept of a command's output; half from its beginning, half from its end."""
HIDDEN_PREFIX = "ANTHROPIC_"
"""Prefix of variables hidden from commands, since they hold the API key."""


class ToolError(Exception):
    """A tool cannot do what was requested; the message is for the model."""


class Sandbox:
    """One directory; nothing outside it is opened."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def resolve(self, name: str) -> Path:
        """Resolve a path, whether it exists or not. Raises ToolError if it is outside the directory once links are
        followed, or belongs to git."""
        if "\0" in name:
            raise ToolError("a path holds no NUL byte")
        try:
            path = (self.root / name).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise ToolError(f"{name[:200]} cannot be looked up: {error}") from None
        if not path.is_relative_to(self.root):
            raise ToolError(f"{name} is outside the working directory, which alone is open to you")
        if any(part.lower() == ".git" for part in path.relative_to(self.root).parts):
            raise ToolError(f"{name} belongs to git; it is not open to you")
        return path

    def relative_name(self, path: Path) -> str:
        """Return the path as shown to the model."""
        return path.relative_to(self.root).as_posix()

    def open(self, path: Path, flags: int) -> int:
        """Open a regular file, existing or new; never blocks on a FIFO. Raises ToolError."""
        try:
            file = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise ToolError(f"{self.relative_name(path)}: {error.strerror or error}") from None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise ToolError(f"{self.relative_name(path)} is no regular file")
        return file

    def files(self, below: str, pattern: str) -> list[str]:
        """Return the names of matching files under a directory that git tracks or would add, sorted. Raises
        ToolError."""
        top = self.resolve(below)
        if not top.is_dir():
            raise ToolError(f"{below} is no directory")
        if pattern and not is_pattern(pattern):
            raise ToolError(f"{pattern[:200]!r} is no pattern as in .gitignore")
        command = ("git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        try:
            result = subprocess.run(
                command, cwd=self.root, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIST_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ToolError(f"the files cannot be listed: {error}") from None
        names = dict.fromkeys(result.stdout.decode("utf-8", "surrogateescape").split("\0"))
        existing = [name for name in names if name and os.path.lexists(self.root / name)][:FILES_MAX]
        prefix = "" if top == self.root else self.relative_name(top) + "/"
        inside = (name for name in existing if name.startswith(prefix))
        return sorted(name for name in inside if not pattern or matches((pattern,), name))

    def read_bytes(self, name: str) -> bytes:
        """Read a complete file. Raises ToolError."""
        with os.fdopen(self.open(self.resolve(name), os.O_RDONLY), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > FILE_BYTES_MAX:
                raise ToolError(f"{name} has {size} bytes; {FILE_BYTES_MAX} are the most")
            return file.read(FILE_BYTES_MAX)

    def write_bytes(self, name: str, data: bytes, flags: int) -> None:
        """Replace a file's content and keep its mode. Raises ToolError."""
        with os.fdopen(self.open(self.resolve(name), os.O_WRONLY | flags), "wb") as file:
            try:
                file.truncate(0)
                file.write(data)
                file.flush()
            except OSError as error:
                raise ToolError(f"{name}: {error.strerror or error}") from None


FilePath = Annotated[str, msgspec.Meta(description="Path of the file, relative to the working directory.")]
FilePattern = Annotated[
    str, msgspec.Meta(description="Only files that match, as in .gitignore, such as `src/**/*.ts`.")
]
Directory = Annotated[str, msgspec.Meta(description="Only below this directory.")]


class ToolInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the forms. The model sees the docstring of a form and its fields; `run` returns a text for the
    model and whether the tool failed, or raises ToolError."""

    name: ClassVar[str]

    def run(self, toolbox: Toolbox) -> tuple[str, bool]:
        raise NotImplementedError


class ReadFile(ToolInput, frozen=True, kw_only=True):
    """Shows a text file. A long one is cut; go on with `offset`."""

    name = "read_file"
    path: FilePath
    offset: Annotated[int, msgspec.Meta(description="First line to show.")] = 1
    limit: Annotated[int, msgspec.Meta(description="How many lines to show.")] = SHOWN_LINES_MAX

    def run(self, toolbox: Toolbox) -> tuple[str, bool]:
        data = toolbox.sandbox.read_bytes(self.path)
        if b"\0" in data[:SNIFF_BYTES]:
            raise ToolError(f"{self.path} is no text: it holds {len(data)} bytes")
        lines = data.decode("utf-8", "replace").splitlines(keepends=True)
        first = max(1, self.offset)
        if first > max(1, len(lines)):
            raise ToolError(f"{self.path} has {len(lines)} lines")
        shown = lines[first - 1 :][: max(1, min(self.limit, SHOWN_LINES_MAX))]
        while len(shown) > 1 and sum(map(len, shown)) > SHOWN_CHARS_MAX:
            shown.pop()
        text = "".join(shown)[:SHOWN_CHARS_MAX]
        last = first - 1 + len(shown)
        if left_out := sum(map(len, shown)) - len(text):
            text += f"\n[{left_out} characters of line {last} left out]"
        if first > 1 or last < len(lines):
            text += f"\n[lines {first} to {last} of {len(lines)}]"
        return text, False


class ListFiles(ToolInput, frozen=True, kw_only=True):
    """Lists files, one path a line, without those that git ignores."""

    name = "list_files"
    pattern: FilePattern = ""
    path: Directory = "."

    def run(self, toolbox: Toolbox) -> tuple[str, bool]:
        names = toolbox.sandbox.files(self.path, self.pattern)
        more = f"\n[{len(names) - LISTED_MAX} more]" if len(names) > LISTED_MAX else ""
        return ("\n".join(names[:LISTED_MAX]) or "[no such file]") + more, False


class SearchFiles(ToolInput, frozen=True, kw_only=True):
    """Searches text files for a regular expression, line by line; answers `path:line: text`."""

    name = "search_files"
    expression: Annotated[str, msgspec.Meta(description="The regular expression, in the syntax of RE2.")]
    pattern: FilePattern = ""
    path: Directory = "."

    def run(self, toolbox: Toolbox) -> tuple[str, bool]:
        if error := regex.inspect_expression(self.expression).error:
            raise ToolError(f"{self.expression[:200]!r} is no regular expression: {error}")
        lines: list[str] = []
        for line in self._matching_lines(toolbox.sandbox):
            if len(lines) == MATCHES_MAX:
                lines.append(f"[more than {MATCHES_MAX}: search for less]")
                break
            lines.append(line)
        return "\n".join(lines) or "[nothing found]", False

    def _matching_lines(self, sandbox: Sandbox) -> Iterator[str]:
        deadline = time.monotonic() + SEARCH_SECONDS
        for name in sandbox.files(self.path, self.pattern):
            if time.monotonic() > deadline:
                raise ToolError(f"that took longer than {SEARCH_SECONDS} s: search for less")
            try:
                data = sandbox.read_bytes(name)
            except ToolError:
                continue
            if b"\0" in data[:SNIFF_BYTES]:
                continue
            for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
                if regex.matches_any((self.expression,), line):
                    yield f"{name}:{number}: {line[:MATCH_CHARS_MAX]}"


class WriteFile(ToolInput, frozen=True, kw_only=True):
    """Writes a file, whole; makes its directories, and replaces what was there."""

    name = "write_file"
    path: FilePath
    content: Annotated[str, msgspec.Meta(description="All that the file is to hold.")]

    def run(self, toolbox: Toolbox) -> tuple[str, bool]:
        data, target = _encode(self.content), toolbox.sandbox.resolve(self.path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ToolError(f"{self.path}: {error.strerror or error}") from None
        toolbox.sandbox.write_bytes(self.path, data, os.O_CREAT)
        return f"wrote {len(data)} bytes to {toolbox.sandbox.relative_name(target)}", False


class EditFile(ToolInput, frozen=True, kw_only=True):
    """Replaces a text in a file by another. The old text must be there exactly once, unless `all` is set."""

    name = "edit_file"
    path: FilePath
    old: Annotated[
        str,
        msgspec.Meta(
            description="The text to replace, exactly as it stands in the file, with indentation and line ends."
        ),
    ]
    new: Annotated[str, msgspec.Meta(description="What comes in its place.")]
    all: Annotated[bool, msgspec.Meta(description="Replace every occurrence.")] = False

    def run(self, toolbox: Toolbox) -> tuple[str, bool]:
        """All other bytes stay unchanged, whatever their encoding."""
        sandbox, path = toolbox.sandbox, self.path
        data, target, replacement = sandbox.read_bytes(path), _encode(self.old), _encode(self.new)
        if not target:
            raise ToolError("the old text is empty; to write a file whole use write_file")
        crlf_count = data.count(b"\r\n")
        if crlf_count and (target not in data or crlf_count == data.count(b"\n")):
            target, replacement = _to_crlf(target), _to_crlf(replacement)
        count = data.count(target)
        if count == 0:
            raise ToolError(f"{path} does not hold the old text; read it again, and copy the text exactly")
        if count > 1 and not self.all:
            raise ToolError(f"{path} holds the old text {count} times; give more of what is around it, or set `all`")
        size = len(data) + count * (len(replacement) - len(target))
        if size > FILE_BYTES_MAX:
            raise ToolError(f"{path} would have {size} bytes; {FILE_BYTES_MAX} are the most")
        sandbox.write_bytes(path, data.replace(target, replacement), 0)
        places = "place" if count == 1 else "places"
        return f"replaced {count} {places} in {sandbox.relative_name(sandbox.resolve(path))}", False


class RunCommand(ToolInput, frozen=True, kw_only=True):
    """Runs a shell command in the working directory, without input, and shows its output and exit code. What it leaves
    running is ended with it."""

    name = "run_command"
    command: Annotated[str, msgspec.Meta(description="The command, for `sh -c`.")]
    timeout_seconds: Annotated[int, msgspec.Meta(description="When to end it; 600 at most.")] = COMMAND_SECONDS

    def run(self, toolbox: Toolbox) -> tuple[str, bool]:
        """Run the command under a guard of its own; all that it started is killed with it."""
        if "\0" in self.command:
            raise ToolError("a command holds no NUL byte")
        # A key of its own, since the guard kills by it.
        key = f"{toolbox.environment.get(KEY_VARIABLE, '')}/command-{os.getpid()}"
        variables = {k: v for k, v in toolbox.environment.items() if not k.startswith(HIDDEN_PREFIX)}
        launch = Launch(
            argv=("/bin/sh", "-c", self.command),
            env={**variables, KEY_VARIABLE: key},
            cwd=toolbox.sandbox.root,
            merge_stderr=True,
        )
        seconds = max(1, min(self.timeout_seconds, COMMAND_SECONDS_MAX))
        limits = ProcessLimits(total_seconds=seconds, grace_seconds=0)
        output = BoundedOutput(OUTPUT_BYTES_MAX)
        end = supervise(launch, limits, output, stop=toolbox.beat)
        text = output.finish().decode("utf-8", "replace")
        if end.reason is EndReason.TIMEOUT:
            return f"{text}\n[ended after {seconds} s, its time limit]", True
        if end.reason is not EndReason.EXITED:
            raise ToolError(f"the command could not be run: {end.detail or end.reason.value}")
        return (f"{text}\n[exit {end.exit}]" if end.exit else text or "[no output]"), end.exit != 0


FORMS: Mapping[Tool, tuple[type[ToolInput], ...]] = {
    "read": (ReadFile, ListFiles, SearchFiles),
    "write": (WriteFile, EditFile),
    "shell": (RunCommand,),
}


class Toolbox:
    """The tools of one call. `heartbeat` is called while a command runs."""

    def __init__(
        self, sandbox: Sandbox, tools: tuple[Tool, ...], environment: Mapping[str, str], heartbeat: Callable[[], None]
    ) -> None:
        self.sandbox, self.environment, self.heartbeat = sandbox, environment, heartbeat
        self._forms = {form.name: form for kind in FORMS if kind in tools for form in FORMS[kind]}

    def beat(self) -> bool:
        """Note activity; never asks to stop."""
        self.heartbeat()
        return False

    def definitions(self) -> list[Block]:
        """Return the tools as the API takes them."""
        schemas = msgspec.json.schema_components(tuple(self._forms.values()))[1]
        return [
            {
                "name": name,
                "description": schema.pop("description"),
                "input_schema": {key: value for key, value in schema.items() if key != "title"},
            }
            for name, form in self._forms.items()
            if (schema := dict(schemas[form.__name__]))
        ]

    def use(self, name: str, arguments: object) -> tuple[str, bool]:
        """Run a tool; return its result for the model and whether it failed. Never raises for a model's input."""
        if name not in self._forms:
            return f"there is no tool {name!r}; there are: {', '.join(sorted(self._forms)) or 'none'}", True
        try:
            text, failed = msgspec.convert(arguments, self._forms[name]).run(self)
        except msgspec.ValidationError as error:
            return f"{name} was called wrongly: {error}", True
        except ToolError as error:
            text, failed = str(error), True
        except (OSError, MemoryError, RecursionError, UnicodeError) as error:
            text, failed = f"{name} failed: {error}", True
        return replace_surrogates(text), failed


def _to_crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _encode(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"the text cannot be written as UTF-8: {error.reason}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ToolError(f"the text has {len(data)} bytes; {FILE_BYTES_MAX} are the most")
    return data
