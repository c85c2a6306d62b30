"""The interface of an agent adapter, with defaults for programs. Callers ask capabilities, never names."""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace
from mz_events.redaction.redactor import Secrets

from mz_engine.agents.classify import ProblemPatterns
from mz_engine.agents.reading.call import CallOutput, ObjectObserver, parsed_reply, read_call
from mz_engine.agents.reading.records import Reader, ReaderState
from mz_engine.ports import CallResult, CallSpec, ParsedReply
from mz_engine.processes.container import Container
from mz_engine.processes.environment import command_environment
from mz_engine.processes.supervise import CapturedOutput, EndReason, Launch, ProcessEnd, ProcessLimits, supervise
from mz_engine.secrets import environment_secrets

BYTES_PER_TOKEN = 4
VERSION = re.compile(rb"\A\s*(?:[a-z][\w-]*\s+)?(\d{1,9}\.\d{1,9}\.\d{1,9}[\w.+-]*)")
"""Some programs print their name first."""

ENDPOINT_VARIABLE = re.compile(r"\w*(?:BASE_URL|API_BASE|API_URL|ENDPOINT)")
VERSION_SECONDS = 30
VERSION_BYTES_MAX = 10_000
LINE_SHOWN_CHARS_MAX = 120


def load_object(source: Path | bytes) -> dict[str, Any]:
    """Return the JSON object in a file or text; empty if there is none."""
    try:
        content = json.loads(source if isinstance(source, bytes) else source.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


class ReportedFields(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that an agent's output reports, for a range of versions; the conformance suite compares them with
    recordings."""

    since: str = ""
    """The first version of the range; empty: the oldest that is known."""
    model: bool = False
    """False: the requested model is assumed to have answered."""
    requests: bool = False
    """Tokens per request, not only per call."""
    money: bool = False
    thoughts: bool = False
    """Reasoning tokens, apart from other output."""
    session: bool = False
    cache_writes: Literal["no", "total", "by lifetime"] = "no"
    evidence: Literal["recorded", "constructed", "documented"] = "constructed"
    """Source: output of the real program that we recorded, files from elsewhere, or the program's documentation."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Features of an agent. The engine decides by `sessions`, `tools`, `skills` and `models` alone; the others are for
    pages and commands, and the conformance suite checks them."""

    sessions: bool = True
    """Can continue an earlier session."""
    streaming: bool = True
    """Writes as it works, so an idle timeout means something."""
    token_counting: Literal["exact", "estimate"] = "exact"
    reported_fields: tuple[ReportedFields, ...]
    """By version, oldest first; the last covers the version that we test with."""
    tools: tuple[str, ...] = ("read", "write", "shell")
    skills: str = ""
    """Folder in the worktree in which its program expects skills; `{call}` stands for `CallSpec.skills`. Empty: it
    cannot be given any."""
    bundled: bool = False
    """Its program is installed with `mz`."""
    models: Mapping[str, str]
    """Default model per tier: cheap, mid, premium."""
    auth: tuple[str, ...]
    """Ways to log in, for people."""


class AuthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Result of looking for an agent's program and login. `code` is empty, `tool-missing` or `auth-missing`."""

    code: str = ""
    message: str = ""
    fix: str = ""
    version: str = ""


class OwnPaths(msgspec.Struct, frozen=True, kw_only=True):
    """What a program has outside its worktree. Where there are mount namespaces, changes are seen by calls of the same
    feature alone. Missing folders and files are made, since the program could not make them."""

    folders: tuple[Path, ...] = ()
    new_folders: tuple[Path, ...] = ()
    """Folders of which it sees what calls of the feature made there, and nothing else."""
    files: Mapping[Path, tuple[str, ...]] = {}
    """JSON files of which it sees what calls of the feature wrote there, and the user's members of these names."""
    empty_files: tuple[Path, ...] = ()
    """Files that seem empty."""
    logins: tuple[Path, ...] = ()
    """Files with its login. Of those in `folders`, a refreshed login is taken over at the end of a call."""
    shared_logins: tuple[Path, ...] = ()
    """The same of programs that can write into the file, so that all calls and the user have one."""


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """A process to run, with all of its input."""

    argv: tuple[str, ...]
    stdin: bytes
    """Written and closed; empty: closed at once."""
    env: Mapping[str, str]
    """The adapter's own variables and those that pass through; nothing else is inherited."""
    own: OwnPaths = OwnPaths()
    is_over_budget: Callable[[CallResult], bool] | None = None
    """Takes the output of the call so far; None: the call has no budget."""


Spawn = Callable[[CallSpec, Invocation], CallResult]
"""Runs an invocation in the call's worktree: streams into the spool, enforces time limits, kills the process tree."""


class Adapter:
    """One agent whose calls are one process each; a new one is one folder and one line in `agents.catalog`.

    Subclasses define the data, `invocation`, and what differs from the defaults.
    """

    name: str
    parser: str
    """`name/number`; raise the number whenever the parser reads the same bytes differently."""
    reader: type[Reader]
    features: Capabilities
    command: str
    """Name of the program."""
    version_command: tuple[str, ...] | None = None
    """Prints the version; None: the program with `--version`; empty: nothing does."""
    version_pattern: re.Pattern[bytes] = VERSION
    install: str
    """How to get the program, for people."""
    version_fix: str = ""
    """What to do if the program prints no version; empty: install it again."""
    login_missing: str = "`{command}` has neither a login nor a key"
    login_fix: str
    """What to do about it."""
    key_variables: tuple[str, ...] = ()
    """Variables of which any one is a login."""
    passed_variables: tuple[str, ...] = ()
    """Variables that the program reads, beyond those that every command gets."""
    set_variables: Mapping[str, str] = {}
    """Variables that mz sets."""
    folders: tuple[str, ...] = ()
    """Where the program keeps its login, settings and sessions, below HOME; `$NAME` stands for a variable."""
    files: Mapping[str, tuple[str, ...]] = {}
    """The same for single JSON files, with the names of the members that a call sees."""
    conversations: tuple[str, ...] = ()
    """Folders, and files with an ending, in the folders with what people and the program said, in all projects."""
    logins: tuple[str, ...] = ()
    """Files with its login, likewise."""
    shares_logins = False
    """True if the program writes into such a file where it cannot replace it by another one."""
    container: Container | None = None
    """Where the program runs; None: on this machine."""

    def __init__(self, patterns: ProblemPatterns) -> None:
        self._patterns = patterns

    def capabilities(self) -> Capabilities:
        return self.features

    def check_auth(self, environment: Mapping[str, str]) -> AuthCheck:
        """Look for the program, its version and a login, without calling a model or revealing a secret."""
        path = shutil.which(self.command, path=environment.get("PATH", ""))
        fix = f"{self.install}, or name another agent in mz.yaml"
        problem = None if path else (f"`{self.command}` is not on PATH", fix)
        if self.container:
            path, problem, environment = self.command, self.container.problem(self.command), self.container.environment
        if problem:
            return AuthCheck(code="tool-missing", message=problem[0], fix=problem[1])
        argv = (str(path), "--version") if self.version_command is None else self.version_command
        version = ""
        if argv:
            version, reason = self._query_version(argv, environment)
            if not version:
                message = f"{' '.join(argv)} printed no version ({reason})"
                fix = self.version_fix or f"run it by hand to see why, then {self.install} again"
                return AuthCheck(code="tool-missing", message=message, fix=fix)
        if self.has_login(environment):
            return AuthCheck(version=version)
        message = self.login_missing.format(command=self.command)
        return AuthCheck(code="auth-missing", message=message, fix=self.login_fix, version=version)

    def _query_version(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> tuple[str, str]:
        """Run the version command. Return the match of the pattern in its output (its last group, or all of it if it
        has none), else empty and the reason for people."""
        variables = command_environment(environment, query_key(self.name), extra=self.set_variables)
        launch = Launch(argv=argv, env=variables, cwd=Path("/"))
        if self.container:
            launch = self.container.wrap(launch, self.set_variables)
        output = CapturedOutput()
        end = supervise(launch, ProcessLimits(total_seconds=VERSION_SECONDS, output_bytes=VERSION_BYTES_MAX), output)
        match = self.version_pattern.search(bytes(output.stdout))
        if match and end.exit == 0:
            return match[self.version_pattern.groups].decode(), ""
        text = bytes(output.stdout.strip() or output.stderr.strip()).decode("utf-8", "replace")
        lines = Secrets(environment_secrets(environment)).redact(text).splitlines()
        printed = f": {lines[0][:LINE_SHOWN_CHARS_MAX]}" if lines else " nothing"
        return "", f"{_describe_end(end)}; it printed{printed}"

    def has_login(self, environment: Mapping[str, str]) -> bool:
        """Return True if the environment has a key. Adapters of programs with a login of their own extend it."""
        return any(environment.get(name) for name in self.key_variables)

    def has_own_endpoint(self, environment: Mapping[str, str]) -> bool:
        """Return True if the user's settings lead calls to another endpoint than the vendor's. Adapters of programs
        with files for that extend it."""
        return names_endpoint(self.call_environment(environment))

    def own_paths(self, environment: Mapping[str, str]) -> OwnPaths:
        """Return what a call has outside its worktree; in a container, only what settings mount."""
        if self.container:
            return OwnPaths()
        named = (self.folders, self.conversations, self.logins)
        folders, conversations, logins = (tuple(_named_paths(names, environment)) for names in named)
        own = OwnPaths(
            folders=folders,
            new_folders=tuple(path for path in conversations if not path.suffix),
            files={path: names for name, names in self.files.items() for path in _named_paths((name,), environment)},
            empty_files=tuple(path for path in conversations if path.suffix),
        )
        return replace(own, shared_logins=logins) if self.shares_logins else replace(own, logins=logins)

    def estimate_tokens(self, prompt: str) -> int:
        """Estimate the tokens of a text with an unknown tokenizer: bytes / 4, rounded up."""
        return -(-len(prompt.encode()) // BYTES_PER_TOKEN)

    def count_tokens(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> int | None:
        """Return the tokens (more than 0) of the call's first request, including the session that it continues, as the
        agent's API counts them; None if there is no count. `spawn` runs a helper process with short limits that leaves
        no spool. Raises only what `spawn` raises; changes nothing."""
        del spec, environment, spawn
        return None

    def format_prompt(self, prompt: str) -> str:
        return prompt

    def run_call(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> CallResult:
        return spawn(spec, self.invocation(spec, environment))

    def invocation(self, spec: CallSpec, environment: Mapping[str, str]) -> Invocation:
        """Build the process to run."""
        raise NotImplementedError

    def call_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a call: those that pass through, and those that mz sets."""
        passed = {name: environment[name] for name in self.passed_variables if name in environment}
        return {**passed, **self.set_variables}

    def read_output(self, result: CallResult, watch: ObjectObserver | None) -> CallOutput:
        state = ReaderState(model=result.model, total=result.session_usage_before)
        return read_call(self.reader(state), result.stdout, watch)

    def parse_output(self, result: CallResult, watch: ObjectObserver | None = None) -> ParsedReply:
        """Parse any bytes into a reply or a classified problem, without side effects and without raising: unreadable
        lines are counted, a missing end is a problem. `watch` observes what the parser reads."""
        return parsed_reply(self.read_output(result, watch), result, self.parser, self._patterns)


def _named_paths(names: Iterable[str], environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the paths below HOME, without those of variables that are not set."""
    home = Path(environment.get("HOME", "/nonexistent"))
    for name in names:
        variable, _, below = name.partition("/")
        if not name.startswith("$"):
            yield home / name
        elif directory := environment.get(variable[1:]):
            yield home / directory / below


def names_endpoint(variables: Mapping[str, object]) -> bool:
    """Return True if one of the variables is the address of an API."""
    return any(value and ENDPOINT_VARIABLE.fullmatch(name) for name, value in variables.items())


# the version ----------------------------------------------------------------------------------------------------------
def query_key(name: str) -> str:
    """Return a unique MZ_KEY for a query: with a shared one, the first query to end would end them all."""
    return f"check/{name}/{secrets.token_hex(6)}"


def _describe_end(end: ProcessEnd) -> str:
    match end.reason:
        case EndReason.EXITED if end.exit is not None:
            return f"exit {end.exit}" if end.exit >= 0 else f"signal {-end.exit}"
        case EndReason.TIMEOUT:
            return f"stopped after {VERSION_SECONDS} s"
        case EndReason.OUTPUT_LIMIT:
            return f"stopped: it printed more than {VERSION_BYTES_MAX:,} bytes"
        case EndReason.LOST:
            return "killed from outside"
        case _:
            return end.detail or end.reason.value
