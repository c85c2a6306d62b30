"""The working directory, and resolution of the paths that a model names to files inside it."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from mz_engine.path_patterns import is_pattern, matches

FILE_BYTES_MAX = 10_000_000
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

    def _all_files(self) -> list[str]:
        """Return the existing files that git tracks or would add. Raises ToolError."""
        command = ("git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        try:
            result = subprocess.run(
                command, cwd=self.root, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIST_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ToolError(f"the files cannot be listed: {error}") from None
        names = dict.fromkeys(result.stdout.decode("utf-8", "surrogateescape").split("\0"))
        return [name for name in names if name and os.path.lexists(self.root / name)][:FILES_MAX]
