"""The real `claude` CLI under our supervisor; its tool shells leave its session and process group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from mz_engine.agents.process import AgentProcesses, spool_directory
from mz_engine.agents.registry import AgentRegistry
from mz_events.redaction.redactor import Secrets

from tests.support import claude_cli
from tests.support.endpoint import Answer, Endpoint, Reply, Request, Use
from tests.support.processes import WORKTREE, fresh_key, left, repository, wait_for, wait_until_marked
from tests.support.tree import ROOT

pytestmark = [pytest.mark.cli, pytest.mark.slow]

COMMAND = "touch begun; (setsid sleep 600 >/dev/null 2>&1 &); trap '' TERM; sleep 600"


def script(request: Request) -> Answer:
    """Writes a file, then runs a command that never ends."""
    if not request.results():
        path = f"{request.cwd}/note.md"
        return Reply("Writing.", (Use("Write", {"file_path": path, "content": "# Hi\n"}),))
    if len(request.results()) == 1:
        return Reply("Running.", (Use("Bash", {"command": COMMAND, "description": "hang"}),))
    return Reply("Done.")


def door(root: Path, url: str) -> AgentRegistry:
    home = root / "home"
    home.mkdir(exist_ok=True)
    environment = claude_cli.environment(home, url)
    return AgentRegistry(
        AgentProcesses(root, environment, Secrets({"KEY": environment["ANTHROPIC_API_KEY"]})), environment
    )


def test_a_hung_tool_ends_with_the_call(tmp_path: Path) -> None:
    repository(tmp_path)
    key = fresh_key()
    with Endpoint(script) as endpoint:
        agents = door(tmp_path, endpoint.url)
        spec = claude_cli.spec("Work.", None, key=key, worktree=WORKTREE, total_seconds=60, idle_seconds=12)
        result = agents.call(spec)
    assert not left(key, 0)
    assert result.problem is not None
    assert result.problem.code == "idle"
    reading = agents.adapter("claude-code").parse_output(result)
    assert reading.problem is not None
    assert reading.problem.code == "idle"
    assert reading.usage


HOLDER = """
import pathlib, sys
from tests.engine.test_process_claude import WORKTREE, claude_cli, door
root, key, url = sys.argv[1:]
door(pathlib.Path(root), url).call(claude_cli.spec("Work.", None, key=key, worktree=WORKTREE, idle_seconds=600))
"""


def test_when_we_are_killed_the_agent_is_gone_and_its_words_are_kept(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    key = fresh_key()
    with Endpoint(script) as endpoint:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path), key, endpoint.url],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        )
        wait_for(folder / "begun", within_seconds=60)
        wait_until_marked(key, 4)
        wait_for(spool_directory(tmp_path / ".mz" / "spool", key) / "stdout", '"Bash"')
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert not left(key, within_seconds=2)
        agents = door(tmp_path, endpoint.url)
    result = agents.salvage(key)
    assert result is not None
    assert (result.exit, result.problem) == (None, None)
    lines = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
    assert lines[0]["subtype"] == "init"
    assert agents.adapter("claude-code").parse_output(result).ending == "no-terminal"
