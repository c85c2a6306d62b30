"""Queries an agent's command line for its version, with limits on time and output."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from mz_events.redaction.redactor import Secrets

from mz_engine.processes.environment import command_environment
from mz_engine.processes.supervise import CapturedOutput, EndReason, Launch, ProcessEnd, ProcessLimits, supervise
from mz_engine.secrets import environment_secrets

VERSION_SECONDS = 30
VERSION_BYTES_MAX = 10_000
LINE_SHOWN_CHARS_MAX = 120


def query_key(name: str) -> str:
    """Return a unique MZ_KEY for a query: with a shared one, the first query to end would end them all."""
    return f"check/{name}/{secrets.token_hex(6)}"


def query_version(
    argv: tuple[str, ...],
    name: str,
    pattern: re.Pattern[bytes],
    environment: Mapping[str, str],
    extra_variables: Mapping[str, str],
) -> tuple[str, str]:
    """Run the version command of the agent `name`. Return the match of `pattern` in its output (its last group, or all
    of it if it has none), else empty and the reason for people."""
    launch = Launch(
        argv=argv,
        env=command_environment(environment, query_key(name), extra=extra_variables),
        cwd=Path(environment.get("HOME", "/")),
    )
    output = CapturedOutput()
    end = supervise(launch, ProcessLimits(total_seconds=VERSION_SECONDS, output_bytes=VERSION_BYTES_MAX), output)
    match = pattern.search(bytes(output.stdout))
    if match and end.exit == 0:
        return match[pattern.groups].decode(), ""
    return "", f"{_describe_end(end)}; {_describe_output(output, environment)}"


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
