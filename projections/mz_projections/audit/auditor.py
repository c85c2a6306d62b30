"""Audits a run from its events alone: requested items, changes, decisions, cost, and gaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mz_events.catalog.base import Event
from mz_events.catalog.run import InboxRead, ItemAdded, ItemSkipped, RunStarted
from mz_events.catalog.validation import CommandRan
from mz_events.names import StreamId, feature_stream, run_stream
from mz_events.store import Recorded

from mz_projections.audit.evidence import Evidence
from mz_projections.audit.model import FeatureAudit, Gap, RequestedItem, RunAudit
from mz_projections.cost.totals import priced_calls, spending
from mz_projections.run.pins import PinnedRun
from mz_projections.views.messages import Decision, decisions
from mz_projections.views.model import FeatureView, RunView
from mz_projections.views.run import run_view

STRONG_LEVELS = ("bubblewrap", "container", "namespace", "user-namespace")
"""Levels of isolation at which mz's files are hidden from agents and commands."""
LANDLOCK_LEVEL = "landlock"
Stream = Sequence[Recorded[Event]]


def audit(run: str, events: Stream, pinned: PinnedRun | None, only: str | None = None) -> RunAudit:
    """Audit a run from all its events, in the order of the log.

    `pinned`: its pins, if readable; `only`: one feature.
    """
    streams: dict[StreamId, list[Recorded[Event]]] = {}
    for recorded in events:
        streams.setdefault(recorded.stream, []).append(recorded)
    view, run_events, people_decisions = run_view(run, events), streams[run_stream(run)], decisions(events)
    features = tuple(
        _feature_audit(feature, streams.get(feature_stream(run, feature.feature), []), run_events, people_decisions)
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
    view: FeatureView, stream: Stream, run_events: Stream, people_decisions: Sequence[Decision]
) -> FeatureAudit:
    calls = priced_calls(view.paid_calls)
    evidence = Evidence(view)
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
    """Yield rejected messages of people."""
    for recorded in run_events:
        if isinstance(event := recorded.event, InboxRead) and not event.accepted:
            message = f"a person's message was rejected: {event.rejection_code}"
            event_refs = (recorded.event_ref, f"inbox/{recorded.stream.removeprefix('run/')}@{event.version}")
            yield Gap(kind="refused", feature="", message=message, event_refs=event_refs)
