"""Given events, when decided, then an action: the words in which tests of the deciders are written."""

from __future__ import annotations

from msgspec.structs import replace
from mz_engine.decide.actions import Action
from mz_engine.decide.feature import decide_feature
from mz_engine.decide.run import RunAction, decide_run
from mz_engine.model.pins import Pins
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied, AgentRequested, CallRef, Problem, ReplyParsed
from mz_events.catalog.delivery import (
    BaseMerged,
    ChecksPolled,
    ChecksRerun,
    CommitRequested,
    Committed,
    PullRequestOpened,
    PullRequestRequested,
    Pushed,
    PushRequested,
)
from mz_events.catalog.feature import (
    Blocked,
    FeatureHeld,
    FeatureStarted,
    HoldReleased,
    PhaseCompleted,
    PhaseStarted,
    RolledBack,
    UnitCompleted,
    UnitStarted,
    WorkspaceReady,
)
from mz_events.catalog.run import Hold
from mz_events.catalog.validation import (
    ArtifactParsed,
    ArtifactValidated,
    ChangesChecked,
    CommandRan,
    GateChecked,
    Unit,
    Violation,
)
from mz_events.names import Commit, Digest, FeatureId, Path, StreamId
from mz_events.store import Recorded
from mz_projections.feature.fold import apply_strict, fold
from mz_projections.feature.state import State
from mz_projections.run.fold import RunState, fold_run

DIGEST = Digest("d" * 64)
BASE = Commit("b" * 40)
OTHER = Commit("c" * 40)
SECOND_US = 1_000_000


def recorded(*events: Event, stream: str = "run/r1/a") -> tuple[Recorded[Event], ...]:
    """The events of one stream, one second apart."""
    return tuple(
        Recorded(StreamId(stream), version, version, version * SECOND_US, version * SECOND_US, event, "")
        for version, event in enumerate(events, 1)
    )


def state_after(*events: Event) -> State:
    """The state of a feature; every event must be legal where it comes."""
    state = fold(())
    for item in recorded(*events):
        following = apply_strict(state, item)
        assert following is not None, f"{type(item.event).__name__} may not come in {type(state).__name__}"
        state = following
    assert state == fold(recorded(*events))
    return state


def when_decided(state: State, pins: Pins) -> Action | None:
    return decide_feature(state, pins)


def given_run(*events: Event) -> RunState:
    return fold_run(recorded(*events, stream="run/r1"))


def when_run_decided(state: RunState, pins: Pins) -> RunAction:
    return decide_run(state, pins)


# stories --------------------------------------------------------------------------------------------------------------
A = FeatureId("a")
STARTED = FeatureStarted(
    feature=A, run_version=3, branch="feat/a", target="main", starts_from=(BASE,), title=DIGEST, body=DIGEST
)
OPENED = (STARTED, WorkspaceReady(head=BASE, tree=BASE))
COMMAND = CommandRan(
    stage="gate", phase="build", unit="u1", name="check", exit=0, output=DIGEST, excerpt=DIGEST, duration_ms=1
)
UNITS = (
    Unit(id="u1", files=(Path("a1.txt"),)),
    Unit(id="u2", depends_on=("u1",), files=(Path("a2.txt"),)),
    Unit(id="u3", depends_on=("u2",), files=(Path("a3.txt"),)),
)


def ref(phase: str, attempt: int = 1, role: str = "builder", unit: str = "", iteration: int = 1) -> CallRef:
    key = f"r1/a/{phase}/{unit or '-'}/{iteration}/{attempt}/agent.{role}"
    return CallRef(key=key, phase=phase, unit=unit, iteration=iteration, attempt=attempt, role=role)


def requested(call: CallRef) -> AgentRequested:
    return AgentRequested(
        ref=call,
        agent="simulated",
        model="m",
        prompt=DIGEST,
        template="t",
        full_prompt=True,
        session=None,
        resumes=False,
        tree=BASE,
        estimated_tokens=1,
        estimated_nanousd=1,
    )


def replied(call: CallRef, problem: Problem | None = None) -> tuple[Event, ...]:
    """Request, reply and what was read."""
    return (
        requested(call),
        AgentReplied(ref=call, stdout=DIGEST, stderr=DIGEST, exit=0, duration_ms=1, tree=BASE),
        ReplyParsed(ref=call, parser="p/1", ending="success", session=None, text=DIGEST, problem=problem),
    )


