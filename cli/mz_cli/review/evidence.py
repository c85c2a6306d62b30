"""Evidence for a question to a person, selected from the feature's events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, ReplyParsed
from mz_events.catalog.delivery import BaseMerged, ChecksPolled
from mz_events.catalog.feature import QuestionKind, UnitStarted, WorkspaceConflicted
from mz_events.catalog.validation import ArtifactParsed, ArtifactValidated, ChangesChecked, CommandRan, GateChecked
from mz_events.names import Commit, Digest
from mz_events.store import Recorded
from mz_projections.feature.state import InPhase, State, UnitRun, Waiting
from mz_projections.views.model import Question

from mz_cli.app.context import TextLoader
from mz_cli.common.feature_query import report_messages
from mz_cli.people.questions import unit_text
from mz_cli.terminal.json import Shape
from mz_cli.terminal.text import shorten

Patch = Callable[[Commit, Commit, frozenset[str]], str]
"""Captures before and after, and paths to leave out -> patch."""
SHORT = 12
DETAIL_TITLES = {
    QuestionKind.APPROVAL: "why you are asked",
    QuestionKind.BLOCKER: "question of the agent",
    QuestionKind.RETRIES: "error of the last call",
    QuestionKind.LIMIT: "error of the last call",
    QuestionKind.WITHHELD: "suspicious lines",
}
"""Title of the question's own text."""
OUTPUT_LINES_MAX, OUTPUT_LINE_CHARS_MAX = 10, 500
"""Of the end of a failed call's output."""
VIOLATION_KINDS = (QuestionKind.EXHAUSTED, QuestionKind.UNROUTED, QuestionKind.ROLLBACKS, QuestionKind.APPROVAL)


class EvidenceShape(Shape, frozen=True, kw_only=True):
    """One piece of evidence for a decision."""

    kind: str
    """`words`, `violations`, `output`, `references`, `paths`, `reply`, `artifact` or `diff`."""
    title: str
    event_ref: str | None
    """Event that recorded it."""
    digest: str | None
    """Digest of the blob with the evidence."""
    text: str


def collect_evidence(
    question: Question, state: State, events: Sequence[Recorded[Event]], load_text: TextLoader, patch: Patch
) -> tuple[EvidenceShape, ...]:
    """Return the evidence in reading order: the reason for the question, then the work itself, without duplicates.

    Only the unit run with the question counts; before the first phase, all events."""
    starts = [
        index
        for index, recorded in enumerate(events)
        if isinstance(recorded.event, UnitStarted)
        and (recorded.event.phase, recorded.event.unit) == (question.phase, question.unit)
    ]
    selection = _Selection(question, events[starts[-1] if starts else 0 :], load_text)
    first_pieces: dict[str, EvidenceShape] = {}
    for piece in selection.pieces(state, patch):
        if piece.text:
            first_pieces.setdefault(piece.digest or piece.title, piece)
    return tuple(first_pieces.values())


def failed_output(events: Sequence[Recorded[Event]], load_text: TextLoader) -> Iterator[EvidenceShape]:
    """Yield the last lines of stderr and of stdout of the last call, if it failed."""
    parsed = next((recorded.event for recorded in reversed(events) if isinstance(recorded.event, ReplyParsed)), None)
    if parsed is None or parsed.problem is None or parsed.is_question:
        return
    for recorded in reversed(events):
        outcome = recorded.event
        if isinstance(outcome, AgentReplied | AgentFailed | AgentLost) and outcome.ref == parsed.ref:
            digests = {"stdout": outcome.stdout}
            digests = digests if isinstance(outcome, AgentLost) else {"stderr": outcome.stderr} | digests
            for name, digest in digests.items():
                lines = load_text(digest).rstrip().splitlines()[-OUTPUT_LINES_MAX:]
                text = "\n".join(shorten(line, OUTPUT_LINE_CHARS_MAX) for line in lines)
                title = f"end of {name} of the failed call ({parsed.problem.code})"
                yield EvidenceShape(kind="output", title=title, event_ref=recorded.event_ref, digest=digest, text=text)
            return


