"""Agents in containers: the command line of the engine, what ends a container, and why one cannot be used."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mz_engine.agents.process import AgentProcesses, make_missing, spool_directory
from mz_engine.agents.registry import all_adapters
from mz_engine.model.config import Config, ContainerSettings, SandboxSettings
from mz_engine.processes.container import Container, container_of, isolation_levels
from mz_engine.processes.supervise import Launch, Mount, best_level
from mz_events.catalog.call import Problem, ProblemClass
from mz_events.redaction.redactor import Secrets

from tests.support.fake_engine import IMAGE, FakeEngine
from tests.support.processes import WORKTREE, call, eventually, fresh_key, is_alive, repository, shell, wait_for
from tests.support.tree import ROOT


def container(environment: dict[str, str], **settings: object) -> Container:
    fields = {"engine": "podman", "image": IMAGE, **settings}
    made = container_of(Config(container=ContainerSettings(**fields)), environment)  # type: ignore[arg-type]
    assert made is not None
    return made


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[FakeEngine]:
    with FakeEngine(tmp_path / "engine") as fake:
        yield fake


def processes(root: Path, engine: FakeEngine, **settings: object) -> AgentProcesses:
    environment = {"PATH": f"{engine.bin}:{os.environ['PATH']}", "HOME": "/nowhere", "PASSED": "secret-value"}
    made = AgentProcesses(root, environment, Secrets({}), passed=("PASSED",))
    made.container = container(environment, **settings)
    return made


# the command line -----------------------------------------------------------------------------------------------------
LAUNCH = Launch(
    argv=("claude", "-p"),
    env={"PATH": "/bin", "HOME": "/home/me", "KEY": "hunter2", "TERM": "x", "MZ_KEY": "r/f"},
    cwd=Path("/w"),
    mounts=(
        Mount(Path("/checkout"), "empty"), Mount(Path("/usr/tools"), "read"), Mount(Path("/home/me"), "overlay"),
        Mount(Path("/home/me/.claude"), "kept", Path("/k")),
        Mount(Path("/o"), "read", Path("/o")), Mount(Path("/w"), "write"), Mount(Path("/w/.git"), "write", Path("/p")),
    ),
    read_only=True, memory_bytes=1000, threads=20, file_bytes=5,
)  # fmt: skip
COMMON = "--rm -i --pull=never --log-driver=none --label mz.key=r/f"
MOUNTED = (
    "--mount=type=bind,source=/o,target=/o,readonly --mount=type=bind,source=/w,target=/w "
    "--mount=type=bind,source=/p,target=/w/.git"
)


@pytest.mark.parametrize(
    ("user", "settings", "options"),
    [
        (0, {}, f"--user=0:7 LIMITS {MOUNTED} -w /w -e KEY -e MZ_KEY"),
        (5, {}, f"--user=5:7 --userns=keep-id --env=HOME=/tmp LIMITS {MOUNTED} -w /w -e KEY -e MZ_KEY"),
        (
            5,
            {"mounts": ("~/x",)},
            f"--user=5:7 --userns=keep-id LIMITS {MOUNTED} BIND(/home/me/x) -w /w -e HOME -e KEY -e MZ_KEY",
        ),
        (5, {"engine": "docker"}, f"--user=5:7 --env=HOME=/tmp LIMITS {MOUNTED} -w /w -e KEY -e MZ_KEY"),
        (
            0,
            {"mounts": ("~/.claude", "/srv/x"), "arguments": ("--network", "none")},
            f"--user=0:7 LIMITS {MOUNTED} BIND(/home/me/.claude) BIND(/srv/x) -w /w "
            "-e HOME -e KEY -e MZ_KEY --network none",
        ),
        (0, {"mounts": ("~",)}, f"--user=0:7 LIMITS {MOUNTED} BIND(/home/me) -w /w -e HOME -e KEY -e MZ_KEY"),
        (0, {"mounts": ("/srv/x",)}, f"--user=0:7 LIMITS {MOUNTED} BIND(/srv/x) -w /w -e KEY -e MZ_KEY"),
    ],
)
def test_the_command_line(
    monkeypatch: pytest.MonkeyPatch, user: int, settings: dict[str, object], options: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "getegid", lambda: 7)
    launch = container({"HOME": "/home/me", "DOCKER_HOST": "d"}, **settings).wrap(LAUNCH, ("KEY", "PATH", "HOME"))
    wanted = options.replace("LIMITS", "--memory=1000 --pids-limit=20")
    wanted = re.sub(r"BIND\((.*?)\)", r"--mount=type=bind,source=\1,target=\1", wanted)
    name = settings.get("engine", "podman")
    assert " ".join(launch.argv) == f"{name} run {COMMON} {wanted} {IMAGE} claude -p"
    assert "hunter2" not in str(launch.argv)
    assert {"KEY": "hunter2", "DOCKER_HOST": "d", "MZ_KEY": "r/f"}.items() <= launch.env.items()
    assert (launch.mounts, launch.read_only, launch.memory_bytes, launch.file_bytes) == ((), False, 0, 0)


def test_a_private_repository_that_a_file_leads_to_is_mounted_where_it_is(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /p\n")
    launch = Launch(
        argv=("x",), env={"MZ_KEY": "k"}, cwd=tmp_path, mounts=(Mount(tmp_path / ".git", "write", Path("/p")),)
    )
    assert "--mount=type=bind,source=/p,target=/p" in container({}).wrap(launch, ()).argv


def test_any_path_can_be_mounted() -> None:
    launch = Launch(argv=("x",), env={"MZ_KEY": "k"}, cwd=Path("/w"), mounts=(Mount(Path('/a:b,"c"'), "write"),))
    expected = '--mount=type=bind,"source=/a:b,""c""","target=/a:b,""c"""'
    assert expected in container({}).wrap(launch, ()).argv


