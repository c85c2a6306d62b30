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
from mz_engine.agents.contract import Adapter
from mz_engine.agents.process import AgentProcesses
from mz_engine.paths import MZ_FOLDER, SPOOL_FOLDER
from mz_engine.ports import CallResult
from mz_engine.processes.environment import worktree_path
from mz_engine.processes.guard import pids_with_key
from mz_events.redaction.redactor import Secrets
from mz_recordings.findings.model import Finding

from mz_qa.conformance.contract import CANARY, PROMPT, invocation_of, run_check, sample_call
from mz_qa.conformance.endings import Stream
from mz_qa.results import CheckedItem, LayerOutput

VERSION = "9.8.7"
LIMIT_SECONDS = 1
NO_LIMIT_SECONDS = 600
REPLY_SCRIPT = """
import os, pathlib, sys
sys.stdin.buffer.read()
pathlib.Path("key").write_text(os.environ["MZ_KEY"])
sys.stdout.buffer.write(pathlib.Path({stream!r}).read_bytes())
sys.stderr.buffer.write(pathlib.Path({stream!r} + ".stderr").read_bytes())
"""
HANG_SCRIPT = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
while True:
    time.sleep(0.05)
    if {talks}:
        os.write(1, b"{{}}\\n")
"""
FAILURE_SCRIPT = "import sys\nsys.stdin.read()\nsys.exit('API Error: 429 too many requests, retry-after: 7')\n"
LOGGING_SCRIPT = "import pathlib, sys\nopen({log!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n{then}\n"
VERSION_ARGUMENTS = frozenset({"--version", "-v", "-V", "version"})
"""Arguments that an adapter may use to check for its agent; none could reach a model."""


class AdapterRig:
    """A repository with a worktree, and a directory with a script in place of the agent."""

    def __init__(self, base: Path, adapter: Adapter, outside: Mapping[str, str]) -> None:
        self.base, self.adapter = base, adapter
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
        self.command = Path(invocation_of(adapter, sample_call(adapter))[0].argv[0]).name
        self.worktree_path = worktree_path(self.root, sample_call(adapter).worktree)
        self.worktree_path.mkdir(parents=True)

    def install(self, script: str) -> None:
        """Install the script as the agent's command."""
        script_file, program = self.base / "acts.py", self.bin / self.command
        script_file.write_text(script)
        # Not as `#!` of the script, where a path must be short and have no blanks.
        program.write_text(f'#!/bin/sh\nexec {quote(sys.executable)} -IS {quote(str(script_file))} "$@"\n')
        program.chmod(0o755)

    def store_stream(self, stream: Stream) -> Path:
        """Store a stream for the script: standard output, with standard error beside it."""
        file = self.base / "stream"
        file.write_bytes(stream.result.stdout)
        file.with_name("stream.stderr").write_bytes(stream.result.stderr)
        return file

    def call(self, prompt: str = PROMPT, total: int = 20, idle: int = 20, secret: str = "") -> CallResult:
        spec = sample_call(self.adapter, prompt, key=self.key, total_seconds=total, idle_seconds=idle)
        redactions = Secrets({"SECRET": secret} if secret else {})
        processes = AgentProcesses(self.root, self.environment, redactions)
        return self.adapter.run_call(spec, self.environment, processes.spawn)


def run_adapter(adapter: Adapter, stream: Stream | None, outside: Mapping[str, str]) -> Iterator[LayerOutput]:
    """Run all checks; `stream` is a successful one, None if there is none."""
    checks: dict[str, Callable[[AdapterRig], Iterator[str]]] = {
        "check_auth": check_login,
        "fails": check_failure,
        "times_out": check_timeout,
        "idles": check_idle,
        "missing": check_missing_program,
    }
    if stream is not None:
        checks["answers"] = lambda stand: check_reply(stand, stream)
        checks["redacts"] = lambda stand: check_redaction(stand, stream)
    for name, check in checks.items():
        yield CheckedItem("rehearsals")
        yield from _run_check(adapter, name, check, outside)


def _run_check(
    adapter: Adapter, name: str, check: Callable[[AdapterRig], Iterator[str]], outside: Mapping[str, str]
) -> tuple[Finding, ...]:
    with tempfile.TemporaryDirectory(prefix="mz-gate-", ignore_cleanup_errors=True) as folder:
        rig = AdapterRig(Path(folder).resolve(), adapter, outside)
        return tuple(run_check(adapter, name, lambda _: check(rig)))


def check_reply(rig: AdapterRig, stream: Stream) -> Iterator[str]:
    """A long prompt is passed in; the recorded stream comes out and is parsed as success."""
    rig.install(REPLY_SCRIPT.format(stream=str(rig.store_stream(stream))))
    result = rig.call(PROMPT + "é𝛼 " * 50_000)
    reading = rig.adapter.parse_output(result)
    if (result.exit, result.problem) != (0, None):
        yield f"ends a successful call with exit {result.exit}, {result.problem and result.problem.code}"
    elif result.stdout != stream.result.stdout:
        yield "changes the bytes that its agent wrote"
    elif (reading.ending, reading.problem) != ("success", None):
        yield f"parses a successful reply as {reading.ending}"
    if (rig.worktree_path / "key").read_text() != rig.key:
        yield "does not run in its worktree under the key of its call"


