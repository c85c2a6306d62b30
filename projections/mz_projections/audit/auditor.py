"""Audits a run from its events alone: requested items, changes, decisions, cost, and gaps (missing evidence and
unwanted events). Each statement has the event refs that prove it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied, AgentRequested
from mz_events.catalog.delivery import ChecksPolled, CommitRequested, Committed
from mz_events.catalog.feature import (
    FeatureDelivered,
    HumanAnswered,
    HumanRequested,
    PhaseCompleted,
    PhaseSkipped,
    QuestionKind,
    RolledBack,
)
from mz_events.catalog.run import InboxRead, ItemAdded, ItemSkipped, RunStarted, Verdict
from mz_events.catalog.validation import ArtifactParsed, ArtifactValidated, ChangesChecked, CommandRan, GateChecked
from mz_events.names import BUILDER, StreamId, feature_stream, run_stream
from mz_events.store import Recorded

from mz_projections.audit.model import (
    ArtifactMade,
    CommitMade,
    FeatureAudit,
    Gap,
    GapKind,
    GateDecision,
    RequestedItem,
    RunAudit,
)
from mz_projections.cost.totals import priced_calls, spending
from mz_projections.run.pins import PinnedRun
from mz_projections.views.messages import Decision, decisions
from mz_projections.views.model import DONE_STATUSES, CallView, FeatureView, RunView
from mz_projections.views.run import run_view
from mz_projections.views.timeline import code_suffix, forbidden_text, list_names, unit_name

LISTED_MAX = 5
STRONG_LEVELS = ("bubblewrap", "container", "namespace", "user-namespace")
"""Levels of isolation at which mz's files are hidden from agents and commands."""
LANDLOCK_LEVEL = "landlock"
Stream = Sequence[Recorded[Event]]


