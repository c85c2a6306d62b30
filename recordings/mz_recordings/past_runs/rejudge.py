"""Recheck of a past run's artifacts by the current rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from mz_engine.artifacts.validate import validate
from mz_engine.effects.prompt import outputs_of
from mz_engine.effects.steps import StepContext
from mz_engine.model.config import Limits
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import PhaseOutput, Pipeline
from mz_engine.model.rules import RuleSet
from mz_events.catalog.base import Event
from mz_events.catalog.validation import ArtifactParsed, ArtifactValidated
from mz_events.envelope import Recorded
from mz_events.names import Digest, feature_stream
from mz_events.store import BlobMissing, Blobs, Store
from mz_projections.feature.fold import evolve
from mz_projections.feature.state import InPhase, NotStarted, State

from mz_recordings.past_runs.replay import load_pins, run_started

TEXTS_ERASED = "texts that were erased or lost"
NO_RULES = "artifacts whose rule set no longer exists"


class RecheckRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of a recheck."""

    rule_sets: Mapping[str, RuleSet]
    limits: Limits
    pipelines: Mapping[str, Pipeline] = {}
    """Current pipelines by name; they name the rules of a phase's artifacts. Artifacts of other pipelines keep their
    rule sets."""


class RecheckedViolation(msgspec.Struct, frozen=True, kw_only=True):
    """One broken rule, with its message."""

    rule: str
    path: str
    line: int | None
    message: str


class RuleChange(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact whose verdict has changed."""

    run: str
    feature: str
    event_ref: str
    """`stream@version` of the recorded verdict."""
    phase: str
    artifact: str
    path: str
    """Empty: it was the reply."""
    rule_set: str
    """Name of the current rule set."""
    now_fails: bool
    """True: it was valid and is not now. False: the reverse."""
    violations: tuple[RecheckedViolation, ...]
    """The current violations, or the recorded ones without messages."""


class Recheck(msgspec.Struct, frozen=True, kw_only=True):
    """Result of rechecking one run."""

    run: str
    artifacts: int
    """Number of artifacts that were rechecked."""
    rule_changes: tuple[RuleChange, ...]
    not_recomputed: Mapping[str, int]
    """Reasons why artifacts could not be rechecked, and how often."""


def recheck_run(log: Store, blobs: Blobs, run: str, rules: RecheckRules) -> Recheck:
    """Recheck every artifact of the run, at each attempt. Raises RunUnknown and PinsUnreadable."""
    recheck = RunRecheck(run, blobs, load_pins(blobs, run_started(log, run)), rules)
    for stream, _ in log.streams(feature_stream(run, "")):
        recheck.recheck_feature(stream.rpartition("/")[2], log.read(stream))
    return Recheck(
        run=run,
        artifacts=recheck.artifacts,
        rule_changes=tuple(recheck.rule_changes),
        not_recomputed=recheck.not_rechecked,
    )


class RunRecheck:
    def __init__(self, run: str, blobs: Blobs, pins: Pins, rules: RecheckRules) -> None:
        self.run, self.blobs, self.pins, self.rules = run, blobs, pins, rules
        self.artifacts = 0
        self.rule_changes: list[RuleChange] = []
        self.not_rechecked: dict[str, int] = {}

    def recheck_feature(self, feature: str, events: Iterator[Recorded[Event]]) -> None:
        """Recheck the artifacts of one feature, each with the texts that preceded it."""
        state: State = NotStarted()
        before, parsed = state, list[ArtifactParsed]()
        for recorded in events:
            match recorded.event:
                case ArtifactParsed() as artifact:
                    before = before if parsed else state
                    parsed.append(artifact)
                case ArtifactValidated() as verdict if not recorded.is_forked_copy:
                    self._recheck_verdict(feature, recorded.event_ref, verdict, before if parsed else state, parsed)
                    parsed = []
                case _:
                    parsed = []
            state = evolve(state, recorded)

    def _recheck_verdict(
        self, feature: str, event_ref: str, verdict: ArtifactValidated, state: State, parsed: Sequence[ArtifactParsed]
    ) -> None:
        if not isinstance(state, InPhase) or state.unit_run is None:
            return
        scene = StepContext(
            run=self.run, feature=feature, state=state, pins=self.pins, branches=frozenset(), base_branch=""
        )
        texts = self._artifact_texts(state)
        for output in outputs_of(scene, verdict.ref.role):
            artifact = next((candidate for candidate in parsed if candidate.artifact == output.artifact), None)
            text = self._text(artifact.digest) if artifact is not None else None
            if artifact is not None and text is None:
                self._count_not_rechecked(TEXTS_ERASED)
                continue
            self._recheck(feature, event_ref, verdict, output, text, texts)
            if text is not None:
                texts[output.artifact] = text

    def _recheck(
        self,
        feature: str,
        event_ref: str,
        verdict: ArtifactValidated,
        output: PhaseOutput,
        text: str | None,
        texts: Mapping[str, str],
    ) -> None:
        location, phase = output.path or output.artifact, verdict.ref.phase
        name = self._rule_set_name(phase, verdict.ref.role, output)
        current_rules = self.rules.rule_sets.get(name)
        if current_rules is None:
            self._count_not_rechecked(NO_RULES)
            return
        self.artifacts += 1
        recorded_rules = {rule.id for rule in self.pins.rules[output.rules].rules}
        recorded_violations = [
            violation
            for violation in verdict.violations
            if violation.rule in recorded_rules and violation.path.startswith(location)
        ]
        current_violations = validate(current_rules, text, location, self.rules.limits, texts)
        if bool(recorded_violations) == bool(current_violations):
            return
        violations = tuple(
            RecheckedViolation(
                rule=violation.violation.rule,
                path=violation.violation.path,
                line=violation.violation.line,
                message=violation.message,
            )
            for violation in current_violations
        ) or tuple(
            RecheckedViolation(rule=violation.rule, path=violation.path, line=violation.line, message="")
            for violation in recorded_violations
        )
        self.rule_changes.append(
            RuleChange(
                run=self.run, feature=feature, event_ref=event_ref, phase=phase, artifact=output.artifact,
                path=output.path or "", rule_set=name, now_fails=bool(current_violations), violations=violations,
            )
        )  # fmt: skip

    def _rule_set_name(self, phase: str, role: str, output: PhaseOutput) -> str:
        """Return the current rule set of the artifact, by the current pipeline if there is one."""
        pipeline = self.rules.pipelines.get(self.pins.pipeline.pipeline)
        current_phase = (
            next((candidate for candidate in pipeline.phases if candidate.phase == phase), None)
            if pipeline is not None
            else None
        )
        if current_phase is None:
            return output.rules
        if role != "builder" and current_phase.agent_review is not None:
            return (
                current_phase.agent_review.rules
                if current_phase.agent_review.output == output.artifact
                else output.rules
            )
        return next(
            (candidate.rules for candidate in current_phase.outputs if candidate.artifact == output.artifact),
            output.rules,
        )

    def _artifact_texts(self, state: InPhase) -> dict[str, str]:
        artifacts = {**state.progress.artifacts, **(state.unit_run.parsed_artifacts if state.unit_run else {})}
        texts = {name: self._text(artifact.digest) for name, artifact in artifacts.items()}
        return {name: text for name, text in texts.items() if text is not None}

    def _text(self, digest: Digest) -> str | None:
        try:
            return self.blobs.get(digest).decode("utf-8", "replace")
        except BlobMissing:
            return None

    def _count_not_rechecked(self, reason: str) -> None:
        self.not_rechecked[reason] = self.not_rechecked.get(reason, 0) + 1
