"""Real git for simulated worlds: reads files of a cassette's repository and applies patches."""

from __future__ import annotations

import os
import subprocess
import tempfile
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
        self._folder = folder

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
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            work = Path(name)
            self._git(work, "init", "--quiet")
            try:
                stats = self._git(work, "apply", "--numstat", "-z", "-", stdin=patch)
                paths = [os.fsdecode(entry.split(b"\t", 2)[2]) for entry in stats.split(b"\0")[:-1]]
                for path in paths:
                    if path in files:
                        self._write(work / path, files[path], self._modes.get(path))
                self._git(work, "apply", "--binary", "--whitespace=nowarn", "-", stdin=patch)
            except subprocess.CalledProcessError:
                return None
            untouched = {path: data for path, data in files.items() if path not in paths}
            return untouched | {path: self._read(work / path, path) for path in paths if os.path.lexists(work / path)}

    def _write(self, target: Path, data: bytes, mode: bytes | None) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if mode == LINK:
            target.symlink_to(os.fsdecode(data))
        else:
            target.write_bytes(data)
            target.chmod(0o755 if mode == PROGRAM else 0o644)

    def _read(self, target: Path, path: str) -> bytes:
        if target.is_symlink():
            self._modes[path] = LINK
            return os.fsencode(target.readlink())
        self._modes[path] = PROGRAM if os.access(target, os.X_OK) else b"100644"
        return target.read_bytes()

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