class Evidence:
    """The statements about one feature; complete once every event of its stream was applied in order.
    `writes_nothing`: its phases may change no file."""

    def __init__(self, view: FeatureView, writes_nothing: bool) -> None:
        self.commits: list[CommitMade] = []
        self.gates: list[GateDecision] = []
        self.replies: list[Recorded[ArtifactValidated]] = []
        self.tests_before: dict[str, Recorded[CommandRan]] = {}
        """By command: its first preparation that counted tests, else its run on the base."""
        self.tests_after: dict[str, Recorded[CommandRan]] = {}
        """By command: its last gate that counted tests."""
        self.artifacts: dict[tuple[str, str], ArtifactMade] = {}
        """By name and unit: the latest, superseded ones too."""
        self._view, self._writes_nothing = view, writes_nothing
        self._call_views = {call.key: call for call in view.calls}
        self._last_keys: dict[tuple[str, str], str] = {}
        """Key of the last call by phase and unit."""
        self._commit_requests: dict[str, CommitRequested] = {}
        self._commands: dict[tuple[str, str, str], Recorded[CommandRan]] = {}
        self._failed_setup: Recorded[CommandRan] | None = None
        """The set-up that failed before the next gate."""
        self._has_run_gate = False
        self._failing_gates: dict[tuple[str, str], dict[str, str]] = {}
        """Event refs by gate, by phase and unit: gates that rejected the current work."""
        self._allowed_by = ""
        """Approval of a person since the last gate."""
        self._accepted_gates: dict[str, str] = {}
        """Event refs of a person's answers, by those of the gates that they accept."""
        self._unchecked_requests: dict[str, str] = {}
        """Event ref of the last request by phase whose reply did not pass the rules."""
        self._question: HumanRequested | None = None
        self._checks_approval = self._text_approval = ""
        self._last_poll: tuple[ChecksPolled, str] | None = None
        self._delivered_ref = ""
        self._past_gates: list[Gap] = []
        self._unvalidated: list[Gap] = []
        self._reverted: list[Gap] = []

    def apply(self, recorded: Recorded[Any]) -> None:
        event, event_ref = recorded.event, recorded.event_ref
        match event:
            case AgentRequested(ref=ref):
                self._last_keys[ref.phase, ref.unit] = ref.key
                self._unchecked_requests[ref.phase] = event_ref
                if ref.role == BUILDER:
                    self._failing_gates.pop((ref.phase, ref.unit), None)
            case AgentReplied(forbidden_changes=changes) | ChangesChecked(forbidden_changes=changes) if changes:
                paths = list_names((forbidden_text(change.kind, change.path) for change in changes), LISTED_MAX)
                message = f"forbidden changes by {unit_name(event.ref)} were reverted: {paths}"
                self._reverted.append(self._gap("reverted", message, event_ref))
            case ArtifactParsed():
                key = "" if event.is_result else self._last_keys.get((event.phase, event.unit), "")
                call = self._call_views.get(key)
                self.artifacts[event.artifact, event.unit] = ArtifactMade(recorded, call)
            case ArtifactValidated():
                self.replies.append(recorded)
                if not event.violations:
                    self._unchecked_requests.pop(event.ref.phase, None)
            case CommandRan():
                self._apply_command(recorded)
            case GateChecked():
                self._apply_gate(recorded)
            case HumanRequested():
                self._question = event
            case HumanAnswered(verdict=Verdict.APPROVE):
                self._apply_approval(event_ref)
            case HumanAnswered(verdict=Verdict.ACCEPT) if self._question is not None:
                rejected = self._failing_gates.get((self._question.phase, self._question.unit), {})
                self._accepted_gates |= dict.fromkeys(rejected.values(), event_ref)
            case RolledBack():
                self._failing_gates.clear()
            case CommitRequested():
                self._apply_commit_request(event, event_ref)
            case Committed() if event.key in self._commit_requests:
                self.commits.append(CommitMade(self._commit_requests[event.key], recorded))
            case PhaseSkipped():
                self._failing_gates.pop((event.phase, event.unit), None)
                self._unchecked_requests.pop(event.phase, None)
            case PhaseCompleted(phase=phase) if phase in self._unchecked_requests:
                message = f"{phase} was completed on a reply that did not pass the rules"
                request_ref = self._unchecked_requests.pop(phase)
                self._unvalidated.append(self._gap("not-validated", message, request_ref, event_ref))
            case ChecksPolled():
                self._last_poll = event, event_ref
            case FeatureDelivered():
                self._delivered_ref = self._delivered_ref or event_ref

    def gaps(self, last_ref: str) -> tuple[Gap, ...]:
        """Return the gaps; `last_ref` is the feature's last event."""
        return (
            *self._not_delivered(last_ref),
            *self._past_gates,
            *self._unvalidated,
            *self._delivered_unchecked(),
            *self._reverted,
            *self._call_gaps(),
        )

    def gate_commands(self) -> tuple[Recorded[CommandRan], ...]:
        """Return the last run of each command that is a gate."""
        commands = (gate.command for gate in self.gates if gate.command is not None)
        return tuple({command.event.name: command for command in commands}.values())

    def _gap(self, kind: GapKind, message: str, *event_refs: str, allowed_by: str = "") -> Gap:
        return Gap(kind=kind, feature=self._view.feature, message=message, event_refs=event_refs, allowed_by=allowed_by)

    # events -----------------------------------------------------------------------------------------------------------
    def _apply_command(self, recorded: Recorded[CommandRan]) -> None:
        event = recorded.event
        self._failed_setup = recorded if event.stage == "setup" and event.phase else None
        counts_tests = event.passed is not None or event.failed is not None
        if event.stage == "gate":
            self._has_run_gate = True
            self._commands[event.phase, event.unit, event.name] = recorded
            if counts_tests:
                self.tests_after[event.name] = recorded
        elif event.stage in ("prepare", "base") and counts_tests:
            self.tests_before.setdefault(event.name, recorded)

    def _apply_gate(self, recorded: Recorded[GateChecked]) -> None:
        event = recorded.event
        command = self._commands.pop((event.phase, event.unit, event.gate), self._failed_setup)
        self._failed_setup = None
        self.gates.append(GateDecision(recorded, command))
        failing_gates, self._allowed_by = self._failing_gates.setdefault((event.phase, event.unit), {}), ""
        failing_gates.pop(event.gate, None)
        if not event.passed:
            failing_gates[event.gate] = recorded.event_ref

    def _apply_approval(self, event_ref: str) -> None:
        self._allowed_by = event_ref
        question_kind = self._question.question_kind if self._question else None
        if question_kind is QuestionKind.CHECKS:
            self._checks_approval = self._checks_approval or event_ref
        elif question_kind is QuestionKind.WITHHELD:
            self._text_approval = event_ref

    def _apply_commit_request(self, event: CommitRequested, event_ref: str) -> None:
        """Note work committed although a gate had rejected it and never passed it afterwards."""
        self._commit_requests[event.key] = event
        if event.purpose == "work":
            for gate, gate_ref in self._failing_gates.pop((event.phase, event.unit), {}).items():
                message = f"{unit_name(event)} was committed although {gate} had rejected it"
                allowed_by = self._accepted_gates.get(gate_ref, self._allowed_by)
                self._past_gates.append(self._gap("past-gate", message, gate_ref, event_ref, allowed_by=allowed_by))

    # gaps -------------------------------------------------------------------------------------------------------------
    def _not_delivered(self, last_ref: str) -> Iterable[Gap]:
        view = self._view
        if view.status not in DONE_STATUSES:
            code = view.code or (
                view.question.question_kind.value if view.question else view.hold.value if view.hold else ""
            )
            yield self._gap("not-delivered", f"not delivered: {view.status}{code_suffix(code)}", last_ref)
        if view.quarantined:
            message = "the item was quarantined: its text may be a prompt injection"
            yield self._gap("quarantined", message, last_ref, allowed_by=self._text_approval)

    def _delivered_unchecked(self) -> Iterable[Gap]:
        """Yield a delivery whose checks did not all pass at the last poll, and one without any command or change if its
        phases may change files."""
        if not self._delivered_ref:
            return
        if self._last_poll is not None:
            poll, poll_ref = self._last_poll
            if poll.failed + poll.pending:
                message = f"delivered with {poll.failed} failed and {poll.pending} pending checks of the pull request"
                yield self._gap("checks-red", message, poll_ref, allowed_by=self._checks_approval)
        if self._writes_nothing:
            return
        if not self._has_run_gate:
            message = "delivered without running a command: only rules on texts checked it"
            yield self._gap("untested", message, self._delivered_ref)
        if {artifact.path for artifact in self._view.artifacts}.issuperset(self._view.changed_paths):
            yield self._gap("unchanged", "delivered without a change: only artifacts are new", self._delivered_ref)

    def _call_gaps(self) -> Iterable[Gap]:
        calls = self._view.paid_calls
        unpriced = [call for call in calls if call.status != "open" and call.computed_nanousd is None]
        recovered = "recovered after a crash: what the agent did after its reply is unknown"
        calls_by_kind: tuple[tuple[GapKind, list[CallView], str], ...] = (
            ("failed", [call for call in calls if call.outcome == "failed"], "failed"),
            ("lost", [call for call in calls if call.outcome == "lost"], "lost"),
            ("salvaged", [call for call in self._view.calls if call.salvaged], recovered),
            ("unpriced", unpriced, "without a computed price"),
        )
        for kind, affected, description in calls_by_kind:
            if affected:
                number = f"{len(affected)} call{'s' * (len(affected) > 1)}"
                yield self._gap(kind, f"{number} {description}", *(call.event_ref for call in affected))


