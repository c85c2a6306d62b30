"""The working directory, and resolution of the paths that a model names to files inside it."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pathspec import GitIgnoreSpec

LIST_SECONDS = 30
FILES_MAX = 200_000


class Refused(Exception):
    """A tool cannot do what was requested; the message is for the model."""


class Place:
    """One directory; nothing outside it is opened."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def find(self, given: str) -> Path:
        """Resolve a path, whether it exists or not. Raises ToolError if it is outside the directory once links are
        followed, or belongs to git."""
        if "\0" in given:
            raise Refused("a path holds no NUL byte")
        try:
            path = (self.root / given).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise Refused(f"{given[:200]} cannot be looked up: {error}") from None
        if not path.is_relative_to(self.root):
            raise Refused(f"{given} is outside the working directory, which alone is open to you")
        if any(part.lower() == ".git" for part in path.relative_to(self.root).parts):
            raise Refused(f"{given} belongs to git; it is not open to you")
        return path

    def name(self, path: Path) -> str:
        """Return the path as shown to the model."""
        return path.relative_to(self.root).as_posix()

    def open(self, path: Path, flags: int) -> int:
        """Open a regular file, existing or new; never blocks on a FIFO. Raises ToolError."""
        try:
            file = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise Refused(f"{self.name(path)}: {error.strerror or error}") from None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise Refused(f"{self.name(path)} is no regular file")
        return file

    def files(self, below: str, pattern: str) -> list[str]:
        """Return the names of matching files under a directory, sorted. Raises ToolError."""
        top = self.find(below)
        if not top.is_dir():
            raise Refused(f"{below} is no directory")
        spec = _spec(pattern)
        prefix = "" if top == self.root else self.name(top) + "/"
        names = (name for name in self._all() if name.startswith(prefix))
        return sorted(name for name in names if spec is None or spec.match_file(name))

    def _all(self) -> Iterator[str]:
        """Yield the files that git tracks or would add; outside a repository, all files."""
        listed = _listed(self.root)
        names = _walked(self.root) if listed is None else (name for name in listed if os.path.lexists(self.root / name))
        for count, name in enumerate(names):
            if count >= FILES_MAX:
                return
            yield name


def _spec(pattern: str) -> GitIgnoreSpec | None:
    try:
        return GitIgnoreSpec.from_lines([pattern]) if pattern else None
    except ValueError as error:
        raise Refused(f"{pattern[:200]!r} is no pattern: {error}") from None


def _listed(root: Path) -> list[str] | None:
    command = ["git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        result = subprocess.run(
            command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIST_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if result.returncode:
        return None
    names = result.stdout.decode("utf-8", "surrogateescape").split("\0")
    return list(dict.fromkeys(name for name in names if name))


def _walked(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name.lower() != ".git")
        for name in sorted(names):
            yield (Path(folder) / name).relative_to(root).as_posix()
