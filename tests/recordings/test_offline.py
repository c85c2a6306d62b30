"""Commands that are cut off from the network: what they may still do, and what the kernel tells of the rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mz_engine.processes.supervise import CapturedOutput, Launch, ProcessLimits, can_run_offline, supervise
from mz_recordings.replay.ports import ReplayFolders

CONNECT = 'import socket; socket.create_connection(("{}", 80), 2)'


def denied(code: str, offline: bool = True) -> tuple[int | None, int]:
    """Exit code, and how often the network was asked for."""
    environment = {"PATH": os.environ["PATH"], "MZ_KEY": f"offline-{os.getpid()}"}
    launch = Launch(argv=("python3", "-c", code), env=environment, cwd=Path("/"), offline=offline)
    ended = supervise(launch, ProcessLimits(total_seconds=20), CapturedOutput())
    return ended.exit, ended.denied_connections


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
@pytest.mark.slow
def test_an_attempt_fails_at_once_and_is_counted(address: str) -> None:
    code, times = denied(CONNECT.format(address))
    assert code == 1
    assert (times >= 1) == can_run_offline()


@pytest.mark.slow
def test_a_command_may_talk_to_itself() -> None:
    own = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
    assert denied(own) == (0, 0)


@pytest.mark.slow
def test_nothing_is_counted_of_a_command_that_is_not_cut_off() -> None:
    assert denied("pass", offline=False) == (0, 0)


def test_without_a_namespace_the_proxies_lead_nowhere(tmp_path: Path) -> None:
    outside = {"PATH": "/bin", "HOME": "/home/ada", "https_proxy": "http://proxy:3128", "NO_PROXY": "*", "TOKEN": "x"}
    scratch = ReplayFolders(tmp_path, outside, False, tmp_path)
    for environment in (scratch.command_environment, scratch.agent_environment):
        assert environment["https_proxy"] == environment["HTTP_PROXY"] == "http://127.0.0.1:9"
        assert environment["NO_PROXY"] == ""
    assert (scratch.command_environment["HOME"], scratch.agent_environment["HOME"]) == (
        "/home/ada",
        str(tmp_path / "home"),
    )
    assert "TOKEN" not in scratch.agent_environment
