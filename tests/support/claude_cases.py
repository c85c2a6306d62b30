"""Facts: ways in which a `claude` call can end, each as a script of the model endpoint.

`qa/mz_qa/fixtures/agents/claude-code/` keeps what the real CLI wrote for each (and its exit code, last in the name).
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
from mz_qa.conformance.endings import endings, expectations

from tests.support.claude_cli import environment, plain_spawn, spec
from tests.support.endpoint import Answer, Cut, Endpoint, Garbage, Hang, Refusal, Reply, Request, Script, Use
from tests.support.tree import ROOT

STORED = ROOT / "qa/mz_qa/fixtures/agents/claude-code"
SESSION = "11111111-2222-4333-8444-555555555555"
LOW = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade."


@dataclass(frozen=True)
class Case:
    """What the adapter must say of it stands in the fixtures."""

    script: Script
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
    "works": Case(works),
    "denied": Case(reads_outside),
    "asks": Case(asks),
    "401": Case(refuses(401, "authentication_error", "invalid x-api-key")),
    "403": Case(refuses(403, "permission_error", "no access")),
    "429": Case(refuses(429, "rate_limit_error", "slow down", {"retry-after": "2"})),
    "429-bare": Case(refuses(429, "rate_limit_error", "slow down")),
    "500": Case(refuses(500, "api_error", "Internal")),
    "529": Case(refuses(529, "overloaded_error", "Overloaded")),
    "credit": Case(refuses(400, "invalid_request_error", LOW)),
    "no-model": Case(refuses(404, "not_found_error", "model: x")),
    "cut": Case(lambda _: Cut(Reply("half of a"))),
    "garbage": Case(lambda _: Garbage(b"lalala\n\n{}")),
    "no-session": Case(works, resumes=True),
    "terminated": Case(lambda _: Hang(), signal_after=(signal.SIGTERM, 3.0)),
    "interrupted": Case(lambda _: Hang(), signal_after=(signal.SIGINT, 3.0)),
}
EXPECTED = expectations("claude-code")


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
    (found,) = [ending for ending in endings("claude-code") if ending.name == name]
    return found.result


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
