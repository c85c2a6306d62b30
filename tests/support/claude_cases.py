"""Ways in which a `claude` call can end (`tests.support.agent_cases`)."""

from __future__ import annotations

import signal
from dataclasses import replace

from tests.support import claude_cli
from tests.support.agent_cases import Case, Cases, asks, refuses, works
from tests.support.endpoint import Answer, Cut, Garbage, Hang, Reply, Request, Use

LOW = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade."


def reads_outside(request: Request) -> Answer:
    """Asks for a file outside the worktree, which nobody is there to allow."""
    if request.results():
        return Reply("I could not read it.")
    return Reply("", (Use("Read", {"file_path": "/etc/hostname"}),))


def cached_for_an_hour(request: Request) -> Answer:
    """Does the same work; what went into the prompt cache stays there for an hour."""
    answer = works(request)
    return replace(answer, hour=True) if isinstance(answer, Reply) else answer


CLAUDE = Cases(
    "claude-code",
    claude_cli.environment,
    claude_cli.spec,
    {
        "works": Case(works),
        "hour": Case(cached_for_an_hour),
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
        "unreachable": Case(works, unreachable=True),
        "no-session": Case(works, resumes=True),
        "terminated": Case(lambda _: Hang(), signal=signal.SIGTERM),
        "interrupted": Case(lambda _: Hang(), signal=signal.SIGINT),
    },
)
