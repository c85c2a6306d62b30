"""Items that a run adds itself: the first, one in each cycle, the last; what is begun again; the end of cycles."""

from __future__ import annotations

import time

from msgspec.structs import replace
from mz_engine.decide.items import created_items, own_texts
from mz_engine.decide.run import AwaitEvents, RunAction, decide_run
from mz_engine.model.config import Config, Limits
from mz_engine.model.pipeline import Cycle, ItemKind, Phase
from mz_events.catalog.base import Event
from mz_events.catalog.delivery import BranchLanded
from mz_events.catalog.run import (
    CancelAccepted,
    CreatedItem,
    CycleEnded,
    CyclesAllowed,
    CycleStarted,
    FeatureAdmitted,
    FeatureOutcome,
    FeatureStopped,
    ItemAdded,
    ItemHeld,
    ItemRequeued,
    ItemsAdded,
    RunClosing,
    RunFinished,
    RunIdle,
    RunResumed,
    RunStarted,
)
from mz_events.names import Commit, FeatureId, Path, RunId
from mz_projections.run.fold import FeatureTrack
from mz_qa.simulation import trial

from tests.support.steps import BASE, DIGEST, given_run

INTEGRATION = "generation-a"
STARTED = RunStarted(
    run=RunId("r1"), pipeline="p", base="main", base_commit=BASE, pins=DIGEST, mz_version="1", integration=INTEGRATION
)
KINDS = (
    ItemKind(kind="start", sources=("start",), branch="{integration}"),
    ItemKind(kind="plan", sources=("cycle",), branch="task/{integration}-{item}", onto="{integration}"),
    ItemKind(
        kind="task", sources=("backlog", "output"), branch="task/{integration}-{item}", onto="{integration}",
        parallel=1, attempts="item_attempts_max",
    ),
    ItemKind(kind="finish", sources=("finish",), branch="task/{integration}-{item}", starts="{integration}"),
)  # fmt: skip
PINS = replace(
    trial.pins(Config(parallel_max=4, limits=Limits(item_attempts_max=2, unchanged_cycles_max=2))),
    pipeline=replace(
        trial.pins().pipeline,
        items=KINDS,
        integration="generation-{time}",
        cycle=Cycle(max=3, unchanged_max="unchanged_cycles_max"),
        phases=tuple(Phase(phase=f"do-{kind.kind}", kind=kind.kind) for kind in KINDS),
    ),
)
HEADS = {name: Commit(str(number) * 40) for number, name in enumerate(("start", "t1", "t2", "finish-1"), 1)}


def own(feature: str, kind: str = "", cycle: int = 0, order: int = 0) -> ItemAdded:
    """An item that the run adds itself."""
    return ItemAdded(
        feature=FeatureId(feature), source=f"r1#{feature}", priority=0, order=order, title=DIGEST, body=DIGEST,
        kind=kind or feature, cycle=cycle,
    )  # fmt: skip


def made(feature: str, *needs: str, cycle: int = 1) -> ItemAdded:
    item = own(feature, "task", cycle)
    return replace(item, made_by=FeatureId("plan-1"), depends_on=tuple(FeatureId(name) for name in needs))


def did(feature: str, status: FeatureOutcome = FeatureOutcome.DELIVERED) -> tuple[Event, ...]:
    """The item was admitted, and stopped."""
    head, branch = HEADS.get(feature, BASE), "main" if feature.startswith("finish") else INTEGRATION
    merge = BranchLanded(feature=FeatureId(feature), key="k", branch=branch, changed=True, old=BASE, commit=head)
    return (
        FeatureAdmitted(feature=FeatureId(feature)),
        *((merge,) if status is FeatureOutcome.MERGED else ()),
        FeatureStopped(feature=FeatureId(feature), version=9, status=status, head=head),
    )


def then(*events: Event) -> RunAction:
    return decide_run(given_run(STARTED, *events), PINS)


MERGED, FAILED = FeatureOutcome.MERGED, FeatureOutcome.FAILED
DELIVERED_START = (own("start"), *did("start"))
PLANNED = (*DELIVERED_START, CycleStarted(cycle=1), own("plan-1", "plan", 1), *did("plan-1"))


def begun(action: RunAction) -> tuple[str, str, int]:
    assert isinstance(action, ItemAdded)
    return action.feature, action.kind, action.cycle


