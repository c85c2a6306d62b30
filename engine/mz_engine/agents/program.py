"""Shared parts of the adapters of command-line programs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mz_engine.agents.asking import estimate_tokens
from mz_engine.agents.classify import ProblemPatterns
from mz_engine.agents.contract import AuthCheck, Spawn
from mz_engine.ports import CallSpec


class ProgramAdapter:
    """Base class with default token estimates and prompts."""

    def __init__(self, patterns: ProblemPatterns) -> None:
        self._patterns = patterns

    def estimate_tokens(self, prompt: str) -> int:
        return estimate_tokens(prompt)

    def count_tokens(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> int | None:
        """Return None: most programs cannot count before they are called."""
        del spec, environment, spawn
        return None

    def format_prompt(self, prompt: str) -> str:
        return prompt


def require_login(check: AuthCheck, has_login: bool, message: str, fix: str) -> AuthCheck:
    """Return the check of the program; if only the login is missing, a failed check with `message` and `fix`."""
    if check.code or has_login:
        return check
    return msgspec.structs.replace(check, code="auth-missing", message=message, fix=fix)
