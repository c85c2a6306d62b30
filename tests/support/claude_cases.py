"""Facts: ways in which a `claude` call can end, each as a script of the model endpoint and what the adapter must say.

`tests/cases/claude/` keeps what the real CLI wrote for each (and its exit code, last in the name).
`python -m tests.support.claude_cases` drives the CLI again and writes them anew.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mz_engine.agents.claude_code import invocation
from mz_engine.ports import CallResult
from mz_events.catalog.call import ProblemClass

from tests.support.claude_cli import environment, plain_spawn, spec
from tests.support.endpoint import Answer, Cut, Endpoint, Garbage, Hang, Refusal, Reply, Request, Script, Use

STORED = Path(__file__).resolve().parents[1] / "cases" / "claude"
SESSION = "11111111-2222-4333-8444-555555555555"
LOW = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade."


@dataclass(frozen=True)
class Case:
    script: Script
    terminal: str
    code: str = ""
    kind: ProblemClass | None = None
    retry_after: int | None = None
    resumes: bool = False
    signal_after: tuple[int, float] | None = None


def works(request: Request) -> Answer:
    """Writes a file, runs a command, says so."""
    match len(request.results()):
        case 0:
            return Reply(
                "I write the note.", (Use("Write", {"file_path": f"{request.cwd}/note.md", "content": "# Hi\n"}),)
            )
        case 1:
            return Reply("", (Use("Bash", {"command": "cat note.md"}),))
        case _:
            return Reply("Done: note.md is there.")


def reads_outside(request: Request) -> Answer:
    """Asks for a file outside the worktree, which nobody is there to allow."""
    if request.results():
        return Reply("I could not read it.")
    return Reply("", (Use("Read", {"file_path": "/etc/hostname"}),))


def asks(request: Request) -> Answer:
    return Reply("I looked at the code.\n\nBlocker: need a decision on the file format before I can go on.")


def refuses(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> Script:
    return lambda _: Refusal(status, kind, message, dict(headers or {}))


CASES: dict[str, Case] = {
    "works": Case(works, "success"),
    "denied": Case(reads_outside, "success"),
    "asks": Case(asks, "success", "agent-blocker", ProblemClass.HUMAN),
    "401": Case(refuses(401, "authentication_error", "invalid x-api-key"), "error", "auth-failure", ProblemClass.FATAL),
    "403": Case(refuses(403, "permission_error", "no access"), "error", "auth-failure", ProblemClass.FATAL),
    "429": Case(
        refuses(429, "rate_limit_error", "slow down", {"retry-after": "2"}),
        "error",
        "rate-limit",
        ProblemClass.TRANSIENT,
        2,
    ),
    "429-bare": Case(refuses(429, "rate_limit_error", "slow down"), "error", "rate-limit", ProblemClass.TRANSIENT, 600),
    "500": Case(refuses(500, "api_error", "Internal"), "error", "overloaded", ProblemClass.TRANSIENT, 30),
    "529": Case(refuses(529, "overloaded_error", "Overloaded"), "error", "overloaded", ProblemClass.TRANSIENT, 30),
    "credit": Case(refuses(400, "invalid_request_error", LOW), "error", "billing", ProblemClass.FATAL),
    "no-model": Case(refuses(404, "not_found_error", "model: x"), "error", "model-missing", ProblemClass.FATAL),
    "cut": Case(lambda _: Cut(Reply("half of a")), "error", "connection", ProblemClass.TRANSIENT, 30),
    "garbage": Case(lambda _: Garbage(b"lalala\n\n{}"), "error", "connection", ProblemClass.TRANSIENT, 30),
    "no-session": Case(works, "error", "session-missing", ProblemClass.PHASE, resumes=True),
    "terminated": Case(
        lambda _: Hang(), "no-terminal", "no-terminal", ProblemClass.PHASE, signal_after=(signal.SIGTERM, 3.0)
    ),
    "interrupted": Case(
        lambda _: Hang(), "no-terminal", "no-terminal", ProblemClass.PHASE, signal_after=(signal.SIGINT, 3.0)
    ),
}


def drive(case: Case, directory: Path) -> tuple[CallResult, Endpoint]:
    """The real CLI against the case's script, in a fresh HOME and repository under `directory`."""
    home, work = directory / "home", directory / "work"
    home.mkdir()
    work.mkdir()
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    with Endpoint(case.script) as endpoint:
        outside = environment(home, endpoint.url)
        call = spec("Please write a note.", SESSION, resumes=case.resumes)
        result = plain_spawn(work, outside, case.signal_after)(call, invocation(call, outside))
    return result, endpoint


def stored(name: str) -> CallResult:
    """What the CLI wrote when the case was last driven."""
    (path,) = STORED.glob(f"{name}.exit*.jsonl")
    code = int(path.name.removesuffix(".jsonl").rsplit(".exit", 1)[1])
    stderr = path.with_suffix(".stderr")
    return CallResult(
        stdout=path.read_bytes(), stderr=stderr.read_bytes() if stderr.exists() else b"", exit=code, duration_ms=1
    )


def main() -> None:
    for old in STORED.glob("*"):
        old.unlink()
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as directory:
            result, _ = drive(case, Path(directory))
            path = STORED / f"{name}.exit{result.exit}.jsonl"
            path.write_bytes(_general(result.stdout, directory))
            if result.stderr:
                path.with_suffix(".stderr").write_bytes(_general(result.stderr, directory))
            sys.stderr.write(f"{path.name}: {len(result.stdout)} bytes\n")


def _general(data: bytes, directory: str) -> bytes:
    slug = re.sub(r"[^A-Za-z0-9]", "-", directory)
    data = data.replace(directory.encode(), b"/home/somebody").replace(slug.encode(), b"-home-somebody")
    return re.sub(rb"127\.0\.0\.1:\d+", b"127.0.0.1:8000", data)


if __name__ == "__main__":
    main()
