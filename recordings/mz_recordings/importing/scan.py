"""Search for session files, with their metadata. No file is opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

SUFFIXES = (".jsonl", ".json", ".ndjson", ".stream-json", ".md", ".yaml", ".log")
"""Suffixes of files that are searched for in directories. A file that the user names is read whatever its name."""
SUB_AGENTS = "subagents"
"""Directory in which Claude Code keeps the files of subagents."""
BEGINS_SUB_AGENT = "agent-"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A file and its metadata."""

    path: Path
    size: int
    modified_ns: int
    inode: int
    named: bool
    """True if the user named it, so that an unknown format must be reported."""


class Unreadable(msgspec.Struct, frozen=True):
    """A file or directory that could not be read, and the reason."""

    path: str
    why: str


def known_places(home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the directories where agents keep their sessions, existing or not: as documented or, for Qwen Code, as in
    the source of its `config/storage.ts`. opencode keeps them in a database, aider in each repository."""
    claude = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    codex = Path(environment.get("CODEX_HOME") or home / ".codex")
    gemini = Path(environment.get("GEMINI_CLI_HOME") or home) / ".gemini"
    qwen = Path(environment.get("QWEN_RUNTIME_DIR") or environment.get("QWEN_HOME") or home / ".qwen")
    return (claude / "projects", codex / "sessions", codex / "archived_sessions", gemini / "tmp", qwen / "projects")


def scan(paths: Iterable[Path], unreadable: list[Unreadable]) -> list[Found]:
    """Return the files, each once however often it is named or linked to: main conversations before subagents, older
    ones before newer ones, so that a request counts for the session that made it. Append to `unreadable`."""
    found: dict[tuple[int, int], Found] = {}
    for path in paths:
        for each, device in _below(path, unreadable):
            other = found.get((device, each.inode))
            if other is None or (each.named and not other.named):
                found[device, each.inode] = each
    return sorted(found.values(), key=lambda each: (_of_sub_agent(each.path), each.modified_ns, str(each.path)))


def _of_sub_agent(path: Path) -> bool:
    return path.name.startswith(BEGINS_SUB_AGENT) or path.parent.name == SUB_AGENTS


def _below(path: Path, unreadable: list[Unreadable]) -> Iterator[tuple[Found, int]]:
    """Yield the file itself, or those of a directory, with their devices. Links to directories are not followed, to
    avoid loops."""
    try:
        about = path.stat()
    except OSError as error:
        unreadable.append(Unreadable(str(path), error.strerror or str(error)))
        return
    if stat.S_ISREG(about.st_mode):
        yield _found(path, about, named=True), about.st_dev
    elif stat.S_ISDIR(about.st_mode):
        yield from _walk(path, unreadable)
    else:
        unreadable.append(Unreadable(str(path), "is neither a file nor a directory"))


def _walk(top: Path, unreadable: list[Unreadable]) -> Iterator[tuple[Found, int]]:
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                listed = list(entries)
        except OSError as error:
            unreadable.append(Unreadable(str(folder), error.strerror or str(error)))
            continue
        for entry in listed:
            try:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif entry.name.endswith(SUFFIXES) and stat.S_ISREG((about := entry.stat()).st_mode):
                    yield _found(Path(entry.path), about, named=False), about.st_dev
            except FileNotFoundError:
                continue
            except OSError as error:
                unreadable.append(Unreadable(entry.path, error.strerror or str(error)))


def _found(path: Path, about: os.stat_result, *, named: bool) -> Found:
    return Found(path=path, size=about.st_size, modified_ns=about.st_mtime_ns, inode=about.st_ino, named=named)