def test_everything_waits_for_the_first_item() -> None:
    assert begun(then(replace(made("b", cycle=0), made_by=None))) == ("start", "start", 0)
    backlog = replace(made("b", cycle=0), made_by=None)
    assert then(backlog, own("start")) == FeatureAdmitted(feature=FeatureId("start"))
    assert isinstance(then(backlog, own("start"), FeatureAdmitted(feature=FeatureId("start"))), AwaitEvents)
    assert then(backlog, own("start"), *did("start", FAILED)) == RunIdle()
    assert then(backlog, *DELIVERED_START) == FeatureAdmitted(feature=FeatureId("b"), starts_from=(HEADS["start"],))


def test_a_list_of_many_items_costs_what_each_of_them_costs() -> None:
    state = given_run(STARTED, *PLANNED, made("t1"), FeatureAdmitted(feature=FeatureId("t1")))
    others = {name: FeatureTrack(item=made(name)) for name in (f"t{number}" for number in range(2, 15_000))}
    before = time.process_time()
    assert isinstance(decide_run(replace(state, tracks=state.tracks | others), PINS), AwaitEvents)
    assert time.process_time() - before < 1


def test_a_cycle_plans_and_each_item_starts_where_the_branch_is() -> None:
    assert then(*DELIVERED_START) == CycleStarted(cycle=1)
    assert begun(then(*DELIVERED_START, CycleStarted(cycle=1))) == ("plan-1", "plan", 1)
    tasks = (*PLANNED, made("t1"), made("t2", "t1"))
    assert then(*tasks) == FeatureAdmitted(feature=FeatureId("t1"), starts_from=(HEADS["start"],))
    assert isinstance(then(*tasks, made("t3"), FeatureAdmitted(feature=FeatureId("t1"))), AwaitEvents), "one at a time"
    merged = (*tasks, *did("t1", MERGED))
    assert then(*merged) == FeatureAdmitted(feature=FeatureId("t2"), starts_from=(HEADS["t1"],))
    ended = then(*merged, *did("t2", MERGED))
    assert ended == CycleEnded(cycle=1, added=2, delivered=2, failed=0)


def test_work_starts_from_what_was_merged_last_whoever_stopped_last() -> None:
    [admitted, first, stopped], [other, last, ended] = did("t1", MERGED), did("t2", MERGED)
    tasks = (*PLANNED, made("t1"), made("t2"), made("t3"))
    assert then(*tasks, admitted, other, first, last, ended, stopped) == FeatureAdmitted(
        feature=FeatureId("t3"), starts_from=(HEADS["t2"],)
    )


def test_items_that_list_the_same_file_are_not_worked_on_at_the_same_time() -> None:
    pipeline = replace(PINS.pipeline, items=(*KINDS[:2], replace(KINDS[2], parallel="items_max"), KINDS[3]))
    first, other = replace(made("t1"), files=(Path("a"), Path("b"))), replace(made("t2"), files=(Path("b"),))
    events = (*PLANNED, first, FeatureAdmitted(feature=FeatureId("t1")), other)
    pins = replace(PINS, pipeline=pipeline)
    assert isinstance(decide_run(given_run(STARTED, *events), pins), AwaitEvents)
    third = decide_run(given_run(STARTED, *events, replace(made("t3"), files=(Path("c"),))), pins)
    assert third == FeatureAdmitted(feature=FeatureId("t3"), starts_from=(HEADS["start"],))


def test_what_failed_is_begun_again_in_the_next_cycle_as_often_as_allowed() -> None:
    first: tuple[Event, ...] = (*PLANNED, made("t1"), made("t2", "t1"), *did("t1", FAILED))
    held = ItemHeld(feature=FeatureId("t2"), blocked_by=FeatureId("t1"))
    assert then(*first) == held
    first = (*first, held)
    end = CycleEnded(cycle=1, added=2, delivered=0, failed=1)
    assert then(*first) == end
    second = (*first, end, CycleStarted(cycle=2))
    requeued = ItemRequeued(feature=FeatureId("t1"), cycle=2, attempt=2)
    assert then(*second) == requeued
    at_work = (*second, requeued)
    assert isinstance(then(*at_work), AwaitEvents)
    again = (*at_work, *did("t1", FAILED)[1:])
    assert begun(then(*again)) == ("plan-2", "plan", 2), "twice is all"
    mended = (*at_work, *did("t1", MERGED)[1:])
    assert then(*mended) == FeatureAdmitted(feature=FeatureId("t2"), starts_from=(HEADS["t1"],))
    planned = (*again, own("plan-2", "plan", 2), *did("plan-2"))
    assert then(*planned) == CycleEnded(cycle=2, added=0, delivered=0, failed=1, over="planned-nothing")


