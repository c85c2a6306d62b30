"""Ways in which a `codex` call can end (`tests.support.agent_cases`)."""

from __future__ import annotations

import signal

from tests.support import codex_cli
from tests.support.agent_cases import Case, Cases, asks, refuses, works
from tests.support.endpoint import Answer, Cut, Garbage, Hang, Reply, Request, server_event

LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."
QUOTA = "You exceeded your current quota, please check your plan and billing details."


def writes_outside(request: Request) -> Answer:
    """Runs a command that the sandbox stops."""
    if request.results():
        return Reply("I could not write it.")
    return Reply("", (request.run("touch /etc/mz-was-here"),))


def thinks(request: Request) -> Answer:
    """One answer for each prompt, with thoughts."""
    return Reply(f"You said: {request.prompt.strip()}", thoughts=40)


def fails(code: str, message: str) -> Garbage:
    """A stream that ends in a failure, as the API sends it where it had begun to answer."""
    began = server_event({"type": "response.created", "response": {"id": "resp_1"}}, "response.created")
    error = {"id": "resp_1", "status": "failed", "error": {"code": code, "message": message}}
    return Garbage(began + server_event({"type": "response.failed", "response": error}, "response.failed"))


CODEX = Cases(
    "codex",
    codex_cli.environment,
    codex_cli.spec,
    {
        "works": Case(works),
        "continued": Case(thinks, continues=True),
        "denied": Case(writes_outside),
        "asks": Case(asks),
        "401": Case(refuses(401, "invalid_api_key", "Incorrect API key provided: unu*ed.")),
        "403": Case(refuses(403, "permission_error", "You have insufficient permissions for this operation.")),
        "429": Case(refuses(429, "rate_limit_exceeded", "Rate limit reached for requests. Please try again in 20s.")),
        "limit": Case(refuses(429, "usage_limit_reached", "The usage limit has been reached")),
        "quota": Case(refuses(429, "insufficient_quota", QUOTA)),
        "500": Case(refuses(500, "server_error", "The server had an error while processing your request.")),
        "503": Case(refuses(503, "server_is_overloaded", "Our servers are currently overloaded.")),
        "no-model": Case(refuses(404, "model_not_found", "The model `gpt-6.1-sol` does not exist.")),
        "bad-request": Case(refuses(400, "invalid_request_error", "Unsupported parameter.")),
        "too-long": Case(lambda _: fails("context_length_exceeded", LONG)),
        "stream-limit": Case(lambda _: fails("rate_limit_exceeded", "Rate limit reached. Please try again in 1s.")),
        "stream-quota": Case(lambda _: fails("insufficient_quota", QUOTA)),
        "cut": Case(lambda _: Cut(Reply("half of a"))),
        "garbage": Case(lambda _: Garbage(b"lalala\n\n{}")),
        "refused": Case(works, unreachable=True),
        "no-session": Case(works, resumes=True),
        "terminated": Case(lambda _: Hang(), signal=signal.SIGTERM),
        "interrupted": Case(lambda _: Hang(), signal=signal.SIGINT),
    },
)
