"""Port: what an agent adapter is: seven functions, a name, a parser version. Capabilities decide, never names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec

from mz_engine.ports import CallResult, CallSpec, Reading


class Tells(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's output says, for a range of its versions; the conformance suite compares it with recordings."""

    since: str = ""
    """The first version of the range; empty: the oldest that is known."""
    model: bool
    """Else the model that was asked for is taken for the one that answered."""
    requests: bool
    """Tokens of each request, not only of a whole call."""
    money: bool
    thoughts: bool
    """Reasoning tokens, apart from other output."""
    session: bool
    cache_writes: Literal["no", "total", "by lifetime"]
    evidence: Literal["recorded", "constructed", "documented"]
    """How we know: from what the real program wrote in our hands, from other people's files, from its documentation."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent can do; the engine asks these and nothing else."""

    agent: str
    sessions: bool
    """Can continue an earlier conversation."""
    streaming: bool
    """Writes as it works, so an idle timeout means something."""
    token_counting: Literal["exact", "estimate"]
    reports_money: bool
    tells: tuple[Tells, ...]
    """By version, oldest first; the last is the version that we test with."""
    tools: tuple[str, ...]
    skill_injection: bool = False
    bundled: bool = False
    """Its program comes with `mz`, so it is there wherever `mz` is."""
    models: Mapping[str, str]
    """Default model per tier: cheap, mid, premium."""
    auth: tuple[str, ...]
    """Ways to log in, as a person would read them."""


class AuthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the agent can be called here. `code` is empty when it can, else tool-missing or auth-missing."""

    code: str = ""
    message: str = ""
    fix: str = ""
    version: str = ""


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """A process to run: everything that crosses the boundary inwards."""

    argv: tuple[str, ...]
    stdin: bytes
    """Written and closed; empty: closed at once."""
    env: Mapping[str, str]
    """The adapter's own variables and the names that pass through; nothing else is inherited."""
    temporary: bool = False
    """TMPDIR names a directory of the call's own, which is gone with the call."""


Watch = Callable[[dict[str, object]], dict[str, object]]
"""Gets each decoded object of a stream before the parser does, and returns one of the same content that may note what
is read of it."""
Spawn = Callable[[CallSpec, Invocation], CallResult]
"""Runs an invocation in the call's worktree: streams into the spool, times out, kills the whole tree."""


class Adapter(Protocol):
    """One agent. A new one is one module and one line in the registry."""

    name: str
    parser: str
    """`name/number`; the number rises whenever the parser reads the same bytes differently."""

    def capabilities(self) -> Capabilities: ...

    def check_auth(self, environment: Mapping[str, str]) -> AuthCheck:
        """Looks for the tool and a login; never prints or returns a secret; calls no model."""

    def estimate_tokens(self, prompt: str) -> int: ...

    def count_tokens(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> int | None:
        """Tokens of the call's first request as the agent's API counts them, with the conversation that it goes on
        in; more than 0. None: the agent does not say, for whatever reason. `spawn` runs a question beside the call, in
        short bounds, of which nothing is kept. Raises nothing but what `spawn` does, and changes nothing."""

    def format_prompt(self, prompt: str) -> str: ...

    def run_phase(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> CallResult: ...

    def parse_output(self, result: CallResult, watch: Watch | None = None) -> Reading:
        """Pure and total: any bytes give a reading or a classified problem, never an exception. `watch` sees what the
        parser reads, and changes nothing."""
