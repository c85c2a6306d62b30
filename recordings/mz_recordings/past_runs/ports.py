"""The engine's ports, which return recorded results: of the repository, commands, agents and the forge. Nothing is
started or written; blobs that an effect stores stay in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
from mz_engine.effects.call import WORKTREE_LOST
from mz_engine.ports import (
    SETUP_KEY,
    AgentAdapter,
    CallResult,
    CallSpec,
    CiCheck,
    CommandResult,
    FeatureWorktree,
    Interrupted,
    MemoryQuery,
    Price,
    Prices,
    PullRequest,
    RemoteError,
    SelectedLearning,
    Selection,
    Workspace,
)
from mz_events.adapters.memory import MemoryBlobs
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    CallOverBudget,
    CallPriced,
    CallReserved,
    ContextComposed,
    SessionDropped,
    SessionDropReason,
    Usage,
)
from mz_events.catalog.delivery import (
    ChecksPolled,
    ChecksRerun,
    DeliveryFailed,
    PullRequestOpened,
    PullRequestRequested,
)
from mz_events.catalog.validation import ArtifactParsed, CommandRan
from mz_events.names import Commit, Digest
from mz_events.redaction.redactor import Secrets
from mz_events.store import BlobMissing, Blobs

from mz_recordings.past_runs.workspace import NotInRecord, RecordedDataMissing, RecordedStream, RecordedWorkspace

SOME_COMMIT = Commit("0" * 40)


class RecordedForge:
    """Implements `mz_engine.ports.Forge`. `base` is the run's base branch."""

    def __init__(self, stream: RecordedStream, blobs: Blobs, base: str) -> None:
        self.stream, self.blobs, self.base = stream, blobs, base

    def find(self, branch: str, key: str) -> PullRequest | None:
        """`open` returns the recorded pull request."""
        return None

    def open(self, branch: str, target: str, title: str, body: str, draft: bool) -> PullRequest:
        outcome = self.stream.outcome(PullRequestOpened, DeliveryFailed)
        if isinstance(outcome, DeliveryFailed):
            raise RemoteError(self.blobs.get(outcome.detail).decode("utf-8", "replace"))
        return PullRequest(url=outcome.url, number=outcome.number)

    def update(self, number: int, target: str, title: str, body: str) -> None:
        pass

    def checks(self, number: int, head: Commit) -> tuple[CiCheck, ...] | None:
        outcome = self.stream.outcome(ChecksPolled, ChecksRerun)
        if isinstance(outcome, ChecksRerun) or not outcome.commit_known:
            return () if isinstance(outcome, ChecksRerun) else None
        return (
            *(CiCheck(name="", state="green") for _ in range(outcome.passed)),
            *(CiCheck(name="", state="red") for _ in range(outcome.failed)),
            *(CiCheck(name="", state="pending") for _ in range(outcome.pending)),
        )

    def failed_log(self, check: CiCheck) -> str:
        return ""

    def rerun(self, run: str) -> None:
        pass

    def merged(self, branch: str) -> Commit | None:
        """Derive from the recorded target whether the dependency was merged."""
        event = self.stream.next_event()
        if isinstance(event, DeliveryFailed):
            raise RemoteError(self.blobs.get(event.detail).decode("utf-8", "replace"))
        return SOME_COMMIT if isinstance(event, PullRequestRequested) and event.target == self.base else None

    def write_description(self, worktree: FeatureWorktree, target: str, title: str, body: str) -> str:
        self.stream.outcome(PullRequestOpened)
        return ""


Hints = Callable[[str, int], str | None]
"""Returns what a log older than `context.composed` told about a failure's signature before a position."""


class ReplayInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of the current code's computations."""

    blobs: Blobs
    trees: Workspace | None = None
    """Captured trees; None: there are none."""
    adapters: Mapping[str, AgentAdapter] = {}
    """By name; their parsers read the recorded bytes again."""
    prices: Prices | None = None
    """The current price table; calls that another table priced keep their price."""
    hints: Hints = lambda signature, position: None


class RecordedBlobs(MemoryBlobs):
    """Recorded blobs; new ones are kept in memory."""

    def __init__(self, recorded: Blobs) -> None:
        super().__init__()
        self._recorded = recorded

    def get(self, digest: Digest) -> bytes:
        """Return a blob. Raises RecordedDataMissing."""
        try:
            return super().get(digest) if digest in self.data_by_digest else self._recorded.get(digest)
        except BlobMissing:
            raise RecordedDataMissing("texts that were erased or lost") from None

    def text(self, digest: str) -> str | None:
        """Return the text of a digest; None if there is none."""
        if len(digest) != 64:
            return None
        try:
            return self.get(Digest(digest)).decode("utf-8", "replace")
        except RecordedDataMissing:
            return None