# the run --------------------------------------------------------------------------------------------------------------
def audit(run: str, events: Stream, pinned: PinnedRun | None, only: str | None = None) -> RunAudit:
    """Audit a run from all its events, in the order of the log.

    `pinned`: its pins, if readable; `only`: one feature.
    """
    streams: dict[StreamId, list[Recorded[Event]]] = {}
    for recorded in events:
        streams.setdefault(recorded.stream, []).append(recorded)
    view, run_events, people_decisions = run_view(run, events), streams[run_stream(run)], decisions(events)
    features = tuple(
        _feature_audit(
            feature, streams.get(feature_stream(run, feature.feature), []), run_events, people_decisions, pinned
        )
        for feature in view.features
        if only in (None, feature.feature)
    )
    started_ref = next(
        (recorded.event_ref for recorded in run_events if isinstance(recorded.event, RunStarted)),
        run_events[0].event_ref,
    )
    calls = [call for feature in view.features if only in (None, feature.feature) for call in feature.paid_calls]
    return RunAudit(
        view=view,
        started_ref=started_ref,
        last_ref=run_events[-1].event_ref,
        features=features,
        decisions=tuple(decision for decision in people_decisions if decision.feature is None),
        spending=spending(priced_calls(calls), "feature"),
        gaps=(
            *_pipeline_gaps(pinned, started_ref),
            *_weak_isolation(view, started_ref),
            *_red_base(run_events, pinned),
            *_rejected_messages(run_events),
        ),
    )


