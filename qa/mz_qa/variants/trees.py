"""Real git for simulated worlds: reads files of a cassette's repository and applies patches."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from mz_events.names import Commit
from mz_recordings.cassette.model import Cassette
from mz_recordings.cassette.repository import ScratchGit, unpack

from mz_qa.simulation.world import Files

TIMEOUT_SECONDS = 120
LINK, PROGRAM = b"120000", b"100755"


class Trees:
    """A scratch repository below an empty folder. Raises WorldMissing."""

    def __init__(self, cassette: Cassette, folder: Path, environment: Mapping[str, str]) -> None:
        self._root, self._environment = folder / "repository", dict(environment)
        self.delivered = unpack(cassette, self._root, environment)
        """Heads of dependencies delivered by an earlier run, by feature."""
        self.head = Commit(ScratchGit(self._root, environment)("rev-parse", "HEAD"))
        self._modes: dict[str, bytes] = {}
        self._current_files: Files = {}
        """Current files of the working directory for patches."""
        self._work = folder / "work"
        self._work.mkdir()
        self._git(self._work, "init", "--quiet")

    def files(self, commit: Commit) -> Files:
        """Return a commit's files; the content of a symlink is its target."""
        files: Files = {}
        for entry in self._git(self._root, "ls-tree", "-r", "-z", commit).split(b"\0")[:-1]:
            fields, _, path = entry.partition(b"\t")
            mode, kind, blob = fields.split()
            if kind == b"blob":
                self._modes[os.fsdecode(path)] = mode
                files[os.fsdecode(path)] = self._git(self._root, "cat-file", "blob", blob.decode())
        return files

    def apply_patch(self, files: Files, patch: bytes) -> Files | None:
        """Return the files with the patch applied; None if it does not apply."""
        if not patch:
            return dict(files)
        self._write_files(files)
        before = self._file_stamps()
        try:
            self._git(self._work, "apply", "--binary", "--whitespace=nowarn", "-", stdin=patch)
        except subprocess.CalledProcessError:
            return None
        after = self._file_stamps()
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        for path in changed:
            self._current_files.pop(path, None)
            if path in after:
                self._current_files[path] = self._read(path)
        return dict(self._current_files)

    def _write_files(self, files: Files) -> None:
        """Update the working directory to these files."""
        for path in self._current_files.keys() - files.keys():
            (self._work / path).unlink()
        for path, data in files.items():
            if self._current_files.get(path) != data:
                self._write(path, data)
        self._current_files = dict(files)

    def _write(self, path: str, data: bytes) -> None:
        target, mode = self._work / path, self._modes.get(path, b"")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        if mode == LINK:
            target.symlink_to(os.fsdecode(data))
            return
        target.write_bytes(data)
        target.chmod(0o755 if mode == PROGRAM else 0o644)

    def _read(self, path: str) -> bytes:
        target = self._work / path
        if target.is_symlink():
            self._modes[path] = LINK
            return os.fsencode(target.readlink())
        self._modes[path] = PROGRAM if os.access(target, os.X_OK) else b"100644"
        return target.read_bytes()

    def _file_stamps(self) -> dict[str, tuple[int, int, int]]:
        """Return metadata of all files that changes when they are written."""
        stamps = {}
        for folder, folders, names in os.walk(self._work):
            if ".git" in folders:
                folders.remove(".git")
            links = [name for name in folders if Path(folder, name).is_symlink()]
            for name in (*names, *links):
                status = Path(folder, name).lstat()
                path = str(Path(folder, name).relative_to(self._work))
                stamps[path] = (status.st_ino, status.st_mtime_ns, status.st_mode)
        return stamps

    def _git(self, cwd: Path, *arguments: str, stdin: bytes = b"") -> bytes:
        variables = {name: value for name, value in self._environment.items() if not name.startswith("GIT_")}
        result = subprocess.run(
            ["git", "-c", "core.autocrlf=false", "-c", f"core.hooksPath={os.devnull}", *arguments],
            cwd=cwd,
            env={**variables, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=True,
        )
        return result.stdout
