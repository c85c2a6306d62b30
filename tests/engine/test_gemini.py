"""The adapter for `gemini`: what it starts, what it lets through, and what it finds out without calling a model."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.agents.contract import Invocation
from mz_engine.agents.gemini.adapter import TOOLS, Gemini, policy_file_name, policy_text
from mz_engine.agents.registry import built_in_adapters, load_patterns
from mz_engine.model.pipeline import Tool
from mz_engine.ports import CallResult, CallSpec

from tests.support import programs
from tests.support.gemini_cli import spec

invocation = Gemini(load_patterns()).invocation

ADAPTER = built_in_adapters()["gemini"]
SESSION = "11111111-2222-4333-8444-555555555555"


def test_the_command_line() -> None:
    started = invocation(spec("do it", SESSION, tools=("read", "write")), {})
    assert started.argv == (
        "gemini", "--output-format", "stream-json", "--model", "gemini-2.5-pro", "--skip-trust",
        "--approval-mode", "default", "--policy", f"~/.gemini/mz/{policy_file_name(policy_text(('write', 'read')))}",
        "--session-id", SESSION,
    )  # fmt: skip
    assert started.stdin == b"do it"


def test_a_session_is_continued() -> None:
    argv = invocation(spec("more", SESSION, resumes=True), {}).argv
    assert argv[-2:] == ("--resume", SESSION)
    assert "--session-id" not in argv


def test_what_passes_of_the_environment() -> None:
    outside = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": "u", "GITHUB_TOKEN": "t", "GEMINI_SANDBOX": "docker"}
    started = invocation(spec("x", None), outside)
    assert started.env["GEMINI_API_KEY"] == "k"
    assert started.env["GEMINI_TELEMETRY_ENABLED"] == "false"
    assert not {"GITHUB_TOKEN", "GEMINI_SANDBOX", "HOME"} & set(started.env)


# the prompt -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("@dataclass\nclass A: ...", "\\@dataclass\nclass A: ..."),
        ("see @README.md, @/etc/passwd", "see \\@README.md, \\@/etc/passwd"),
        ("ada@example.org", "ada\\@example.org"),
        ('@"a file"', '\\@"a file"'),
        ("@.env", "\\@.env"),
        ("\\@known", "\\@known"),
        ("at @ once, @. @, @(x) @", "at @ once, @. @, @(x) @"),
        ("/help me", "\n/help me"),
        ("a /help", "a /help"),
        ("", ""),
    ],
)
def test_a_prompt_is_words_and_nothing_else(prompt: str, sent: str) -> None:
    assert ADAPTER.format_prompt(prompt) == sent


@given(st.text("@\\/a .\n", max_size=30))
def test_a_prompt_that_was_made_harmless_stays_so(prompt: str) -> None:
    made = ADAPTER.format_prompt(prompt)
    assert ADAPTER.format_prompt(made) == made
    assert made.replace("\\@", "@").lstrip("\n") == prompt.replace("\\@", "@").lstrip("\n")


def test_a_prompt_of_any_size_and_script_goes_in() -> None:
    prompt = "é𝛼 " * 100_000
    assert invocation(spec(prompt, None), {}).stdin.decode() == prompt
    assert ADAPTER.estimate_tokens("é𝛼") == 2


def test_a_prompt_that_would_be_cut_off_is_refused() -> None:
    spawn = Started()
    reply = ADAPTER.parse_output(ADAPTER.run_call(spec("é" * 4_194_305, None), {}, spawn))
    assert reply.problem is not None
    assert reply.problem.code == "prompt-too-long"
    assert reply.problem_detail == "gemini takes prompts of up to 8 MiB"
    assert spawn.invocations == []


# the tools ------------------------------------------------------------------------------------------------------------
@given(st.sets(st.sampled_from(sorted(TOOLS))))
@pytest.mark.slow
def test_a_policy_allows_what_is_asked_for_and_no_more(tools: set[Tool]) -> None:
    rules = tomllib.loads(policy_text(tools))["rule"]
    texts = {name for tool in tools for name in TOOLS[tool]}
    for name in {name for names in TOOLS.values() for name in names} | {"web_fetch", "invoke_agent", "new_tool"}:
        fits = [rule for rule in rules if name in rule["toolName"] or rule["toolName"] == ["*"]]
        first = max(fits, key=lambda rule: rule["priority"])
        assert first["decision"] == ("allow" if name in texts else "deny")


def test_the_tool_that_loads_skills_is_allowed_in_a_call_that_is_given_some() -> None:
    def loads(text: str) -> list[str]:
        return [rule["decision"] for rule in tomllib.loads(text)["rule"] if "activate_skill" in rule["toolName"]]

    assert (loads(policy_text(("read",))), loads(policy_text(("read",), ".mz/skills/ab"))) == (["deny"], ["allow"])


def test_prohibitions_of_the_users_own_stand_above_what_is_allowed() -> None:
    allowed = [rule for rule in tomllib.loads(policy_text(("shell",)))["rule"] if rule["decision"] == "allow"]
    assert [rule["priority"] for rule in allowed] == [1]


class Started:
    """Notes what would be started."""

    def __init__(self) -> None:
        self.invocations: list[Invocation] = []

    def __call__(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        del spec
        self.invocations.append(invocation)
        return CallResult(stdout=b"", stderr=b"", exit=0, duration_ms=0)


@pytest.mark.parametrize("variable", ["HOME", "GEMINI_CLI_HOME"])
def test_the_policy_lies_where_the_command_line_says(tmp_path: Path, variable: str) -> None:
    spawn = Started()
    for _ in range(2):
        ADAPTER.run_call(spec("x", None, tools=("read",)), {"HOME": "/nowhere", variable: str(tmp_path)}, spawn)
    argv = spawn.invocations[0].argv
    path = Path(argv[argv.index("--policy") + 1].replace("~", str(tmp_path), 1))
    assert path.read_text() == policy_text(("read",))
    assert list(path.parent.iterdir()) == [path]
    assert not stat.S_IMODE(path.stat().st_mode) & 0o022


def test_a_policy_that_was_changed_is_mended(tmp_path: Path) -> None:
    spawn = Started()
    ADAPTER.run_call(spec("x", None, tools=()), {"HOME": str(tmp_path)}, spawn)
    (path,) = (tmp_path / ".gemini/mz").iterdir()
    path.write_text(policy_text(("read", "write", "shell")))
    ADAPTER.run_call(spec("x", None, tools=()), {"HOME": str(tmp_path)}, spawn)
    assert path.read_text() == policy_text(())


@pytest.mark.parametrize("home", ["", "/nowhere/at/all"])
def test_without_a_home_the_call_goes_on(home: str) -> None:
    spawn = Started()
    ADAPTER.run_call(spec("x", None), {"HOME": home}, spawn)
    assert len(spawn.invocations) == 1


def test_where_the_policy_cannot_be_written_the_call_goes_on(tmp_path: Path) -> None:
    (tmp_path / ".gemini").write_text("a file")
    spawn = Started()
    ADAPTER.run_call(spec("x", None), {"HOME": str(tmp_path)}, spawn)
    assert len(spawn.invocations) == 1


# the login ------------------------------------------------------------------------------------------------------------
def outside(tmp_path: Path, script: str = "echo 0.61.0", **more: str) -> dict[str, str]:
    return programs.outside(tmp_path, "gemini", script, **more)


def test_the_command_is_missing(tmp_path: Path) -> None:
    check = ADAPTER.check_auth({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert check.code == "tool-missing"
    assert "npm install -g @google/gemini-cli" in check.fix


@pytest.mark.parametrize("script", ["exit 1", "echo hello", "echo 0.61.0; exit 3", ":"])
def test_the_command_gives_no_version(tmp_path: Path, script: str) -> None:
    check = ADAPTER.check_auth(outside(tmp_path, script, GEMINI_API_KEY="k"))
    assert (check.code, check.version) == ("tool-missing", "")


def test_nobody_is_logged_in(tmp_path: Path) -> None:
    check = ADAPTER.check_auth(outside(tmp_path))
    assert (check.code, check.version) == ("auth-missing", "0.61.0")


@pytest.mark.parametrize("name", ["GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"])
def test_a_key_is_a_login(tmp_path: Path, name: str) -> None:
    check = ADAPTER.check_auth(outside(tmp_path, **{name: "tell-nobody"}))
    assert check.code == ""
    assert "tell-nobody" not in repr(check)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".gemini/oauth_creds.json", "{}"),
        (".gemini/gemini-credentials.json", "encrypted"),
        (".gemini/google_accounts.json", json.dumps({"active": "ada@example.org", "old": []})),
        (".gemini/.env", "# mine\nexport GEMINI_API_KEY=tell-nobody\n"),
        (".env", "GEMINI_API_KEY = tell-nobody"),
    ],
)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_login_in_home(tmp_path: Path, file: str, text: str, elsewhere: bool) -> None:
    home = tmp_path / "elsewhere" if elsewhere else tmp_path
    path = home / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    more = {"GEMINI_CLI_HOME": str(home)} if elsewhere else {}
    assert ADAPTER.check_auth(outside(tmp_path, **more)).code == ""


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".gemini/google_accounts.json", "{"),
        (".gemini/google_accounts.json", "[1]"),
        (".gemini/google_accounts.json", json.dumps({"active": None, "old": ["ada@example.org"]})),
        (".gemini/.env", "# GEMINI_API_KEY=old\nGEMINI_API_KEY=\nOTHER=x\n"),
        (".gemini/settings.json", "{}"),
    ],
)
def test_what_is_no_login(tmp_path: Path, file: str, text: str) -> None:
    path = tmp_path / file
    path.parent.mkdir()
    path.write_text(text)
    assert ADAPTER.check_auth(outside(tmp_path)).code == "auth-missing"