def longest_quote(adapter: Adapter, stream: Stream) -> str:
    """Return the longest part of the reply's text that the stream contains verbatim; empty if there is none."""
    text = adapter.parse_output(stream.result).text
    quotes = (quote for quote in re.findall(r"[\w .:-]{8,}", text) if quote.encode() in stream.result.stdout)
    return max(quotes, key=len, default="")


def check_redaction(rig: AdapterRig, stream: Stream) -> Iterator[str]:
    """A secret in the agent's output is redacted everywhere, without changing the parsed ending and usage."""
    original, secret = rig.adapter.parse_output(stream.result), longest_quote(rig.adapter, stream)
    if not secret:
        yield f"has no verbatim text of its reply in its stream ({stream.name}), so redaction is untested"
        return
    rig.install(REPLY_SCRIPT.format(stream=str(rig.store_stream(stream))))
    result = rig.call(secret=secret)
    leaking_files = [
        path
        for path in (rig.root / MZ_FOLDER / SPOOL_FOLDER).rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]
    if secret.encode() in result.stdout + result.stderr or leaking_files:
        yield "keeps a secret from its agent's output"
    context = replace(result, model=stream.result.model, session_usage_before=stream.result.session_usage_before)
    reading = rig.adapter.parse_output(context)
    if (reading.ending, reading.usage) != (original.ending, original.usage):
        yield "parses a reply differently after redaction"


def check_failure(rig: AdapterRig) -> Iterator[str]:
    """A failure on standard error is classified."""
    rig.install(FAILURE_SCRIPT)
    problem = rig.adapter.parse_output(rig.call()).problem
    if problem is None or (problem.code, problem.retry_after_seconds) != ("rate-limit", 7):
        yield f"classifies a rate limit as {problem.code if problem else 'a success'}"


def check_timeout(rig: AdapterRig) -> Iterator[str]:
    """An agent that writes for ever is ended, with all its processes."""
    yield from _check_ended(rig, "timeout", talks=True, total=LIMIT_SECONDS)


def check_idle(rig: AdapterRig) -> Iterator[str]:
    """A silent agent is ended, with all its processes."""
    if rig.adapter.capabilities().streaming:
        yield from _check_ended(rig, "idle", talks=False, idle=LIMIT_SECONDS)


def _check_ended(
    rig: AdapterRig, code: str, talks: bool, total: int = NO_LIMIT_SECONDS, idle: int = NO_LIMIT_SECONDS
) -> Iterator[str]:
    rig.install(HANG_SCRIPT.format(talks=talks))
    result = rig.call(total=total, idle=idle)
    problem = rig.adapter.parse_output(result).problem
    if problem is None or problem.code != code:
        yield f"reports {problem.code if problem else 'a success'} for a call that was ended by {code}"
    if pids_with_key(rig.key):
        yield "leaves processes behind when a call is ended"


def check_missing_program(rig: AdapterRig) -> Iterator[str]:
    """A missing program gives the problem `tool-missing`."""
    if rig.adapter.capabilities().bundled:
        return
    rig.environment = {**rig.environment, "PATH": str(rig.bin)}
    problem = rig.adapter.parse_output(rig.call()).problem
    if problem is None or problem.code != "tool-missing":
        yield f"reports {problem.code if problem else 'a success'} when its program is missing"


def check_login(rig: AdapterRig) -> Iterator[str]:
    """`check_auth` starts the program only for its version, ends by itself, and reveals no secret."""
    adapter = rig.adapter
    without_program = adapter.check_auth({**rig.environment, "PATH": str(rig.bin)})
    expected_code = "auth-missing" if adapter.capabilities().bundled else "tool-missing"
    if without_program.code != expected_code or not without_program.fix:
        code = without_program.code or "success"
        yield f"reports {code} when its program is missing, with the fix {without_program.fix!r}"
    log = rig.base / "calls"
    for then in (f"print({VERSION!r})", "sys.exit(3)", "while True: print('y' * 100_000)"):
        rig.install(LOGGING_SCRIPT.format(log=str(log), then=then))
        for variables in ({}, {name: CANARY + name for name in invocation_of(adapter, sample_call(adapter))[0].env}):
            check = adapter.check_auth({**variables, **rig.environment})
            if CANARY in repr(check):
                yield "reveals a secret when it checks the login"
            if not then.startswith("print") and not check.code:
                yield "accepts a program with invalid output as its agent"
    started = log.read_text().splitlines() if log.exists() else []
    if any(not set(line.split()) <= VERSION_ARGUMENTS for line in started):
        yield f"starts its agent with {started[0]!r} only to check for its presence"
