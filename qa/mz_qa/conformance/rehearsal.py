"""Runs an agent's adapter with real processes, with a script in place of the agent.

Checks input and output, time limits and leftover processes, alike for any agent.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shlex import quote

from msgspec.structs import replace
from mz_engine.adapters.environment import worktree
from mz_engine.agents.contract import Adapter
from mz_engine.agents.guard import marked
from mz_engine.agents.process import AgentProcesses
from mz_engine.home import HOME, SPOOL
from mz_engine.ports import CallResult
from mz_events.redact import Secrets
from mz_recordings.findings import Finding

from mz_qa.conformance.contract import CANARY, PROMPT, complaints, invocation_of, spec_of
from mz_qa.conformance.readings import Stream
from mz_qa.layers.facts import Checked, Said

VERSION = "9.8.7"
LIMIT_SECONDS = 1
NEVER_SECONDS = 600
ANSWERS = """
import os, pathlib, sys
sys.stdin.buffer.read()
pathlib.Path("key").write_text(os.environ["MZ_KEY"])
sys.stdout.buffer.write(pathlib.Path({stream!r}).read_bytes())
sys.stderr.buffer.write(pathlib.Path({stream!r} + ".stderr").read_bytes())
"""
HANGS = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
while True:
    time.sleep(0.05)
    if {talks}:
        os.write(1, b"{{}}\\n")
"""
FAILS = "import sys\nsys.stdin.read()\nsys.exit('API Error: 429 too many requests, retry-after: 7')\n"
LISTS = "import pathlib, sys\nopen({log!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n{then}\n"
ASKING = frozenset({"--version", "-v", "-V", "version"})
"""Arguments that an adapter may use to check for its agent; none could reach a model."""


class Stand:
    """A repository with a worktree, and a directory with a script in place of the agent."""

    def __init__(self, base: Path, adapter: Adapter, outside: Mapping[str, str]) -> None:
        self.place, self.adapter = base, adapter
        self.key = f"gate-{secrets.token_hex(6)}/sample/write/-/1/1/agent.builder"
        self.root, self.bin, self.home = base / "project", base / "bin", base / "home"
        for folder in (self.root, self.bin, self.home):
            folder.mkdir()
        self.environment = {
            "PATH": f"{self.bin}{os.pathsep}{outside.get('PATH', os.defpath)}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
        }
        subprocess.run(["git", "init", "--quiet", str(self.root)], check=True, env=self.environment)
        self.command = Path(invocation_of(adapter, spec_of(adapter))[0].argv[0]).name
        self.tree = worktree(self.root, spec_of(adapter).place)
        self.tree.mkdir(parents=True)

    def install(self, script: str) -> None:
        """Install the script as the agent's command."""
        script_file, program = self.place / "acts.py", self.bin / self.command
        script_file.write_text(script)
        # Not as `#!` of the script, where a path must be short and have no blanks.
        program.write_text(f'#!/bin/sh\nexec {quote(sys.executable)} -IS {quote(str(script_file))} "$@"\n')
        program.chmod(0o755)

    def keep(self, stream: Stream) -> Path:
        """Store a stream for the script: standard output, with standard error beside it."""
        file = self.place / "stream"
        file.write_bytes(stream.result.stdout)
        file.with_name("stream.stderr").write_bytes(stream.result.stderr)
        return file

    def call(self, prompt: str = PROMPT, total: int = 20, idle: int = 20, secret: str = "") -> CallResult:
        spec = spec_of(self.adapter, prompt, key=self.key, total_seconds=total, idle_seconds=idle)
        redactions = Secrets({"SECRET": secret} if secret else {})
        processes = AgentProcesses(self.root, self.environment, redactions)
        return self.adapter.run_phase(spec, self.environment, processes.spawn)


def rehearse(adapter: Adapter, stream: Stream | None, outside: Mapping[str, str]) -> Iterator[Said]:
    """Run all checks; `stream` is a successful one, None if there is none."""
    checks: dict[str, Callable[[Stand], Iterator[str]]] = {
        "check_auth": asked, "fails": fails, "times_out": times_out, "idles": idles, "missing": missing,
    }  # fmt: skip
    if stream is not None:
        checks["answers"] = lambda stand: answers(stand, stream)
        checks["redacts"] = lambda stand: redacts(stand, stream)
    for name, check in checks.items():
        yield Checked("rehearsals")
        yield from _performed(adapter, name, check, outside)


def _performed(
    adapter: Adapter, name: str, check: Callable[[Stand], Iterator[str]], outside: Mapping[str, str]
) -> tuple[Finding, ...]:
    with tempfile.TemporaryDirectory(prefix="mz-gate-", ignore_cleanup_errors=True) as folder:
        stand = Stand(Path(folder).resolve(), adapter, outside)
        return tuple(complaints(adapter, name, lambda _: check(stand)))


