"""The real program `mz-anthropic` as a process, against a scripted model endpoint on loopback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from mz_engine.agents.anthropic_api.adapter import AnthropicApi
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import built_in_adapters, load_patterns
from mz_events.redaction.redactor import Secrets

from tests.support.anthropic_cases import ANTHROPIC
from tests.support.anthropic_cli import BIN, environment, spec
from tests.support.endpoint import Answer, Endpoint, Hang, Reply, Request

invocation = AnthropicApi(load_patterns()).invocation

pytestmark = pytest.mark.slow

ADAPTER = built_in_adapters()["anthropic"]


def test_it_works_to_its_end(tmp_path: Path) -> None:
    """All other ends are the loop's, which has tests of its own, but for signals."""
    result, endpoint = ANTHROPIC.drive("works", tmp_path)
    reply = ADAPTER.parse_output(result)
    assert endpoint.complaints == []
    assert (reply.ending, reply.problem, result.exit, result.stderr) == ("success", None, 0, b"")


TORN = """
import os, signal
from mz_engine.agents.anthropic_api import main
from mz_engine.agents.anthropic_api.model import Terminated

class Client:
    def __init__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        self.open = True
    def __del__(self):
        assert self.open

signal.signal(signal.SIGTERM, main._stop)
try:
    Client()
except Terminated:
    print("stopped")
"""


def test_what_a_signal_tears_in_the_middle_says_nothing() -> None:
    process = subprocess.run([sys.executable, "-c", TORN], check=True, capture_output=True)
    assert (process.stdout, process.stderr) == (b"stopped\n", b"")


def test_the_stored_streams_are_of_the_installed_package(tmp_path: Path) -> None:
    """Else `python -m tests.support.agent_cases anthropic` writes them anew."""
    version = ADAPTER.check_auth(environment(tmp_path, "http://127.0.0.1:1")).version
    assert json.loads(ANTHROPIC.stored("works").stdout.splitlines()[0])["version"] == version


def test_a_signal_ends_a_command_too(tmp_path: Path) -> None:
    """And the conversation up to there is kept."""
    (tmp_path / "home").mkdir()
    started = threading.Event()

    def runs(request: Request) -> Answer:
        started.set()
        return Reply("", (request.run("touch running; exec sleep 63.5"),))

    with Endpoint(runs) as endpoint:
        texts = environment(tmp_path / "home", endpoint.url)
        call = invocation(spec("x", "s-1"), texts)
        process = subprocess.Popen(
            [BIN / "mz-anthropic", *call.argv[1:]],
            cwd=tmp_path, env=texts, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(call.stdin)
        process.stdin.close()
        assert started.wait(60)
        while not (tmp_path / "running").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.stdin = None
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, b"")
    assert json.loads(out.splitlines()[-1])["error"]["kind"] == "terminated"
    assert b"sleep\x0063.5" not in b"".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline"))


def test_the_engine_runs_it_and_takes_the_key_out(tmp_path: Path) -> None:
    """Through the engine's own process handling, in a worktree, with a model that repeats a secret; nothing but the
    system's programs is on PATH."""
    (tmp_path / "home").mkdir()
    call = spec("x", None)
    (tmp_path / "project" / ".mz" / "worktrees" / call.worktree.run / call.worktree.feature).mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(tmp_path / "project")], check=True)
    with Endpoint(lambda _: Reply("The key is canary-of-a-key.")) as endpoint:
        texts = {**environment(tmp_path / "home", endpoint.url), "PATH": "/usr/bin:/bin"}
        texts["ANTHROPIC_API_KEY"] = "canary-of-a-key"
        processes = AgentProcesses(tmp_path / "project", texts, Secrets({"ANTHROPIC_API_KEY": "canary-of-a-key"}))
        result = ADAPTER.run_call(call, texts, processes.spawn)
        headers = {name.lower(): value for name, value in endpoint.requests[0].headers.items()}
    reply = ADAPTER.parse_output(result)
    assert reply.ending == "success"
    assert headers["authorization"] == "Bearer canary-of-a-key"
    assert b"canary-of-a-key" not in result.stdout + result.stderr


def test_a_call_that_hangs_is_ended_by_its_limit(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    call = spec("x", None, idle_seconds=3)
    (tmp_path / ".mz" / "worktrees" / call.worktree.run / call.worktree.feature).mkdir(parents=True)
    with Endpoint(lambda _: Hang()) as endpoint:
        texts = environment(tmp_path / "home", endpoint.url)
        result = ADAPTER.run_call(call, texts, AgentProcesses(tmp_path, texts, Secrets({})).spawn)
    reply = ADAPTER.parse_output(result)
    assert reply.problem is not None
    assert reply.problem.code == "idle"


def test_nobody_listens(tmp_path: Path) -> None:
    """Its reader gone, it ends without a complaint."""
    done = subprocess.run(
        f"{BIN}/mz-anthropic --model m < /dev/null | true; echo ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
