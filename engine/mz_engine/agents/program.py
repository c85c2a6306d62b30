"""Adapter: what the adapters of programs have in common: estimates by rule of thumb, prompts as they are, and the words
on a login that is missing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mz_engine.agents.asking import estimate
from mz_engine.agents.classify import Patterns
from mz_engine.agents.contract import AuthCheck, Spawn
from mz_engine.ports import CallSpec


class Program:
    """Base of adapters; the other functions of the contract are each program's own."""

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns

    def estimate_tokens(self, prompt: str) -> int:
        """Bytes / 4, rounded up."""
        return estimate(prompt)

    def count_tokens(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> int | None:
        """None: most programs cannot say before they are called."""
        del spec, environment, spawn
        return None

    def format_prompt(self, prompt: str) -> str:
        return prompt


def with_login(found: AuthCheck, there: bool, message: str, fix: str) -> AuthCheck:
    """What was found of the program; where only a login is not `there`, that and how to get one."""
    if found.code or there:
        return found
    return msgspec.structs.replace(found, code="auth-missing", message=message, fix=fix)