def answers(stand: Stand, stream: Stream) -> Iterator[str]:
    """A long prompt is passed in; the recorded stream comes out and is parsed as success."""
    stand.install(ANSWERS.format(stream=str(stand.keep(stream))))
    result = stand.call(PROMPT + "é𝛼 " * 50_000)
    reading = stand.adapter.parse_output(result)
    if (result.exit, result.problem) != (0, None):
        yield f"ends a successful call with exit {result.exit}, {result.problem and result.problem.code}"
    elif result.stdout != stream.result.stdout:
        yield "changes the bytes that its agent wrote"
    elif (reading.terminal, reading.problem) != ("success", None):
        yield f"parses a successful reply as {reading.terminal}"
    if (stand.tree / "key").read_text() != stand.key:
        yield "does not run in its worktree under the key of its call"


def repeated(adapter: Adapter, stream: Stream) -> str:
    """Return the longest part of the reply's text that the stream contains verbatim; empty if there is none."""
    text = adapter.parse_output(stream.result).text
    quotes = (quote for quote in re.findall(r"[\w .:-]{8,}", text) if quote.encode() in stream.result.stdout)
    return max(quotes, key=len, default="")


def redacts(stand: Stand, stream: Stream) -> Iterator[str]:
    """A secret in the agent's output is redacted everywhere, without changing the parsed ending and usage."""
    original, secret = stand.adapter.parse_output(stream.result), repeated(stand.adapter, stream)
    if not secret:
        yield f"has no verbatim text of its reply in its stream ({stream.name}), so redaction is untested"
        return
    stand.install(ANSWERS.format(stream=str(stand.keep(stream))))
    result = stand.call(secret=secret)
    leaking_files = [
        path
        for path in (stand.root / HOME / SPOOL).rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]
    if secret.encode() in result.stdout + result.stderr or leaking_files:
        yield "keeps a secret from its agent's output"
    context = replace(result, model=stream.result.model, earlier=stream.result.earlier)
    reading = stand.adapter.parse_output(context)
    if (reading.terminal, reading.usage) != (original.terminal, original.usage):
        yield "parses a reply differently after redaction"


def fails(stand: Stand) -> Iterator[str]:
    """A failure on standard error is classified."""
    stand.install(FAILS)
    problem = stand.adapter.parse_output(stand.call()).problem
    if problem is None or (problem.code, problem.retry_after_seconds) != ("rate-limit", 7):
        yield f"classifies a rate limit as {problem.code if problem else 'a success'}"


def times_out(stand: Stand) -> Iterator[str]:
    """An agent that writes for ever is ended, with all its processes."""
    yield from _ended(stand, "timeout", talks=True, total=LIMIT_SECONDS)


def idles(stand: Stand) -> Iterator[str]:
    """A silent agent is ended, with all its processes."""
    if stand.adapter.capabilities().streaming:
        yield from _ended(stand, "idle", talks=False, idle=LIMIT_SECONDS)


def _ended(
    stand: Stand, code: str, talks: bool, total: int = NEVER_SECONDS, idle: int = NEVER_SECONDS
) -> Iterator[str]:
    stand.install(HANGS.format(talks=talks))
    result = stand.call(total=total, idle=idle)
    problem = stand.adapter.parse_output(result).problem
    if problem is None or problem.code != code:
        yield f"reports {problem.code if problem else 'a success'} for a call that was ended by {code}"
    if marked(stand.key):
        yield "leaves processes behind when a call is ended"


def missing(stand: Stand) -> Iterator[str]:
    """A missing program gives the problem `tool-missing`."""
    if stand.adapter.capabilities().bundled:
        return
    stand.environment = {**stand.environment, "PATH": str(stand.bin)}
    problem = stand.adapter.parse_output(stand.call()).problem
    if problem is None or problem.code != "tool-missing":
        yield f"reports {problem.code if problem else 'a success'} when its program is missing"


def asked(stand: Stand) -> Iterator[str]:
    """`check_auth` starts the program only for its version, ends by itself, and reveals no secret."""
    adapter = stand.adapter
    without_program = adapter.check_auth({**stand.environment, "PATH": str(stand.bin)})
    expected_code = "auth-missing" if adapter.capabilities().bundled else "tool-missing"
    if without_program.code != expected_code or not without_program.fix:
        code = without_program.code or "success"
        yield f"reports {code} when its program is missing, with the fix {without_program.fix!r}"
    log = stand.place / "calls"
    for then in (f"print({VERSION!r})", "sys.exit(3)", "while True: print('y' * 100_000)"):
        stand.install(LISTS.format(log=str(log), then=then))
        for variables in ({}, {name: CANARY + name for name in invocation_of(adapter, spec_of(adapter))[0].env}):
            check = adapter.check_auth({**variables, **stand.environment})
            if CANARY in repr(check):
                yield "reveals a secret when it checks the login"
            if not then.startswith("print") and not check.code:
                yield "accepts a program with invalid output as its agent"
    started = log.read_text().splitlines() if log.exists() else []
    if any(not set(line.split()) <= ASKING for line in started):
        yield f"starts its agent with {started[0]!r} only to check for its presence"
