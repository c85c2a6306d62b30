"""Adapter for OpenAI's `codex` command line, headless (`codex exec`)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from mz_engine.agents.codex.stream import StreamReader
from mz_engine.agents.contract import Adapter, AuthCheck, Capabilities, Invocation, OwnPaths, ReportedFields
from mz_engine.agents.package import names
from mz_engine.ports import CallSpec

VERSION_MIN = (0, 169)
"""Older versions reject some of the settings."""

SETTINGS: Mapping[str, str] = {
    "agents.enabled": "false",
    "analytics.enabled": "false",
    "approval_policy": '"never"',
    "check_for_update_on_startup": "false",
    "features.apps": "false",
    "features.plugins": "false",
    "features.unbounded_connection_retries": "false",
    "sandbox_workspace_write.exclude_slash_tmp": "true",
    "web_search": '"disabled"',
}
"""No approvals, telemetry, update checks or web search. No sub-agents, since the stream lacks their tokens. No endless
reconnects. Of folders for temporary files, commands may write only to TMPDIR, which must not be /tmp then: while they
run, codex's sandbox puts an empty `.git` into each writable directory, and leaves it there when killed."""

DATABASES = "mz-databases"
"""Folder of its databases beside the sessions, which it makes from those: an overlay would copy those of the user."""
NO_SHELL = "features.shell_tool=false"
"""Without the shell tool the model cannot read files either."""


class Codex(Adapter):
    """Reports tokens and continues threads; reports neither money nor the model's name, so the requested model is
    assumed to have replied."""

    name = "codex"
    parser = "codex/1"
    reader = StreamReader
    features = Capabilities(
        reported_fields=(
            ReportedFields(session=True),
            ReportedFields(since="0.130.0", thoughts=True, session=True),
            ReportedFields(since="0.169.0", thoughts=True, session=True, cache_writes="total", evidence="recorded"),
        ),
        skills=".agents/skills",
        models={"cheap": "gpt-6-luna", "mid": "gpt-6.1-sol", "premium": "gpt-6-astra"},
        auth=("a login by `codex login`", "CODEX_API_KEY", "a provider of your own in ~/.codex/config.toml"),
    )
    command = "codex"
    install = "install Codex (npm install -g @openai/codex)"
    login_fix = "run `codex login`, or set CODEX_API_KEY (it does not read OPENAI_API_KEY)"
    key_variables = ("CODEX_API_KEY", "CODEX_ACCESS_TOKEN")
    passed_variables = names("""
        AWS_ACCESS_KEY_ID AWS_BEARER_TOKEN_BEDROCK AWS_PROFILE AWS_REGION AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
        AZURE_OPENAI_API_KEY CODEX_ACCESS_TOKEN CODEX_API_KEY CODEX_HOME CODEX_SQLITE_HOME OPENAI_API_KEY
        OPENAI_ORGANIZATION OPENAI_PROJECT
    """)
    """A custom provider may need another for its key: `pass_environment` in mz.yaml passes it."""
    folders = (".codex", "$CODEX_HOME")
    conversations, logins = (
        tuple(f"{folder}/{name}" for folder in (".codex", "$CODEX_HOME") for name in kept)
        for kept in (
            names(f"archived_sessions history.jsonl memories {DATABASES} sessions shell_snapshots tmp"),
            ("auth.json",),
        )
    )

    def own_paths(self, environment: Mapping[str, str]) -> OwnPaths:
        """Codex takes the system's bubblewrap if there is one. It cannot mount `/proc` in mz's sandbox, and of recent
        versions Codex does not understand the message; its own bubblewrap works."""
        own, system = super().own_paths(environment), shutil.which("bwrap", path=environment.get("PATH", ""))
        return replace(own, empty_files=(*own.empty_files, Path(system).resolve())) if system else own

    def check_auth(self, environment: Mapping[str, str]) -> AuthCheck:
        """Look for the program, a version that takes the settings, and a login."""
        check = super().check_auth(environment)
        if check.version and tuple(map(int, check.version.split(".")[:2])) < VERSION_MIN:
            message = f"`codex` has version {check.version}; mz needs {VERSION_MIN[0]}.{VERSION_MIN[1]} or newer"
            return AuthCheck(code="tool-missing", message=message, fix=f"{self.install} again", version=check.version)
        return check

    def has_login(self, environment: Mapping[str, str]) -> bool:
        """Look for a key, a login file, or a provider other than OpenAI, which has a login of its own."""
        home = _settings_folder(environment)
        return super().has_login(environment) or (home / "auth.json").is_file() or _has_own_provider(home)

    def has_own_endpoint(self, environment: Mapping[str, str]) -> bool:
        return super().has_own_endpoint(environment) or _has_own_provider(_settings_folder(environment))

    def invocation(self, spec: CallSpec, environment: Mapping[str, str]) -> Invocation:
        """Build the process to run; the prompt goes to stdin. Codex names a new thread itself: `spec.session` is used
        only if the call continues one."""
        # Shell commands may write too (tests leave files behind); the engine reverts forbidden changes.
        sandbox = "workspace-write" if {"write", "shell"} & set(spec.tools) else "read-only"
        argv = [self.command, "exec", "--json", "--skip-git-repo-check", "-m", spec.model, "-s", sandbox]
        for name, value in SETTINGS.items():
            argv += ["-c", f"{name}={value}"]
        if not spec.tools:
            argv += ["-c", NO_SHELL]
        if spec.resumes and spec.session is not None:
            argv += ["resume", spec.session]
        env = {**self.call_environment(environment), "TMPDIR": "/var/tmp"}
        if not self.container:
            env["CODEX_SQLITE_HOME"] = str(_settings_folder(environment) / DATABASES)
        return Invocation(argv=(*argv, "-"), stdin=spec.prompt.encode(), env=env)


def _settings_folder(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("CODEX_HOME") or Path(environment.get("HOME", "/nonexistent")) / ".codex")


def _has_own_provider(home: Path) -> bool:
    import tomllib

    try:
        settings = tomllib.loads((home / "config.toml").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return bool(settings.get("model_provider", "openai") != "openai")