class RecordedPorts:
    """Implements `mz_engine.ports.Ports` with a recorded stream. `base` is the run's base branch."""

    def __init__(self, stream: RecordedStream, inputs: ReplayInputs, base: str) -> None:
        self.stream, self.inputs = stream, inputs
        self.blobs = RecordedBlobs(inputs.blobs)
        self.workspace = RecordedWorkspace(stream, inputs.trees, self.blobs)
        self.forge = RecordedForge(stream, self.blobs, base)
        self.not_recomputed = Counter[str]()
        """Recorded results that were used without being computed again."""
        self._key_patterns = Secrets({})

    @property
    def executor(self) -> RecordedPorts:
        return self

    agents = prices = secrets = memory = clock = executor

    # commands ---------------------------------------------------------------------------------------------------------
    def run(self, worktree: FeatureWorktree, command: str, timeout_seconds: int, key: str) -> CommandResult:
        command_ran = self.stream.outcome(CommandRan)
        if SETUP_KEY.match(key) and not key.endswith(f"/setup/{command_ran.name}"):
            raise NotInRecord  # The process died in between, and the set-up started again.
        digests = command_ran.passes, command_ran.failures
        ids = (tuple(msgspec.json.decode(self.blobs.get(digest))) if digest else () for digest in digests)
        return CommandResult(
            exit=command_ran.exit,
            output=self.blobs.get(command_ran.output),
            duration_ms=command_ran.duration_ms,
            passed_tests=next(ids),
            failed_tests=next(ids),
            coverage=command_ran.coverage,
        )

    # agents -----------------------------------------------------------------------------------------------------------
    def call(self, spec: CallSpec) -> CallResult:
        """Return an empty result: `read` parses the recorded bytes."""
        outcome = self.stream.outcome(AgentReplied, AgentFailed, AgentLost)
        if isinstance(outcome, AgentLost) or outcome.ref.key != spec.key or getattr(outcome, "salvaged", False):
            raise Interrupted
        problem = outcome.problem if isinstance(outcome, AgentFailed) and outcome.problem != WORKTREE_LOST else None
        return CallResult(stdout=b"", stderr=b"", exit=None, duration_ms=outcome.duration_ms, problem=problem)

    def salvage(self, key: str) -> CallResult | None:
        outcome = self.stream.outcome(AgentReplied, AgentLost)
        if isinstance(outcome, AgentLost):
            return None
        stdout, stderr = self.blobs.get(outcome.stdout), self.blobs.get(outcome.stderr)
        return CallResult(
            stdout=stdout, stderr=stderr, exit=outcome.exit, duration_ms=outcome.duration_ms, version=outcome.version
        )

    def adapter(self, agent: str) -> AgentAdapter:
        if agent not in self.inputs.adapters:
            raise RecordedDataMissing(f"the parser of {agent}, which this mz does not have")
        return self.inputs.adapters[agent]

    def count_tokens(self, spec: CallSpec) -> int | None:
        """Return the recorded count."""
        request = self.stream.find_near(AgentRequested)
        return request.counted_tokens if request is not None else None

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        """Return the recorded decision: whether an agent has a session does not follow from the stream."""
        ending = self.stream.next_event()
        if session is not None and isinstance(ending, SessionDropped) and ending.reason is SessionDropReason.RECORDED:
            return False
        return self.adapter(agent).capabilities().sessions

    # money ------------------------------------------------------------------------------------------------------------
    def price(self, usage: tuple[Usage, ...], at_us: int) -> Price:
        recorded = self.stream.find_near(CallPriced)
        if recorded is None:
            raise NotInRecord
        if self.inputs.prices is not None and usage:
            current_price = self.inputs.prices.price(usage, at_us)
            if current_price.prices == recorded.prices:
                return current_price
        if usage:
            self.not_recomputed["prices of another table"] += 1
        return Price(nanousd=recorded.computed_nanousd, unpriced=recorded.unpriced, prices=recorded.prices)

    def price_entry(self, usage: Usage, at_us: int) -> int | None:
        request, granted = self.stream.find_near(AgentRequested), self.stream.next_event()
        if request is None and isinstance(granted, CallOverBudget | CallReserved):
            return granted.nanousd
        return request.estimated_nanousd if request is not None else None

    # others ----------------------------------------------------------------------------------------------------------
    def redact(self, text: str) -> str:
        """Redact keys by their rules; secret values of that time are not in recorded texts."""
        return self._key_patterns.redact(text)

    def names_in(self, data: bytes) -> tuple[str, ...]:
        """Search for keys by their rules; a recorded secret remains one."""
        checked, path = self.stream.changes_checked(), self.workspace.read_last
        changes = checked.forbidden_changes if checked is not None else ()
        if any(change.kind == "secret" and change.path == path for change in changes):
            return ("recorded",)
        return self._key_patterns.names_in(data)

    def select(self, query: MemoryQuery) -> Selection:
        """Return what was recorded for the call."""
        composed = self.stream.find_near(ContextComposed)
        if composed is not None and composed.key == query.call:
            texts = [(item, self.blobs.get(item.text).decode("utf-8", "replace")) for item in composed.learnings]
            selected = (
                SelectedLearning(id=i.id, kind=i.kind, text=text, is_repeated=i.is_repeated) for i, text in texts
            )
            return Selection(tuple(selected), composed.left_out)
        for recorded in self.stream.events[self.stream.position :] if query.failure else ():
            if isinstance(recorded.event, AgentRequested | CallOverBudget):
                hint = self.inputs.hints(query.failure, recorded.position)
                return Selection((SelectedLearning(text=hint, is_repeated=True),) if hint else ())
        return Selection()

    def delivered_ids(self, artifact: str) -> frozenset[str]:
        """Return those of the recorded ids that were not new."""
        parsed = (event for event in self.stream.ahead() if isinstance(event, ArtifactParsed))
        recorded = next((event for event in parsed if event.artifact == artifact), None)
        return frozenset(recorded.ids) - frozenset(recorded.new_ids) if recorded else frozenset()

    def now_us(self) -> int:
        return self.stream.now_us()
