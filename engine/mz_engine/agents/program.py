"""Adapter: what the adapters of programs have in common: estimates by rule of thumb, prompts as they are, and the words
on a login that is missing."""

from __future__ import annotations

import msgspec

from mz_engine.agents.asking import estimate
from mz_engine.agents.classify import Patterns
from mz_engine.agents.contract import AuthCheck


class Program:
    """Base of adapters; the other functions of the contract are each program's own."""

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns

    def estimate_tokens(self, prompt: str) -> int:
        """Bytes / 4, rounded up."""
        return estimate(prompt)

    def format_prompt(self, prompt: str) -> str:
        return prompt


def with_login(found: AuthCheck, there: bool, message: str, fix: str) -> AuthCheck:
    """What was found of the program; where only a login is not `there`, that and how to get one."""
    if found.code or there:
        return found
    return msgspec.structs.replace(found, code="auth-missing", message=message, fix=fix)
