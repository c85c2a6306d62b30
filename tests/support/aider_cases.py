"""Ways in which an `aider` call can end (`tests.support.agent_cases`)."""

from __future__ import annotations

import signal

from tests.support import aider_cli
from tests.support.agent_cases import Case, Cases, asks, refuses
from tests.support.endpoint import Answer, Cut, Hang, Reply, Request

QUOTA = "You exceeded your current quota, please check your plan and billing details."
LONG = "This model's maximum context length is 128000 tokens. However, your messages resulted in 200000 tokens."


def works(request: Request) -> Answer:
    """Writes a file; a model of aider's has one request for it."""
    return Reply("I write the note.", (request.write("note.md", "# Hi\n"),))


class WorksTwice:
    """An edit that does not fit, and is sent back once."""

    def __init__(self) -> None:
        self.requests = 0

    def __call__(self, request: Request) -> Answer:
        self.requests += 1
        wrong, right = request.edit("note.md", "nothing like it\n", "# Hi\n"), request.write("n.md", "Hi\n")
        use = wrong if self.requests % 2 else right
        return Reply(f"This is try {self.requests}.", (use,))


class FailsLate:
    """The first request is answered, the one that mends an edit is not."""

    def __init__(self) -> None:
        self.requests = 0

    def __call__(self, request: Request) -> Answer:
        self.requests += 1
        if self.requests % 2:
            return Reply("I change it.", (request.edit("note.md", "nothing like it\n", "# Hi\n"),))
        return refuses(401, "invalid_api_key", "Incorrect API key provided: unu*ed.")(request)


AIDER = Cases(
    "aider",
    aider_cli.environment,
    aider_cli.spec,
    {
        "works": Case(works),
        "works-twice": Case(WorksTwice()),
        "fails-late": Case(FailsLate()),
        "asks": Case(asks),
        "401": Case(refuses(401, "invalid_api_key", "Incorrect API key provided: unu*ed.")),
        "429": Case(refuses(429, "rate_limit_exceeded", "Rate limit reached for requests. Please try again in 20s.")),
        "quota": Case(refuses(429, "insufficient_quota", QUOTA)),
        "500": Case(refuses(500, "server_error", "The server had an error while processing your request.")),
        "no-model": Case(refuses(404, "model_not_found", "The model `gpt-4o` does not exist.")),
        "too-long": Case(refuses(400, "context_length_exceeded", LONG)),
        "cut": Case(lambda _: Cut(Reply("half of a"))),
        "refused": Case(works, unreachable=True),
        "terminated": Case(lambda _: Hang(), signal=signal.SIGTERM),
    },
)
