"""Steps that an effect yields. Effects are generators without I/O; the driver executes their steps.

`Do` is a call through a port. `Emit` appends to the feature's own stream. The others go through the coordinator,
which decides and appends to the run's stream and the feature's in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar, TypeVarTuple, cast

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied, AgentRequested, ContextComposed
from mz_events.catalog.delivery import BranchLanded
from mz_events.catalog.run import ItemAdded
from mz_events.names import Digest, FeatureId
from mz_events.store import Blobs
from mz_projections.feature.state import CreatingWorkspace, InPhase, State, UnitRun, progress_of
from mz_projections.run.spending import Amount

from mz_engine.decide.actions import ClaimFiles
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import Phase
from mz_engine.ports import FeatureWorktree, Ports, Secrets
from mz_engine.pricing.budget_charge import final_charge

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class Do(msgspec.Struct, frozen=True):
    """A call through a port; the driver sends its result back into the generator."""

    method: Callable[..., Any]
    """`Workspace.read` of the interface stands for `ports.workspace.read`."""
    arguments: tuple[Any, ...]

    def call(self, ports: Ports) -> object:
        port, _, method = self.method.__qualname__.partition(".")
        return getattr(getattr(ports, port.lower()), method)(*self.arguments)


class Emit(msgspec.Struct, frozen=True):
    """Events to append; durable, all or none, before the generator continues."""

    events: tuple[Event, ...]


class ReserveCall(msgspec.Struct, frozen=True):
    """Request to reserve money. Result: True once the request is in the stream, after what its prompt consists of;
    False once `CallOverBudget` is."""

    composed: ContextComposed
    request: AgentRequested


class SettleCall(msgspec.Struct, frozen=True):
    """Replacement of a reservation by the call's cost; `events` go to the feature's stream before it."""

    key: str
    nanousd: int | None
    """None: the call cost an unknown amount, so the reservation counts."""
    events: tuple[Event, ...]
    may_be_higher: bool = False
    """`nanousd` may be too low: the reservation counts if it is higher."""
    tokens: int | None = 0
    tokens_may_be_higher: bool = False

    def charge(self, reserved: Amount) -> Amount:
        """Return what the budgets count from now on, instead of the reservation."""
        tokens = final_charge(self.tokens, self.tokens_may_be_higher, reserved.tokens)
        return Amount(nanousd=final_charge(self.nanousd, self.may_be_higher, reserved.nanousd), tokens=tokens)


class AddItems(msgspec.Struct, frozen=True):
    """Request to add items. Appends `ItemAdded` to the run's stream and `ItemsAdded` to both."""

    items: tuple[ItemAdded, ...]
    """With the ids and dependencies of the artifact, for which the run gives its own."""
    duplicates: dict[str, FeatureId]
    """The item that there is already, by id in the artifact."""


RunStep = ReserveCall | SettleCall | ClaimFiles | AddItems | BranchLanded
"""Requests to the coordinator."""
Step = Do | Emit | RunStep
Steps = Generator[Step, Any, T]
"""Steps that return a value. An exception of a port is raised at the `yield`."""
Effect = Steps[None]


class StepContext(msgspec.Struct, frozen=True):
    """Everything that an effect may read: the state of the decision, the pins, and names of the run."""

    run: str
    feature: str
    state: State
    pins: Pins
    base_branch: str
    """Name of the base branch."""
    integration: str = ""
    """Name of the run's integration branch; empty: it has none."""

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
    def reply(self) -> AgentReplied:
        """Return the current reply, for an effect after one."""
        assert self.unit_run.reply_event is not None
        return self.unit_run.reply_event

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


def call_port(method: Callable[[Any, *Arguments], T], *arguments: *Arguments) -> Steps[T]:
    """Call a port, typed: `data = yield from call_port(Workspace.read, tree, path)`."""
    result: T = yield Do(method, arguments)
    return result


def run_steps(steps: Steps[T], ports: Ports) -> T:
    """Carry out steps whose events and requests nobody needs, and return their result."""
    result: Any = None
    while True:
        try:
            step = steps.send(result)
        except StopIteration as end:
            return cast(T, end.value)
        result = step.call(ports) if isinstance(step, Do) else True


def emit(*events: Event) -> Effect:
    yield Emit(events)


def put_blob(text: str | bytes) -> Steps[Digest]:
    """Store a blob, before the event that cites it. Text is redacted; bytes are stored as they are."""
    if isinstance(text, str):
        text = (yield from call_port(Secrets.redact, text)).encode()
    return (yield from call_port(Blobs.put, text))


def get_text(digest: Digest) -> Steps[str]:
    data = yield from call_port(Blobs.get, digest)
    return data.decode("utf-8", "replace")


def get_texts(digests: Iterable[Digest]) -> Steps[tuple[str, ...]]:
    texts = []
    for digest in digests:
        texts.append((yield from get_text(digest)))
    return tuple(texts)


def get_json(digest: Digest | None) -> Steps[Any]:
    """Return the content of a blob that holds JSON; an empty list without one."""
    return [] if digest is None else msgspec.json.decode((yield from call_port(Blobs.get, digest)))


def put_report(messages: Iterable[str]) -> Steps[Digest | None]:
    """Store messages for the next call, or ids, as JSON; None: there are none."""
    report = tuple(messages)
    return (yield from put_blob(msgspec.json.encode(report).decode())) if report else None


def get_reports(digests: Iterable[Digest]) -> Steps[list[str]]:
    """Return the messages of several reports."""
    reports = yield from get_texts(digests)
    return [message for report in reports for message in msgspec.json.decode(report, type=tuple[str, ...])]
