"""The interface of an agent adapter: functions, a name and a parser version. Callers ask capabilities, never names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec

from mz_engine.ports import CallResult, CallSpec, ParsedReply


class ReportedFields(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that an agent's output reports, for a range of versions; the conformance suite compares them with
    recordings."""

    since: str = ""
    """The first version of the range; empty: the oldest that is known."""
    model: bool
    """False: the requested model is assumed to have answered."""
    requests: bool
    """Tokens per request, not only per call."""
    money: bool
    thoughts: bool
    """Reasoning tokens, apart from other output."""
    session: bool
    cache_writes: Literal["no", "total", "by lifetime"]
    evidence: Literal["recorded", "constructed", "documented"]
    """Source: output of the real program that we recorded, files from elsewhere, or the program's documentation."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Features of an agent; the engine decides by these alone."""

    agent: str
    sessions: bool
    """Can continue an earlier session."""
    streaming: bool
    """Writes as it works, so an idle timeout means something."""
    token_counting: Literal["exact", "estimate"]
    reports_money: bool
    reported_fields: tuple[ReportedFields, ...]
    """By version, oldest first; the last covers the version that we test with."""
    tools: tuple[str, ...]
    skill_injection: bool = False
    bundled: bool = False
    """Its program is installed with `mz`."""
    models: Mapping[str, str]
    """Default model per tier: cheap, mid, premium."""
    auth: tuple[str, ...]
    """Ways to log in, for people."""


class AuthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Result of looking for an agent's program and login. `code` is empty, `tool-missing` or `auth-missing`."""

    code: str = ""
    message: str = ""
    fix: str = ""
    version: str = ""


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """A process to run, with all of its input."""

    argv: tuple[str, ...]
    stdin: bytes
    """Written and closed; empty: closed at once."""
    env: Mapping[str, str]
    """The adapter's own variables and those that pass through; nothing else is inherited."""
    private_tmpdir: bool = False
    """TMPDIR names a directory of the call's own, deleted after the call."""


ObjectObserver = Callable[[dict[str, object]], dict[str, object]]
"""Receives each decoded object of a stream before the parser, and returns one of equal content, which may record what
the parser reads."""
Spawn = Callable[[CallSpec, Invocation], CallResult]
"""Runs an invocation in the call's worktree: streams into the spool, enforces time limits, kills the process tree."""


class Adapter(Protocol):
    """One agent; a new one is one folder and one line in `agents.catalog`."""

    name: str
    parser: str
    """`name/number`; raise the number whenever the parser reads the same bytes differently."""

    def capabilities(self) -> Capabilities: ...

    def check_auth(self, environment: Mapping[str, str]) -> AuthCheck:
        """Look for the program and a login, without calling a model or revealing a secret."""

    def estimate_tokens(self, prompt: str) -> int: ...

    def count_tokens(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> int | None:
        """Return the tokens (more than 0) of the call's first request, including the session that it continues, as the
        agent's API counts them; None if there is no count. `spawn` runs a helper process with short limits that leaves
        no spool. Raises only what `spawn` raises; changes nothing."""

    def format_prompt(self, prompt: str) -> str: ...

    def run_phase(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> CallResult: ...

    def parse_output(self, result: CallResult, watch: ObjectObserver | None = None) -> ParsedReply:
        """Parse any bytes into a reply or a classified problem, without side effects and without raising. `watch`
        observes what the parser reads."""
