"""Selection of the API key from the environment; separate from the client, whose package loads slowly."""

from __future__ import annotations

from collections.abc import Mapping

from mz_engine.agents.anthropic_loop.facts import Failure


def api_credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the client's keyword argument for the key or token. Raises Failure if there is neither."""
    key, token = environment.get("ANTHROPIC_API_KEY"), environment.get("ANTHROPIC_AUTH_TOKEN")
    if key:
        return {"api_key": key}
    if token:
        return {"auth_token": token}
    raise Failure("authentication_error", "no API key: set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN)")
