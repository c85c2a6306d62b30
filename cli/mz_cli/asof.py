"""`mz log --at`: the state after an event, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mz_events.catalog.base import Event, Role
from mz_events.catalog.feature import HumanRequested
from mz_events.codec import type_of
from mz_events.envelope import Recorded
from mz_projections.cost import costs, totals
from mz_projections.feature import fold
from mz_projections.run import RunState, Track, fold_run
from mz_projections.state import (
    Active,
    Between,
    Cell,
    Ended,
    Held,
    Opening,
    Restoring,
    Setting,
    State,
    Unborn,
    Waiting,
    Working,
    book_of,
)
from mz_projections.timeline import words

from mz_cli.advice import Words
from mz_cli.costs import amounts
from mz_cli.render.text import counted, instant, line, usd
from mz_cli.shapes.state import (
    FeatureState,
    KnownArtifact,
    QuestionShape,
    RunStateShape,
    StateAt,
    TrackShape,
    TriesShape,
)
from mz_cli.summary import money_words

STATE_NAMES: Mapping[type[State], str] = {
    Unborn: "unborn",
    Opening: "opening",
    Setting: "setting",
    Between: "between",
    Working: "working",
    Restoring: "restoring",
    Held: "held",
    Waiting: "waiting",
}
"""Values of `state` in the JSON document."""


def state_at(events: Sequence[Recorded[Event]], newest: int, repository: str, told: Words) -> StateAt:
    """Return the state after the last of `events`, the first ones of a stream whose current version is given."""
    last = events[-1]
    of_feature = last.stream.count("/") == 2
    return StateAt(
        repository=repository, place=last.place, at=instant(last.recorded_at_us), event=type_of(last.event),
        text=line(words(last.event)), newest=newest,
        feature=feature_state(fold(events), events, told) if of_feature else None,
        run=None if of_feature else run_state(fold_run(events)),
    )  # fmt: skip


def feature_state(state: State, events: Iterable[Recorded[Event]], told: Words) -> FeatureState:
    inner = state.then if isinstance(state, Held | Waiting) else state
    book, work = book_of(state), inner if isinstance(inner, Working) else None
    cell = work.cell if work else None
    started = book.started if book else inner.started if isinstance(inner, Opening) else None
    return FeatureState(
        state=state.status.value if isinstance(state, Ended) else STATE_NAMES[type(state)],
        within=STATE_NAMES[type(inner)] if inner is not state else None, phase=work.phase if work else None,
        unit=(cell.unit if cell else "") or None, iteration=cell.iteration if cell else None,
        units=tuple(unit for unit in work.units if unit) if work else (),
        units_done=tuple(unit for unit in work.finished if unit) if work else (),
        done=book.done if book else (), rollbacks=book.rollbacks if book else 0, tries=_tries(cell),
        checked=cell.checked if cell else {}, owed=_owed(inner),
        hold=state.hold.value if isinstance(state, Held) else None,
        until=instant(state.until_us) if isinstance(state, Held) else None,
        code=state.code if isinstance(state, Held | Ended) else None,
        question=_question(state.asked, told) if isinstance(state, Waiting) else None,
        branch=started.branch if started else None, target=started.target if started else None,
        base=book.base if book else None, head=book.head if book else None,
        artifacts=tuple(
            KnownArtifact(artifact=a.artifact, phase=a.phase, unit=a.unit or None, path=a.path, digest=a.digest)
            for name, a in (book.artifacts if book else {}).items()
            if "/" in name or not a.unit
        ),
        cost=amounts(totals(costs(events))),
    )  # fmt: skip


def _tries(cell: Cell | None) -> tuple[TriesShape, ...]:
    return tuple(
        TriesShape(role=role, attempt=each.attempt, refused=each.refused, failures=each.failures)
        for role, each in (cell.tries if cell else {}).items()
    )


def _owed(inner: Active | Unborn | Ended) -> str | None:
    """Return the type of an intent without an outcome, which the engine reconciles before it continues."""
    last: object = inner.last if isinstance(inner, Opening | Setting | Restoring) else None
    if isinstance(inner, Working) and inner.cell:
        last = inner.cell.last
    return type_of(last) if isinstance(last, Event) and last.ROLE is Role.INTENT else None


def _question(asked: HumanRequested, told: Words) -> QuestionShape:
    return QuestionShape(
        ask=asked.ask.value, code=asked.code or None, phase=asked.phase, unit=asked.unit or None,
        detail=told(asked.detail) or None,
    )  # fmt: skip


# the run --------------------------------------------------------------------------------------------------------------
def run_state(state: RunState) -> RunStateShape:
    started = state.started
    return RunStateShape(
        status=_status(state), code=state.halted.code if state.halted else None,
        pipeline=started.pipeline if started else None, base=started.base if started else None,
        base_commit=started.base_commit if started else None, inbox=state.inbox_version,
        committed_usd=_usd(state.committed_nanousd),
        features=(
            *(_track(feature, track) for feature, track in state.tracks.items()),
            *(_skipped(feature) for feature in state.skipped),
        ),
    )  # fmt: skip


def _status(state: RunState) -> str:
    if state.finished:
        return "finished"
    if state.halted is not None:
        return "halted"
    if state.stopped:
        return "stopped"
    return "paused" if state.paused else "idle" if state.resting else "running"


def _track(feature: str, track: Track) -> TrackShape:
    rested = None if track.active else track.rested
    resting = "held" if track.held_by else rested.status.value if rested else "queued"
    return TrackShape(
        id=feature, state="working" if track.active else resting,
        hold=rested.hold.value if rested and rested.hold else None,
        until=instant(rested.until_us) if rested else None, code=rested.code if rested else None,
        held_by=track.held_by, claim=track.claim or (), spent_usd=_usd(track.spent_nanousd),
        reserved_usd=_usd(sum(track.reserved.values())),
    )  # fmt: skip


def _skipped(feature: str) -> TrackShape:
    return TrackShape(
        id=feature, state="skipped", hold=None, until=None, code=None, held_by=None, claim=(), spent_usd=_usd(0),
        reserved_usd=_usd(0),
    )  # fmt: skip


def _usd(nanousd: int) -> str:
    return usd(nanousd) or ""


# for people -----------------------------------------------------------------------------------------------------------
def rows(state: StateAt, whole: bool = False) -> tuple[tuple[str, str], ...]:
    """Return names and values; unknown and empty ones are left out. `exact`: for a pipe, with exact money."""
    found = [("event ref", state.place), ("at", state.at or ""), ("event", f"{state.event}: {state.text}")]
    if state.place != _newest(state):
        found.append(("since then", f"the stream has continued to {_newest(state)}"))
    body = _of_feature(state.feature, whole) if state.feature else _of_run(state.run) if state.run else ()
    return tuple((name, value) for name, value in (*found, *body) if value)


def _newest(state: StateAt) -> str:
    return f"{state.place.rpartition('@')[0]}@{state.newest}"


def _of_feature(state: FeatureState, whole: bool) -> Iterator[tuple[str, str]]:
    why = state.hold or (state.question.ask if state.question else "") or state.code or ""
    yield "state", state.state + (f" ({why})" if why else "")
    yield "within", state.within or ""
    yield "until", state.until or ""
    if state.question:
        yield "asks", line(state.question.detail or state.question.code or "")
    again = f", iteration {state.iteration}" if (state.iteration or 1) > 1 else ""
    yield "phase", f"{state.phase}{f'/{state.unit}' if state.unit else ''}{again}" if state.phase else ""
    yield "units done", f"{' '.join(state.units_done)} of {' '.join(state.units)}" if state.units else ""
    for tries in state.tries:
        yield tries.role, f"attempt {tries.attempt}, {tries.refused} rejected, {tries.failures} failed"
    for gate, passed in state.checked.items():
        yield f"gate {gate}", "passed" if passed else "rejected"
    yield "pending", f"outcome of {state.owed}" if state.owed else ""
    yield "phases done", " ".join(state.done)
    yield "rollbacks", str(state.rollbacks or "")
    yield "branch", f"{state.branch} for {state.target}" if state.branch else ""
    yield "head", state.head or ""
    for made in state.artifacts:
        name = f"{made.artifact}/{made.unit}" if made.unit else made.artifact
        yield f"artifact {name}", f"{made.path or 'the reply'} of {made.phase}, sha256 {made.digest}"
    cost = state.cost
    if cost.calls:
        amounts = money_words(cost.estimated_usd, cost.reported_usd, cost.computed_usd, whole)
        yield "cost", f"{counted(cost.calls, 'call')}: {amounts}"


def _of_run(state: RunStateShape) -> Iterator[tuple[str, str]]:
    yield "state", state.status + (f" ({state.code})" if state.code else "")
    yield "pipeline", f"{state.pipeline} on {state.base} at {state.base_commit}" if state.pipeline else ""
    yield "committed", f"${state.committed_usd} charged or reserved"
    yield "messages read", str(state.inbox or "")
    for track in state.features:
        why = track.hold or track.code or (f"by {track.held_by}" if track.held_by else "")
        claim = f", claims {' '.join(track.claim)}" if track.claim else ""
        money = f"${track.spent_usd} charged, ${track.reserved_usd} reserved"
        yield f"feature {track.id}", f"{track.state}{f' ({why})' if why else ''}, {money}{claim}"
