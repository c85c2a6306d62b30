"""Evidence for a question to a person, selected from the feature's events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied, AgentRequested, ReplyRead
from mz_events.catalog.check import (
    ArtifactParsed,
    ArtifactValidated,
    ChangesChecked,
    CommandRan,
    GateChecked,
    RefMoved,
)
from mz_events.catalog.delivery import BaseMerged, ChecksSeen
from mz_events.catalog.feature import Ask, UnitStarted, WorkspaceConflicted
from mz_events.envelope import Recorded
from mz_events.names import Commit, Digest
from mz_projections.queue import Question
from mz_projections.state import Cell, State, Waiting, Working

from mz_cli.advice import Words
from mz_cli.detail import messages
from mz_cli.questions import place_words

Kind = Literal["words", "violations", "output", "references", "paths", "reply", "artifact", "diff"]
Log = Sequence[Recorded[Event]]
SHORT = 12
TITLES = {
    Ask.BLOCKER: "question of the agent",
    Ask.RETRIES: "error of the last call",
    Ask.LIMIT: "error of the last call",
}
"""Title of the question's own text."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    title: str
    place: str | None = None
    digest: Digest | None = None
    text: str = ""
    """Empty: the text is that of the blob."""
    span: tuple[Commit, Commit] | None = None
    """Captures before and after, for a diff."""
    without: frozenset[str] = frozenset()
    """Paths that a diff leaves out because other evidence shows them."""


def evidence(question: Question, state: State, events: Log, words: Words) -> tuple[Piece, ...]:
    """Return the evidence in reading order: the reason for the question, then the work itself, without duplicates."""
    cell = _since(question, events)
    refusals = list(_refusals(question, cell, words))
    title = TITLES.get(question.ask, "details")
    asked = Piece(kind="words", title=title, place=question.place, digest=question.detail)
    artifacts = list(_artifacts(cell))
    pieces = (
        *([asked] if question.detail is not None and not refusals else []),
        *refusals,
        *_outputs(question, cell),
        *_repository(question, cell),
        *_checks(question, cell, words),
        *(artifacts if question.ask is not Ask.SECRET else []),
        *_reply(question, cell),
        *_changes(question, state, artifacts),
    )
    first = {piece.digest: piece for piece in reversed(pieces)}
    return tuple(piece for piece in pieces if piece.digest is None or first[piece.digest] is piece)


def _since(question: Question, events: Log) -> Log:
    """Return the events of the unit run with the question; all events before the first phase."""
    begun = 0
    for index, recorded in enumerate(events):
        event = recorded.event
        if isinstance(event, UnitStarted) and (event.phase, event.unit) == (question.phase, question.unit):
            begun = index
    return events[begun:]


def _newest(events: Log, kind: type[Event] | tuple[type[Event], ...]) -> Recorded[Event] | None:
    return next((recorded for recorded in reversed(events) if isinstance(recorded.event, kind)), None)


def _refusals(question: Question, events: Log, words: Words) -> Iterator[Piece]:
    """Yield the last violations of rules or of a gate."""
    found = _newest(events, (ArtifactValidated, GateChecked))
    if found is None or question.ask not in (Ask.EXHAUSTED, Ask.UNROUTED, Ask.ROLLBACKS, Ask.APPROVAL):
        return
    event = found.event
    assert isinstance(event, ArtifactValidated | GateChecked)
    if event.report is None or (isinstance(event, GateChecked) and event.passed):
        return
    by = f"the gate {event.gate}" if isinstance(event, GateChecked) else "the rules"
    text = "\n".join(message.strip() for message in messages(words(event.report)))
    yield Piece(kind="violations", title=f"rejected by {by}", place=found.place, digest=event.report, text=text)


