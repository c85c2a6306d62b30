"""Queries an agent's command line for its version, with limits on time and output."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
from mz_events.redaction.redactor import Secrets

from mz_engine.agents.contract import AuthCheck
from mz_engine.processes.environment import command_environment
from mz_engine.processes.supervise import EndReason, Launch, ProcessEnd, ProcessLimits, supervise
from mz_engine.secrets import environment_secrets

VERSION_SECONDS = 30
VERSION_BYTES_MAX = 10_000
LINE_SHOWN_CHARS_MAX = 120
BYTES_PER_TOKEN = 4

_NUMBER = re.compile(rb"\A\s*(?:[a-z][\w-]*\s+)?(\d{1,9}\.\d{1,9}\.\d{1,9}[\w.+-]*)")
"""Some programs print their name first."""


class CapturedOutput:
    """A sink that keeps all output in memory."""

    def __init__(self) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()

    def out(self, data: bytes) -> None:
        self.stdout += data

    def err(self, data: bytes) -> None:
        self.stderr += data


class VersionResult(msgspec.Struct, frozen=True):
    """Result of a version query."""

    version: str | None
    reason: str = ""
    """Why there is no version, for people."""


def query_key(name: str) -> str:
    """Return a unique MZ_KEY for a query: with a shared one, the first query to end would end them all."""
    return f"check/{name}/{secrets.token_hex(6)}"


def query_version(
    argv: tuple[str, ...],
    name: str,
    pattern: re.Pattern[bytes],
    environment: Mapping[str, str],
    extra_variables: Mapping[str, str],
) -> VersionResult:
    """Run the version command of the agent `name` and return the match of `number` in its output: its last group, or
    all of it if it has none. `own` are variables to set."""
    launch = Launch(
        argv=argv,
        env=command_environment(environment, query_key(name), extra=extra_variables),
        cwd=Path(environment.get("HOME", "/")),
    )
    output = CapturedOutput()
    end = supervise(launch, ProcessLimits(total_seconds=VERSION_SECONDS, output_bytes=VERSION_BYTES_MAX), output)
    match = pattern.search(bytes(output.stdout))
    if match and end.exit == 0:
        return VersionResult(match[pattern.groups].decode())
    return VersionResult(None, f"{_describe_end(end)}; {_describe_output(output, environment)}")


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


def _describe_output(output: CapturedOutput, environment: Mapping[str, str]) -> str:
    """Return the first line of the output, redacted; of standard error if standard output is empty."""
    text = bytes(output.stdout.strip() or output.stderr.strip()).decode("utf-8", "replace")
    lines = Secrets(environment_secrets(environment)).redact(text).splitlines()
    return f"it printed: {lines[0][:LINE_SHOWN_CHARS_MAX]}" if lines else "it printed nothing"


def check_tool(
    command: str, environment: Mapping[str, str], extra_variables: Mapping[str, str], install: str
) -> AuthCheck:
    """Check that the command is on PATH and prints a version. `install` tells how to get it; `own` are variables to
    set."""
    path = shutil.which(command, path=environment.get("PATH", ""))
    if path is None:
        return AuthCheck(
            code="tool-missing",
            message=f"`{command}` is not on PATH",
            fix=f"{install}, or name another agent in mz.yaml",
        )
    result = query_version((path, "--version"), command, _NUMBER, environment, extra_variables)
    if result.version is None:
        return AuthCheck(
            code="tool-missing",
            message=f"{path} --version printed no version ({result.reason})",
            fix=f"run it by hand to see why, then {install} again",
        )
    return AuthCheck(version=result.version)


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text with an unknown tokenizer: bytes / 4, rounded up."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)
