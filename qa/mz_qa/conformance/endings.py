"""Stored agent streams by the ending of their call, with the expected parse of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Literal

import msgspec
from mz_engine.agents.catalog import agent_package
from mz_engine.decoding.yaml import load_yaml
from mz_engine.ports import CallResult
from mz_events.catalog.call import ProblemClass, Usage

FIXTURES = "fixtures"
STDERR_SUFFIX = ".stderr"
STREAM_FILE_NAME = re.compile(r"(.+)\.exit(-?\d+)\.[a-z]+")
"""File name: ending and exit code."""
REQUESTED_MODEL = "model-that-was-asked-for"
FAILURES_FILE = "failures.yaml"


class ExpectedParse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    terminal: Literal["success", "error", "no-terminal"]
    code: str = ""
    """Problem code; empty for success."""
    kind: ProblemClass | None = None
    wait: int | None = None
    """Expected seconds until a retry."""
    session: str | None = None
    """Session that the stream continues or begins, in cases about sessions."""
    earlier: tuple[Usage, ...] = ()
    """Usage of that session before the call."""
    tokens: tuple[int, int] | None = None
    """Total input and output, in cases about token counts."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded output of an agent's process in one call."""

    name: str
    result: CallResult


class StoredEnding(Stream, frozen=True, kw_only=True):
    """A stream with its expected parse."""

    expected: ExpectedParse


def fixtures() -> Traversable:
    """Return the folder of the bundled fixtures."""
    return files("mz_qa") / FIXTURES


def agent_folder(agent: str) -> Traversable:
    """Return the folder of an agent, with its stored streams."""
    return files(agent_package(agent).package)


def expectations(agent: str) -> dict[str, ExpectedParse]:
    """Load the expectations by ending; empty for an agent without stored streams."""
    file = agent_folder(agent) / "fixtures.yaml"
    if not file.is_file():
        return {}
    return msgspec.convert(load_yaml(file.read_text("utf-8")), dict[str, ExpectedParse])


def stored_endings(agent: str) -> tuple[StoredEnding, ...]:
    """Load all stored endings of an agent, sorted by name. Raises KeyError for a stream without expectation."""
    expected_by_name = expectations(agent)
    streams = (agent_folder(agent) / FIXTURES).iterdir() if expected_by_name else ()
    outputs = [file for file in streams if not file.name.endswith(STDERR_SUFFIX)]
    return tuple(_load_ending(file, agent, expected_by_name) for file in sorted(outputs, key=lambda file: file.name))


def _load_ending(file: Traversable, agent: str, expected_by_name: dict[str, ExpectedParse]) -> StoredEnding:
    match = STREAM_FILE_NAME.fullmatch(file.name)
    if match is None:
        raise KeyError(f"{agent}/{file.name} is not called NAME.exitCODE.SUFFIX")
    name, code = match[1], int(match[2])
    stderr_file = agent_folder(agent) / FIXTURES / f"{name}.exit{code}{STDERR_SUFFIX}"
    stderr = stderr_file.read_bytes() if stderr_file.is_file() else b""
    return _ending(name, file.read_bytes(), stderr, code, expected_by_name[name])


def stored_failures() -> Iterator[StoredEnding]:
    """Load failures without a final event, which mean the same for any agent."""
    for entry in load_yaml((fixtures() / FAILURES_FILE).read_text("utf-8")):
        code, stderr = entry.pop("exit"), entry.pop("stderr")
        expected = msgspec.convert({"terminal": "no-terminal", **entry}, ExpectedParse)
        yield _ending(f"exit {code}, {stderr!r}", b"", stderr.encode(), code, expected)


def _ending(name: str, stdout: bytes, stderr: bytes, code: int, expected: ExpectedParse) -> StoredEnding:
    result = CallResult(
        stdout=stdout, stderr=stderr, exit=code, duration_ms=1, model=REQUESTED_MODEL,
        session_usage_before=expected.earlier,
    )  # fmt: skip
    return StoredEnding(name=name, result=result, expected=expected)
