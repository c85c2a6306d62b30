"""Adapter for Google's `gemini` command line (Gemini CLI), headless.

Flags and variables configure it, since its settings files belong to the user or an administrator. Only the policy that
names the call's tools must be a file; it is below HOME beside the CLI's data, so its name is the same on every machine.

Policy file for Gemini CLI that allows a call only its phase's tools.

Of the rules that match a tool, the one with the highest priority decides; a denied tool is not offered to the model.
These rules are of the user's tier, so an administrator's rules override them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from mz_events.catalog.call import Problem, ProblemClass

from mz_engine.agents.contract import Adapter, Capabilities, Invocation, ReportedFields, Spawn, load_object
from mz_engine.agents.gemini.stream import StreamReader
from mz_engine.agents.package import names
from mz_engine.agents.reading.call import ObjectObserver, parsed_reply
from mz_engine.agents.reading.json_lines import stderr_tail
from mz_engine.model.pipeline import Tool
from mz_engine.ports import CallResult, CallSpec, ParsedReply

TOOLS: Mapping[Tool, tuple[str, ...]] = {
    "read": ("glob", "grep_search", "list_directory", "read_file", "read_many_files"),
    "write": ("replace", "write_file"),
    "shell": ("run_shell_command",),
}
"""Names of this CLI's tools; file tools work within the worktree only."""

SKILL_TOOL = "activate_skill"
OTHER_TOOLS = names("""
    ask_user enter_plan_mode exit_plan_mode get_internal_docs google_web_search invoke_agent
    list_background_processes list_mcp_resources read_background_output read_mcp_resource update_topic web_fetch
    write_todos
""")
"""The CLI's other built-in tools (0.61)."""

PRIORITY_LAST, PRIORITY_LOW, PRIORITY_FIRST = 0, 1, 999
DIGEST_DIGITS = 8


def policy_text(tools: Iterable[Tool], skills: str = "") -> str:
    """Return the policy as TOML.

    Known tools that are not requested are denied with the highest priority. Requested tools are allowed with a low one,
    so that prohibitions in the user's own policies still hold. Any other tool, such as one of a later version, is
    denied unless a policy of the user allows it."""
    requested = frozenset(tools)
    allowed = sorted([*(name for tool in requested for name in TOOLS[tool]), *[SKILL_TOOL] * bool(skills)])
    denied = sorted({SKILL_TOOL, *OTHER_TOOLS, *(name for names in TOOLS.values() for name in names)} - set(allowed))
    rules = [_rule(["*"], "deny", PRIORITY_LAST), _rule(denied, "deny", PRIORITY_FIRST)]
    if allowed:
        rules.append(_rule(allowed, "allow", PRIORITY_LOW) + "allowRedirection = true\n")
    return "\n".join(rules)


def policy_file_name(text: str) -> str:
    """Return a file name that depends on the policy's text."""
    return f"{hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]}.toml"


def _rule(names: list[str], decision: str, priority: int) -> str:
    return f'[[rule]]\ntoolName = {json.dumps(names)}\ndecision = "{decision}"\npriority = {priority}\n'


DATA_FOLDER = ".gemini"
POLICY_FOLDER = f"{DATA_FOLDER}/mz"

FILE_REFERENCE = re.compile(r"(?<!\\)@(?=[^ \t\n\r,;!?()\[\]{}.]|\.(?!\Z|[ \t\n\r]))")
"""An at sign that the CLI treats as the start of a file name."""

PROMPT_BYTES_MAX = 8 * 1024 * 1024
"""The CLI cuts off longer prompts, with a warning on standard error only."""
TOO_LONG_MESSAGE = b"gemini takes prompts of up to 8 MiB"
PROMPT_TOO_LONG = Problem(kind=ProblemClass.PHASE, code="prompt-too-long")

LOGIN_FILES = ("oauth_creds.json", "gemini-credentials.json")
KEY_LINE = re.compile(r"^[ \t]*(?:export +)?(?:GEMINI_API_KEY|GOOGLE_GENAI_USE_\w+)[ \t]*=[ \t]*\S", re.MULTILINE)

STOP_REASONS_BY_EXIT = {
    41: "exit_authentication",
    42: "exit_input",
    44: "exit_sandbox",
    52: "exit_configuration",
    53: "exit_turns",
    55: "exit_untrusted",
}
"""Stop reasons by the CLI's exit code. An API status appears here modulo 256, so it is read from the messages
instead."""
_STARTUP_NOISE = re.compile(r"^(?:Warning: 256-color support|Ripgrep is not available|\[STARTUP\]).*\n?", re.MULTILINE)
"""Lines on standard error at every start without a terminal."""
_STATUS = re.compile(r'"code"\s*:\s*([45]\d\d)\b')
_STATUS_REPORTED = re.compile(r"^\s+(?:status|code): ([45]\d\d)\b", re.MULTILINE)
_WAIT = re.compile(r"\bretry in (\d{1,7}(?:\.\d{1,9})?)s\b", re.IGNORECASE)


