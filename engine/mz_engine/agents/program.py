"""Shared parts of the adapters of command-line programs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mz_engine.agents.asking import estimate
from mz_engine.agents.classify import Patterns
from mz_engine.agents.contract import AuthCheck, Spawn
from mz_engine.ports import CallSpec


class Program:
    """Base class with default token estimates and prompts."""

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns

    def estimate_tokens(self, prompt: str) -> int:
        return estimate(prompt)

    def count_tokens(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> int | None:
        """Return None: most programs cannot count before they are called."""
        del spec, environment, spawn
        return None

    def format_prompt(self, prompt: str) -> str:
        return prompt


def with_login(found: AuthCheck, there: bool, message: str, fix: str) -> AuthCheck:
    """Return the check of the program; if only the login is missing, a failed check with `message` and `fix`."""
    if found.code or there:
        return found
    return msgspec.structs.replace(found, code="auth-missing", message=message, fix=fix)