def test_nothing_is_made_in_home_for_an_agent_in_a_container(tmp_path: Path) -> None:
    adapters = all_adapters({}, container({"HOME": str(tmp_path)}))
    make_missing(adapters["claude-code"].own_paths({"HOME": str(tmp_path)}))
    assert list(tmp_path.iterdir()) == []


def test_the_level_is_that_of_agents_and_that_of_commands() -> None:
    assert isolation_levels(Config()) == best_level()
    settings = ContainerSettings(engine="docker", image=IMAGE)
    assert isolation_levels(Config(container=settings)) == f"container {best_level()}"


# calls ----------------------------------------------------------------------------------------------------------------
def test_a_call_runs_in_a_container_that_is_gone_afterwards(tmp_path: Path, engine: FakeEngine) -> None:
    folder = repository(tmp_path / "project")
    calls = processes(tmp_path / "project", engine)
    result = calls.spawn(call(fresh_key()), shell("pwd; cat; echo $PASSED $OWN $HOME >&2; exit 4", b"do\n", OWN="o"))
    assert (result.stdout, result.stderr) == (f"{folder}\ndo\n".encode(), b"secret-value o /root\n")
    assert (result.exit, result.problem, engine.running) == (4, None, [])
    objects = folder.parents[3] / ".git" / "objects"
    private = folder.parents[2] / "private" / WORKTREE.run / WORKTREE.feature
    (request,) = [request for request in engine.requests if request[0] == "run"]
    mounts = [word.partition("source=")[2] for word in request if word.startswith("--mount=")]
    assert mounts == [
        f"{objects},target={objects},readonly", f"{folder},target={folder}", f"{private},target={folder}/.git",
    ]  # fmt: skip
    assert "secret-value" not in str(engine.requests)


@pytest.mark.slow
@pytest.mark.parametrize("script", ["sleep 600", "trap '' TERM; echo started; while :; do sleep 1; done"])
def test_a_time_limit_ends_the_container(tmp_path: Path, engine: FakeEngine, script: str) -> None:
    repository(tmp_path / "project")
    result = processes(tmp_path / "project", engine).spawn(call(fresh_key(), 1), shell(script))
    assert result.problem == Problem(kind=ProblemClass.TRANSIENT, code="timeout")
    assert [request[0] for request in engine.requests] == ["run", "ps", "kill", "rm", "ps"]
    assert engine.running == []


HOLDER = """
import pathlib, sys
from tests.engine.test_container import call, container, shell
from mz_engine.agents.process import AgentProcesses
from mz_events.redaction.redactor import Secrets
root, path, key = sys.argv[1:]
processes = AgentProcesses(pathlib.Path(root), {"PATH": path}, Secrets({}))
processes.container = container({"PATH": path})
processes.spawn(call(key, 600, 600), shell("echo started; sleep 600"))
"""
"""A process that calls an agent, and is about to be killed."""


