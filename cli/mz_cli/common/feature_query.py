"""`mz show`: one feature in full, as the object that `--json` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Protocol, TypeVar

import msgspec
from mz_events.names import Commit
from mz_projections.views.model import (
    ArtifactView,
    CallView,
    CommandView,
    FeatureView,
    PhaseView,
    Rejection,
    RunView,
)

from mz_cli.common.advice import RunContext, TextLoader
from mz_cli.common.json import (
    AttemptShape,
    CommandShape,
    FeatureDetail,
    PhaseShape,
    RejectionShape,
    ViolationShape,
)
from mz_cli.common.run_text import NO_CONTEXT, feature_status
from mz_cli.terminal.json import Tokens, shape_of

Patch = Callable[[Commit, Commit], str]
"""Two captures -> patch between them."""


class HasPhase(Protocol):
    @property
    def phase(self) -> str: ...


P = TypeVar("P", bound=HasPhase)


class DetailOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a feature to include; None: all."""

    phase: str | None = None
    attempt: int | None = None
    prompts: bool = False
    outputs: bool = False
    patch: Patch | None = None
    """None: no diffs."""

    def in_phase(self, rows: Iterable[P]) -> tuple[P, ...]:
        return tuple(row for row in rows if self.phase in (None, row.phase))

    def calls(self, view: FeatureView) -> tuple[CallView, ...]:
        return tuple(call for call in self.in_phase(view.calls) if self.attempt in (None, call.attempt))

    def artifacts(self, view: FeatureView) -> tuple[ArtifactView, ...]:
        """Return the newest artifacts that are not superseded, or those that the chosen attempt produced."""
        if self.attempt is None:
            return self.in_phase(view.artifacts)
        return tuple(artifact for call in self.calls(view) for artifact in call.artifacts)

    def commands(self, view: FeatureView) -> tuple[CommandView, ...]:
        return tuple(command for command in self.in_phase(view.commands) if self.attempt in (None, command.attempt))

    def changed_paths(self, view: FeatureView) -> tuple[str, ...]:
        """Return the files changed by the feature, or by the chosen calls."""
        if (self.phase, self.attempt) == (None, None) and view.changed_paths:
            return view.changed_paths
        return tuple(sorted({path for call in self.calls(view) for path in call.changed_paths}))


def attempts_by_phase(view: FeatureView, phase: str | None) -> dict[str, int]:
    """Return the highest attempt of each phase, or of this one; phases without calls are left out."""
    attempts: dict[str, int] = {}
    for call in view.calls:
        if phase in (None, call.phase):
            attempts[call.phase] = max(attempts.get(call.phase, 0), call.attempt)
    return attempts


def feature_detail(
    run: RunView, view: FeatureView, options: DetailOptions, load_text: TextLoader, context: RunContext = NO_CONTEXT
) -> FeatureDetail:
    status = feature_status(view, run.run, load_text, context)
    commits = () if options.attempt is not None else options.in_phase(view.commits)
    return FeatureDetail(
        **{name: getattr(status, name) for name in status.__struct_fields__},
        run=run.run,
        history=tuple(_phase_shape(phase, view, options) for phase in options.in_phase(view.phases)),
        calls=tuple(_attempt_shape(call, options, load_text) for call in options.calls(view)),
        artifacts=options.artifacts(view),
        commands=tuple(_command_shape(command, options, load_text) for command in options.commands(view)),
        commits=commits,
        changed_paths=options.changed_paths(view),
    )


def _command_shape(command: CommandView, options: DetailOptions, load_text: TextLoader) -> CommandShape:
    output = load_text(command.output) if options.outputs else None
    return shape_of(
        CommandShape, command, excerpt=load_text(command.excerpt), output_digest=command.output, output=output
    )


def _phase_shape(phase: PhaseView, view: FeatureView, options: DetailOptions) -> PhaseShape:
    calls = [call for call in view.calls if (call.phase, call.iteration) == (phase.phase, phase.iteration)]
    return shape_of(PhaseShape, phase, diff=_diff(options, calls) if options.attempt is None else None)


def _attempt_shape(call: CallView, options: DetailOptions, load_text: TextLoader) -> AttemptShape:
    show_output = options.outputs and bool(call.problem)
    return shape_of(
        AttemptShape,
        call,
        outcome=call.status,
        detail=load_text(call.detail) or None,
        stdout_digest=call.stdout,
        stderr_digest=call.stderr,
        stdout=load_text(call.stdout) if show_output and call.stdout else None,
        stderr=load_text(call.stderr) if show_output and call.stderr else None,
        changed=call.changed_paths,
        reverted=call.forbidden_changes,
        refusals=tuple(_refusal_shape(refusal, load_text) for refusal in call.rejections),
        tokens=Tokens(input=call.input_tokens, output=call.output_tokens),
        prompt_digest=call.prompt,
        prompt=load_text(call.prompt) if options.prompts else None,
        artifacts=call.artifacts,
        diff=_diff(options, [call]) if options.attempt is not None else None,
    )


def _diff(options: DetailOptions, calls: list[CallView]) -> str | None:
    """Return the patch from before the first to after the last of these calls that has a capture."""
    ended = [call for call in calls if call.tree_after is not None]
    if options.patch is None or not ended or ended[0].tree_before is None or ended[-1].tree_after is None:
        return None
    return options.patch(ended[0].tree_before, ended[-1].tree_after)


def _refusal_shape(refusal: Rejection, load_text: TextLoader) -> RejectionShape:
    rules = tuple(dict.fromkeys(violation.rule for violation in refusal.violations))
    texts = report_messages(load_text(refusal.report))
    violations = tuple(
        ViolationShape(rule=broken_rule.rule, path=broken_rule.path or None, line=broken_rule.line, message=message)
        for broken_rule, message in zip_longest(refusal.violations, texts)
        if broken_rule is not None
    )
    return RejectionShape(gate=refusal.gate or None, rules=rules, messages=texts, violations=violations)


def report_messages(report: str) -> tuple[str, ...]:
    """Return the messages of a report blob, a JSON array with one for each violation; other text is one message."""
    try:
        return tuple(_MESSAGES.decode(report)) if report else ()
    except (msgspec.DecodeError, msgspec.ValidationError):
        return (report,)


_MESSAGES = msgspec.json.Decoder(list[str])
