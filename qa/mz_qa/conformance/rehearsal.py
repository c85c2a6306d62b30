"""Adapter: drives an agent's adapter through real processes, with a script in the place of the agent.

What crosses the boundary, what time limits do, and whether anything is left, is the same for any agent.
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
"""What an adapter may start its agent with to see whether it is there: nothing that could reach a model."""


class Stand:
    """A repository with a worktree, and a directory for the script that stands in for the agent."""

    def __init__(self, place: Path, adapter: Adapter, outside: Mapping[str, str]) -> None:
        self.place, self.adapter = place, adapter
        self.key = f"gate-{secrets.token_hex(6)}/sample/write/-/1/1/agent.builder"
        self.root, self.bin, self.home = place / "project", place / "bin", place / "home"
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
        """Puts the script where the agent is looked for."""
        acts, program = self.place / "acts.py", self.bin / self.command
        acts.write_text(script)
        # Not as `#!` of the script: there, a path may be neither long nor hold a blank.
        program.write_text(f'#!/bin/sh\nexec {quote(sys.executable)} -IS {quote(str(acts))} "$@"\n')
        program.chmod(0o755)

    def keep(self, stream: Stream) -> Path:
        """Where the script finds what the agent wrote: standard output, and standard error beside it."""
        file = self.place / "stream"
        file.write_bytes(stream.result.stdout)
        file.with_name("stream.stderr").write_bytes(stream.result.stderr)
        return file

    def call(self, prompt: str = PROMPT, total: int = 20, idle: int = 20, secret: str = "") -> CallResult:
        spec = spec_of(self.adapter, prompt, key=self.key, total_seconds=total, idle_seconds=idle)
        known = Secrets({"SECRET": secret} if secret else {})
        processes = AgentProcesses(self.root, self.environment, known)
        return self.adapter.run_phase(spec, self.environment, processes.spawn)


def rehearse(adapter: Adapter, stream: Stream | None, outside: Mapping[str, str]) -> Iterator[Said]:
    """All of it; `stream` is one that ended well, None where there is none."""
    acts: dict[str, Callable[[Stand], Iterator[str]]] = {
        "check_auth": asked, "fails": fails, "times_out": times_out, "idles": idles, "missing": missing,
    }  # fmt: skip
    if stream is not None:
        acts["answers"] = lambda stand: answers(stand, stream)
        acts["redacts"] = lambda stand: redacts(stand, stream)
    for name, act in acts.items():
        yield Checked("rehearsals")
        yield from _performed(adapter, name, act, outside)


def _performed(
    adapter: Adapter, name: str, act: Callable[[Stand], Iterator[str]], outside: Mapping[str, str]
) -> tuple[Finding, ...]:
    with tempfile.TemporaryDirectory(prefix="mz-gate-", ignore_cleanup_errors=True) as folder:
        stand = Stand(Path(folder).resolve(), adapter, outside)
        return tuple(complaints(adapter, name, lambda _: act(stand)))


def answers(stand: Stand, stream: Stream) -> Iterator[str]:
    """A long prompt goes in, the recorded stream comes out, and is read as it was."""
    stand.install(ANSWERS.format(stream=str(stand.keep(stream))))
    result = stand.call(PROMPT + "é𝛼 " * 50_000)
    reading = stand.adapter.parse_output(result)
    if (result.exit, result.problem) != (0, None):
        yield f"ends a call that went well with exit {result.exit}, {result.problem and result.problem.code}"
    elif result.stdout != stream.result.stdout:
        yield "changes the bytes that its agent wrote"
    elif (reading.terminal, reading.problem) != ("success", None):
        yield f"reads an answer that went well as {reading.terminal}"
    if (stand.tree / "key").read_text() != stand.key:
        yield "does not run in its worktree under the key of its call"


def repeated(adapter: Adapter, stream: Stream) -> str:
    """The longest words of the answer that stand in the stream as they are; empty where it is told in pieces."""
    text = adapter.parse_output(stream.result).text
    words = (word for word in re.findall(r"[\w .:-]{8,}", text) if word.encode() in stream.result.stdout)
    return max(words, key=len, default="")


def redacts(stand: Stand, stream: Stream) -> Iterator[str]:
    """A secret that the agent repeats is gone from everything that is kept of the call, which reads as before."""
    told, secret = stand.adapter.parse_output(stream.result), repeated(stand.adapter, stream)
    if not secret:
        yield f"has no words of its answer in its stream ({stream.name}), so nothing shows that secrets are taken out"
        return
    stand.install(ANSWERS.format(stream=str(stand.keep(stream))))
    result = stand.call(secret=secret)
    kept = [
        path
        for path in (stand.root / HOME / SPOOL).rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]
    if secret.encode() in result.stdout + result.stderr or kept:
        yield "keeps a secret that its agent repeated"
    context = replace(result, model=stream.result.model, earlier=stream.result.earlier)
    reading = stand.adapter.parse_output(context)
    if (reading.terminal, reading.usage) != (told.terminal, told.usage):
        yield "reads an answer differently once a secret was taken out of it"


def fails(stand: Stand) -> Iterator[str]:
    """A failure on standard error comes back with its class."""
    stand.install(FAILS)
    problem = stand.adapter.parse_output(stand.call()).problem
    if problem is None or (problem.code, problem.retry_after_seconds) != ("rate-limit", 7):
        yield f"takes a rate limit for {problem.code if problem else 'a success'}"


def times_out(stand: Stand) -> Iterator[str]:
    """An agent that goes on writing for ever is ended, with all that it started."""
    yield from _ended(stand, "timeout", talks=True, total=LIMIT_SECONDS)


def idles(stand: Stand) -> Iterator[str]:
    """An agent that says nothing any more is ended, with all that it started."""
    if stand.adapter.capabilities().streaming:
        yield from _ended(stand, "idle", talks=False, idle=LIMIT_SECONDS)


def _ended(
    stand: Stand, code: str, talks: bool, total: int = NEVER_SECONDS, idle: int = NEVER_SECONDS
) -> Iterator[str]:
    stand.install(HANGS.format(talks=talks))
    result = stand.call(total=total, idle=idle)
    problem = stand.adapter.parse_output(result).problem
    if problem is None or problem.code != code:
        yield f"calls it {problem.code if problem else 'a success'} where the call was ended for {code}"
    if marked(stand.key):
        yield "leaves processes behind when a call is ended"


def missing(stand: Stand) -> Iterator[str]:
    """Without its program nothing is called, and a person is told."""
    if stand.adapter.capabilities().bundled:
        return
    stand.environment = {**stand.environment, "PATH": str(stand.bin)}
    problem = stand.adapter.parse_output(stand.call()).problem
    if problem is None or problem.code != "tool-missing":
        yield f"calls it {problem.code if problem else 'a success'} where its program is missing"


def asked(stand: Stand) -> Iterator[str]:
    """`check_auth` starts the program at most to ask for its version, ends by itself, and shows no secret."""
    adapter = stand.adapter
    nowhere = adapter.check_auth({**stand.environment, "PATH": str(stand.bin)})
    lacks = "auth-missing" if adapter.capabilities().bundled else "tool-missing"
    if nowhere.code != lacks or not nowhere.fix:
        yield f"says {nowhere.code or 'all is well'} where its program is missing, and {nowhere.fix or 'no word'} on it"
    log = stand.place / "calls"
    for then in (f"print({VERSION!r})", "sys.exit(3)", "while True: print('y' * 100_000)"):
        stand.install(LISTS.format(log=str(log), then=then))
        for more in ({}, {name: CANARY + name for name in invocation_of(adapter, spec_of(adapter))[0].env}):
            found = adapter.check_auth({**more, **stand.environment})
            if CANARY in repr(found):
                yield "shows a secret when it is asked for its login"
            if not then.startswith("print") and not found.code:
                yield "takes a program that says nothing sensible for its agent"
    started = log.read_text().splitlines() if log.exists() else []
    if any(not set(line.split()) <= ASKING for line in started):
        yield f"starts its agent with {started[0]!r} only to see whether it is there"
