"""Attacks of a hostile agent on everything that is not its own, run for real: `python -m mz_qa.attacks`.

Each script of `attacks.toml` runs as an agent's process in a repository made for it. It does harm if anything but its
worktree and its private repository differs afterwards: the user's checkout, repository and log, another feature's
worktree, HOME, a folder on PATH, or the system; or if it prints a secret of the user, or reaches a socket or ends a
process of theirs."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from unittest.mock import patch

import msgspec
from mz_engine.agents.contract import Invocation, OwnPaths
from mz_engine.agents.process import AgentProcesses
from mz_engine.git.files import remove_tree
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.paths import MZ_FOLDER, SCRATCH_FOLDER, SPOOL_FOLDER
from mz_engine.ports import CallSpec, FeatureWorktree
from mz_engine.processes import supervise
from mz_engine.processes.environment import agent_folder, private_repository, worktree_path
from mz_engine.processes.guard import LANDLOCK, MOUNTING
from mz_events.names import Commit
from mz_events.redaction.redactor import Secrets

SECONDS = 30
NAMED_MAX = 3
SYSTEM_FOLDERS = ("/usr", "/etc", "/opt")
SECRET = f"the secret of the user that {os.getpid()} attacks"
TWICE = "in-the-next-call"
"""Attacks whose names end so run twice: the first call prepares the second one."""
SECRET_FILES = (
    ".ssh/id_ed25519 .aws/credentials .config/gh/hosts.yml .cargo/credentials.toml .codex/auth.json other/.env"
)
SOCKETS = ("temporary/service", "runtime/bus", f"@mz-attacked-{os.getpid()}")
"""Of services of the user, as of a terminal multiplexer, a desktop, or a key agent; one is in no directory."""
CONNECT = """
import os, socket, sys
folder, name = os.path.split(sys.argv[1])  # An address has at most 108 bytes.
os.chdir(folder or ".")
socket.socket(socket.AF_UNIX).connect(name.replace("@", chr(0)))
"""
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")


class Attack(msgspec.Struct, frozen=True):
    target: str
    name: str
    script: str


def attacks() -> Iterator[Attack]:
    """Yield the attacks of `attacks.toml`."""
    document = tomllib.loads(files("mz_qa").joinpath("attacks.toml").read_text("utf-8"))
    for target, scripts in msgspec.convert(document, dict[str, dict[str, str]]).items():
        yield from (Attack(target, name, script) for name, script in scripts.items())


class Victim:
    """A user's machine in a folder: HOME, a project with two features at work, and a tool on PATH."""

    def __init__(self, folder: Path) -> None:
        self.home, self.tools, self.root = folder / "home", folder / "env" / "bin", folder / "home" / "project"
        for path in (self.home, self.tools, self.root / "src"):
            path.mkdir(parents=True)
        (self.home / ".agent/sessions").mkdir(parents=True)
        for name in (".agent/settings.json", ".bashrc", ".npmrc", "notes.txt"):
            (self.home / name).write_text("mine\n")
        for name in SECRET_FILES.split():
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(SECRET)
        (self.home / ".identity").symlink_to(".ssh/id_ed25519")
        for name in (".agent/sessions/others", ".agent.json"):
            (self.home / name).write_text(json.dumps({"projects": SECRET}))
        self.own = OwnPaths(
            folders=(self.home / ".agent",), new_folders=(self.home / ".agent/sessions",),
            files={self.home / ".agent.json": ("account",)},
        )  # fmt: skip
        (self.tools / "pytest").write_text("#!/bin/sh\n")
        (self.tools.parent / "pyvenv.cfg").write_text("")
        for name in ("README.md", "src/app.py", "mz.yaml", ".gitignore"):
            (self.root / name).write_text(".mz/\n")
        for name in ("temporary", "runtime"):
            (folder / name).mkdir()
        (folder / "temporary/notes").write_text(SECRET)
        self.services = [_service(folder, name) for name in SOCKETS]
        self.process = subprocess.Popen(["sleep", "600"])
        self.system_mark = mark = f"mz-attack-{os.getpid()}"
        self.environment = {
            "PATH": f"{self.tools}:{os.environ.get('PATH', os.defpath)}", "HOME": str(self.home), "SYSTEM": mark,
            "ROOT": str(self.root), "GIT": str(self.root / ".git"), "TOOLS": str(self.tools),
            "TEMPORARY": str(folder / "temporary"), "XDG_RUNTIME_DIR": str(folder / "runtime"),
            "CONNECT": CONNECT, "ABSTRACT": SOCKETS[-1], "PROCESS": str(self.process.pid),
        }  # fmt: skip
        for command in ("init -q -b main", "add -A", "commit -q -m first", "branch other", "tag v1"):
            self._git(*command.split())
        (self.root / "README.md").write_text("stashed\n")
        self._git("stash", "--quiet")
        head = Commit(self._git("rev-parse", "HEAD"))
        workspace = GitWorkspace(self.root, WorkspaceSettings(), self.environment)
        self.worktree, self.other = (FeatureWorktree(run="r", feature=name, branch=f"feat/{name}") for name in "fo")
        for worktree in (self.worktree, self.other):
            workspace.open(worktree, (head,))
        for name in ("mz.db", "mz.db.lock", "blobs/ab"):
            path = self.root / MZ_FOLDER / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("log\n")
        self.environment["OTHER"] = str(worktree_path(self.root, self.other))

    def _git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments]
        return subprocess.check_output(command, cwd=self.root, env=self.environment, text=True).strip()

    def state(self) -> dict[str, str]:
        """Return digests of everything that an agent of the feature must leave alone."""
        own = [self.root / MZ_FOLDER / name for name in (SPOOL_FOLDER, SCRATCH_FOLDER)]
        own += [locate(self.root, self.worktree) for locate in (worktree_path, private_repository)]
        left_out = tuple(f"{path}/" for path in (*own, agent_folder(self.root, self.worktree, Path("/"))))
        paths = (path for path in self.home.parent.rglob("*") if not f"{path}/".startswith(left_out))
        marks = (Path(top) / self.system_mark for top in SYSTEM_FOLDERS)
        state = {str(path): _digest(path) for path in (*paths, *marks)}
        return {**state, "core_pattern": CORE_PATTERN.read_text() if CORE_PATTERN.exists() else ""}

    def suffer(self, attack: Attack) -> list[str]:
        """Run the attack as an agent; return what it changed, or that it read a secret."""
        before = self.state()
        processes = AgentProcesses(self.root, self.environment, Secrets({}), passed=tuple(self.environment))
        spec = CallSpec(
            key=f"r/f/{attack.target}/-/1/1/{attack.name}", worktree=self.worktree, agent="attacker", model="",
            prompt="", session=None, resumes=False, tools=(), total_seconds=SECONDS, idle_seconds=SECONDS,
        )  # fmt: skip
        for _ in range(2 if attack.name.endswith(TWICE) else 1):
            invocation = Invocation(argv=("sh", "-c", f"echo begins\n{attack.script}"), stdin=b"", env={}, own=self.own)
            result = processes.spawn(spec, invocation)
        after = self.state()
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        reached = [name for name, service in zip(SOCKETS, self.services, strict=True) if _is_reached(service)]
        signs = {"read a secret": SECRET.encode() in result.stdout, "ended a process": self.process.poll() is not None}
        signs["did not begin"] = not result.stdout.startswith(b"begins\n")
        return [*changed, *reached, *(text for text, is_true in signs.items() if is_true)]


