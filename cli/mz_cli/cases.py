"""Adapter: reads what is asked of people, in one run or in all that are not finished."""

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
"""What is about a feature."""


class Desk(msgspec.Struct, frozen=True):
    """All that concerns people in one run."""

    run: RunView
    questions: tuple[Question, ...]
    decisions: tuple[Decision, ...]
    letters: tuple[Letter, ...]

    def question(self, feature: str) -> Question | None:
        """The one that waits for a person; None also while a decision is on its way to the feature."""
        view = self.run.find(feature)
        if view is None or view.status != "waiting" or self.decided(feature) is not None:
            return None
        return self._open(feature)

    def decided(self, feature: str) -> Decision | None:
        """What a person said to the question that is open, and the run has taken up."""
        asked = self._open(feature)
        return next((each for each in self.decisions if asked is not None and each.question == asked), None)

    def pending(self, feature: str) -> Letter | None:
        """The first of what was left for the feature and is not taken yet: nothing else can be said before that."""
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
    """Ids of the runs that are not over, the newest first: a message that nobody has taken may take up a run again."""
    mail = dict(log.store.streams("inbox/"))
    states = ((run, fold_run(log.store.read(run_stream(run)))) for run in log.runs())
    return tuple(run for run, state in states if not over(state, mail.get(inbox_stream(run), 0)))


def find_desk(log: Reading, run: str | None, feature: str) -> tuple[Desk, FeatureView]:
    """The desk of that run; without one, of the newest run in which the feature asks something, else in which it is.
    Raises MzError (MZ5001, MZ4010)."""
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
    """What the feature's stream says of it."""
    return fold(log.store.read(feature_stream(run, feature)))


def pipeline_of(log: Reading, view: RunView) -> Pipeline | None:
    """The pipeline that the run was started with; None where that is lost, or in a form that this version cannot read:
    what is asked can be shown all the same."""
    try:
        return decode_pins(log.blobs.get(view.pins)).pipeline if view.pins is not None else None
    except (BlobMissing, msgspec.DecodeError):
        return None


def the_question(log: Reading, found: Desk, view: FeatureView) -> Question:
    """The question that can be answered now. Raises MzError (MZ5004), which says who was first."""
    question, letter = found.question(view.feature), found.pending(view.feature)
    if question is not None and letter is None:
        return question
    on_its_way = letter or found.decided(view.feature)
    last = on_its_way or next((each for each in reversed(found.decisions) if each.feature == view.feature), None)
    before = f"; {said(log, last)}" if last is not None else ""
    state = "has its answer already" if on_its_way else f"waits for no answer: it is {view.status}"
    helps = f"it is taken with: mz resume {found.run.run}" if on_its_way else "`mz review list` shows what is asked now"
    raise MzError("MZ5004", f"{view.feature} {state}{before}", hint=helps)


def said(log: Reading, words: Decision | Letter) -> str:
    """Who said what, and when, in words."""
    verb = {"answer": f"answered `{words.verdict.value if words.verdict else ''}`", "cancel": "gave it up",
            "retry": "wanted it done once more"}.get(words.kind, words.kind)  # fmt: skip
    return f"{line(log.words(words.who)) or 'somebody'} {verb} at {moment(words.at_us)}"
