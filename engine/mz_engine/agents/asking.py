"""Adapter: asks an agent's command line for its version, bounded, as a process tree that is killed whole."""

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
"""Some put their name before it."""


class Said:
    """A sink that keeps what was said."""

    def __init__(self) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()

    def out(self, data: bytes) -> None:
        self.stdout += data

    def err(self, data: bytes) -> None:
        self.stderr += data


class Answer(msgspec.Struct, frozen=True):
    """What came of a question for a version."""

    version: str | None
    why: str = ""
    """In words, where there is none."""


def key_of_check(name: str) -> str:
    """The key that processes of one question are found by: no other's, or the first to end would end them all."""
    return f"check/{name}/{secrets.token_hex(6)}"


def ask_version(
    argv: tuple[str, ...], name: str, number: re.Pattern[bytes], environment: Mapping[str, str], own: Mapping[str, str]
) -> Answer:
    """What `number` finds in the output of the command of the agent `name`: its first group, or all of it where there
    is none. `own` are variables to set."""
    launch = Launch(
        argv=argv, env=variables(environment, key_of_check(name), own=own), cwd=Path(environment.get("HOME", "/"))
    )
    said = Said()
    ended = supervise(launch, Bounds(total_seconds=VERSION_SECONDS, output_bytes=VERSION_BYTES_MAX), said)
    found = number.search(bytes(said.stdout))
    if found and ended.exit == 0:
        return Answer(found[number.groups].decode())
    return Answer(None, f"{_end(ended)}; {_shown(said, environment)}")


def _end(ended: Ended) -> str:
    """How the command came to its end."""
    match ended.ending:
        case Ending.EXITED if ended.exit is not None:
            return f"exit {ended.exit}" if ended.exit >= 0 else f"signal {-ended.exit}"
        case Ending.TIMEOUT:
            return f"ended after {VERSION_SECONDS} s"
        case Ending.OUTPUT_LIMIT:
            return f"ended for more than {VERSION_BYTES_MAX:,} bytes"
        case Ending.LOST:
            return "killed from outside"
        case _:
            return ended.detail or ended.ending.value


def _shown(said: Said, environment: Mapping[str, str]) -> str:
    """The first line of what was printed, without secrets; standard error where there is nothing else."""
    text = bytes(said.stdout.strip() or said.stderr.strip()).decode("utf-8", "replace")
    lines = Secrets(secret_values(environment)).redact(text).splitlines()
    return f"it printed: {lines[0][:SHOWN_CHARS_MAX]}" if lines else "it printed nothing"


def find_tool(command: str, environment: Mapping[str, str], own: Mapping[str, str], install: str) -> AuthCheck:
    """Whether the command is there and says its version; `install` says how to get it, `own` are variables to set."""
    path = shutil.which(command, path=environment.get("PATH", ""))
    if path is None:
        return AuthCheck(
            code="tool-missing",
            message=f"`{command}` is not on PATH",
            fix=f"{install}, or name another agent in mz.yaml",
        )
    answer = ask_version((path, "--version"), command, _NUMBER, environment, own)
    if answer.version is None:
        return AuthCheck(
            code="tool-missing",
            message=f"{path} --version gave no version ({answer.why})",
            fix=f"run it by hand to see why, and {install} again",
        )
    return AuthCheck(version=answer.version)


def estimate(text: str) -> int:
    """Tokens of a text whose tokenizer is not known: bytes / 4, rounded up."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)