def _service(folder: Path, name: str) -> socket.socket:
    service = socket.socket(socket.AF_UNIX)
    opened = os.open(folder, os.O_PATH)
    service.bind(name.replace("@", "\0") if name.startswith("@") else f"/proc/self/fd/{opened}/{name}")
    os.close(opened)
    service.listen()
    service.setblocking(False)
    return service


def _is_reached(service: socket.socket) -> bool:
    try:
        service.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _digest(path: Path) -> str:
    try:
        status = path.lstat()
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
    except OSError:
        return "absent"
    return f"{status.st_mode:o} {hashlib.sha256(content).hexdigest()}"


def harm_of(attack: Attack, folder: Path) -> list[str]:
    """Return what an attack changes on a new machine below the folder, which is removed afterwards."""
    home = Path(mkdtemp(prefix="mz-attacks-", dir=folder))
    victim = Victim(home)
    try:
        return [path.removeprefix(f"{home}/") for path in victim.suffer(attack)]
    finally:
        victim.process.kill()
        victim.process.wait()
        for service in victim.services:
            service.close()
        for path in (*(Path(top) / victim.system_mark for top in SYSTEM_FOLDERS), home):
            remove_tree(os.fsencode(path))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all attacks, and print a line for each; return the number of those that did harm, 1 at most."""
    parser = argparse.ArgumentParser(prog="python -m mz_qa.attacks", description=__doc__.split("\n")[0])
    parser.add_argument("--level", default=supervise.best_level(), help="of isolation (default: %(default)s)")
    level, harmful, count = parser.parse_args(arguments).level, 0, 0
    if level not in (*MOUNTING, LANDLOCK):
        parser.error(f"at the level {level} attacks would harm this machine")
    with TemporaryDirectory(prefix="mz-attacks-") as folder, patch.object(supervise, "best_level", lambda: level):
        for attack in attacks():
            changed, count = harm_of(attack, Path(folder)), count + 1
            harmful += bool(changed)
            result = f"HARM: {', '.join(changed[:NAMED_MAX])}" if changed else "no harm"
            sys.stdout.write(f"{attack.target:11} {attack.name:24} {result}\n")
    sys.stdout.write(f"level {level}, user {os.geteuid()}: {count} attacks, {harmful} did harm\n")
    return min(harmful, 1)


if __name__ == "__main__":
    sys.exit(main())
