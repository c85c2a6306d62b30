"""The engine's ports, which return recorded results: of the repository, commands, agents and the forge. Nothing is
started or written; blobs that an effect stores stay in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from mz_engine.agents.contract import Capabilities
from mz_engine.effects.call import REPLY_TOKENS, WORKTREE_LOST
from mz_engine.ports import (
    CallResult,
    CallSpec,
    CommandResult,
    Interrupted,
    Place,
    Price,
    Prices,
    Reading,
)
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    CallHeld,
    CallPriced,
    CallReserved,
    ReplyRead,
    SessionBroken,
    SessionEnd,
    Usage,
)
from mz_events.catalog.check import Change, CommandRan
from mz_events.names import Commit, Digest, Path
from mz_events.redact import Secrets
from mz_events.store import BlobMissing, Blobs

from mz_recordings.history.forge import AnsweredForge
from mz_recordings.history.tape import Lost, Tape, Unanswered
from mz_recordings.history.workspace import AnsweredWorkspace

SET_UP = "/setup/"
"""Part of the keys of set-up commands, before their names."""
KEPT_MAX, KEPT_BYTES_MAX = 64, 1 << 18
"""Limits of the number of cached texts of one feature, and of their sizes."""
Hints = Callable[[str, int], str | None]
"""Returns the known hint about a failure's signature before a position of the log."""


class Trees(Protocol):
    """Captured trees, if they still exist. Each method raises RecordedDataMissing."""

    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]: ...

    def read(self, tree: Commit, path: Path) -> bytes | None: ...

    def paths(self, tree: Commit) -> tuple[Path, ...]: ...


class Reader(Protocol):
    """The part of an agent's adapter that starts nothing."""

    def capabilities(self) -> Capabilities: ...

    def estimate_tokens(self, prompt: str) -> int: ...

    def format_prompt(self, prompt: str) -> str: ...

    def parse_output(self, result: CallResult) -> Reading: ...


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of the current code's computations."""

    blobs: Blobs
    trees: Trees | None = None
    """None: there are none."""
    adapters: Mapping[str, Reader] = {}
    """By name; their parsers read the recorded bytes again."""
    prices: Prices | None = None
    """The current price table; calls that another table priced keep their price."""
    hints: Hints = lambda signature, position: None


class ReadOnce:
    """The Blobs port with a small cache of texts that several steps of a feature need."""

    def __init__(self, recorded: Blobs) -> None:
        self._recorded, self._kept = recorded, dict[Digest, bytes]()

    def put(self, data: bytes) -> Digest:
        return self._recorded.put(data)

    def get(self, digest: Digest) -> bytes:
        """Return a blob. Raises what the blobs raise."""
        found = self._kept.get(digest)
        if found is None:
            found = self._recorded.get(digest)
            if len(found) <= KEPT_BYTES_MAX:
                while len(self._kept) >= KEPT_MAX:
                    del self._kept[next(iter(self._kept))]
                self._kept[digest] = found
        return found


class MemoryBlobs:
    """The Blobs port: reads recorded blobs, and keeps new ones in memory."""

    def __init__(self, recorded: Blobs) -> None:
        self._recorded, self._put = recorded, dict[Digest, bytes]()

    def put(self, data: bytes) -> Digest:
        digest = Digest(hashlib.sha256(data).hexdigest())
        self._put[digest] = data
        return digest

    def get(self, digest: Digest) -> bytes:
        """Return a blob. Raises RecordedDataMissing."""
        found = self._put.get(digest)
        if found is not None:
            return found
        try:
            return self._recorded.get(digest)
        except BlobMissing:
            raise Lost("texts that were erased or lost") from None

    def text(self, digest: str) -> str | None:
        """Return the text of a digest; None if there is none."""
        if len(digest) != 64:
            return None
        try:
            return self.get(Digest(digest)).decode("utf-8", "replace")
        except Lost:
            return None


