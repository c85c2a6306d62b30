"""Adapter: streams that real agents wrote, by the way in which their call ended, and what must be made of each."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal

import msgspec
import yaml
from mz_engine.ports import CallResult
from mz_events.catalog.call import ProblemClass

FIXTURES = "fixtures"
STREAM = ".jsonl"
WORDS = "words.yaml"


class Expected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an adapter must make of a stream."""

    terminal: Literal["success", "error", "no-terminal"]
    code: str = ""
    """Of the failure; empty: it went well."""
    kind: ProblemClass | None = None
    wait: int | None = None
    """Seconds until it may go well."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as it crossed the boundary of the agent's process."""

    name: str
    result: CallResult
    expected: Expected


def fixtures() -> Traversable:
    """The folder of what was written before and must be understood for ever."""
    return files("mz_qa") / FIXTURES


def expectations(agent: str) -> dict[str, Expected]:
    """By the name of the ending; empty for an agent of which nothing is stored."""
    page = fixtures() / "agents" / f"{agent}.yaml"
    if not page.is_file():
        return {}
    return msgspec.convert(yaml.safe_load(page.read_text("utf-8")), dict[str, Expected])


def endings(agent: str) -> tuple[Ending, ...]:
    """All that are stored of this agent, by name. Raises KeyError for a stream that nothing is expected of."""
    known = expectations(agent)
    streams = (
        [file for file in (fixtures() / "agents" / agent).iterdir() if file.name.endswith(STREAM)] if known else []
    )
    return tuple(_ending(file, agent, known) for file in sorted(streams, key=lambda file: file.name))


def failures() -> tuple[Ending, ...]:
    """Failures without a last word, which mean the same of any agent."""
    told = yaml.safe_load((fixtures() / "agents" / WORDS).read_text("utf-8"))
    return tuple(_failure(dict(each)) for each in told)


def _failure(told: dict[str, Any]) -> Ending:
    code, said = told.pop("exit"), told.pop("stderr")
    result = CallResult(stdout=b"", stderr=said.encode(), exit=code, duration_ms=1)
    expected = msgspec.convert({"terminal": "no-terminal", **told}, Expected)
    return Ending(name=f"exit {code}, {said!r}", result=result, expected=expected)


def _ending(file: Traversable, agent: str, known: dict[str, Expected]) -> Ending:
    stem = file.name.removesuffix(STREAM)
    name, _, code = stem.rpartition(".exit")
    said = fixtures() / "agents" / agent / f"{stem}.stderr"
    stderr = said.read_bytes() if said.is_file() else b""
    result = CallResult(stdout=file.read_bytes(), stderr=stderr, exit=int(code), duration_ms=1)
    return Ending(name=name, result=result, expected=known[name])
