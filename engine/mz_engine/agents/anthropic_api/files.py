"""The file tools: read, list, search, write, replace."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from mz_engine.agents.anthropic_api.sandbox import Sandbox, ToolError

FILE_BYTES_MAX = 10_000_000
SHOWN_CHARS_MAX = 60_000
SHOWN_LINES_MAX = 2000
LISTED_MAX = 1000
MATCHES_MAX = 200
MATCH_CHARS_MAX = 300
SEARCH_SECONDS = 20
SNIFF_BYTES = 8000


def read_file(sandbox: Sandbox, path: str, offset: int = 1, limit: int = SHOWN_LINES_MAX) -> str:
    """Return the file's text, or a part of it with a note on the rest."""
    data = read_bytes(sandbox, path)
    if b"\0" in data[:SNIFF_BYTES]:
        raise ToolError(f"{path} is no text: it holds {len(data)} bytes")
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    first = max(1, offset)
    if first > max(1, len(lines)):
        raise ToolError(f"{path} has {len(lines)} lines")
    shown = lines[first - 1 : first - 1 + max(1, min(limit, SHOWN_LINES_MAX))]
    text = "".join(shown)
    if len(text) > SHOWN_CHARS_MAX:
        shown = _lines_that_fit(shown)
        text = "".join(shown)[:SHOWN_CHARS_MAX]
    last = first - 1 + len(shown)
    if left_out := sum(map(len, shown)) - len(text):
        text += f"\n[{left_out} characters of line {last} left out]"
    if first > 1 or last < len(lines):
        text += f"\n[lines {first} to {last} of {len(lines)}]"
    return text


def _lines_that_fit(lines: list[str]) -> list[str]:
    """Return the lines that fit the character limit, at least one."""
    room = SHOWN_CHARS_MAX
    for count, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            return lines[: max(1, count)]
    return lines


def list_files(sandbox: Sandbox, pattern: str = "", path: str = ".") -> str:
    names = sandbox.files(path, pattern)
    more = f"\n[{len(names) - LISTED_MAX} more]" if len(names) > LISTED_MAX else ""
    return ("\n".join(names[:LISTED_MAX]) or "[no such file]") + more


def search_files(sandbox: Sandbox, expression: str, pattern: str = "", path: str = ".") -> str:
    try:
        regex = re.compile(expression)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolError(f"{expression[:200]!r} is no regular expression: {error}") from None
    matches: list[str] = []
    with limit_cpu_time(SEARCH_SECONDS):
        for line in _matching_lines(sandbox, regex, sandbox.files(path, pattern)):
            if len(matches) == MATCHES_MAX:
                matches.append(f"[more than {MATCHES_MAX}: search for less]")
                break
            matches.append(line)
    return "\n".join(matches) or "[nothing found]"


def _matching_lines(sandbox: Sandbox, regex: re.Pattern[str], names: list[str]) -> Iterator[str]:
    for name in names:
        try:
            data = read_bytes(sandbox, name)
        except ToolError:
            continue
        if b"\0" in data[:SNIFF_BYTES]:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if regex.search(line):
                yield f"{name}:{number}: {line[:MATCH_CHARS_MAX]}"


class _Expired(Exception):
    """Not a ToolError, since the search ignores those of unreadable files."""


@contextmanager
def limit_cpu_time(seconds: float) -> Iterator[None]:
    """Limit CPU time, mainly of regular expressions that backtrack. Raises ToolError. Works in the main thread only;
    elsewhere nothing is limited."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise _Expired

    before = signal.signal(signal.SIGVTALRM, expire)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    except _Expired:
        raise ToolError(f"that took longer than {seconds:g} s of computing: search for less") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def write_file(sandbox: Sandbox, path: str, content: str) -> str:
    data = encode(content)
    target = sandbox.resolve(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror or error}") from None
    write_bytes(sandbox, path, data, os.O_CREAT)
    return f"wrote {len(data)} bytes to {sandbox.relative_name(target)}"


def edit_file(sandbox: Sandbox, path: str, old: str, new: str, all: bool = False) -> str:  # noqa: A002
    """Replace a text; all other bytes stay unchanged, whatever their encoding."""
    data, target, replacement = read_bytes(sandbox, path), encode(old), encode(new)
    if not target:
        raise ToolError("the old text is empty; to write a file whole use write_file")
    crlf_count = data.count(b"\r\n")
    if crlf_count and (target not in data or crlf_count == data.count(b"\n")):
        target, replacement = _to_crlf(target), _to_crlf(replacement)
    count = data.count(target)
    if count == 0:
        raise ToolError(f"{path} does not hold the old text; read it again, and copy the text exactly")
    if count > 1 and not all:
        raise ToolError(f"{path} holds the old text {count} times; give more of what is around it, or set `all`")
    size = len(data) + count * (len(replacement) - len(target))
    if size > FILE_BYTES_MAX:
        raise ToolError(f"{path} would have {size} bytes; {FILE_BYTES_MAX} are the most")
    write_bytes(sandbox, path, data.replace(target, replacement), 0)
    return f"replaced {count} {'place' if count == 1 else 'places'} in {sandbox.relative_name(sandbox.resolve(path))}"


def _to_crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def encode(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"the text cannot be written as UTF-8: {error.reason}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ToolError(f"the text has {len(data)} bytes; {FILE_BYTES_MAX} are the most")
    return data


def read_bytes(sandbox: Sandbox, path: str) -> bytes:
    """Read a complete file. Raises ToolError."""
    with os.fdopen(sandbox.open(sandbox.resolve(path), os.O_RDONLY), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > FILE_BYTES_MAX:
            raise ToolError(f"{path} has {size} bytes; {FILE_BYTES_MAX} are the most")
        return file.read(FILE_BYTES_MAX)


def write_bytes(sandbox: Sandbox, path: str, data: bytes, flags: int) -> None:
    """Replace a file's content and keep its mode. Raises ToolError."""
    with os.fdopen(sandbox.open(sandbox.resolve(path), os.O_WRONLY | flags), "wb") as file:
        try:
            file.truncate(0)
            file.write(data)
            file.flush()
        except OSError as error:
            raise ToolError(f"{path}: {error.strerror or error}") from None
