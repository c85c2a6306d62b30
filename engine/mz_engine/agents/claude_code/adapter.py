"""Adapter for Anthropic's `claude` command line (Claude Code), headless."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from mz_engine.agents.claude_code.stream import StreamReader
from mz_engine.agents.contract import Adapter, Capabilities, Invocation, ReportedFields, load_object, names_endpoint
from mz_engine.agents.package import names
from mz_engine.agents.reading.call import ObjectObserver, parsed_reply
from mz_engine.agents.reading.json_lines import mapping
from mz_engine.decoding.quantity import Usd
from mz_engine.model.pipeline import Tool
from mz_engine.ports import CallResult, CallSpec, ParsedReply

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

ACCOUNT = names("""
    autoUpdates customApiKeyResponses env hasCompletedOnboarding installMethod lastOnboardingVersion mcpServers
    oauthAccount primaryApiKey userID
""")
"""Of the file that also has the prompts and paths of all projects."""


class ClaudeCode(Adapter):
    """Reference adapter: reports exact tokens and money, and continues sessions."""

    name = "claude-code"
    parser = "claude-code/1"
    reader = StreamReader
    features = Capabilities(
        reported_fields=(
            ReportedFields(model=True, requests=True, money=True, session=True, cache_writes="total"),
            ReportedFields(
                since="2.0.14", model=True, requests=True, money=True, session=True, cache_writes="by lifetime"
            ),
            ReportedFields(
                since="2.1.197", model=True, money=True, session=True, cache_writes="by lifetime", evidence="recorded"
            ),
        ),
        skills="{call}/.claude/skills",
        models={"cheap": "claude-haiku-4-5", "mid": "claude-sonnet-4-6", "premium": "claude-opus-4-8"},
        auth=("a login by `claude` then `/login`", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
    )
    command = "claude"
    install = "install Claude Code (npm install -g @anthropic-ai/claude-code)"
    login_fix = "run `claude` once and log in, or set ANTHROPIC_API_KEY"
    key_variables = names("""
        ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN CLAUDE_CODE_OAUTH_TOKEN CLAUDE_CODE_USE_BEDROCK CLAUDE_CODE_USE_VERTEX
    """)
    passed_variables = key_variables + names("""
        ANTHROPIC_BASE_URL ANTHROPIC_BEDROCK_BASE_URL ANTHROPIC_CUSTOM_HEADERS ANTHROPIC_VERTEX_BASE_URL
        ANTHROPIC_VERTEX_PROJECT_ID AWS_ACCESS_KEY_ID AWS_BEARER_TOKEN_BEDROCK AWS_PROFILE AWS_REGION
        AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN CLAUDE_CONFIG_DIR CLOUD_ML_REGION GOOGLE_APPLICATION_CREDENTIALS
    """)
    set_variables = SETTINGS
    folders = (".claude", "$CLAUDE_CONFIG_DIR")
    conversations = tuple(
        f"{folder}/{name}" for folder in folders
        for name in names("""
            backups debug file-history history.jsonl paste-cache plans projects session-env shell-snapshots tasks todos
        """)
    )  # fmt: skip
    logins = (".claude/.credentials.json", "$CLAUDE_CONFIG_DIR/.credentials.json")
    shares_logins = True
    files = dict.fromkeys((".claude.json", "$CLAUDE_CONFIG_DIR/.claude.json"), ACCOUNT)

    def has_login(self, environment: Mapping[str, str]) -> bool:
        """Look for a key, a login file, or a file that names an account, whose secret may be in the system's keychain,
        or a program for the key."""
        if super().has_login(environment):
            return True
        home, settings = _home(environment), _settings_folder(environment)
        account = (settings if "CLAUDE_CONFIG_DIR" in environment else home) / ".claude.json"
        return (
            (settings / ".credentials.json").is_file()
            or bool(load_object(account).keys() & {"oauthAccount", "primaryApiKey"})
            or "apiKeyHelper" in load_object(settings / "settings.json")
        )

    def has_own_endpoint(self, environment: Mapping[str, str]) -> bool:
        """Look at the variables, and at those that the user's settings file sets."""
        variables = load_object(_settings_folder(environment) / "settings.json").get("env")
        return super().has_own_endpoint(environment) or names_endpoint(mapping(variables))

    def parse_output(self, result: CallResult, watch: ObjectObserver | None = None) -> ParsedReply:
        output = self.read_output(result, watch)
        reply = parsed_reply(output, result, self.parser, self._patterns)
        has_totals = bool(output.end and (output.end.turn_usage or output.totals()))
        # The lines of requests report output at its start.
        is_incomplete = output.ending == "error" and bool(output.requests) and not has_totals
        return replace(reply, usage_incomplete=is_incomplete)

    def invocation(self, spec: CallSpec, environment: Mapping[str, str]) -> Invocation:
        """Build the process to run; the prompt goes to stdin, which takes any size."""
        tools = [name for tool in TOOLS if tool in spec.tools for name in TOOLS[tool]] + ["Skill"] * bool(spec.skills)
        argv = [self.command, "-p", "--output-format", "stream-json", "--verbose", "--model", spec.model]
        if spec.session is not None:
            argv += ["--resume" if spec.resumes else "--session-id", spec.session]
        if spec.nanousd_max is not None:
            argv += ["--max-budget-usd", Usd(spec.nanousd_max).format()]
        argv += ["--permission-mode", "acceptEdits", f"--tools={','.join(tools)}"]
        if "shell" in spec.tools:
            argv.append(f"--allowedTools={','.join(TOOLS['shell'])}")
        if spec.skills:
            argv.append(f"--add-dir={spec.skills}")
        return Invocation(argv=tuple(argv), stdin=spec.prompt.encode(), env=self.call_environment(environment))


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME", "/nonexistent"))


def _settings_folder(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("CLAUDE_CONFIG_DIR") or _home(environment) / ".claude")
