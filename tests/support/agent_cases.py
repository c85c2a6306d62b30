"""Drives the real command line of an agent through the ways in which a call can end.

Each agent's ways are a module `<agent>_cases.py`. The `fixtures` of the agent's folder keep what the command line wrote
for each (and its exit code, last in the name); what its adapter must make of them stands beside, in `fixtures.yaml`.
`python -m tests.support.agent_cases [AGENT [CASE...]]` drives the command lines again and writes them anew.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from mz_engine.agents.catalog import AGENTS
from mz_engine.agents.registry import built_in_adapters
from mz_engine.ports import CallResult, CallSpec, ParsedReply
from mz_qa.conformance.endings import ExpectedParse, expectations, stored_endings

from tests.support.claude_cli import plain_spawn
from tests.support.endpoint import Answer, Endpoint, Refusal, Reply, Request, Script, Unexpected
from tests.support.tree import ROOT

SESSION = "11111111-2222-4333-8444-555555555555"
NOWHERE = "http://127.0.0.1:9"


@dataclass(frozen=True)
class Case:
    """One way for a call to end, as a script of the model endpoint."""

    script: Script
    prompt: str = "Please write a note."
    resumes: bool = False
    """A session that nobody has begun."""
    continues: bool = False
    """Called twice: what counts is the second call, which continues the session of the first."""
    signal: int | None = None
    """Sent to the command line while it waits for the model."""
    unreachable: bool = False
    """Nothing listens where the model should be."""
    environment: Callable[[Path, str], dict[str, str]] | None = None
    """In place of the agent's usual one."""


@dataclass(frozen=True)
class Cases:
    """The cases of one agent."""

    agent: str
    environment: Callable[[Path, str], dict[str, str]]
    """What the command line finds around it, given its HOME and the endpoint's address."""
    spec: Callable[..., CallSpec]
    """A call, given prompt and session."""
    existing: Mapping[str, Case]

    @property
    def folder(self) -> Path:
        """Where what the command line wrote is kept."""
        return ROOT / "engine" / AGENTS[self.agent].package.replace(".", "/") / "fixtures"

    @property
    def expected(self) -> dict[str, ExpectedParse]:
        return expectations(self.agent)

    def stored(self, name: str) -> CallResult:
        """What the command line wrote when the case was last driven."""
        (actual,) = [ending for ending in stored_endings(self.agent) if ending.name == name]
        return actual.result

    def check(self, name: str, directory: Path) -> tuple[CallResult, ParsedReply]:
        """Drives the case, and asserts that it ends as is expected of it; what came out, and what it was read as."""
        expected = self.expected[name]
        result, endpoint = self.drive(name, directory)
        assert endpoint.complaints == []
        reply = built_in_adapters()[self.agent].parse_output(result)
        problem = reply.problem
        ended = (problem.code, problem.kind, problem.retry_after_seconds) if problem else ("", None, None)
        assert (reply.ending, *ended) == (expected.terminal, expected.code, expected.kind, expected.wait)
        return result, reply

    def drive(self, name: str, directory: Path) -> tuple[CallResult, Endpoint]:
        """The real command line against the case's script, in a fresh HOME and repository under `directory`."""
        case, home, work = self.existing[name], directory / "home", directory / "work"
        home.mkdir()
        work.mkdir()
        subprocess.run(["git", "init", "-q", str(work)], check=True)
        with Endpoint(case.script) as endpoint:
            context = case.environment or self.environment
            outside = context(home, NOWHERE if case.unreachable else endpoint.url)
            result = self._call(case, work, outside, endpoint)
            if case.continues:
                result = self._call(case, work, outside, endpoint, result)
        return result, endpoint

    def _call(
        self, case: Case, work: Path, outside: Mapping[str, str], endpoint: Endpoint, before: CallResult | None = None
    ) -> CallResult:
        adapter = built_in_adapters()[self.agent]
        reply = adapter.parse_output(before) if before else None
        session = (reply.session if reply else None) or SESSION
        call = self.spec(case.prompt, session, resumes=case.resumes or before is not None)
        spawn = plain_spawn(work, outside, case.signal, lambda: bool(endpoint.requests))
        result = adapter.run_call(call, outside, spawn)
        return replace(result, model=call.model, session_usage_before=reply.usage if reply else ())

    def renew(self, names: list[str]) -> None:
        """Drives the cases again, all where none is named, and keeps what comes out."""
        self.folder.mkdir(exist_ok=True)
        for name in names or self.existing:
            for old in self.folder.glob(f"{name}.exit*"):
                old.unlink()
            with tempfile.TemporaryDirectory() as directory:
                result, endpoint = self.drive(name, Path(directory))
                assert not endpoint.complaints, endpoint.complaints
                path = self.folder / f"{name}.exit{result.exit}.jsonl"
                path.write_bytes(self._general(result.stdout, result, directory))
                if result.stderr:
                    path.with_suffix(".stderr").write_bytes(self._general(result.stderr, result, directory))
            reply = built_in_adapters()[self.agent].parse_output(result)
            sys.stderr.write(f"{path.name}: {len(result.stdout)} bytes, {reply.ending}, {reply.problem}\n")
            if result.session_usage_before:
                sys.stderr.write(f"  earlier: {result.session_usage_before}\n  of this call: {reply.usage}\n")

    def _general(self, data: bytes, result: CallResult, directory: str) -> bytes:
        """Without what is particular to this machine and this time."""
        slug = re.sub(r"[^A-Za-z0-9]", "-", directory)
        data = data.replace(str(ROOT).encode(), b"/home/somebody/clis")
        data = data.replace(directory.encode(), b"/home/somebody").replace(slug.encode(), b"-home-somebody")
        session = built_in_adapters()[self.agent].parse_output(result).session
        data = data.replace(session.encode(), SESSION.encode()) if session else data
        data = re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", b"2026-06-01T12:00:00.000000Z", data)
        data = re.sub(rb'"user_id": "[0-9a-f-]{36}", "time": \d+', b'"user_id": "00000000", "time": 1780000000', data)
        return re.sub(rb"127\.0\.0\.1:\d{3,}", b"127.0.0.1:8000", data)


