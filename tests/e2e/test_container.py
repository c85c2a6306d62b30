"""Whole runs whose agents are in containers of an engine that a daemon serves."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from mz_engine.processes.supervise import best_level
from mz_recordings.cassette.repository import create_sample

from tests.cli.drive import MZ, spawn
from tests.cli.fakeagent import FakeAgent
from tests.support.fake_engine import IMAGE, FakeEngine
from tests.support.processes import eventually, is_alive

FEATURE = "group-thousands"
pytestmark = pytest.mark.slow


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    create_sample(tmp_path / "tally", os.environ)
    with (tmp_path / "tally" / "mz.yaml").open("a") as file:
        file.write(f"container: {{engine: podman, image: '{IMAGE}'}}\n")
    return tmp_path / "tally"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[FakeEngine]:
    with FakeEngine(tmp_path / "engine") as fake:
        yield fake


def environment(agent: FakeAgent, engine: FakeEngine) -> dict[str, str]:
    """The agent's program is in the image alone."""
    (engine.image / "claude").symlink_to(agent.bin / "claude")
    return {**agent.environment, "PATH": f"{engine.bin}:{os.environ['PATH']}"}


def test_a_run_calls_its_agent_in_containers_alone(tmp_path: Path, sample: Path, engine: FakeEngine) -> None:
    agent = FakeAgent(tmp_path / "agent", "idle")
    outside = environment(agent, engine)
    ran = spawn(sample, "run", "--feature", FEATURE, **outside)
    assert ran.exit == 21, ran
    calls = [request for request in engine.requests if request[0] == "run" and "claude" in request]
    worktree = calls[-1][calls[-1].index("-w") + 1]
    assert worktree.endswith(f"/{FEATURE}")
    assert sum(worktree in request for request in calls) == 3
    assert outside["ANTHROPIC_API_KEY"] not in str(engine.requests)
    assert engine.running == []
    shown = msgspec.json.decode(spawn(sample, "status", "--json").out)
    assert shown["isolation"] == ["container", best_level()]
    assert f"isolation\tcontainer, {best_level()}" in spawn(sample, "audit", "--full").out


def test_without_the_image_nothing_is_started(tmp_path: Path, sample: Path, engine: FakeEngine) -> None:
    outside = environment(FakeAgent(tmp_path / "agent", "idle"), engine)
    (sample / "mz.yaml").write_text((sample / "mz.yaml").read_text().replace(IMAGE, "other:2"))
    ran = spawn(sample, "run", "--feature", FEATURE, **outside)
    assert ran.exit == 11
    assert "MZ1004" in ran.err
    assert "podman starts no container of other:2: Error: image not known" in ran.err
    assert not (sample / ".mz" / "worktrees").exists()


def test_a_killed_run_leaves_no_container(tmp_path: Path, sample: Path, engine: FakeEngine) -> None:
    outside = environment(FakeAgent(tmp_path / "agent", "hang"), engine)
    running = subprocess.Popen(
        [*MZ, "run", "--feature", FEATURE],
        cwd=sample,
        env={**os.environ, **outside},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    eventually(lambda: any(FEATURE in str(request) for request in engine.requests) and engine.running)
    (pid,) = engine.running
    running.send_signal(signal.SIGKILL)
    running.wait()
    eventually(lambda: not engine.running and not is_alive(pid))
