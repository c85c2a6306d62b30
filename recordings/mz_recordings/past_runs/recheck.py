"""Recheck of a past run's artifacts by the current rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

import msgspec
from mz_engine.artifacts.validate import validate
from mz_engine.effects.prompt import outputs_of
from mz_engine.effects.steps import StepContext
from mz_engine.model.config import Limits
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import PhaseOutput, Pipeline
from mz_engine.model.rules import RuleFinding, RuleSet
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallRef
from mz_events.catalog.validation import ArtifactParsed, ArtifactValidated
from mz_events.names import Digest, feature_stream
from mz_events.store import BlobMissing, Blobs, Recorded, Store
from mz_projections.feature.fold import evolve
from mz_projections.feature.state import InPhase, NotStarted, State

from mz_recordings.cassette.model import identity_of
from mz_recordings.past_runs.replay import load_pins, run_started
from mz_recordings.record.recorder import phase_outputs

TEXTS_ERASED = "texts that were erased or lost"
NO_RULES = "artifacts whose rule set no longer exists"
TREE_NEEDED = "artifacts that are several files, or whose rules look at the tree or the unit"


class RecheckRules(msgspec.Struct, frozen=True, kw_only=True):
    rule_sets: Mapping[str, RuleSet]
    limits: Limits
    pipelines: Mapping[str, Pipeline] = {}
    """Current pipelines by name; they name the rules of a phase's artifacts. Artifacts of other pipelines keep their
    rule sets."""


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
    violations: tuple[RuleFinding, ...]
    """The current violations, or the recorded ones without messages."""


class Recheck(msgspec.Struct, kw_only=True):
    """Result of rechecking one run."""

    run: str
    artifacts: int = 0
    """Number of artifacts that were rechecked."""
    rule_changes: list[RuleChange] = []
    not_recomputed: Counter[str] = msgspec.field(default_factory=Counter)
    """Reasons why artifacts could not be rechecked, and how often."""


def recheck_run(log: Store, blobs: Blobs, run: str, rules: RecheckRules) -> Recheck:
    """Recheck every artifact of the run, at each attempt. Raises RunUnknown and PinsUnreadable."""
    recheck = RunRecheck(run, blobs, load_pins(blobs, run_started(log, run)), rules)
    for stream, _ in log.streams(feature_stream(run, "")):
        recheck.recheck_feature(stream.rpartition("/")[2], log.read(stream))
    return recheck.result


class RunRecheck:
    def __init__(self, run: str, blobs: Blobs, pins: Pins, rules: RecheckRules) -> None:
        self.blobs, self.pins, self.rules, self.result = blobs, pins, rules, Recheck(run=run)
        self.context = partial(StepContext, run=run, pins=pins, base_branch="")

    def recheck_feature(self, feature: str, events: Iterator[Recorded[Event]]) -> None:
        """Recheck the artifacts of one feature, each with the texts of that time."""
        state: State = NotStarted()
        state_before = state
        produced: dict[str, ArtifactParsed] = {}
        for recorded in events:
            match recorded.event:
                case ArtifactParsed(is_result=False) as artifact:
                    state_before = state_before if produced else state
                    produced[artifact.artifact] = artifact
                case ArtifactValidated() as verdict:
                    before = state_before if produced else state
                    if isinstance(before, InPhase) and before.unit_run is not None and not recorded.is_forked_copy:
                        context = self.context(feature=feature, state=before)
                        self._recheck_verdict(context, recorded.event_ref, verdict, produced)
                    produced = {}
            state = evolve(state, recorded)

    def _recheck_verdict(
        self, context: StepContext, event_ref: str, verdict: ArtifactValidated, produced: Mapping[str, ArtifactParsed]
    ) -> None:
        artifacts = {**context.phase_state.progress.artifacts, **context.unit_run.parsed_artifacts}
        texts = {name: text for name, parsed in artifacts.items() if (text := self._text(parsed.digest)) is not None}
        for output in outputs_of(context, verdict.ref.role):
            name = self._rule_set_name(context.feature, verdict.ref, output)
            text = self._text(produced[output.artifact].digest) if output.artifact in produced else None
            if output.artifact in produced and text is None:
                self.result.not_recomputed[TEXTS_ERASED] += 1
            elif name not in self.rules.rule_sets:
                self.result.not_recomputed[NO_RULES] += 1
            elif "*" in (output.path or "") or self.rules.rule_sets[name].depends_on_feature:
                self.result.not_recomputed[TREE_NEEDED] += 1
            else:
                self.result.artifacts += 1
                location = output.path or output.artifact
                recorded_rules = {rule.id for rule in self.pins.rules[output.rules].rules}
                before = tuple(
                    RuleFinding(violation=violation, message="")
                    for violation in verdict.violations
                    if violation.rule in recorded_rules and violation.path.startswith(location)
                )
                now = validate(self.rules.rule_sets[name], text, location, self.rules.limits, texts)
                if text is not None:
                    texts[output.artifact] = text
                if bool(before) != bool(now):
                    change = RuleChange(
                        run=self.result.run, feature=context.feature, event_ref=event_ref, phase=verdict.ref.phase,
                        artifact=output.artifact, path=output.path or "", rule_set=name, now_fails=bool(now),
                        violations=now or before,
                    )  # fmt: skip
                    self.result.rule_changes.append(change)

    def _rule_set_name(self, feature: str, call: CallRef, output: PhaseOutput) -> str:
        """Return the current rule set of the artifact, by the current pipeline if there is one."""
        pipeline = self.rules.pipelines.get(self.pins.pipeline.pipeline)
        phases = (phase for phase in pipeline.phases if phase.phase == call.phase) if pipeline is not None else ()
        names = {
            artifact: rules
            for phase in phases
            for artifact, _, rules in phase_outputs(phase, identity_of("", feature, call))
        }
        return names.get(output.artifact, output.rules)

    def _text(self, digest: Digest) -> str | None:
        try:
            return self.blobs.get(digest).decode("utf-8", "replace")
        except BlobMissing:
            return None