class Answers:
    """Implements `mz_engine.ports.Ports` with a recorded stream. `base` is the run's base branch."""

    def __init__(self, tape: Tape, means: Means, base: str) -> None:
        self.tape, self.means = tape, means
        self.blobs = MemoryBlobs(means.blobs)
        self.workspace = AnsweredWorkspace(tape, means.trees, self.blobs)
        self.forge = AnsweredForge(tape, self.blobs, base)
        self.left: dict[str, int] = {}
        self._shapes = Secrets({})

    @property
    def executor(self) -> Answers:
        return self

    agents = prices = secrets = learnings = clock = executor

    def leave(self, what: str) -> None:
        """Count a recorded result that is used without being computed again."""
        self.left[what] = self.left.get(what, 0) + 1

    # commands ---------------------------------------------------------------------------------------------------------
    def run(self, place: Place, command: str, timeout_seconds: int, key: str) -> CommandResult:
        ran = self.tape.outcome(CommandRan)
        if SET_UP in key and not key.endswith(f"{SET_UP}{ran.name}"):
            raise Unanswered  # The process died in between, and the set-up started again.
        return CommandResult(exit=ran.exit, output=self.blobs.get(ran.output), duration_ms=ran.duration_ms)

    # agents -----------------------------------------------------------------------------------------------------------
    def call(self, spec: CallSpec) -> CallResult:
        """Return an empty result: `read` parses the recorded bytes."""
        found = self.tape.outcome(AgentReplied, AgentFailed, AgentLost)
        if isinstance(found, AgentLost) or found.ref.key != spec.key or getattr(found, "salvaged", False):
            raise Interrupted
        problem = found.problem if isinstance(found, AgentFailed) and found.problem != WORKTREE_LOST else None
        return CallResult(stdout=b"", stderr=b"", exit=None, duration_ms=found.duration_ms, problem=problem)

    def salvage(self, key: str) -> CallResult | None:
        found = self.tape.outcome(AgentReplied, AgentLost)
        if isinstance(found, AgentLost):
            return None
        stdout, stderr = self.blobs.get(found.stdout), self.blobs.get(found.stderr)
        return CallResult(stdout=stdout, stderr=stderr, exit=None, duration_ms=found.duration_ms, version=found.version)

    def read(self, agent: str, result: CallResult) -> Reading:
        """Parse the result with the current parser."""
        adapter = self.means.adapters.get(agent)
        if adapter is not None:
            return adapter.parse_output(result)
        read = self.tape.ahead(ReplyRead)
        if read is None:
            return Reading(parser="", terminal="success", text="")
        self.leave(f"replies of {agent}, for which this mz has no parser")
        return Reading(
            parser=read.parser,
            terminal=read.terminal,
            text=self.blobs.get(read.text).decode("utf-8", "replace"),
            session=read.session,
            usage=read.usage,
            reported_nanousd=read.reported_nanousd,
            problem=read.problem,
            bad_lines=read.bad_lines,
        )

    def estimate_tokens(self, agent: str, prompt: str) -> int:
        adapter, request = self.means.adapters.get(agent), self.tape.ahead(AgentRequested)
        if adapter is not None:
            return adapter.estimate_tokens(prompt)
        return 0 if request is None else _tokens_of(request, prompt)

    def count_tokens(self, spec: CallSpec) -> int | None:
        """Return the recorded count."""
        request = self.tape.ahead(AgentRequested)
        return request.counted if request is not None else None

    def format_prompt(self, agent: str, prompt: str) -> str:
        adapter = self.means.adapters.get(agent)
        return prompt if adapter is None else adapter.format_prompt(prompt)

    def model(self, agent: str, tier: str) -> str:
        adapter, request = self.means.adapters.get(agent), self.tape.ahead(AgentRequested)
        if adapter is not None:
            return adapter.capabilities().models[tier]
        return request.model if request is not None else ""

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        """Return the recorded decision: whether an agent has a session does not follow from the stream."""
        request, ending = self.tape.ahead(AgentRequested), self.tape.next()
        if session is not None and isinstance(ending, SessionBroken) and ending.reason is SessionEnd.ELSEWHERE:
            return False
        adapter = self.means.adapters.get(agent)
        return adapter.capabilities().sessions if adapter is not None else request is not None and request.kept

    # money ------------------------------------------------------------------------------------------------------------
    def price(self, usage: tuple[Usage, ...], at_us: int) -> Price:
        recorded = self.tape.ahead(CallPriced)
        if recorded is None:
            raise Unanswered
        if self.means.prices is not None and usage:
            today = self.means.prices.price(usage, at_us)
            if today.prices == recorded.prices:
                return today
        if usage:
            self.leave("prices of another table")
        return Price(nanousd=recorded.computed_nanousd, unpriced=recorded.unpriced, prices=recorded.prices)

    def estimate(
        self, model: str, input_tokens: int, output_tokens: int, at_us: int, cache_read: int = 0, cache_write: int = 0
    ) -> int | None:
        request, granted = self.tape.ahead(AgentRequested), self.tape.next()
        if request is None and isinstance(granted, CallHeld | CallReserved):
            return granted.nanousd
        return request.estimated_nanousd if request is not None else None

    # others ----------------------------------------------------------------------------------------------------------
    def redact(self, text: str) -> str:
        """Redact by key patterns; secret values of that time are not in recorded texts."""
        return self._shapes.redact(text)

    def scan(self, data: bytes) -> tuple[str, ...]:
        """Scan by key patterns; a recorded secret remains one."""
        checked, path = self.tape.checked(), self.workspace.read_last
        if checked is not None and any(one.kind == "secret" and one.path == path for one in checked.offences):
            return ("recorded",)
        return self._shapes.scan(data)

    def hint(self, signature: str) -> str | None:
        request = next(
            (one for one in self.tape.events[self.tape.at :] if isinstance(one.event, AgentRequested | CallHeld)), None
        )
        return self.means.hints(signature, request.position) if request is not None else None

    def now_us(self) -> int:
        return self.tape.now_us()


def _tokens_of(request: AgentRequested, text: str) -> int:
    """Return the recorded estimate for the prompt, or for the full prompt without its session."""
    if request.prompt_tokens is None:
        return request.estimated_tokens - REPLY_TOKENS
    if request.whole_tokens is None or hashlib.sha256(text.encode()).hexdigest() == request.prompt:
        return request.prompt_tokens
    return request.whole_tokens
