"""Parts of a cassette's fixture that are derived from the log: human decisions, hints about failures, features that a
replay can reproduce, and delivered dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.check import RefMoved
from mz_events.catalog.delivery import BaseMerged, ChecksSeen, DeliveryFailed
from mz_events.catalog.feature import FeatureCancelled, FeatureRetried, HumanAnswered
from mz_events.catalog.run import ItemAdded, ItemSkipped, Verdict
from mz_events.envelope import Recorded
from mz_events.names import feature_stream
from mz_events.store import Blobs, Store
from mz_projections.feature import evolve, fold
from mz_projections.memory import hint_of, learn
from mz_projections.run import RunState
from mz_projections.state import Held, State, Unborn, Waiting, Working

from mz_recordings.cassette import Hint, Said
from mz_recordings.recording.story import belongs

VERDICTS: dict[Verdict, Literal["approve", "retry", "reject"]] = {
    Verdict.APPROVE: "approve",
    Verdict.RETRY: "retry",
    Verdict.REJECT: "reject",
}


class LeftOut(NamedTuple):
    """A feature that no replay could bring to its recorded state."""

    feature: str
    why: str


def left_out(log: Store, run: str, state: RunState) -> tuple[LeftOut, ...]:
    """Return the features whose calls are not recorded, each with the reason, including dependents of such features."""
    found: dict[str, str] = {}
    tracks = sorted(state.tracks.items(), key=lambda entry: entry[1].item.order)
    for feature, track in tracks:
        if track.active:
            found[feature] = "it is still running: finish the run first"
        elif not track.admitted:
            found[feature] = "it never started"
        elif why := _unrepeatable(log, run, feature):
            found[feature] = why
    again = True
    while again:
        again = False
        for feature, track in tracks:
            lost = next((other for other in track.item.depends_on if other in found), None)
            if feature not in found and lost is not None:
                found[feature], again = f"it depends on {lost}", True
    return tuple(LeftOut(feature, why) for feature, why in found.items())


def _unrepeatable(log: Store, run: str, feature: str) -> str:
    """Return why the feature's events cannot be reproduced in a scratch repository; empty if they can."""
    state: State = Unborn()
    for recorded in log.read(feature_stream(run, feature)):
        match recorded.event:
            case FeatureCancelled() if not isinstance(state, Waiting | Held):
                return "it was cancelled while it was running"
            case RefMoved():
                return "another process changed the repository during a call"
            case BaseMerged(changed=True):
                return "its target branch moved while it was running"
            case ChecksSeen(red=red) if red:
                return "checks of its pull request failed"
            case DeliveryFailed():
                return "the remote or the forge rejected it"
        state = evolve(state, recorded)
    return ""


def said(log: Store, blobs: Blobs, run: str, features: Iterable[str]) -> Iterator[Said]:
    """Yield the decisions of people, in the form that a replay needs."""
    for feature in features:
        after = 0
        for recorded in log.read(feature_stream(run, feature)):
            what = _decision(recorded.event)
            if what is not None:
                phase = recorded.event.to if isinstance(recorded.event, FeatureRetried) else ""
                note = getattr(recorded.event, "note", None)
                words = blobs.get(note).decode("utf-8", "replace") if note else None
                yield Said(feature=feature, after=after, what=what, phase=phase, note=words)
            after += belongs(recorded.event)


def _decision(event: Event) -> Literal["approve", "retry", "reject", "again", "cancel"] | None:
    match event:
        case HumanAnswered(verdict=verdict):
            return VERDICTS[verdict]
        case FeatureRetried():
            return "again"
        case FeatureCancelled():
            return "cancel"
    return None


def hints(log: Store, run: str, features: Iterable[str]) -> Iterator[Hint]:
    """Yield the hint for every call that had to fix a known failure; nothing for a feature without any hint."""
    for feature in features:
        asked = list(_asked(log, run, feature))
        if any(hint.text for hint in asked):
            yield from asked


def _asked(log: Store, run: str, feature: str) -> Iterator[Hint]:
    seen: list[Recorded[Event]] = []
    for recorded in log.read(feature_stream(run, feature)):
        if isinstance(recorded.event, AgentRequested):
            state = fold(seen)
            cell = state.cell if isinstance(state, Working) else None
            if cell is not None and cell.reports and cell.signature:
                known = learn(one for one in log.read_all() if one.position < recorded.position)
                yield Hint(feature=feature, signature=cell.signature, text=hint_of(known.get(cell.signature)) or "")
        seen.append(recorded)


def dependencies(items: Iterable[ItemAdded], skipped: dict[str, ItemSkipped]) -> tuple[ItemSkipped, ...]:
    """Return the features delivered by an earlier run that items of this run depend on."""
    wanted = dict.fromkeys(other for item in items for other in item.depends_on if other in skipped)
    return tuple(skipped[other] for other in wanted)