@pytest.mark.slow
def test_when_mz_is_killed_the_container_is_ended(tmp_path: Path, engine: FakeEngine) -> None:
    root, key = tmp_path / "project", fresh_key()
    repository(root)
    path = f"{engine.bin}:{os.environ['PATH']}"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root), path, key],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )
    wait_for(spool_directory(root / ".mz" / "spool", key) / "stdout", "started")
    eventually(lambda: len(engine.running) == 1)
    (pid,) = engine.running
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    eventually(lambda: not is_alive(pid) and not engine.running)
    result = processes(root, engine).salvage(key)
    assert result is not None
    assert (result.stdout, result.exit) == (b"started\n", None)


@pytest.mark.slow
def test_salvage_ends_a_container_that_outlived_its_guard(tmp_path: Path, engine: FakeEngine) -> None:
    clients, pids = list[subprocess.Popen[bytes]](), list[int]()
    for label in ("mz.key=mine", "mz.key=other"):
        argv = (str(engine.bin / "podman"), "run", "--label", label, "-w", "/", IMAGE, "sleep", "600")
        clients.append(subprocess.Popen(argv))
        eventually(lambda: len(engine.running) == len(clients))
        pids += set(engine.running) - set(pids)
    calls = processes(tmp_path, engine)
    assert calls.salvage("mine") is None
    assert clients[0].wait() == 128 + signal.SIGKILL
    assert engine.running == [pids[1]]
    calls.salvage("other")
    assert clients[1].wait() == 128 + signal.SIGKILL


# before a run ---------------------------------------------------------------------------------------------------------
def check_claude(environment: dict[str, str], **settings: object) -> tuple[str, str, str, str]:
    fields = {"engine": "podman", "image": IMAGE, **settings}
    config = Config(container=ContainerSettings(**fields), sandbox=SandboxSettings())  # type: ignore[arg-type]
    adapter = all_adapters({}, container_of(config, environment))["claude-code"]
    result = adapter.check_auth(environment)
    return result.code, result.message, result.fix, result.version


def install(engine: FakeEngine, output: str) -> None:
    program = engine.image / "claude"
    program.write_text(f"#!/bin/sh\necho {output}\n")
    program.chmod(0o755)


@pytest.mark.slow
def test_program_version_and_login_are_those_in_the_container(tmp_path: Path, engine: FakeEngine) -> None:
    environment = {"PATH": f"{engine.bin}:/usr/bin:/bin", "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "k"}
    code, message, _, _ = check_claude(environment)
    assert (code, message) == ("tool-missing", f"`claude` is not in the image {IMAGE}")
    install(engine, "2.1.0")
    assert check_claude(environment) == ("", "", "", "2.1.0")
    login = tmp_path / ".claude" / ".credentials.json"
    login.parent.mkdir()
    login.write_text('{"claudeAiOauth": {"accessToken": "t"}}')
    environment.pop("ANTHROPIC_API_KEY")
    assert check_claude(environment)[0] == "auth-missing"
    assert check_claude(environment, mounts=("~/.claude",))[0] == ""
    assert engine.running == []


@pytest.mark.parametrize(
    ("settings", "path", "message"),
    [
        ({}, "/nowhere", "`podman` is not on PATH"),
        ({"image": "other"}, "ENGINE:/usr/bin:/bin", "podman starts no container of other: Error: image not known"),
        ({"mounts": ("~/none",)}, "ENGINE:/usr/bin:/bin", "HOME/none of `container.mounts` does not exist"),
        ({"mounts": ("/no/such",)}, "ENGINE:/usr/bin:/bin", "/no/such of `container.mounts` does not exist"),
    ],
)
def test_what_is_missing(
    tmp_path: Path, engine: FakeEngine, settings: dict[str, object], path: str, message: str
) -> None:
    environment = {"PATH": path.replace("ENGINE", str(engine.bin)), "HOME": str(tmp_path)}
    code, text, fix, _ = check_claude(environment, **settings)
    assert (code, text) == ("tool-missing", message.replace("HOME", str(tmp_path)))
    assert "mz.yaml" in fix


def test_a_daemon_that_is_not_running(tmp_path: Path) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\necho 'Cannot connect to the daemon. Is it running?' >&2; exit 125\n")
    (tmp_path / "docker").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    code, message, fix, _ = check_claude(environment, engine="docker")
    assert (code, message) == (
        "tool-missing",
        f"docker starts no container of {IMAGE}: Cannot connect to the daemon. Is it running?",
    )
    assert f"`docker run --rm {IMAGE} sh -c true` must work" in fix