class Gemini(Adapter):
    """Reports exact tokens per model, no money; continues sessions in the directory in which they began."""

    name = "gemini"
    parser = "gemini/1"
    reader = StreamReader
    features = Capabilities(
        reported_fields=(
            ReportedFields(thoughts=True, session=True),
            ReportedFields(since="0.44.0", model=True, thoughts=True, session=True, evidence="recorded"),
        ),
        skills=".agents/skills",
        models={"cheap": "gemini-2.5-flash", "mid": "gemini-2.5-pro", "premium": "gemini-3.1-pro-preview"},
        auth=("a login by `gemini` then `/auth`", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"),
    )
    command = "gemini"
    install = "install Gemini CLI (npm install -g @google/gemini-cli)"
    login_fix = "run `gemini` once and log in, or set GEMINI_API_KEY"
    key_variables = names("GEMINI_API_KEY GEMINI_CLI_USE_COMPUTE_ADC GOOGLE_GENAI_USE_GCA GOOGLE_GENAI_USE_VERTEXAI")
    passed_variables = names("""
        CLOUDSDK_CONFIG CLOUD_SHELL GEMINI_API_KEY GEMINI_API_KEY_AUTH_MECHANISM GEMINI_CLI_CUSTOM_HEADERS
        GEMINI_CLI_HOME GEMINI_CLI_SYSTEM_DEFAULTS_PATH GEMINI_CLI_SYSTEM_SETTINGS_PATH GEMINI_CLI_USE_COMPUTE_ADC
        GOOGLE_API_KEY GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CLOUD_ACCESS_TOKEN GOOGLE_CLOUD_LOCATION
        GOOGLE_CLOUD_PROJECT GOOGLE_CLOUD_PROJECT_ID GOOGLE_CLOUD_QUOTA_PROJECT GOOGLE_GEMINI_BASE_URL
        GOOGLE_GENAI_API_VERSION GOOGLE_GENAI_USE_GCA GOOGLE_GENAI_USE_VERTEXAI GOOGLE_VERTEX_BASE_URL
    """)
    folders = (".gemini", "$GEMINI_CLI_HOME/.gemini")
    shares_logins = True
    conversations, logins = (
        tuple(f"{home}.gemini/{name}" for home in ("", "$GEMINI_CLI_HOME/") for name in kept)
        for kept in (("tmp", "history"), LOGIN_FILES)
    )
    set_variables = {"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_TELEMETRY_ENABLED": "false", "NO_BROWSER": "true"}
    """One process instead of two, no telemetry, and no browser when a login has expired."""

    def has_login(self, environment: Mapping[str, str]) -> bool:
        """Look for a key, also in the files that the CLI reads variables from, a login file or an account."""
        if super().has_login(environment):
            return True
        home = _home(environment)
        if home is None:
            return False
        folder = home / DATA_FOLDER
        return (
            any((folder / name).is_file() for name in LOGIN_FILES)
            or _has_key_line(folder / ".env")
            or _has_key_line(home / ".env")
            # Files name an account also when the secret itself is in the system's keychain.
            or bool(load_object(folder / "google_accounts.json").get("active"))
        )

    def format_prompt(self, prompt: str) -> str:
        """Escape a prompt so that the CLI takes it as text: `@name` would include a file, and a leading slash would be
        a command. The model sees a backslash before the at sign."""
        escaped = FILE_REFERENCE.sub(r"\\@", prompt)
        return f"\n{escaped}" if escaped.startswith("/") else escaped

    def run_call(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> CallResult:
        """Write the policy file that the command line names, then run the CLI."""
        if len(spec.prompt.encode()) > PROMPT_BYTES_MAX:
            return CallResult(stdout=b"", stderr=TOO_LONG_MESSAGE, exit=None, duration_ms=0, problem=PROMPT_TOO_LONG)
        home = _home(environment)
        if home is not None:
            text = policy_text(spec.tools, spec.skills)
            path = home / POLICY_FOLDER / policy_file_name(text)
            with contextlib.suppress(OSError):  # Without the policy the call continues with fewer tools.
                if not path.is_file() or path.read_bytes() != text.encode():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
                        file.write(text)
                    Path(file.name).replace(path)  # Several calls at once may write it.
        return spawn(spec, self.invocation(spec, environment))

    def parse_output(self, result: CallResult, watch: ObjectObserver | None = None) -> ParsedReply:
        output = self.read_output(result, watch)
        stderr = _STARTUP_NOISE.sub("", stderr_tail(result.stderr)).strip()
        # The HTTP status is in the API's message, else in the CLI's error report.
        statuses = _STATUS.findall(output.error_text)[:1] or _STATUS_REPORTED.findall(stderr)[-1:]
        waits = _WAIT.findall(f"{stderr}\n{output.error_text}")
        return parsed_reply(
            output,
            result,
            self.parser,
            self._patterns,
            stderr=stderr,
            status=int(statuses[0]) if statuses else None,
            stop_reasons=() if result.exit is None else (STOP_REASONS_BY_EXIT.get(result.exit, ""),),
            retry_after_seconds=math.ceil(float(waits[-1])) if waits else None,
        )

    def invocation(self, spec: CallSpec, environment: Mapping[str, str]) -> Invocation:
        """Build the process to run; the prompt goes to stdin.

        The CLI denies every tool call that would need approval: also writes and commands if it cannot read the policy.
        """
        argv = [self.command, "--output-format", "stream-json", "--model", spec.model, "--skip-trust"]
        policy = f"~/{POLICY_FOLDER}/{policy_file_name(policy_text(spec.tools, spec.skills))}"
        argv += ["--approval-mode", "default", "--policy", policy]
        if spec.session is not None:
            argv += ["--resume" if spec.resumes else "--session-id", spec.session]
        env = self.call_environment(environment)
        return Invocation(argv=tuple(argv), stdin=spec.prompt.encode(), env=env)


# the login ------------------------------------------------------------------------------------------------------------
def _home(environment: Mapping[str, str]) -> Path | None:
    """Return the directory that holds the CLI's folder; None if it does not exist."""
    folder = environment.get("GEMINI_CLI_HOME") or environment.get("HOME")
    return Path(folder) if folder and Path(folder).is_dir() else None


def _has_key_line(path: Path) -> bool:
    try:
        return KEY_LINE.search(path.read_text("utf-8", "replace")) is not None
    except OSError:
        return False