def _feature_audit(
    view: FeatureView,
    stream: Stream,
    run_events: Stream,
    people_decisions: Sequence[Decision],
    pinned: PinnedRun | None,
) -> FeatureAudit:
    calls = priced_calls(view.paid_calls)
    evidence = Evidence(view, pinned is not None and pinned.writes_nothing([phase.phase for phase in view.phases]))
    base = (recorded for recorded in reversed(run_events) if stream and getattr(recorded.event, "stage", "") == "base")
    for recorded in (*stream, *base):
        evidence.apply(recorded)
    requested, last_ref = None, ""
    for recorded in run_events:
        event = recorded.event
        if getattr(event, "feature", None) != view.feature:
            continue
        last_ref = recorded.event_ref
        if requested is None and isinstance(event, ItemAdded):
            requested = RequestedItem(
                source=event.source, title=event.title, body_digest=event.body, event_ref=last_ref
            )
        elif requested is None and isinstance(event, ItemSkipped):
            requested = RequestedItem(
                source="", title=view.title, body_digest=None, event_ref=last_ref, skipped_for=event.delivered_by
            )
    last_ref = stream[-1].event_ref if stream else last_ref
    return FeatureAudit(
        view=view,
        requested=requested,
        last_ref=last_ref,
        commits=tuple(evidence.commits),
        tests_before=tuple(evidence.tests_before.values()),
        tests_after=tuple(evidence.tests_after.values()),
        replies=tuple(evidence.replies),
        gates=tuple(evidence.gates),
        artifacts=tuple(evidence.artifacts[artifact.artifact, artifact.unit] for artifact in view.artifacts),
        decisions=tuple(decision for decision in people_decisions if decision.feature == view.feature),
        spending=spending(calls, "phase"),
        gaps=(*evidence.gaps(last_ref), *_fewer_tests(view.feature, evidence.gate_commands(), run_events)),
    )


def _pipeline_gaps(pinned: PinnedRun | None, started_ref: str) -> Iterator[Gap]:
    """Yield checks that the pipeline names and the run skipped."""
    if pinned is None:
        message = "the pins of the run cannot be read: unknown which checks were skipped"
        yield Gap(kind="unchecked", feature="", message=message, event_refs=(started_ref,))
        return
    for name, phases in pinned.unconfigured_commands().items():
        message = f"command {name} was skipped in {', '.join(phases)}: not configured in mz.yaml"
        yield Gap(kind="left-out", feature="", message=message, event_refs=(started_ref,))
    for phase in pinned.unchecked_phases():
        message = f"no check of the agent's work in {phase}: no rules, no gate, no review"
        yield Gap(kind="unchecked", feature="", message=message, event_refs=(started_ref,))


def _weak_isolation(view: RunView, started_ref: str) -> Iterator[Gap]:
    """Yield a remark for each level of isolation that kept agents and commands from changing nothing."""
    for level in view.isolation:
        if level not in STRONG_LEVELS:
            could = "reach sockets of" if level == LANDLOCK_LEVEL else "change whatever may be changed by"
            message = f"isolation was {level}: agents and commands could {could} mz's user"
            yield Gap(kind="weak-isolation", message=message, event_refs=(started_ref,))


def _base_runs(run_events: Stream) -> dict[str, tuple[CommandRan, str]]:
    """Return the last run of each command on the base, with its event ref."""
    return {
        event.name: (event, recorded.event_ref)
        for recorded in run_events
        if isinstance(event := recorded.event, CommandRan) and event.stage == "base"
    }


def _fewer_tests(feature: str, commands: Iterable[Recorded[CommandRan]], run_events: Stream) -> Iterator[Gap]:
    """Yield a remark for each gate whose command passes fewer tests than on the base, or not all of those: deleted and
    skipped ones fail no gate."""
    base = _base_runs(run_events)
    for recorded in commands:
        after = recorded.event
        before, event_ref = base.get(after.name, (after, ""))
        if after.missing or (before.passed or 0) > (after.passed or 0):
            message = f"{after.name}: {before.passed} tests passed on the base, {after.passed or 0} after the work"
            message += "; some of the former are missing" if after.missing else ""
            yield Gap(kind="fewer-tests", feature=feature, message=message, event_refs=(event_ref, recorded.event_ref))


def _red_base(run_events: Stream, pinned: PinnedRun | None) -> Iterator[Gap]:
    """Yield a remark for each command that failed on the base when it was tested last."""
    are_compared = pinned is None or pinned.config.gates.get("baseline") != "strict"
    for name, (ran, event_ref) in _base_runs(run_events).items():
        if ran.exit != 0:
            tests = f": {ran.passed or 0} tests passed, {ran.failed} failed" if ran.failed else ""
            use = "; gates are compared with these" if are_compared and ran.failures and ran.passed else ""
            yield Gap(kind="red-base", message=f"{name} failed on the base{tests}{use}", event_refs=(event_ref,))


def _rejected_messages(run_events: Stream) -> Iterator[Gap]:
    for recorded in run_events:
        if isinstance(event := recorded.event, InboxRead) and not event.accepted:
            message = f"a person's message was rejected: {event.rejection_code}"
            event_refs = (recorded.event_ref, f"inbox/{recorded.stream.removeprefix('run/')}@{event.version}")
            yield Gap(kind="refused", feature="", message=message, event_refs=event_refs)