def _outputs(question: Question, events: Log) -> Iterator[Piece]:
    """Yield the output of the last command if the question is about one and no gate reports it."""
    found, checked = _newest(events, CommandRan), _newest(events, GateChecked)
    if found is None or question.ask not in (Ask.EXHAUSTED, Ask.UNROUTED, Ask.ROLLBACKS, Ask.CONFLICT, Ask.APPROVAL):
        return
    ran = found.event
    assert isinstance(ran, CommandRan)
    if (
        checked is not None
        and isinstance(checked.event, GateChecked)
        and (checked.event.gate, checked.event.passed) == (ran.name, False)
    ):
        return
    ended = "killed at its time limit" if ran.exit is None else f"exit {ran.exit}"
    tests = f", {ran.passed or 0} passed, {ran.failed or 0} failed" if ran.passed is not None else ""
    yield Piece(kind="output", title=f"output of `{ran.name}` ({ended}{tests})", place=found.place, digest=ran.excerpt)


def _repository(question: Question, events: Log) -> Iterator[Piece]:
    """Yield moved refs, conflicting files, or files with a secret."""
    if question.ask is Ask.REPOSITORY:
        request = max((i for i, recorded in enumerate(events) if isinstance(recorded.event, AgentRequested)), default=0)
        moved = [(later.place, later.event) for later in events[request:] if isinstance(later.event, RefMoved)]
        text = "\n".join(f"{e.name}: {e.old[:SHORT] or 'absent'} -> {e.new[:SHORT] or 'absent'}" for _, e in moved)
        if moved:
            yield Piece(kind="references", title="moved refs", place=moved[-1][0], text=text)
    if question.ask is Ask.CONFLICT and question.detail is None:
        conflict = _newest(events, (WorkspaceConflicted, BaseMerged))
        if conflict is not None:
            event = conflict.event
            assert isinstance(event, WorkspaceConflicted | BaseMerged)
            paths = event.conflicts if isinstance(event, BaseMerged) else event.paths
            yield from _paths("conflicting files", conflict, paths)
    if question.ask is Ask.SECRET:
        check = _newest(events, (ChangesChecked, AgentReplied))
        if check is not None:
            assert isinstance(check.event, ChangesChecked | AgentReplied)
            offences = check.event.offences
            yield from _paths("files with a secret", check, [o.path for o in offences if o.kind == "secret"])


def _paths(title: str, found: Recorded[Event], paths: Iterable[str]) -> Iterator[Piece]:
    text = "\n".join(paths)
    if text:
        yield Piece(kind="paths", title=title, place=found.place, text=text)


def _checks(question: Question, events: Log, words: Words) -> Iterator[Piece]:
    found = _newest(events, ChecksSeen)
    if found is not None and isinstance(found.event, ChecksSeen):
        seen = found.event
        counts = f"{seen.green} passed, {seen.red} failed, {seen.pending} pending at {seen.commit[:SHORT]}"
        told = messages(words(seen.report)) if question.detail is None else ()
        text = "\n".join((counts, *told))
        yield Piece(kind="output", title="checks of the pull request", place=found.place, text=text)


def _reply(question: Question, events: Log) -> Iterator[Piece]:
    """Yield the agent's last reply, if it is not the question itself."""
    found = _newest(events, ReplyRead)
    if found is not None and isinstance(found.event, ReplyRead) and question.ask is not Ask.SECRET:
        text = found.event.text
        if text is not None and text != question.detail:
            yield Piece(kind="reply", title="last reply of the agent", place=found.place, digest=text)


def _artifacts(events: Log) -> Iterator[Piece]:
    """Yield the newest version of each artifact that the phase has produced."""
    newest = {each.event.artifact: each for each in events if isinstance(each.event, ArtifactParsed)}
    for name, recorded in newest.items():
        event = recorded.event
        assert isinstance(event, ArtifactParsed)
        title = f"artifact {name}" + (f" ({event.path})" if event.path else "")
        without = frozenset([str(event.path)] if event.path else [])
        yield Piece(kind="artifact", title=title, place=recorded.place, digest=event.digest, without=without)


def _changes(question: Question, state: State, artifacts: Sequence[Piece]) -> Iterator[Piece]:
    """Yield the changes of the unit run; never if they contain a secret."""
    if question.ask is Ask.SECRET or not isinstance(state, Waiting):
        return
    match state.then:
        case Working(cell=Cell(base=base, tree=tree)) if base != tree:
            shown = frozenset(path for piece in artifacts for path in piece.without)
            title = f"changes in {place_words(question.phase, question.unit)}"
            yield Piece(kind="diff", title=title, span=(base, tree), without=shown)
