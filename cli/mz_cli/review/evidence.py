"""Evidence for a question to a person, selected from the feature's events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied, AgentRequested, ReplyParsed
from mz_events.catalog.delivery import BaseMerged, ChecksPolled
from mz_events.catalog.feature import QuestionKind, UnitStarted, WorkspaceConflicted
from mz_events.catalog.validation import (
    ArtifactParsed,
    ArtifactValidated,
    ChangesChecked,
    CommandRan,
    GateChecked,
    RefMoved,
)
from mz_events.envelope import Recorded
from mz_events.names import Commit, Digest
from mz_projections.feature.state import InPhase, State, UnitRun, Waiting
from mz_projections.views.messages import Question

from mz_cli.common.advice import TextLoader
from mz_cli.common.feature_query import report_messages
from mz_cli.people.questions import unit_text

EvidenceKind = Literal["words", "violations", "output", "references", "paths", "reply", "artifact", "diff"]
Events = Sequence[Recorded[Event]]
SHORT = 12
DETAIL_TITLES = {
    QuestionKind.BLOCKER: "question of the agent",
    QuestionKind.RETRIES: "error of the last call",
    QuestionKind.LIMIT: "error of the last call",
}
"""Title of the question's own text."""


class EvidencePiece(msgspec.Struct, frozen=True, kw_only=True):
    kind: EvidenceKind
    title: str
    event_ref: str | None = None
    digest: Digest | None = None
    text: str = ""
    """Empty: the text is that of the blob."""
    span: tuple[Commit, Commit] | None = None
    """Captures before and after, for a diff."""
    excluded_paths: frozenset[str] = frozenset()
    """Paths that a diff leaves out because other evidence shows them."""


def evidence_pieces(
    question: Question, state: State, events: Events, load_text: TextLoader
) -> tuple[EvidencePiece, ...]:
    """Return the evidence in reading order: the reason for the question, then the work itself, without duplicates."""
    unit_events = _unit_events(question, events)
    violations = list(_violations(question, unit_events, load_text))
    title = DETAIL_TITLES.get(question.question_kind, "details")
    detail_piece = EvidencePiece(kind="words", title=title, event_ref=question.event_ref, digest=question.detail)
    artifacts = list(_artifacts(unit_events))
    pieces = (
        *([detail_piece] if question.detail is not None and not violations else []),
        *violations,
        *_command_output(question, unit_events),
        *_repository_state(question, unit_events),
        *_checks(question, unit_events, load_text),
        *(artifacts if question.question_kind is not QuestionKind.SECRET else []),
        *_reply(question, unit_events),
        *_changes(question, state, artifacts),
    )
    first_by_digest = {piece.digest: piece for piece in reversed(pieces)}
    return tuple(piece for piece in pieces if piece.digest is None or first_by_digest[piece.digest] is piece)


def _unit_events(question: Question, events: Events) -> Events:
    """Return the events of the unit run with the question; all events before the first phase."""
    start = 0
    for index, recorded in enumerate(events):
        event = recorded.event
        if isinstance(event, UnitStarted) and (event.phase, event.unit) == (question.phase, question.unit):
            start = index
    return events[start:]


def _newest_event(events: Events, kind: type[Event] | tuple[type[Event], ...]) -> Recorded[Event] | None:
    return next((recorded for recorded in reversed(events) if isinstance(recorded.event, kind)), None)


def _violations(question: Question, events: Events, load_text: TextLoader) -> Iterator[EvidencePiece]:
    """Yield the last violations of rules or of a gate."""
    checked = _newest_event(events, (ArtifactValidated, GateChecked))
    if checked is None or question.question_kind not in (
        QuestionKind.EXHAUSTED,
        QuestionKind.UNROUTED,
        QuestionKind.ROLLBACKS,
        QuestionKind.APPROVAL,
    ):
        return
    event = checked.event
    assert isinstance(event, ArtifactValidated | GateChecked)
    if event.report is None or (isinstance(event, GateChecked) and event.passed):
        return
    source = f"the gate {event.gate}" if isinstance(event, GateChecked) else "the rules"
    text = "\n".join(message.strip() for message in report_messages(load_text(event.report)))
    yield EvidencePiece(
        kind="violations", title=f"rejected by {source}", event_ref=checked.event_ref, digest=event.report, text=text
    )


