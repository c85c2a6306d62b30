"""Pure: with what the API is called, as the environment says it. Apart from the client, whose package loads slowly."""

from __future__ import annotations

from collections.abc import Mapping

from mz_engine.agents.anthropic_loop.facts import Failure


def login(environment: Mapping[str, str]) -> dict[str, str]:
    """The client's argument that holds the key or the token. Raises Failure where there is neither."""
    key, token = environment.get("ANTHROPIC_API_KEY"), environment.get("ANTHROPIC_AUTH_TOKEN")
    if key:
        return {"api_key": key}
    if token:
        return {"auth_token": token}
    raise Failure("authentication_error", "no API key: set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN)")