def accepted(call: CallRef, **artifacts: tuple[Unit, ...]) -> tuple[Event, ...]:
    """A reply that the rules accept."""
    return (
        *replied(call),
        ChangesChecked(ref=call, tree=BASE),
        *(
            ArtifactParsed(
                artifact=name,
                phase=call.phase,
                unit=call.unit,
                path=None,
                digest=DIGEST,
                units=units,
                files=tuple(file for unit in units for file in unit.files),
            )
            for name, units in artifacts.items()
        ),
        ArtifactValidated(ref=call),
    )


def refused_reply(call: CallRef) -> tuple[Event, ...]:
    """A reply that breaks a rule."""
    return (
        *replied(call),
        ChangesChecked(ref=call, tree=BASE),
        ArtifactValidated(ref=call, violations=(Violation(rule="plan.json"),), report=DIGEST),
    )


def gate(name: str, passed: bool, phase: str = "build", unit: str = "u1", cause: str = "code") -> GateChecked:
    report = None if passed else DIGEST
    return GateChecked(phase=phase, unit=unit, gate=name, passed=passed, cause=cause, report=report)


def committed(phase: str, unit: str = "") -> tuple[Event, ...]:
    key = f"{phase}/{unit}/commit"
    return (
        CommitRequested(key=key, purpose="work", phase=phase, unit=unit, tree=BASE, parent=BASE, message=DIGEST),
        Committed(key=key, commit=BASE, files=1, insertions=1, deletions=0),
    )


def planned() -> tuple[Event, ...]:
    """The trial pipeline's first phase, complete."""
    return (
        *OPENED,
        PhaseStarted(phase="plan", iteration=1),
        UnitStarted(phase="plan", unit="", iteration=1),
        *accepted(ref("plan"), plan=UNITS),
        *committed("plan"),
        UnitCompleted(phase="plan", unit=""),
        PhaseCompleted(phase="plan"),
    )


def shipping() -> tuple[Event, ...]:
    """The trial pipeline's last phase up to its commit; what was built is left out."""
    return (
        *planned(),
        PhaseStarted(phase="ship", iteration=1),
        UnitStarted(phase="ship", unit="", iteration=1),
        *accepted(ref("ship")),
        *committed("ship"),
    )


def base_merged(changed: bool = False, *conflicts: str) -> BaseMerged:
    paths = tuple(Path(path) for path in conflicts)
    return BaseMerged(key="k", base=OTHER, head=OTHER, tree=OTHER, changed=changed, conflicts=paths)


def checks_seen(
    green: int = 0, red: int = 0, pending: int = 0, flaky: bool = False, commit_known: bool = True
) -> ChecksPolled:
    polled = ChecksPolled(key="k", commit=BASE, commit_known=commit_known, passed=green, failed=red, pending=pending)
    return replace(polled, flaky=flaky, report=DIGEST if red else None)


def merging() -> tuple[Event, ...]:
    """Everything that can happen between the last commit and a rollback for red checks."""
    return (
        *shipping(),
        base_merged(True),
        gate("check", True, phase="ship", unit=""),
        gate("final", True, phase="ship", unit=""),
        *opened(),
        checks_seen(pending=1),
        FeatureHeld(hold=Hold.CHECKS, until_us=1),
        HoldReleased(run_version=7, hold=Hold.CHECKS),
        checks_seen(red=1, flaky=True),
        ChecksRerun(key="k", runs=1),
        FeatureHeld(hold=Hold.CHECKS, until_us=1),
        HoldReleased(run_version=8, hold=Hold.CHECKS),
        checks_seen(red=1),
        Blocked(phase="ship", unit="", cause="checks", check="await_checks", note=DIGEST),
        RolledBack(source="ship", to="build", keeps_tree=True),
    )


def opened() -> tuple[Event, ...]:
    """Pushed, and the pull request is there."""
    return (
        PushRequested(key="k", remote="origin", branch="feat/a", commit=BASE, old=None),
        Pushed(key="k", commit=BASE),
        PullRequestRequested(key="k", branch="feat/a", target="main", title=DIGEST, body=DIGEST, strategy="draft"),
        PullRequestOpened(key="k", url="u", number=1),
    )