def test_cycles_end_when_nothing_is_planned_and_when_nothing_changes_and_at_their_limit() -> None:
    nothing = CycleEnded(cycle=1, added=0, delivered=0, failed=0, over="planned-nothing")
    assert then(*PLANNED) == nothing
    assert then(*PLANNED, nothing) == RunIdle(), "a person ends such a run"
    failed_plan = (*DELIVERED_START, CycleStarted(cycle=1), own("plan-1", "plan", 1), *did("plan-1", FAILED))
    unchanged = CycleEnded(cycle=1, added=0, delivered=0, failed=0)
    assert then(*failed_plan) == unchanged
    second = (*failed_plan, unchanged, CycleStarted(cycle=2), own("plan-2", "plan", 2), *did("plan-2", FAILED))
    assert then(*second) == CycleEnded(cycle=2, added=0, delivered=0, failed=0, over="unchanged")
    over = (*second, CycleEnded(cycle=2, added=0, delivered=0, failed=0, over="unchanged"))
    assert then(*over) == RunIdle()
    assert then(*over, CyclesAllowed(until=5)) == CycleStarted(cycle=3)
    assert then(*over, CyclesAllowed(until=2)) == RunIdle()
    added = replace(made("b", cycle=0), made_by=None)
    assert then(*over, added, *did("b", MERGED)) == CycleStarted(cycle=3), "new work lifts it"
    limited = (*DELIVERED_START, CyclesAllowed(until=1), CycleStarted(cycle=1), own("plan-1", "plan", 1))
    limited = (*limited, *did("plan-1"), made("t1"), *did("t1", MERGED))
    assert then(*limited) == CycleEnded(cycle=1, added=1, delivered=1, failed=0, over="cycles")


def test_a_waiting_item_keeps_the_cycle_open() -> None:
    assert then(*PLANNED, made("t1"), *did("t1", FeatureOutcome.WAITING)) == RunIdle()


def test_a_person_who_ends_the_run_cancels_what_is_open() -> None:
    closing = RunClosing(how="finish", actor=DIGEST)
    events: tuple[Event, ...] = (*PLANNED, made("t1"), made("t2"), *did("t1", FeatureOutcome.WAITING), closing)
    cancelled = CancelAccepted(feature=FeatureId("t1"), actor=DIGEST)
    assert then(*events) == cancelled
    events = (*events, cancelled)
    never = FeatureStopped(feature=FeatureId("t2"), version=0, status=FeatureOutcome.CANCELLED)
    assert then(*events) == never
    events = (*events, never)
    assert isinstance(then(*events), AwaitEvents)
    events = (*events, did("t1", FeatureOutcome.CANCELLED)[1])
    assert begun(then(*events)) == ("finish-1", "finish", 1)
    events = (*events, own("finish-1", "finish", 1))
    assert then(*events) == FeatureAdmitted(feature=FeatureId("finish-1"), starts_from=(HEADS["start"],))
    assert then(*events, *did("finish-1", MERGED)) == RunFinished()
    failed = (*events, *did("finish-1", FAILED))
    assert then(*failed) == RunIdle()
    assert begun(then(*failed, RunResumed(mz_version="1"), closing)) == ("finish-2", "finish", 1)


def test_giving_up_a_run_without_an_item_for_it_finishes_it() -> None:
    closing = RunClosing(how="cancel", actor=DIGEST)
    assert then(*DELIVERED_START, closing) == RunFinished()


def test_entries_become_items_with_ids_of_the_run() -> None:
    state = given_run(STARTED, *PLANNED, made("t1"))
    entries = (made("a"), made("b", "a", "old", "none"))
    items = tuple(replace(item, source="plan#x", made_by=None) for item in entries)
    event, added = created_items(state, PINS, FeatureId("plan-2"), items, {"old": FeatureId("t1")})
    assert event == ItemsAdded(
        feature=FeatureId("plan-2"),
        added=(CreatedItem(id="a", feature=FeatureId("t2")), CreatedItem(id="b", feature=FeatureId("t3"))),
        duplicates=("old",),
    )
    assert [(item.feature, item.depends_on, item.made_by, item.cycle, item.source) for item in added] == [
        ("t2", (), "plan-2", 1, "r1#t2"),
        ("t3", ("t2", "t1"), "plan-2", 1, "r1#t3"),
    ]


def test_the_texts_of_own_items_are_stored_when_a_run_starts() -> None:
    assert own_texts(PINS) == ("start", "plan", "finish", "")
    assert own_texts(trial.pins()) == ()
