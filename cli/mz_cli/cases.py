"""Read questions, decisions and inbox messages of one run or of all unfinished runs."""

from __future__ import annotations

import msgspec
from mz_engine.errors import MzError
from mz_engine.pins import decode_pins
from mz_engine.pipelines.definition import Pipeline
from mz_events.catalog.base import Event
from mz_events.envelope import Recorded
from mz_events.names import feature_stream, inbox_stream, run_stream
from mz_events.store import BlobMissing
from mz_projections.feature import fold
from mz_projections.overview import overview
from mz_projections.queue import Decision, Letter, Question, decisions, queue
from mz_projections.run import fold_run, over
from mz_projections.state import State
from mz_projections.views import FeatureView, RunView

from mz_cli.context import Reading
from mz_cli.inbox import left
from mz_cli.render.text import line, moment

SAID = ("answer", "cancel", "retry")
"""Kinds of messages that concern a feature."""


class Desk(msgspec.Struct, frozen=True):
    """Questions, decisions and inbox messages of one run."""

    run: RunView
    questions: tuple[Question, ...]
    decisions: tuple[Decision, ...]
    letters: tuple[Letter, ...]

    def question(self, feature: str) -> Question | None:
        """Return the open question; None if there is none, or if a decision on it was accepted already."""
        view = self.run.find(feature)
        if view is None or view.status != "waiting" or self.decided(feature) is not None:
            return None
        return self._open(feature)

    def decided(self, feature: str) -> Decision | None:
        """Return the decision on the open question that the run has accepted."""
        asked = self._open(feature)
        return next((each for each in self.decisions if asked is not None and each.question == asked), None)

    def pending(self, feature: str) -> Letter | None:
        """Return the first message for the feature that the run has not read; no other can be posted before that."""
        asked = self._open(feature)
        for each in self.letters:
            to_it = each.question is None or (asked is not None and each.question == asked.version)
            if each.fate == "waits" and each.feature in (feature, None) and each.kind in SAID and to_it:
                return each
        return None

    def _open(self, feature: str) -> Question | None:
        return next((each for each in self.questions if each.feature == feature), None)


def desk(log: Reading, run: str) -> Desk:
    events: tuple[Recorded[Event], ...] = tuple(log.events(run))
    return Desk(overview(run, events), queue(events), decisions(events), left(log, run))


def unfinished(log: Reading) -> tuple[str, ...]:
    """Return ids of runs that are not over, the newest first; an unread message can make a run continue."""
    mail = dict(log.store.streams("inbox/"))
    states = ((run, fold_run(log.store.read(run_stream(run)))) for run in log.runs())
    return tuple(run for run, state in states if not over(state, mail.get(inbox_stream(run), 0)))


def find_desk(log: Reading, run: str | None, feature: str) -> tuple[Desk, FeatureView]:
    """Return the queue of that run; without one, of the newest run with a question of the feature, else with the
    feature. Raises MzError (MZ5001, MZ4010)."""
    for each in unfinished(log) if run is None else ():
        if feature in log.features(each):
            found = desk(log, each)
            if found.question(feature) is not None:
                return found, _view(found, feature)
    view, _ = log.find_feature(run, feature)
    found = desk(log, view.run)
    return found, _view(found, feature)


def _view(found: Desk, feature: str) -> FeatureView:
    return found.run.find(feature) or FeatureView(feature=feature)


def state_of(log: Reading, run: str, feature: str) -> State:
    return fold(log.store.read(feature_stream(run, feature)))


def pipeline_of(log: Reading, view: RunView) -> Pipeline | None:
    """Return the run's pinned pipeline; None if the pins are missing or unreadable for this version."""
    try:
        return decode_pins(log.blobs.get(view.pins)).pipeline if view.pins is not None else None
    except (BlobMissing, msgspec.DecodeError):
        return None


def the_question(log: Reading, found: Desk, view: FeatureView) -> Question:
    """Return the question that can be answered now. Raises MzError (MZ5004) with the action that came first."""
    question, letter = found.question(view.feature), found.pending(view.feature)
    if question is not None and letter is None:
        return question
    on_its_way = letter or found.decided(view.feature)
    last = on_its_way or next((each for each in reversed(found.decisions) if each.feature == view.feature), None)
    before = f"; {said(log, last)}" if last is not None else ""
    state = "is answered already" if on_its_way else f"has no open question: it is {view.status}"
    helps = f"continue with: mz resume {found.run.run}" if on_its_way else "`mz review list` shows open questions"
    raise MzError("MZ5004", f"{view.feature} {state}{before}", hint=helps)


def said(log: Reading, words: Decision | Letter) -> str:
    """Return actor, action and time as text."""
    verb = {"answer": f"answered `{words.verdict.value if words.verdict else ''}`", "cancel": "cancelled it",
            "retry": "requested a retry"}.get(words.kind, words.kind)  # fmt: skip
    return f"{line(log.words(words.who)) or 'somebody'} {verb} at {moment(words.at_us)}"
