"""aider, which `description.yaml` describes."""

from __future__ import annotations

from collections.abc import Iterator

from mz_engine.agents.aider.logs import FORMATS
from mz_engine.agents.package import AgentPackage, cut_stderr, json_line, stream_events

ERRORS = {
    "rate-limit": "litellm.RateLimitError: RateLimitError: OpenAIException - Please try again in 20s.",
    "billing": "litellm.RateLimitError: RateLimitError: OpenAIException - insufficient_quota",
    "auth-failure": "litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided.",
    "overloaded": "litellm.InternalServerError: InternalServerError: OpenAIException - The server had an error.",
    "connection": "litellm.APIConnectionError: APIConnectionError: OpenAIException - Connection error.",
    "model-missing": "litellm.NotFoundError: NotFoundError: OpenAIException - The model does not exist.",
}


def endings(stdout: bytes, stderr: bytes) -> Iterator[tuple[str, bytes, bytes, int]]:
    """The log tells that a message was sent and whether it completed; errors are plain text on stdout. Exits with 0."""
    lines = stderr.splitlines(keepends=True)
    sent_index = max((at for at, line in enumerate(lines) if b'"message_send"' in line), default=None)
    if sent_index is None:
        return
    head, last = b"".join(lines[:-1]), lines[-1]
    unsent = b"".join((*lines[:sent_index], *lines[sent_index + 1 :]))
    begun = json_line({"event": "message_send_starting", "properties": {}})
    failed = json_line({"event": "message_send_exception", "properties": {"exception": "it broke"}})
    for name, text in ERRORS.items():
        error_line = text.encode() + b"\n"
        yield f"ends-{name}", stdout + error_line, unsent, 0
        yield f"{name}-then-success", error_line + stdout, stderr, 0
        yield f"success-then-{name}", stdout + error_line, head + begun + last, 0
    yield "ends-exception", stdout, b"".join(lines[:sent_index]) + failed + b"".join(lines[sent_index + 1 :]), 0
    yield "ends-token-limit", stdout + b"Model openai/gpt-5.1 has hit a token limit!\n", stderr, 0
    yield "ends-in-words", stdout + lines[sent_index], unsent, 0
    yield from cut_stderr(stdout, stderr)


def succeeds(stdout: bytes, stderr: bytes) -> bool:
    """Success: the log ends, every message has a reply, and no reply exceeded the token limit."""
    names = [str(event.get("event")) for event in stream_events(stderr)]
    sends = [event for event in names if event.startswith("message_send")]
    too_long = any(line.startswith(b"Model ") and b" has hit a token limit!" in line for line in stdout.split(b"\n"))
    return sends[-1:] == ["message_send"] and "exit" in names and not too_long


AGENT = AgentPackage(
    name="aider",
    install="install aider (pip install aider-chat)",
    formats=FORMATS,
    stderr_endings=endings,
    success_check=succeeds,
    fault_endings={
        "rate-limit": "ends-rate-limit",
        "overloaded": "ends-overloaded",
        "auth-failure": "ends-auth-failure",
        "lost-connection": "ends-connection",
    },
)
