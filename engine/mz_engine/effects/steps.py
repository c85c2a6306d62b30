"""Facts: what an effect yields. Effects are generators without I/O; the driver carries their steps out.

`Do` is a call through a port. `Emit` appends to the feature's own stream. The other three go through the coordinator,
which decides and appends to the run's stream and the feature's in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.names import Digest, Path
from mz_projections.state import Cell, Opening, State, Working, book_of

from mz_engine.pins import Pins
from mz_engine.pipelines.definition import Phase
from mz_engine.ports import Place, Ports

T = TypeVar("T")


class Do(msgspec.Struct, Generic[T], frozen=True):
    """A call that the driver carries out through a port; its result is sent back into the generator."""

    name: str
    """`port.method`: what traces and fault injection call it."""
    call: Callable[[Ports], T]


class Emit(msgspec.Struct, frozen=True):
    """Durable, all or none, before the generator goes on."""

    events: tuple[Event, ...]


class ReserveCall(msgspec.Struct, frozen=True):
    """Answer: True, and the request is in the stream; False, and CallHeld is."""

    request: AgentRequested


class SettleCall(msgspec.Struct, frozen=True):
    """The reservation is replaced by what the call cost; `events` go to the feature's stream before it."""

    key: str
    nanousd: int | None
    """None: nothing is known of a call that must have cost something; the reservation counts as spent."""
    events: tuple[Event, ...]
    may_be_more: bool = False
    """What is known may be too low: the reservation counts where it is more."""

    def settled(self, reserved_nanousd: int) -> int:
        """What the budget counts from now on."""
        if self.nanousd is None:
            return reserved_nanousd
        return max(self.nanousd, reserved_nanousd) if self.may_be_more else self.nanousd


class ClaimPaths(msgspec.Struct, frozen=True):
    """FilesClaimed or FilesContended, in both streams."""

    phase: str
    paths: tuple[Path, ...]


Step = Do[Any] | Emit | ReserveCall | SettleCall | ClaimPaths
Steps = Generator[Step, Any, T]
"""Steps that end in an answer. What a port raises is raised at the `yield`."""
Effect = Steps[None]


class Scene(msgspec.Struct, frozen=True):
    """What an effect may know: the state that was decided on, and the pins."""

    run: str
    feature: str
    state: State
    pins: Pins
    branches: frozenset[str]
    """Of all features of the run: the engine's own."""
    base: str
    """Name of the base branch."""

    @property
    def work(self) -> Working:
        """The state, for an effect inside a phase."""
        assert isinstance(self.state, Working)
        return self.state

    @property
    def cell(self) -> Cell:
        """The cell, for an effect inside one."""
        cell = self.work.cell
        assert cell is not None
        return cell

    @property
    def phase(self) -> Phase:
        return self.pins.pipeline.find(self.work.phase)

    @property
    def place(self) -> Place:
        book = book_of(self.state)
        started = self.state.started if isinstance(self.state, Opening) else book and book.started
        assert started
        return Place(run=self.run, feature=self.feature, branch=started.branch)

    def key(self, effect: str, attempt: int = 0) -> str:
        """`run/feature/phase/unit/iteration/attempt/effect`: what the world can be asked for."""
        cell = self.cell
        return f"{self.run}/{self.feature}/{self.work.phase}/{cell.unit or '-'}/{cell.iteration}/{attempt}/{effect}"


def do(name: str, call: Callable[[Ports], T]) -> Steps[T]:
    """`answer = yield from do("workspace.read", lambda ports: ports.workspace.read(tree, path))`, typed."""
    answer: T = yield Do(name, call)
    return answer


def emit(*events: Event) -> Effect:
    yield Emit(events)


def put(text: str | bytes) -> Steps[Digest]:
    """Prose becomes a blob before the event that cites it. Text is redacted; bytes are kept as they are."""
    if isinstance(text, bytes):
        return (yield from do("blobs.put", lambda ports: ports.blobs.put(text)))
    return (yield from do("blobs.put", lambda ports: ports.blobs.put(ports.secrets.redact(text).encode())))


def get(digest: Digest) -> Steps[str]:
    data = yield from do("blobs.get", lambda ports: ports.blobs.get(digest))
    return data.decode("utf-8", "replace")


def put_report(messages: tuple[str, ...]) -> Steps[Digest]:
    return (yield from put(msgspec.json.encode(messages).decode()))


def get_report(digest: Digest) -> Steps[tuple[str, ...]]:
    text = yield from get(digest)
    return msgspec.json.decode(text, type=tuple[str, ...])