def _command_output(question: Question, events: Events) -> Iterator[EvidencePiece]:
    """Yield the output of the last command if the question is about one and no gate reports it."""
    newest_command, checked = _newest_event(events, CommandRan), _newest_event(events, GateChecked)
    if newest_command is None or question.question_kind not in (
        QuestionKind.EXHAUSTED,
        QuestionKind.UNROUTED,
        QuestionKind.ROLLBACKS,
        QuestionKind.CONFLICT,
        QuestionKind.APPROVAL,
    ):
        return
    command = newest_command.event
    assert isinstance(command, CommandRan)
    if (
        checked is not None
        and isinstance(checked.event, GateChecked)
        and (checked.event.gate, checked.event.passed) == (command.name, False)
    ):
        return
    ended = "killed at its time limit" if command.exit is None else f"exit {command.exit}"
    tests = f", {command.passed or 0} passed, {command.failed or 0} failed" if command.passed is not None else ""
    yield EvidencePiece(
        kind="output",
        title=f"output of `{command.name}` ({ended}{tests})",
        event_ref=newest_command.event_ref,
        digest=command.excerpt,
    )


def _repository_state(question: Question, events: Events) -> Iterator[EvidencePiece]:
    """Yield moved refs, conflicting files, or files with a secret."""
    if question.question_kind is QuestionKind.REPOSITORY:
        request = max((i for i, recorded in enumerate(events) if isinstance(recorded.event, AgentRequested)), default=0)
        moved = [(later.event_ref, later.event) for later in events[request:] if isinstance(later.event, RefMoved)]
        text = "\n".join(f"{e.name}: {e.old[:SHORT] or 'absent'} -> {e.new[:SHORT] or 'absent'}" for _, e in moved)
        if moved:
            yield EvidencePiece(kind="references", title="moved refs", event_ref=moved[-1][0], text=text)
    if question.question_kind is QuestionKind.CONFLICT and question.detail is None:
        conflict = _newest_event(events, (WorkspaceConflicted, BaseMerged))
        if conflict is not None:
            event = conflict.event
            assert isinstance(event, WorkspaceConflicted | BaseMerged)
            paths = event.conflicts if isinstance(event, BaseMerged) else event.paths
            yield from _paths("conflicting files", conflict, paths)
    if question.question_kind is QuestionKind.SECRET:
        check = _newest_event(events, (ChangesChecked, AgentReplied))
        if check is not None:
            assert isinstance(check.event, ChangesChecked | AgentReplied)
            offences = check.event.forbidden_changes
            yield from _paths("files with a secret", check, [o.path for o in offences if o.kind == "secret"])


def _paths(title: str, recorded: Recorded[Event], paths: Iterable[str]) -> Iterator[EvidencePiece]:
    text = "\n".join(paths)
    if text:
        yield EvidencePiece(kind="paths", title=title, event_ref=recorded.event_ref, text=text)


def _checks(question: Question, events: Events, load_text: TextLoader) -> Iterator[EvidencePiece]:
    polled = _newest_event(events, ChecksPolled)
    if polled is not None and isinstance(polled.event, ChecksPolled):
        checks = polled.event
        counts = f"{checks.passed} passed, {checks.failed} failed, {checks.pending} pending at {checks.commit[:SHORT]}"
        texts = report_messages(load_text(checks.report)) if question.detail is None else ()
        text = "\n".join((counts, *texts))
        yield EvidencePiece(kind="output", title="checks of the pull request", event_ref=polled.event_ref, text=text)


def _reply(question: Question, events: Events) -> Iterator[EvidencePiece]:
    """Yield the agent's last reply, if it is not the question itself."""
    parsed = _newest_event(events, ReplyParsed)
    if (
        parsed is not None
        and isinstance(parsed.event, ReplyParsed)
        and question.question_kind is not QuestionKind.SECRET
    ):
        text = parsed.event.text
        if text is not None and text != question.detail:
            yield EvidencePiece(kind="reply", title="last reply of the agent", event_ref=parsed.event_ref, digest=text)


def _artifacts(events: Events) -> Iterator[EvidencePiece]:
    """Yield the newest version of each artifact that the phase has produced."""
    newest = {parsed.event.artifact: parsed for parsed in events if isinstance(parsed.event, ArtifactParsed)}
    for name, recorded in newest.items():
        event = recorded.event
        assert isinstance(event, ArtifactParsed)
        title = f"artifact {name}" + (f" ({event.path})" if event.path else "")
        excluded_paths = frozenset([str(event.path)] if event.path else [])
        yield EvidencePiece(
            kind="artifact",
            title=title,
            event_ref=recorded.event_ref,
            digest=event.digest,
            excluded_paths=excluded_paths,
        )


def _changes(question: Question, state: State, artifacts: Sequence[EvidencePiece]) -> Iterator[EvidencePiece]:
    """Yield the changes of the unit run; never if they contain a secret."""
    if question.question_kind is QuestionKind.SECRET or not isinstance(state, Waiting):
        return
    match state.suspended:
        case InPhase(unit_run=UnitRun(base=base, tree=tree)) if base != tree:
            shown_paths = frozenset(path for piece in artifacts for path in piece.excluded_paths)
            title = f"changes in {unit_text(question.phase, question.unit)}"
            yield EvidencePiece(kind="diff", title=title, span=(base, tree), excluded_paths=shown_paths)
