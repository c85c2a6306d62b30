"""Adapter for Anthropic's `claude` command line (Claude Code), headless."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from mz_engine.agents.claude_code.stream import read_stream
from mz_engine.agents.contract import AuthCheck, Capabilities, Invocation, ObjectObserver, ReportedFields
from mz_engine.agents.process import ProgramAdapter, require_login
from mz_engine.agents.version_query import check_tool
from mz_engine.model.pipeline import Tool
from mz_engine.ports import CallResult, CallSpec, ParsedReply

COMMAND = "claude"
INSTALL = "install Claude Code (npm install -g @anthropic-ai/claude-code)"

TOOLS: Mapping[Tool, tuple[str, ...]] = {
    "read": ("Read", "Glob", "Grep"),
    "write": ("Write", "Edit"),
    "shell": ("Bash",),
}
"""Names of this CLI's tools. `acceptEdits` allows file tools within the worktree; allowing them by name would open the
whole machine. The shell must be allowed by name."""

SETTINGS: Mapping[str, str] = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "2",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
}
"""The default of ten retries takes minutes; the engine waits instead, and frees the slot."""

PASSED_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_BEDROCK_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_VERTEX_BASE_URL",
    "ANTHROPIC_VERTEX_PROJECT_ID",
    "AWS_ACCESS_KEY_ID",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CONFIG_DIR",
    "CLOUD_ML_REGION",
    "GOOGLE_APPLICATION_CREDENTIALS",
)

KEY_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
)


REPORTED_FIELDS = (
    ReportedFields(
        model=True, requests=True, money=True, thoughts=False, session=True, cache_writes="total",
        evidence="constructed",
    ),
    ReportedFields(
        since="2.0.14", model=True, requests=True, money=True, thoughts=False, session=True,
        cache_writes="by lifetime", evidence="constructed",
    ),
    ReportedFields(
        since="2.1.197", model=True, requests=False, money=True, thoughts=False, session=True,
        cache_writes="by lifetime", evidence="recorded",
    ),
)  # fmt: skip


class ClaudeCode(ProgramAdapter):
    """Reference adapter: reports exact tokens and money, and continues sessions."""

    name = "claude-code"
    parser = "claude-code/1"
    passed_variables = PASSED_VARIABLES
    set_variables = SETTINGS

    def capabilities(self) -> Capabilities:
        return Capabilities(
            agent=self.name,
            sessions=True,
            streaming=True,
            token_counting="exact",
            reports_money=True,
            reported_fields=REPORTED_FIELDS,
            tools=tuple(TOOLS),
            models={"cheap": "claude-haiku-4-5", "mid": "claude-sonnet-4-6", "premium": "claude-opus-4-8"},
            auth=("a login by `claude` then `/login`", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
        )

    def check_auth(self, environment: Mapping[str, str]) -> AuthCheck:
        """Look for the command, its version and a key or a login file."""
        check = check_tool(COMMAND, environment, SETTINGS, INSTALL)
        return require_login(
            check,
            _has_login(environment),
            "`claude` has neither a login nor a key",
            "run `claude` once and log in, or set ANTHROPIC_API_KEY",
        )

    def parse_output(self, result: CallResult, watch: ObjectObserver | None = None) -> ParsedReply:
        return read_stream(result, self.parser, self._patterns, watch)

    def invocation(self, spec: CallSpec, environment: Mapping[str, str]) -> Invocation:
        """Build the process to run; the prompt goes to stdin, which takes any size."""
        tools = tuple(name for tool in TOOLS if tool in spec.tools for name in TOOLS[tool])
        argv = [COMMAND, "-p", "--output-format", "stream-json", "--verbose", "--model", spec.model]
        if spec.session is not None:
            argv += ["--resume" if spec.resumes else "--session-id", spec.session]
        argv += ["--permission-mode", "acceptEdits", f"--tools={','.join(tools)}"]
        if "shell" in spec.tools:
            argv.append(f"--allowedTools={','.join(TOOLS['shell'])}")
        return Invocation(argv=tuple(argv), stdin=spec.prompt.encode(), env=self.call_environment(environment))


def _has_login(environment: Mapping[str, str]) -> bool:
    if any(environment.get(name) for name in KEY_VARIABLES):
        return True
    home = Path(environment.get("HOME", "/nonexistent"))
    settings = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    if (settings / ".credentials.json").is_file():
        return True
    account = (settings if "CLAUDE_CONFIG_DIR" in environment else home) / ".claude.json"
    return _has_account(account) or _has_key_helper(settings / "settings.json")


def _has_account(path: Path) -> bool:
    """Return True if the file names an account, also when the secret itself is in the system's keychain."""
    return bool(_top_level_keys(path) & {"oauthAccount", "primaryApiKey"})


def _has_key_helper(path: Path) -> bool:
    return "apiKeyHelper" in _top_level_keys(path)


def _top_level_keys(path: Path) -> frozenset[str]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return frozenset()
    return frozenset(content) if isinstance(content, dict) else frozenset()
