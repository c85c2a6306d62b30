"""`mz show`: one feature in full, as the object that `--json` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Protocol, TypeVar

import msgspec
from mz_events.names import Commit
from mz_projections.views import (
    ArtifactView,
    CallView,
    CommandView,
    CommitView,
    FeatureView,
    PhaseView,
    Refusal,
    RunView,
)

from mz_cli.advice import Around, Words
from mz_cli.render.text import instant, usd
from mz_cli.shapes.base import Tokens
from mz_cli.shapes.run import (
    ArtifactShape,
    AttemptShape,
    CommandShape,
    CommitShape,
    FeatureDetail,
    PhaseShape,
    RefusalShape,
    ViolationShape,
)
from mz_cli.summary import ALONE, feature_status

Patch = Callable[[Commit, Commit], str]
"""Two captures -> patch between them."""


class OfPhase(Protocol):
    @property
    def phase(self) -> str: ...


P = TypeVar("P", bound=OfPhase)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a feature to include; None: all."""

    phase: str | None = None
    attempt: int | None = None
    prompts: bool = False
    outputs: bool = False
    patch: Patch | None = None
    """None: no diffs."""

    def of(self, rows: Iterable[P]) -> tuple[P, ...]:
        return tuple(row for row in rows if self.phase in (None, row.phase))

    def calls(self, view: FeatureView) -> tuple[CallView, ...]:
        return tuple(call for call in self.of(view.calls) if self.attempt in (None, call.attempt))

    def artifacts(self, view: FeatureView) -> tuple[ArtifactView, ...]:
        """Return the newest artifacts that are not superseded, or those that the chosen attempt produced."""
        if self.attempt is None:
            return self.of(view.artifacts)
        return tuple(artifact for call in self.calls(view) for artifact in call.artifacts)

    def commands(self, view: FeatureView) -> tuple[CommandView, ...]:
        return tuple(command for command in self.of(view.commands) if self.attempt in (None, command.attempt))

    def touched(self, view: FeatureView) -> tuple[str, ...]:
        """Return the files changed by the feature, or by the chosen calls."""
        if (self.phase, self.attempt) == (None, None) and view.touched:
            return view.touched
        return tuple(sorted({path for call in self.calls(view) for path in call.changed}))


def attempts_made(view: FeatureView, phase: str | None) -> dict[str, int]:
    """Return the highest attempt of each phase, or of this one; phases without calls are left out."""
    found: dict[str, int] = {}
    for call in view.calls:
        if phase in (None, call.phase):
            found[call.phase] = max(found.get(call.phase, 0), call.attempt)
    return found


def feature_detail(
    run: RunView, view: FeatureView, wanted: Wanted, words: Words, around: Around = ALONE
) -> FeatureDetail:
    standing = feature_status(view, run.run, words, around)
    commits = () if wanted.attempt is not None else wanted.of(view.commits)
    return FeatureDetail(
        **{name: getattr(standing, name) for name in standing.__struct_fields__},
        run=run.run,
        history=tuple(_phase(phase, view, wanted) for phase in wanted.of(view.phases)),
        calls=tuple(_attempt(call, wanted, words) for call in wanted.calls(view)),
        artifacts=tuple(_artifact(artifact) for artifact in wanted.artifacts(view)),
        commands=tuple(_command(command, wanted, words) for command in wanted.commands(view)),
        commits=tuple(map(_commit, commits)),
        touched=wanted.touched(view),
    )


def _commit(commit: CommitView) -> CommitShape:
    return CommitShape(
        commit=commit.commit, purpose=commit.purpose, phase=commit.phase, unit=commit.unit or None,
        files=commit.files, insertions=commit.insertions, deletions=commit.deletions,
    )  # fmt: skip


def _artifact(artifact: ArtifactView) -> ArtifactShape:
    return ArtifactShape(
        artifact=artifact.artifact, phase=artifact.phase, unit=artifact.unit or None, path=artifact.path,
        digest=artifact.digest,
    )  # fmt: skip


def _command(command: CommandView, wanted: Wanted, words: Words) -> CommandShape:
    return CommandShape(
        stage=command.stage, phase=command.phase, unit=command.unit or None, name=command.name, exit=command.exit,
        passed=command.passed, failed=command.failed, duration_ms=command.duration_ms, iteration=command.iteration,
        attempt=command.attempt, excerpt=words(command.excerpt), output_digest=command.output,
        output=words(command.output) if wanted.outputs else None,
    )  # fmt: skip


def _phase(phase: PhaseView, view: FeatureView, wanted: Wanted) -> PhaseShape:
    calls = [call for call in view.calls if (call.phase, call.iteration) == (phase.phase, phase.iteration)]
    return PhaseShape(
        phase=phase.phase, iteration=phase.iteration, state=phase.state, started_at=instant(phase.started_us),
        ended_at=instant(phase.ended_us), units=phase.units, units_done=phase.units_done,
        diff=_diff(wanted, calls) if wanted.attempt is None else None,
    )  # fmt: skip


def _attempt(call: CallView, wanted: Wanted, words: Words) -> AttemptShape:
    shown = wanted.outputs and bool(call.problem)
    return AttemptShape(
        key=call.key, place=call.place, phase=call.phase, unit=call.unit or None, iteration=call.iteration,
        attempt=call.attempt, role=call.role, agent=call.agent, model=call.model, asked_at=instant(call.asked_us),
        outcome=call.outcome, exit=call.exit, duration_ms=call.duration_ms, problem=call.problem or None,
        detail=words(call.detail) or None, bad_lines=call.bad_lines, stdout_digest=call.stdout,
        stderr_digest=call.stderr, stdout=words(call.stdout) if shown and call.stdout else None,
        stderr=words(call.stderr) if shown and call.stderr else None, changed=call.changed, reverted=call.offences,
        refusals=tuple(_refusal(refusal, words) for refusal in call.refusals),
        tokens=Tokens(input=call.input_tokens, output=call.output_tokens),
        estimated_usd=usd(call.estimated_nanousd), reported_usd=usd(call.reported_nanousd),
        computed_usd=usd(call.computed_nanousd), prompt_digest=call.prompt,
        prompt=words(call.prompt) if wanted.prompts else None,
        artifacts=tuple(_artifact(artifact) for artifact in call.artifacts),
        diff=_diff(wanted, [call]) if wanted.attempt is not None else None,
    )  # fmt: skip


def _diff(wanted: Wanted, calls: list[CallView]) -> str | None:
    """Return the patch from before the first to after the last of these calls that has a capture."""
    ended = [call for call in calls if call.after is not None]
    if wanted.patch is None or not ended or ended[0].before is None or ended[-1].after is None:
        return None
    return wanted.patch(ended[0].before, ended[-1].after)


def _refusal(refusal: Refusal, words: Words) -> RefusalShape:
    rules = tuple(dict.fromkeys(violation.rule for violation in refusal.violations))
    told = messages(words(refusal.report))
    violations = tuple(
        ViolationShape(rule=broken.rule, path=broken.path or None, line=broken.line, message=message)
        for broken, message in zip_longest(refusal.violations, told)
        if broken is not None
    )
    return RefusalShape(gate=refusal.gate or None, rules=rules, messages=told, violations=violations)


def messages(report: str) -> tuple[str, ...]:
    """Return the messages of a report blob, a JSON array with one for each violation; other text is one message."""
    try:
        return tuple(_MESSAGES.decode(report)) if report else ()
    except (msgspec.DecodeError, msgspec.ValidationError):
        return (report,)


_MESSAGES = msgspec.json.Decoder(list[str])
