"""Queries an agent's command line for its version, with limits on time and output."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
from mz_events.redact import Secrets

from mz_engine.adapters.environment import variables
from mz_engine.adapters.known_secrets import secret_values
from mz_engine.agents.contract import AuthCheck
from mz_engine.agents.supervise import Bounds, Ended, Ending, Launch, supervise

VERSION_SECONDS = 30
VERSION_BYTES_MAX = 10_000
SHOWN_CHARS_MAX = 120
BYTES_PER_TOKEN = 4

_NUMBER = re.compile(rb"\A\s*(?:[a-z][\w-]*\s+)?(\d{1,9}\.\d{1,9}\.\d{1,9}[\w.+-]*)")
"""Some programs print their name first."""


class Said:
    """A sink that keeps all output in memory."""

    def __init__(self) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()

    def out(self, data: bytes) -> None:
        self.stdout += data

    def err(self, data: bytes) -> None:
        self.stderr += data


class Answer(msgspec.Struct, frozen=True):
    """Result of a version query."""

    version: str | None
    why: str = ""
    """Why there is no version, for people."""


def key_of_check(name: str) -> str:
    """Return a unique MZ_KEY for a query: with a shared one, the first query to end would end them all."""
    return f"check/{name}/{secrets.token_hex(6)}"


def ask_version(
    argv: tuple[str, ...], name: str, number: re.Pattern[bytes], environment: Mapping[str, str], own: Mapping[str, str]
) -> Answer:
    """Run the version command of the agent `name` and return the match of `number` in its output: its last group, or
    all of it if it has none. `own` are variables to set."""
    launch = Launch(
        argv=argv, env=variables(environment, key_of_check(name), own=own), cwd=Path(environment.get("HOME", "/"))
    )
    output = Said()
    end = supervise(launch, Bounds(total_seconds=VERSION_SECONDS, output_bytes=VERSION_BYTES_MAX), output)
    match = number.search(bytes(output.stdout))
    if match and end.exit == 0:
        return Answer(match[number.groups].decode())
    return Answer(None, f"{_end(end)}; {_shown(output, environment)}")


def _end(end: Ended) -> str:
    match end.ending:
        case Ending.EXITED if end.exit is not None:
            return f"exit {end.exit}" if end.exit >= 0 else f"signal {-end.exit}"
        case Ending.TIMEOUT:
            return f"stopped after {VERSION_SECONDS} s"
        case Ending.OUTPUT_LIMIT:
            return f"stopped: it printed more than {VERSION_BYTES_MAX:,} bytes"
        case Ending.LOST:
            return "killed from outside"
        case _:
            return end.detail or end.ending.value


def _shown(output: Said, environment: Mapping[str, str]) -> str:
    """Return the first line of the output, redacted; of standard error if standard output is empty."""
    text = bytes(output.stdout.strip() or output.stderr.strip()).decode("utf-8", "replace")
    lines = Secrets(secret_values(environment)).redact(text).splitlines()
    return f"it printed: {lines[0][:SHOWN_CHARS_MAX]}" if lines else "it printed nothing"


def find_tool(command: str, environment: Mapping[str, str], own: Mapping[str, str], install: str) -> AuthCheck:
    """Check that the command is on PATH and prints a version. `install` tells how to get it; `own` are variables to
    set."""
    path = shutil.which(command, path=environment.get("PATH", ""))
    if path is None:
        return AuthCheck(
            code="tool-missing",
            message=f"`{command}` is not on PATH",
            fix=f"{install}, or name another agent in mz.yaml",
        )
    result = ask_version((path, "--version"), command, _NUMBER, environment, own)
    if result.version is None:
        return AuthCheck(
            code="tool-missing",
            message=f"{path} --version printed no version ({result.why})",
            fix=f"run it by hand to see why, then {install} again",
        )
    return AuthCheck(version=result.version)


def estimate(text: str) -> int:
    """Estimate the tokens of a text with an unknown tokenizer: bytes / 4, rounded up."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)
