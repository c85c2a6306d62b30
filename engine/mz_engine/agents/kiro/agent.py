"""Kiro, which `description.yaml` describes."""

from __future__ import annotations

from collections.abc import Iterator

from mz_engine.agents.package import AgentPackage, cut_stderr

ERRORS = {
    "rate-limit": "error: Too many requests, please wait before trying again.",
    "billing": "error: You have reached your monthly usage limit.",
    "auth-failure": "Authentication failed. Your API key may be invalid or expired. Check your KIRO_API_KEY value.",
    "overloaded": "Kiro is having trouble responding right now: request failed",
}


def endings(stdout: bytes, stderr: bytes) -> Iterator[tuple[str, bytes, bytes, int]]:
    """stderr has the cost of a finished turn, and errors."""
    unpaid = b"".join(line for line in stderr.splitlines(keepends=True) if b"Credits:" not in line)
    for name, text in ERRORS.items():
        error_line = text.encode() + b"\n"
        yield f"ends-{name}", stdout, unpaid + error_line, 1
        yield f"ends-{name}-exit-0", stdout, unpaid + error_line, 0
        yield f"{name}-then-success", stdout, error_line + stderr, 0
    yield "ends-without-credits", stdout, unpaid, 0
    yield from cut_stderr(stdout, stderr)


AGENT = AgentPackage(
    name="kiro",
    described=True,
    install="install Kiro's command line (kiro.dev says how)",
    stderr_endings=endings,
    fault_endings={
        "rate-limit": "ends-rate-limit",
        "overloaded": "ends-overloaded",
        "auth-failure": "ends-auth-failure",
    },
)