class _Selection:
    """The question with the events of its unit run."""

    def __init__(self, question: Question, events: Sequence[Recorded[Event]], load_text: TextLoader) -> None:
        self._question, self._events, self._load_text = question, events, load_text
        self._kind = question.question_kind

    def pieces(self, state: State, patch: Patch) -> Iterator[EvidenceShape]:
        question, has_secret = self._question, self._kind is QuestionKind.SECRET
        violations = tuple(self._violations())
        if question.detail is not None and not violations:
            title = DETAIL_TITLES.get(self._kind, "details")
            yield self._piece("words", title, question.event_ref, digest=question.detail)
        yield from failed_output(self._events, self._load_text)
        yield from violations
        yield from self._command_output()
        yield from self._repository_state()
        yield from self._checks()
        if has_secret:
            return
        artifacts = {
            r.event.artifact: (r.event_ref, r.event) for r in self._events if isinstance(r.event, ArtifactParsed)
        }
        for name, (event_ref, parsed) in artifacts.items():
            title = f"artifact {name}" + (f" ({parsed.path})" if parsed.path else "")
            yield self._piece("artifact", title, event_ref, digest=parsed.digest)
        yield from self._reply()
        match state:
            case Waiting(suspended=InPhase(unit_run=UnitRun(base=base, tree=tree))) if base != tree:
                shown = frozenset(str(parsed.path) for _, parsed in artifacts.values() if parsed.path)
                title = f"changes in {unit_text(question.phase, question.unit)}"
                yield self._piece("diff", title, None, patch(base, tree, shown))

    def _piece(
        self, kind: str, title: str, event_ref: str | None, text: str = "", digest: Digest | None = None
    ) -> EvidenceShape:
        text = text or self._load_text(digest)
        return EvidenceShape(kind=kind, title=title, event_ref=event_ref, digest=digest, text=text)

    def _newest(self, *kinds: type[Event]) -> tuple[str, Event | None]:
        """Return the event ref and the newest event of these kinds; None if there is none."""
        newest = next((recorded for recorded in reversed(self._events) if isinstance(recorded.event, kinds)), None)
        return (newest.event_ref, newest.event) if newest else ("", None)

    def _violations(self) -> Iterator[EvidenceShape]:
        """Yield the last violations of rules or of a gate; those of an approval are its text."""
        if self._kind is QuestionKind.APPROVAL and self._question.detail is not None:
            return
        event_ref, event = self._newest(ArtifactValidated, GateChecked)
        match event:
            case GateChecked(passed=False, report=report):
                source = f"the gate {event.gate}"
            case ArtifactValidated(report=report):
                source = "the rules"
            case _:
                return
        if report is not None and self._kind in VIOLATION_KINDS:
            text = "\n".join(message.strip() for message in report_messages(self._load_text(report)))
            yield self._piece("violations", f"rejected by {source}", event_ref, text, report)

    def _command_output(self) -> Iterator[EvidenceShape]:
        """Yield the output of the last command if the question is about one and no gate reports it."""
        event_ref, command = self._newest(CommandRan)
        _, gate = self._newest(GateChecked)
        if not isinstance(command, CommandRan) or self._kind not in (*VIOLATION_KINDS, QuestionKind.CONFLICT):
            return
        is_of_gate = isinstance(gate, GateChecked) and (gate.gate == command.name or command.stage == "setup")
        if isinstance(gate, GateChecked) and is_of_gate and not gate.passed:
            return
        ended = "killed at its time limit" if command.exit is None else f"exit {command.exit}"
        tests = f", {command.passed or 0} passed, {command.failed or 0} failed" if command.passed is not None else ""
        yield self._piece("output", f"output of `{command.name}` ({ended}{tests})", event_ref, digest=command.excerpt)

    def _repository_state(self) -> Iterator[EvidenceShape]:
        """Yield conflicting files, or files with a secret."""
        if self._kind is QuestionKind.CONFLICT and self._question.detail is None:
            event_ref, event = self._newest(WorkspaceConflicted, BaseMerged)
            if isinstance(event, WorkspaceConflicted | BaseMerged):
                paths = event.conflicts if isinstance(event, BaseMerged) else event.paths
                yield self._piece("paths", "conflicting files", event_ref, "\n".join(paths))
        if self._kind is QuestionKind.SECRET:
            event_ref, event = self._newest(ChangesChecked, AgentReplied)
            if isinstance(event, ChangesChecked | AgentReplied):
                text = "\n".join(change.path for change in event.forbidden_changes if change.kind == "secret")
                yield self._piece("paths", "files with a secret", event_ref, text)

    def _checks(self) -> Iterator[EvidenceShape]:
        event_ref, polled = self._newest(ChecksPolled)
        if isinstance(polled, ChecksPolled):
            counts = f"{polled.passed} passed, {polled.failed} failed, {polled.pending} pending"
            texts = report_messages(self._load_text(polled.report)) if self._question.detail is None else ()
            text = "\n".join((f"{counts} at {polled.commit[:SHORT]}", *texts))
            yield self._piece("output", "checks of the pull request", event_ref, text)

    def _reply(self) -> Iterator[EvidenceShape]:
        """Yield the agent's last reply, if it is not the question itself."""
        event_ref, parsed = self._newest(ReplyParsed)
        if isinstance(parsed, ReplyParsed) and parsed.text is not None and parsed.text != self._question.detail:
            yield self._piece("reply", "last reply of the agent", event_ref, digest=parsed.text)