# scripts that several agents are driven with --------------------------------------------------------------------------
def works(request: Request) -> Answer:
    """Writes a file, runs a command, says so."""
    match len(request.results()):
        case 0:
            return Reply("I write the note.", (request.write("note.md", "# Hi\n"),))
        case 1:
            return Reply("", (request.run("cat note.md"),))
        case _:
            return Reply("Done: note.md is there.")


def asks(request: Request) -> Answer:
    del request
    return Reply("I looked at the code.\n\nBlocker: need a decision on the file format before I can go on.")


def refuses(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> Script:
    return lambda _: Refusal(status, kind, message, dict(headers or {}))


def all_cases() -> dict[str, Cases]:
    """Of every agent, by its name."""
    from tests.support import aider_cases, anthropic_cases, claude_cases, codex_cases, gemini_cases

    every = (aider_cases.AIDER, anthropic_cases.ANTHROPIC, claude_cases.CLAUDE, codex_cases.CODEX, gemini_cases.GEMINI)
    return {cases.agent: cases for cases in every}


def main(args: list[str]) -> None:
    from tests.support import aider_cli

    caseses = all_cases()
    usual = [name for name in caseses if name != "aider" or aider_cli.installed()]
    for name in args[:1] or usual:
        if name not in caseses:
            sys.exit(f"there are no cases of {name!r}; there are those of {', '.join(caseses)}")
        caseses[name].renew(args[1:])


if __name__ == "__main__":
    main(sys.argv[1:])


def remembers(request: Request) -> Answer:
    """Knows the number that was told earlier in its session."""
    output = "\n".join(request.user_texts())
    if "Which number?" not in output:
        return Reply("I will.")
    if "Remember seven." not in output:
        raise Unexpected("the earlier conversation is missing")
    return Reply("seven")
