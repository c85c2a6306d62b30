"""The working directory, and resolution of the paths that a model names to files inside it."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from mz_engine.path_patterns import is_pattern, matches

LIST_SECONDS = 30
FILES_MAX = 200_000


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
        """Return the names of matching files under a directory, sorted. Raises ToolError."""
        top = self.resolve(below)
        if not top.is_dir():
            raise ToolError(f"{below} is no directory")
        if pattern and not is_pattern(pattern):
            raise ToolError(f"{pattern[:200]!r} is no pattern as in .gitignore")
        prefix = "" if top == self.root else self.relative_name(top) + "/"
        names = (name for name in self._all_files() if name.startswith(prefix))
        return sorted(name for name in names if not pattern or matches((pattern,), name))

    def _all_files(self) -> Iterator[str]:
        """Yield the files that git tracks or would add; outside a repository, all files."""
        listed = _git_files(self.root)
        names = (
            _walk_files(self.root) if listed is None else (name for name in listed if os.path.lexists(self.root / name))
        )
        for count, name in enumerate(names):
            if count >= FILES_MAX:
                return
            yield name


def _git_files(root: Path) -> list[str] | None:
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


def _walk_files(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name.lower() != ".git")
        for name in sorted(names):
            yield (Path(folder) / name).relative_to(root).as_posix()
