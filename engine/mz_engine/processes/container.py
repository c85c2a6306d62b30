"""Agents in containers: the command line of podman or docker that runs one command, and what ends its container."""

from __future__ import annotations

import csv
import io
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from mz_engine.model.config import Config
from mz_engine.processes.guard import KEY_VARIABLE, MARKER
from mz_engine.processes.supervise import CapturedOutput, Launch, Mount, ProcessLimits, best_level, is_below, supervise

LIMITS = ProcessLimits(total_seconds=30)
END_SCRIPT = """exec >/dev/null 2>&1
ids=$("$0" ps -aq --filter "label=mz.key=$1")
[ -z "$ids" ] || { "$0" kill $ids; "$0" rm -f $ids; }"""


class Container:
    """Turns commands into those of podman or docker that run them in new containers of one image."""

    def __init__(self, engine: str, config: Config, environment: Mapping[str, str]) -> None:
        self._engine, self._settings, self._environment = engine, config.container, environment
        home, names = environment.get("HOME", "/nonexistent"), config.container.mounts
        self._mounts = [Mount(Path(name.replace("~", home, name[0] == "~")), "write") for name in names]
        self._home = {"HOME": home} if any(is_below(mount.target, Path(home)) for mount in self._mounts) else {}
        self.environment = {**environment, "HOME": "/nonexistent", **self._home}
        """Where to look for a login: HOME leads nowhere unless something in it is mounted."""

    def wrap(self, launch: Launch, names: Iterable[str]) -> Launch:
        """Return the client's command for a launch. The container gets its limits, its mounts that are writable or of
        git, and these variables, but not PATH. Their values are only in the environment of the client."""
        key, user, group = launch.env[KEY_VARIABLE], os.geteuid(), os.getegid()
        passed = {*names, KEY_VARIABLE}.intersection(launch.env) - {"PATH", "HOME"}
        values = {**self._home, **{name: launch.env[name] for name in passed}}
        options = ["--rm", "-i", "--pull=never", "--log-driver=none", "--label", f"mz.key={key}"]
        options += [f"--user={user}:{group}", *(["--userns=keep-id"] if user and self._engine == "podman" else [])]
        options += ["--env=HOME=/tmp"] if user and not self._home else []  # Who is not in the image has none there.
        options += [f"--memory={launch.memory_bytes}", f"--pids-limit={launch.threads}"] if launch.threads else []
        for mount in (*launch.mounts, *self._mounts):
            source = mount.source or mount.target
            target = source if mount.target.is_file() else mount.target
            access = ["readonly"] if mount.kind == "read" else []
            if mount.kind == "write" or (mount.kind == "read" and mount.source):
                options.append("--mount=" + _record("type=bind", f"source={source}", f"target={target}", *access))
        options += ["-w", str(launch.cwd), *(word for name in sorted(values) for word in ("-e", name))]
        return Launch(
            argv=(self._engine, "run", *options, *self._settings.arguments, self._settings.image or "", *launch.argv),
            env={**self._environment, **values},
            cwd=launch.cwd,
            end_argv=("/bin/sh", "-c", END_SCRIPT, self._engine, key),
        )

    def end(self, key: str) -> None:
        """End the container of a call whose guard was killed."""
        argv = ("/bin/sh", "-c", END_SCRIPT, self._engine, key)
        supervise(Launch(argv=argv, env=self._environment, cwd=Path("/")), LIMITS, CapturedOutput(), level=MARKER)

    def problem(self, program: str) -> tuple[str, str] | None:
        """Return why no container starts, or has not the program, and what to do about it."""
        engine, image, output = self._engine, self._settings.image, CapturedOutput()
        if shutil.which(engine, path=self._environment.get("PATH")) is None:
            return f"`{engine}` is not on PATH", "install it, or change `container` in mz.yaml"
        if missing := [str(mount.target) for mount in self._mounts if not mount.target.exists()]:
            return f"{missing[0]} of `container.mounts` does not exist", "make it, or correct mz.yaml"
        argv, key = ("sh", "-c", 'command -v "$0"', program), f"check/{secrets.token_hex(6)}"
        end = supervise(self.wrap(Launch(argv=argv, env={KEY_VARIABLE: key}, cwd=Path("/")), ()), LIMITS, output)
        if end.exit == 0:
            return None
        if end.exit in (1, 127):  # Of `command -v`, and of an engine that does not find a shell.
            return f"`{program}` is not in the image {image}", "add it, or name another agent in mz.yaml"
        reason = bytes(output.stderr).decode("utf-8", "replace").strip() or end.detail or end.reason.value
        fix = f"`{engine} run --rm {image} sh -c true` must work: build or pull the image, or correct mz.yaml"
        return f"{engine} starts no container of {image}: {reason.splitlines()[0]}", fix


def _record(*fields: str) -> str:
    """Return the fields as a record of CSV, which engines read: a path may have a comma."""
    file = io.StringIO()
    csv.writer(file, lineterminator="").writerow(fields)
    return file.getvalue()


def container_of(config: Config, environment: Mapping[str, str]) -> Container | None:
    """Return where agents run by these settings; None: in the sandbox."""
    return Container(config.container.engine, config, environment) if config.container.engine else None


def isolation_levels(config: Config) -> str:
    """Return the level of isolation of agents and commands; both, if they differ."""
    return f"container {best_level()}" if config.container.engine else best_level()
