"""Adapter: streams that real agents wrote, by the way in which their call ended, and what must be made of each."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal

import msgspec
import yaml
from mz_engine.ports import CallResult
from mz_events.catalog.call import ProblemClass, Usage

FIXTURES = "fixtures"
STDERR = ".stderr"
STREAM = re.compile(r"(.+)\.exit(-?\d+)\.[a-z]+")
"""Of a file's name: the ending and its exit code."""
ASKED = "model-that-was-asked-for"
WORDS = "words.yaml"


class Expected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an adapter must make of a stream."""

    terminal: Literal["success", "error", "no-terminal"]
    code: str = ""
    """Of the failure; empty: it went well."""
    kind: ProblemClass | None = None
    wait: int | None = None
    """Seconds until it may go well."""
    session: str | None = None
    """Session that the stream continues or begins, where a case is about that."""
    earlier: tuple[Usage, ...] = ()
    """What that session had used before."""
    tokens: tuple[int, int] | None = None
    """Input and output in all, where a case is about counting."""


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
        [file for file in (fixtures() / "agents" / agent).iterdir() if not file.name.endswith(STDERR)] if known else []
    )
    return tuple(_ending(file, agent, known) for file in sorted(streams, key=lambda file: file.name))


def failures() -> tuple[Ending, ...]:
    """Failures without a last word, which mean the same of any agent."""
    told = yaml.safe_load((fixtures() / "agents" / WORDS).read_text("utf-8"))
    return tuple(_failure(dict(each)) for each in told)


def _failure(told: dict[str, Any]) -> Ending:
    code, said = told.pop("exit"), told.pop("stderr")
    result = CallResult(stdout=b"", stderr=said.encode(), exit=code, duration_ms=1, model=ASKED)
    expected = msgspec.convert({"terminal": "no-terminal", **told}, Expected)
    return Ending(name=f"exit {code}, {said!r}", result=result, expected=expected)


def _ending(file: Traversable, agent: str, known: dict[str, Expected]) -> Ending:
    found = STREAM.fullmatch(file.name)
    if found is None:
        raise KeyError(f"{agent}/{file.name} is not called NAME.exitCODE.SUFFIX")
    name, code = found[1], int(found[2])
    said = fixtures() / "agents" / agent / f"{name}.exit{code}{STDERR}"
    stderr = said.read_bytes() if said.is_file() else b""
    expected = known[name]
    result = CallResult(
        stdout=file.read_bytes(), stderr=stderr, exit=code, duration_ms=1, model=ASKED, earlier=expected.earlier
    )
    return Ending(name=name, result=result, expected=expected)
