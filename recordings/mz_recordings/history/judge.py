"""Recheck of a past run's artifacts by the current rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from mz_engine.artifacts.rule import RuleSet
from mz_engine.artifacts.validate import validate
from mz_engine.config import Limits
from mz_engine.effects.prompt import outputs_of
from mz_engine.effects.steps import Scene
from mz_engine.pins import Pins
from mz_engine.pipelines.definition import Output, Pipeline
from mz_events.catalog.base import Event
from mz_events.catalog.check import ArtifactParsed, ArtifactValidated
from mz_events.envelope import Recorded
from mz_events.names import Digest, feature_stream
from mz_events.store import BlobMissing, Blobs, Store
from mz_projections.feature import evolve
from mz_projections.state import State, Unborn, Working

from mz_recordings.history.past import pins_of, started_of

ERASED = "texts that were erased or lost"
NO_RULES = "artifacts whose rule set no longer exists"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of a recheck."""

    sets: Mapping[str, RuleSet]
    limits: Limits
    pipelines: Mapping[str, Pipeline] = {}
    """Current pipelines by name; they name the rules of a phase's artifacts. Artifacts of other pipelines keep their
    rule sets."""


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """One broken rule, with its message."""

    rule: str
    path: str
    line: int | None
    message: str


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact whose verdict has changed."""

    run: str
    feature: str
    place: str
    """`stream@version` of the recorded verdict."""
    phase: str
    artifact: str
    path: str
    """Empty: it was the reply."""
    rules: str
    """Name of the current rule set."""
    now_fails: bool
    """True: it was valid and is not now. False: the reverse."""
    broken: tuple[Broken, ...]
    """The current violations, or the recorded ones without messages."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """Result of rechecking one run."""

    run: str
    artifacts: int
    """Number of artifacts that were rechecked."""
    differing: tuple[Judgement, ...]
    left: Mapping[str, int]
    """Reasons why artifacts could not be rechecked, and how often."""


def judge_run(log: Store, blobs: Blobs, run: str, rules: Rules) -> Judged:
    """Recheck every artifact of the run, at each attempt. Raises RunUnknown and PinsUnreadable."""
    judging = Judging(run, blobs, pins_of(blobs, started_of(log, run)), rules)
    for stream, _ in log.streams(feature_stream(run, "")):
        judging.feature(stream.rpartition("/")[2], log.read(stream))
    return Judged(run=run, artifacts=judging.artifacts, differing=tuple(judging.differing), left=judging.left)


class Judging:
    def __init__(self, run: str, blobs: Blobs, pins: Pins, rules: Rules) -> None:
        self.run, self.blobs, self.pins, self.rules = run, blobs, pins, rules
        self.artifacts = 0
        self.differing: list[Judgement] = []
        self.left: dict[str, int] = {}

    def feature(self, feature: str, events: Iterator[Recorded[Event]]) -> None:
        """Recheck the artifacts of one feature, each with the texts that preceded it."""
        state: State = Unborn()
        before, parsed = state, list[ArtifactParsed]()
        for recorded in events:
            match recorded.event:
                case ArtifactParsed() as artifact:
                    before = before if parsed else state
                    parsed.append(artifact)
                case ArtifactValidated() as verdict if not recorded.copied:
                    self._verdict(feature, recorded.place, verdict, before if parsed else state, parsed)
                    parsed = []
                case _:
                    parsed = []
            state = evolve(state, recorded)

    def _verdict(
        self, feature: str, place: str, verdict: ArtifactValidated, state: State, parsed: Sequence[ArtifactParsed]
    ) -> None:
        if not isinstance(state, Working) or state.cell is None:
            return
        scene = Scene(run=self.run, feature=feature, state=state, pins=self.pins, branches=frozenset(), base="")
        others = self._others(state)
        for output in outputs_of(scene, verdict.ref.role):
            found = next((one for one in parsed if one.artifact == output.artifact), None)
            text = self._text(found.digest) if found is not None else None
            if found is not None and text is None:
                self._leave(ERASED)
                continue
            self._judge(feature, place, verdict, output, text, others)
            if text is not None:
                others[output.artifact] = text

    def _judge(
        self,
        feature: str,
        place: str,
        verdict: ArtifactValidated,
        output: Output,
        text: str | None,
        others: Mapping[str, str],
    ) -> None:
        where, phase = output.path or output.artifact, verdict.ref.phase
        name = self._rules_of(phase, verdict.ref.role, output)
        today = self.rules.sets.get(name)
        if today is None:
            self._leave(NO_RULES)
            return
        self.artifacts += 1
        then = {rule.id for rule in self.pins.rules[output.rules].rules}
        was = [one for one in verdict.violations if one.rule in then and one.path.startswith(where)]
        now = validate(today, text, where, self.rules.limits, others)
        if bool(was) == bool(now):
            return
        broken = tuple(
            Broken(rule=one.violation.rule, path=one.violation.path, line=one.violation.line, message=one.message)
            for one in now
        ) or tuple(Broken(rule=one.rule, path=one.path, line=one.line, message="") for one in was)
        self.differing.append(
            Judgement(
                run=self.run, feature=feature, place=place, phase=phase, artifact=output.artifact,
                path=output.path or "", rules=name, now_fails=bool(now), broken=broken,
            )
        )  # fmt: skip

    def _rules_of(self, phase: str, role: str, output: Output) -> str:
        """Return the current rule set of the artifact, by the current pipeline if there is one."""
        pipeline = self.rules.pipelines.get(self.pins.pipeline.pipeline)
        found = next((one for one in pipeline.phases if one.phase == phase), None) if pipeline is not None else None
        if found is None:
            return output.rules
        if role != "builder" and found.review is not None:
            return found.review.rules if found.review.output == output.artifact else output.rules
        return next((one.rules for one in found.outputs if one.artifact == output.artifact), output.rules)

    def _others(self, state: Working) -> dict[str, str]:
        known = {**state.book.artifacts, **(state.cell.parsed if state.cell else {})}
        texts = {name: self._text(artifact.digest) for name, artifact in known.items()}
        return {name: text for name, text in texts.items() if text is not None}

    def _text(self, digest: Digest) -> str | None:
        try:
            return self.blobs.get(digest).decode("utf-8", "replace")
        except BlobMissing:
            return None

    def _leave(self, what: str) -> None:
        self.left[what] = self.left.get(what, 0) + 1
