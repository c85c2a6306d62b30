"""Adapter: asks an agent's command line for its version, bounded, as a process tree that is killed whole."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from mz_engine.adapters.environment import variables
from mz_engine.agents.contract import AuthCheck
from mz_engine.agents.supervise import Bounds, Launch, supervise

VERSION_SECONDS = 30
VERSION_BYTES_MAX = 10_000
BYTES_PER_TOKEN = 4

_NUMBER = re.compile(rb"\s*(?:[a-z][\w-]*\s+)?(\d{1,9}\.\d{1,9}\.\d{1,9}[\w.+-]*)")
"""Some put their name before it."""


class Said:
    """A sink that keeps standard output."""

    def __init__(self) -> None:
        self.stdout = bytearray()

    def out(self, data: bytes) -> None:
        self.stdout += data

    def err(self, data: bytes) -> None:
        del data


def key_of_check(name: str) -> str:
    """The key that processes of one question are found by: no other's, or the first to end would end them all."""
    return f"check/{name}/{secrets.token_hex(6)}"


def ask_version(command: str, environment: Mapping[str, str], own: Mapping[str, str]) -> str | None:
    """`2.1.197` of what `command --version` says; None where it fails or says something else. `own` are variables to
    set."""
    launch = Launch(
        argv=(command, "--version"),
        env=variables(environment, key_of_check(Path(command).name), own=own),
        cwd=Path(environment.get("HOME", "/")),
    )
    said = Said()
    ended = supervise(launch, Bounds(total_seconds=VERSION_SECONDS, output_bytes=VERSION_BYTES_MAX), said)
    found = _NUMBER.match(bytes(said.stdout))
    return found[1].decode() if found and ended.exit == 0 else None


def find_tool(command: str, environment: Mapping[str, str], own: Mapping[str, str], install: str) -> AuthCheck:
    """Whether the command is there and says its version; `install` says how to get it, `own` are variables to set."""
    path = shutil.which(command, path=environment.get("PATH", ""))
    if path is None:
        return AuthCheck(
            code="tool-missing",
            message=f"`{command}` is not on PATH",
            fix=f"{install}, or name another agent in mz.yaml",
        )
    version = ask_version(path, environment, own)
    if version is None:
        return AuthCheck(
            code="tool-missing",
            message=f"{path} --version gave no version",
            fix=f"run it by hand to see why, and {install} again",
        )
    return AuthCheck(version=version)


def estimate(text: str) -> int:
    """Tokens of a text whose tokenizer is not known: bytes / 4, rounded up."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)
