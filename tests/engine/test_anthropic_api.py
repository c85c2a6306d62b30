"""The adapter for the Anthropic API: what it starts, what it lets through, and what it finds out without a call."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mz_engine.agents.anthropic_api.adapter import AnthropicApi
from mz_engine.agents.registry import built_in_adapters, load_patterns

from tests.support.anthropic_cli import BIN, spec
from tests.support.programs import put_program

invocation = AnthropicApi(load_patterns()).invocation

ADAPTER = built_in_adapters()["anthropic"]
SESSION = "11111111-2222-4333-8444-555555555555"


def test_the_command_line() -> None:
    started = invocation(spec("do it", SESSION, tools=("read", "write")), {"PATH": str(BIN)})
    assert started.argv == (
        "mz-anthropic", "--model", "claude-sonnet-4-6", "--session", SESSION, "--tools=read,write", "--max-turns=200",
    )  # fmt: skip
    assert started.stdin == b"do it"
    assert started.env == {}


def test_a_session_is_continued() -> None:
    argv = invocation(spec("more", SESSION, resumes=True), {}).argv
    assert argv[argv.index("--resume") + 1] == SESSION
    assert "--session" not in argv


def test_what_passes_of_the_environment() -> None:
    outside = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "u", "GITHUB_TOKEN": "t", "PATH": str(BIN)}
    started = invocation(spec("x", None), outside)
    assert started.env == {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "u"}
    assert "k" not in started.argv


def test_it_is_found_beside_python_and_after_whatever_is_on_path(tmp_path: Path) -> None:
    """The directory of programs of an installed `mz` need not be on PATH; a stand-in on PATH comes first."""
    outside = {"PATH": f"{tmp_path}{os.pathsep}/usr/bin"}
    assert invocation(spec("x", None), outside).env == {"PATH": f"{outside['PATH']}{os.pathsep}{BIN}"}
    directory = put_program(tmp_path / "bin", "mz-anthropic", "echo 9.8.7")
    stood_in = {"PATH": f"{directory}{os.pathsep}/usr/bin", "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "k"}
    assert invocation(spec("x", None), stood_in).env == {"ANTHROPIC_API_KEY": "k"}
    assert ADAPTER.check_auth(stood_in).version == "9.8.7"


@pytest.mark.slow
def test_the_key_is_looked_for(tmp_path: Path) -> None:
    outside = {"PATH": "/usr/bin", "HOME": str(tmp_path)}
    lacking = ADAPTER.check_auth(outside)
    assert (lacking.code, lacking.message) == ("auth-missing", "the Anthropic API has no key")
    assert "ANTHROPIC_API_KEY" in lacking.fix
    assert lacking.version
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        check = ADAPTER.check_auth({**outside, name: "canary-key"})
        assert check.code == ""
        assert "canary" not in repr(check)
    assert ADAPTER.check_auth({**outside, "ANTHROPIC_API_KEY": ""}).code == "auth-missing"


@pytest.mark.parametrize("script", ["exit 1", "echo hello", "echo 2.1.0; exit 3", ":"])
def test_a_program_that_says_nothing_sensible(script: str, tmp_path: Path) -> None:
    outside = {
        "PATH": f"{put_program(tmp_path / 'bin', 'mz-anthropic', script)}:/usr/bin",
        "HOME": str(tmp_path),
        "ANTHROPIC_API_KEY": "k",
    }
    assert ADAPTER.check_auth(outside).code == "tool-missing"


def test_estimates_ask_nobody() -> None:
    assert ADAPTER.estimate_tokens("é𝛼") == 2


@pytest.mark.slow
def test_the_adapter_loads_nothing_heavy() -> None:
    """The package is for the program alone, which loads it once its first line is out."""
    code = "import sys, mz_engine.agents.registry, mz_engine.agents.anthropic_api.main as m; m.parse(['--model', 'm'])"
    lists = "print(*{'anthropic', 'httpx2', 'pydantic', 'platformdirs'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", f"{code}; {lists}"], capture_output=True, check=True)
    assert done.stdout.split() == []
