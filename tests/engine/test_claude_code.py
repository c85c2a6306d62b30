"""The adapter for `claude`: what it starts, what it lets through, and what it finds out without calling a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.agents.claude_code.adapter import ClaudeCode
from mz_engine.agents.registry import AgentRegistry, UnknownAgent, built_in_adapters, load_patterns
from mz_engine.ports import CallResult, CallSpec

from tests.support import programs
from tests.support.claude_cli import spec

invocation = ClaudeCode(load_patterns()).invocation

ADAPTER = built_in_adapters()["claude-code"]
SESSION = "11111111-2222-4333-8444-555555555555"


def test_the_command_line() -> None:
    started = invocation(spec("do it", SESSION, tools=("read", "write")), {})
    assert started.argv == (
        "claude", "-p", "--output-format", "stream-json", "--verbose", "--model", "claude-sonnet-4-6",
        "--session-id", SESSION, "--permission-mode", "acceptEdits", "--tools=Read,Glob,Grep,Write,Edit",
    )  # fmt: skip
    assert started.stdin == b"do it"


def test_a_budget_is_the_programs_own_limit() -> None:
    argv = invocation(replace(spec("x", None), nanousd_max=1_250_000_000), {}).argv
    assert argv[argv.index("--max-budget-usd") + 1] == "1.25"
    assert "--max-budget-usd" not in invocation(spec("x", None), {}).argv


def test_a_session_is_continued() -> None:
    argv = invocation(spec("more", SESSION, resumes=True), {}).argv
    assert argv[argv.index("--resume") + 1] == SESSION
    assert "--session-id" not in argv


def test_only_a_shell_is_allowed_by_name() -> None:
    argv = invocation(spec("x", None, tools=("shell", "read")), {}).argv
    assert argv[-2:] == ("--tools=Read,Glob,Grep,Bash", "--allowedTools=Bash")


def test_skills_are_loaded_from_their_folder() -> None:
    argv = invocation(spec("x", None, tools=("read",), skills=".mz/skills/ab"), {}).argv
    assert argv[-2:] == ("--tools=Read,Glob,Grep,Skill", "--add-dir=.mz/skills/ab")


def test_without_tools_it_has_none() -> None:
    assert invocation(spec("x", None, tools=()), {}).argv[-1] == "--tools="


def test_what_passes_of_the_environment() -> None:
    outside = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "u", "GITHUB_TOKEN": "t", "HOME": "/h"}
    started = invocation(spec("x", None), outside)
    assert started.env["ANTHROPIC_API_KEY"] == "k"
    assert started.env["DISABLE_AUTOUPDATER"] == "1"
    assert int(started.env["CLAUDE_CODE_MAX_RETRIES"]) < 5
    assert "GITHUB_TOKEN" not in started.env
    assert not any("k" in word.split("=") for word in started.argv)


def test_a_prompt_of_any_size_and_script_goes_in() -> None:
    prompt = "é𝛼 " * 100_000
    assert invocation(spec(prompt, None), {}).stdin.decode() == prompt
    assert ADAPTER.estimate_tokens("é𝛼") == 2
    assert ADAPTER.estimate_tokens("") == 0


def outside(tmp_path: Path, script: str, **more: str) -> dict[str, str]:
    return programs.outside(tmp_path, "claude", script, **more)


def test_the_command_is_missing(tmp_path: Path) -> None:
    check = ADAPTER.check_auth({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert check.code == "tool-missing"
    assert "npm install" in check.fix


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 1", "exit 1; it printed nothing"),
        ("echo hello; echo more", "exit 0; it printed: hello"),
        ("echo 2.1.0; exit 3", "exit 3; it printed: 2.1.0"),
        ("echo no such module >&2; kill -9 $$", "signal 9; it printed: no such module"),
        ("echo the key is tell-nobody", "exit 0; it printed: the key is <redacted>"),
        ("echo y; sleep 0.3; exec yes", "stopped: it printed more than 10,000 bytes; it printed: y"),
        (":", "exit 0; it printed nothing"),
    ],
)
def test_the_command_gives_no_version(tmp_path: Path, script: str, why: str) -> None:
    check = ADAPTER.check_auth(outside(tmp_path, script, ANTHROPIC_API_KEY="tell-nobody"))
    assert (check.code, check.version) == ("tool-missing", "")
    assert check.message == f"{tmp_path}/bin/claude --version printed no version ({why})"


def test_the_command_cannot_be_executed(tmp_path: Path) -> None:
    (programs.put_program(tmp_path, "claude", "") / "claude").write_text("#!/no/such/interpreter\n")
    check = ADAPTER.check_auth({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert check.message.endswith("(" + f"{tmp_path}/claude: No such file or directory; it printed nothing)")


def test_nobody_is_logged_in(tmp_path: Path) -> None:
    check = ADAPTER.check_auth(outside(tmp_path, "echo '2.1.197 (Claude Code)'"))
    assert (check.code, check.version) == ("auth-missing", "2.1.197")


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK"])
def test_a_key_is_a_login(tmp_path: Path, name: str) -> None:
    check = ADAPTER.check_auth(outside(tmp_path, "echo 2.1.197", **{name: "tell-nobody"}))
    assert check.code == ""
    assert "tell-nobody" not in repr(check)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (".claude/.credentials.json", {"claudeAiOauth": {}}),
        (".claude.json", {"oauthAccount": {}}),
        (".claude/settings.json", {"apiKeyHelper": "x"}),
    ],
)
def test_a_login_in_home(tmp_path: Path, file: str, content: object) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    assert ADAPTER.check_auth(outside(tmp_path, "echo 2.1.197")).code == ""


def test_a_login_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere"
    path.mkdir()
    (path / ".claude.json").write_text('{"oauthAccount": {}}')
    assert ADAPTER.check_auth(outside(tmp_path, "echo 2.1.197", CLAUDE_CONFIG_DIR=str(path))).code == ""


def test_a_broken_login_file_is_none(tmp_path: Path) -> None:
    (tmp_path / ".claude.json").write_text("{")
    assert ADAPTER.check_auth(outside(tmp_path, "echo 2.1.197")).code == "auth-missing"


class Nowhere:
    """Processes that end at once."""

    def __init__(self) -> None:
        self.versions: list[str] = []

    def spawn(self, spec: CallSpec, invocation: object) -> CallResult:
        self.versions.append(spec.version)
        return CallResult(stdout=b"", stderr=b"", exit=0, duration_ms=0)

    query = spawn

    def salvage(self, key: str) -> CallResult | None:
        return None


def test_the_door(tmp_path: Path) -> None:
    processes = Nowhere()
    door = AgentRegistry(processes, outside(tmp_path, "echo 2.1.197", ANTHROPIC_API_KEY="k"))
    result = door.call(spec("x", None))
    assert result.version == "2.1.197"
    assert door.call(spec("x", None)) == result
    assert processes.versions == ["", "2.1.197"], "what the command says is asked after the first call"
    assert door.check_auth("claude-code").version == "2.1.197"
    assert door.adapter("claude-code").parse_output(result).ending == "no-terminal"
    assert door.adapter("claude-code").capabilities().models["cheap"].startswith("claude-haiku")
    assert door.salvage("k") is None
    assert door.count_tokens(spec("x", None)) is None, "its command line cannot say"


def test_an_unknown_agent_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownAgent, match=r"known agents: .*claude-code"):
        AgentRegistry(Nowhere(), {}).check_auth("claud")
