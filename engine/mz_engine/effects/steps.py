"""Steps that an effect yields. Effects are generators without I/O; the driver executes their steps.

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
from mz_projections.feature.state import CreatingWorkspace, InPhase, State, UnitRun, progress_of

from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import Phase
from mz_engine.ports import FeatureWorktree, Ports

T = TypeVar("T")


class Do(msgspec.Struct, Generic[T], frozen=True):
    """A call through a port; the driver sends its result back into the generator."""

    name: str
    """`port.method`, for traces and fault injection."""
    call: Callable[[Ports], T]


class Emit(msgspec.Struct, frozen=True):
    """Events to append; durable, all or none, before the generator continues."""

    events: tuple[Event, ...]


class ReserveCall(msgspec.Struct, frozen=True):
    """Request to reserve money. Result: True once the request is in the stream, False once `CallOverBudget` is."""

    request: AgentRequested


class SettleCall(msgspec.Struct, frozen=True):
    """Replacement of a reservation by the call's cost; `events` go to the feature's stream before it."""

    key: str
    nanousd: int | None
    """None: the call cost an unknown amount, so the reservation counts as spent."""
    events: tuple[Event, ...]
    may_be_more: bool = False
    """`nanousd` may be too low: the reservation counts if it is more."""

    def charged_nanousd(self, reserved_nanousd: int) -> int:
        """Return the amount that the budget counts from now on."""
        if self.nanousd is None:
            return reserved_nanousd
        return max(self.nanousd, reserved_nanousd) if self.may_be_more else self.nanousd


class ClaimPaths(msgspec.Struct, frozen=True):
    """Request to claim files. Appends `FilesClaimed` or `ClaimRejected` to both streams."""

    phase: str
    paths: tuple[Path, ...]


Step = Do[Any] | Emit | ReserveCall | SettleCall | ClaimPaths
Steps = Generator[Step, Any, T]
"""Steps that return a value. An exception of a port is raised at the `yield`."""
Effect = Steps[None]


class StepContext(msgspec.Struct, frozen=True):
    """Everything that an effect may read: the state of the decision, the pins, and names of the run."""

    run: str
    feature: str
    state: State
    pins: Pins
    branches: frozenset[str]
    """Branches of all features of the run."""
    base_branch: str
    """Name of the base branch."""

    @property
    def phase_state(self) -> InPhase:
        """Return the state, for an effect inside a phase."""
        assert isinstance(self.state, InPhase)
        return self.state

    @property
    def unit_run(self) -> UnitRun:
        """Return the unit run, for an effect inside one."""
        unit_run = self.phase_state.unit_run
        assert unit_run is not None
        return unit_run

    @property
    def phase(self) -> Phase:
        return self.pins.pipeline.find_phase(self.phase_state.phase)

    @property
    def worktree(self) -> FeatureWorktree:
        progress = progress_of(self.state)
        started = self.state.started if isinstance(self.state, CreatingWorkspace) else progress and progress.started
        assert started
        return FeatureWorktree(run=self.run, feature=self.feature, branch=started.branch)

    def key(self, effect: str, attempt: int = 0) -> str:
        """Return `run/feature/phase/unit/iteration/attempt/effect`, by which outside results are found again."""
        unit_run = self.unit_run
        unit = unit_run.unit or "-"
        return f"{self.run}/{self.feature}/{self.phase_state.phase}/{unit}/{unit_run.iteration}/{attempt}/{effect}"


def call_port(name: str, call: Callable[[Ports], T]) -> Steps[T]:
    """Call a port, typed: `data = yield from do("workspace.read", lambda ports: ports.workspace.read(tree, path))`."""
    result: T = yield Do(name, call)
    return result


def emit(*events: Event) -> Effect:
    yield Emit(events)


def put_blob(text: str | bytes) -> Steps[Digest]:
    """Store a blob, before the event that cites it. Text is redacted; bytes are stored as they are."""
    if isinstance(text, bytes):
        return (yield from call_port("blobs.put", lambda ports: ports.blobs.put(text)))
    return (yield from call_port("blobs.put", lambda ports: ports.blobs.put(ports.secrets.redact(text).encode())))


def get_text(digest: Digest) -> Steps[str]:
    data = yield from call_port("blobs.get", lambda ports: ports.blobs.get(digest))
    return data.decode("utf-8", "replace")


def put_report(messages: tuple[str, ...]) -> Steps[Digest]:
    return (yield from put_blob(msgspec.json.encode(messages).decode()))


def get_report(digest: Digest) -> Steps[tuple[str, ...]]:
    text = yield from get_text(digest)
    return msgspec.json.decode(text, type=tuple[str, ...])
