"""Ways in which a call of `mz-anthropic` can end (`tests.support.agent_cases`)."""

from __future__ import annotations

import signal

from tests.support import anthropic_cli
from tests.support.agent_cases import Case, Cases, asks, refuses
from tests.support.claude_cases import LOW
from tests.support.endpoint import Answer, Cut, Garbage, Hang, Reply, Request

LONG = "prompt is too long: 250001 tokens > 200000 maximum"
SOON = {"retry-after-ms": "20"}
LATER = {"retry-after": "90"}
NEVER = {"x-should-retry": "false"}


def works(request: Request) -> Answer:
    """Writes a file, runs a command, says so; thinks before, and keeps something in the cache for an hour."""
    match len(request.results()):
        case 0:
            return Reply("I write the note.", (request.write("note.md", "# Hi\n"),), thoughts=40)
        case 1:
            return Reply("", (request.run("cat note.md"),), hour=True)
        case _:
            return Reply("Done: note.md is there.")


def reads_outside(request: Request) -> Answer:
    """Asks for a file outside the worktree."""
    if request.results():
        return Reply("I could not read it.")
    return Reply("", (request.read("/etc/hostname"),))


class Recovers:
    """Every other answer breaks off in the middle."""

    def __init__(self) -> None:
        self._asked = 0

    def __call__(self, request: Request) -> Answer:
        self._asked += 1
        reply = Reply("Done after all.")
        return Cut(reply) if self._asked % 2 else reply


ANTHROPIC = Cases(
    "anthropic",
    anthropic_cli.environment,
    anthropic_cli.spec,
    {
        "works": Case(works),
        "continued": Case(works, continues=True),
        "recovers": Case(Recovers()),
        "denied": Case(reads_outside),
        "asks": Case(asks),
        "401": Case(refuses(401, "authentication_error", "invalid x-api-key")),
        "403": Case(refuses(403, "permission_error", "no access")),
        "429": Case(refuses(429, "rate_limit_error", "slow down", LATER)),
        "429-again": Case(refuses(429, "rate_limit_error", "slow down", SOON)),
        "429-bare": Case(refuses(429, "rate_limit_error", "slow down", NEVER)),
        "500": Case(refuses(500, "api_error", "Internal", SOON)),
        "529": Case(refuses(529, "overloaded_error", "Overloaded", SOON)),
        "credit": Case(refuses(400, "invalid_request_error", LOW)),
        "too-long": Case(refuses(400, "invalid_request_error", LONG)),
        "no-model": Case(refuses(404, "not_found_error", "model: x")),
        "cut": Case(lambda _: Cut(Reply("half of a"))),
        "garbage": Case(lambda _: Garbage(b"lalala\n\n{}")),
        "unreachable": Case(works, unreachable=True),
        "no-session": Case(works, resumes=True),
        "terminated": Case(lambda _: Hang(), signal=signal.SIGTERM),
        "killed": Case(lambda _: Hang(), signal=signal.SIGKILL),
    },
)
