"""Adapter: the tools for files: reading, listing, searching, writing, replacing."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from mz_engine.agents.anthropic_loop.place import Place, Refused

FILE_BYTES_MAX = 10_000_000
SHOWN_CHARACTERS = 60_000
SHOWN_LINES = 2000
LISTED_MAX = 1000
FOUND_MAX = 200
FOUND_CHARACTERS = 300
SEARCH_SECONDS = 20
SNIFFED = 8000


def read_file(place: Place, path: str, offset: int = 1, limit: int = SHOWN_LINES) -> str:
    """The text as it stands in the file, or a part of it with a word on the rest."""
    data = load(place, path)
    if b"\0" in data[:SNIFFED]:
        raise Refused(f"{path} is no text: it holds {len(data)} bytes")
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    first = max(1, offset)
    if first > max(1, len(lines)):
        raise Refused(f"{path} has {len(lines)} lines")
    shown = lines[first - 1 : first - 1 + max(1, min(limit, SHOWN_LINES))]
    text = "".join(shown)
    if len(text) > SHOWN_CHARACTERS:
        shown = _fitting(shown)
        text = "".join(shown)[:SHOWN_CHARACTERS]
    last = first - 1 + len(shown)
    if left_out := sum(map(len, shown)) - len(text):
        text += f"\n[{left_out} characters of line {last} left out]"
    if first > 1 or last < len(lines):
        text += f"\n[lines {first} to {last} of {len(lines)}]"
    return text


def _fitting(lines: list[str]) -> list[str]:
    """As many as may be shown, and at least one."""
    room = SHOWN_CHARACTERS
    for count, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            return lines[: max(1, count)]
    return lines


def list_files(place: Place, pattern: str = "", path: str = ".") -> str:
    names = place.files(path, pattern)
    more = f"\n[{len(names) - LISTED_MAX} more]" if len(names) > LISTED_MAX else ""
    return ("\n".join(names[:LISTED_MAX]) or "[no such file]") + more


def search_files(place: Place, expression: str, pattern: str = "", path: str = ".") -> str:
    try:
        wanted = re.compile(expression)
    except (re.error, RecursionError, OverflowError) as error:
        raise Refused(f"{expression[:200]!r} is no regular expression: {error}") from None
    found: list[str] = []
    with limited(SEARCH_SECONDS):
        for line in _found(place, wanted, place.files(path, pattern)):
            if len(found) == FOUND_MAX:
                found.append(f"[more than {FOUND_MAX}: search for less]")
                break
            found.append(line)
    return "\n".join(found) or "[nothing found]"


def _found(place: Place, wanted: re.Pattern[str], names: list[str]) -> Iterator[str]:
    for name in names:
        try:
            data = load(place, name)
        except Refused:
            continue
        if b"\0" in data[:SNIFFED]:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if wanted.search(line):
                yield f"{name}:{number}: {line[:FOUND_CHARACTERS]}"


class _Expired(Exception):
    """No Refused yet: what passes over a file that cannot be read must not pass over this."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Ends what computes for longer, an expression without end above all. Raises Refused. Main thread only: elsewhere
    nothing is limited."""
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
        raise Refused(f"that took longer than {seconds:g} s of computing: search for less") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def write_file(place: Place, path: str, content: str) -> str:
    data = encoded(content)
    target = place.find(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or error}") from None
    store(place, path, data, os.O_CREAT)
    return f"wrote {len(data)} bytes to {place.name(target)}"


def edit_file(place: Place, path: str, old: str, new: str, all: bool = False) -> str:  # noqa: A002
    """Bytes outside the replaced text stay as they are, whatever their encoding."""
    data, wanted, put = load(place, path), encoded(old), encoded(new)
    if not wanted:
        raise Refused("the old text is empty; to write a file whole use write_file")
    windows = data.count(b"\r\n")
    if windows and (wanted not in data or windows == data.count(b"\n")):
        wanted, put = _windows(wanted), _windows(put)
    times = data.count(wanted)
    if times == 0:
        raise Refused(f"{path} does not hold the old text; read it again, and copy the text exactly")
    if times > 1 and not all:
        raise Refused(f"{path} holds the old text {times} times; give more of what is around it, or set `all`")
    size = len(data) + times * (len(put) - len(wanted))
    if size > FILE_BYTES_MAX:
        raise Refused(f"{path} would have {size} bytes; {FILE_BYTES_MAX} are the most")
    store(place, path, data.replace(wanted, put), 0)
    return f"replaced {times} {'place' if times == 1 else 'places'} in {place.name(place.find(path))}"


def _windows(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def encoded(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise Refused(f"the text cannot be written as UTF-8: {error.reason}") from None
    if len(data) > FILE_BYTES_MAX:
        raise Refused(f"the text has {len(data)} bytes; {FILE_BYTES_MAX} are the most")
    return data


def load(place: Place, path: str) -> bytes:
    """All of a file. Raises Refused."""
    with os.fdopen(place.open(place.find(path), os.O_RDONLY), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > FILE_BYTES_MAX:
            raise Refused(f"{path} has {size} bytes; {FILE_BYTES_MAX} are the most")
        return file.read(FILE_BYTES_MAX)


def store(place: Place, path: str, data: bytes, flags: int) -> None:
    """Replaces the content of a file; its mode stays. Raises Refused."""
    with os.fdopen(place.open(place.find(path), os.O_WRONLY | flags), "wb") as file:
        try:
            file.truncate(0)
            file.write(data)
            file.flush()
        except OSError as error:
            raise Refused(f"{path}: {error.strerror or error}") from None
