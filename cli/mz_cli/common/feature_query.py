"""`mz show`: one feature in full, as the object that `--json` prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest

import msgspec
from msgspec import field
from msgspec.structs import replace
from mz_events.names import Commit
from mz_projections.views.model import ArtifactView, CallView, CommitView, FeatureView, PhaseView, Rejection

from mz_cli.app.context import TextLoader
from mz_cli.common.advice import RunContext
from mz_cli.common.run_text import FeatureStatus, feature_status
from mz_cli.common.worktree_diff import closed_ref
from mz_cli.terminal.json import Shape, Tokens, shape_of


class ViolationShape(Shape, frozen=True, kw_only=True):
    rule: str
    path: str | None
    """File, or path within the artifact."""
    line: int | None
    message: str | None
    """Null: the text was erased."""


class RejectionShape(Shape, frozen=True, kw_only=True):
    gate: str | None
    """Null: the rules of the artifacts."""
    rules: tuple[str, ...]
    messages: tuple[str, ...]
    violations: tuple[ViolationShape, ...]
    """Empty if a command failed: its output has the reason."""


class AttemptShape(Shape, frozen=True, kw_only=True):
    """One agent call."""

    key: str
    event_ref: str
    phase: str
    unit: str | None
    iteration: int
    attempt: int
    role: str
    agent: str
    model: str
    requested_at_us: int | None
    status: str = field(name="outcome")
    exit: int | None
    duration_ms: int | None
    problem: str | None
    detail: str | None
    undecodable_lines: int
    """Number of undecodable lines in the output."""
    stdout: str | None = field(name="stdout_digest")
    stderr: str | None = field(name="stderr_digest")
    stdout_text: str | None = field(name="stdout")
    """With `--output`, for a failed call: its complete output."""
    stderr_text: str | None = field(name="stderr")
    """With `--output`, for a failed call."""
    changed_paths: tuple[str, ...] = field(name="changed")
    forbidden_changes: tuple[str, ...] = field(name="reverted")
    rejections: tuple[RejectionShape, ...]
    tokens: Tokens
    estimated_nanousd: int | None
    reported_nanousd: int | None
    computed_nanousd: int | None
    prompt: str = field(name="prompt_digest")
    prompt_text: str | None = field(name="prompt")
    """With `--prompt`."""
    artifacts: tuple[ArtifactView, ...]
    """Artifacts produced by this reply, current or not."""
    diff: str | None
    """With `--diff` and one attempt: its changes as a patch."""


class PhaseShape(PhaseView, frozen=True, kw_only=True):
    diff: str | None
    """With `--diff`: the changes of all attempts of the iteration, as a patch."""


class CommandShape(Shape, frozen=True, kw_only=True):
    stage: str
    phase: str
    unit: str | None
    name: str
    exit: int | None
    passed: int | None
    failed: int | None
    new_failures: int | None
    """Failed tests whose failure is not known from the base or accepted by a person; null: not compared."""
    duration_ms: int
    iteration: int
    """Iteration of the phase; 0: set-up."""
    attempt: int
    """Attempt that was checked; 0: before the first."""
    excerpt: str
    """Normalised and shortened output."""
    output: str = field(name="output_digest")
    output_text: str | None = field(name="output")
    """With `--output`: the complete output."""


class FeatureDetail(FeatureStatus, frozen=True, kw_only=True):
    """`mz show FEATURE --json`; a phase or an attempt filters the lists."""

    run: str
    history: tuple[PhaseShape, ...]
    calls: tuple[AttemptShape, ...]
    artifacts: tuple[ArtifactView, ...]
    commands: tuple[CommandShape, ...]
    commits: tuple[CommitView, ...]
    changed_paths: tuple[str, ...]
    closed_ref: str | None
    """Ref that keeps the head of the branch, which was deleted; null: the branch was not, or the head is not kept."""


class DetailOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Texts to include."""

    prompts: bool = False
    outputs: bool = False
    patch: Callable[[Commit, Commit], str] | None = None
    """Two captures -> patch between them; None: no diffs."""
    by_attempt: bool = False
    """Diffs of attempts, not of phases."""


def part_of(view: FeatureView, part: Mapping[str, object]) -> FeatureView:
    """Return the feature with only what belongs to the part: fields of `Selector` with their values."""
    if not part and view.changed_paths:
        return view
    kinds = ("phases", "calls", "commands", "artifacts", "commits")
    rows = {
        kind: tuple(row for row in getattr(view, kind) if all(getattr(row, n, v) == v for n, v in part.items()))
        for kind in kinds
    }
    if "attempt" in part:
        rows |= {"artifacts": tuple(made for call in rows["calls"] for made in call.artifacts), "commits": ()}
    changed_paths = {path for call in rows["calls"] for path in call.changed_paths}
    return replace(view, **rows, changed_paths=tuple(sorted(changed_paths)))


def feature_detail(
    run: str, view: FeatureView, part: FeatureView, options: DetailOptions, context: RunContext
) -> FeatureDetail:
    """Return the feature with the phases, calls and results of a part of it."""
    load_text = context.load_text
    return shape_of(
        FeatureDetail,
        feature_status(view, run, context),
        part,
        run=run,
        closed_ref=closed_ref(context.root, run, view.branch) if view.branch else None,
        history=tuple(_phase_shape(phase, view, options) for phase in part.phases),
        calls=tuple(_attempt_shape(call, options, load_text) for call in part.calls),
        commands=tuple(
            shape_of(
                CommandShape,
                command,
                excerpt=load_text(command.excerpt),
                output_text=load_text(command.output) if options.outputs else None,
            )
            for command in part.commands
        ),
    )


def _phase_shape(phase: PhaseView, view: FeatureView, options: DetailOptions) -> PhaseShape:
    calls = [call for call in view.calls if (call.phase, call.iteration) == (phase.phase, phase.iteration)]
    return shape_of(PhaseShape, phase, diff=None if options.by_attempt else _diff(options, calls))


def _attempt_shape(call: CallView, options: DetailOptions, load_text: TextLoader) -> AttemptShape:
    show_output = options.outputs and bool(call.problem)
    return shape_of(
        AttemptShape,
        call,
        detail=load_text(call.detail) or None,
        stdout_text=load_text(call.stdout) if show_output and call.stdout else None,
        stderr_text=load_text(call.stderr) if show_output and call.stderr else None,
        rejections=tuple(_rejection_shape(rejection, load_text) for rejection in call.rejections),
        tokens=Tokens(input=call.input_tokens, output=call.output_tokens),
        prompt_text=load_text(call.prompt) if options.prompts else None,
        diff=_diff(options, [call]) if options.by_attempt else None,
    )


def _diff(options: DetailOptions, calls: list[CallView]) -> str | None:
    """Return the patch from before the first to after the last of these calls that has a capture."""
    ended = [call for call in calls if call.tree_after is not None]
    if options.patch is None or not ended or ended[0].tree_before is None or ended[-1].tree_after is None:
        return None
    return options.patch(ended[0].tree_before, ended[-1].tree_after)


def _rejection_shape(rejection: Rejection, load_text: TextLoader) -> RejectionShape:
    messages = report_messages(load_text(rejection.report)) or tuple(filter(None, [load_text(rejection.note)]))
    return RejectionShape(
        gate=rejection.gate or None,
        rules=tuple(dict.fromkeys(violation.rule for violation in rejection.violations)),
        messages=messages,
        violations=tuple(
            shape_of(ViolationShape, violation, message=message)
            for violation, message in zip_longest(rejection.violations, messages)
            if violation is not None
        ),
    )


def report_messages(report: str) -> tuple[str, ...]:
    """Return the messages of a report blob, a JSON array with one for each violation; other text is one message."""
    try:
        return tuple(_MESSAGES.decode(report)) if report else ()
    except (msgspec.DecodeError, msgspec.ValidationError):
        return (report,)


_MESSAGES = msgspec.json.Decoder(list[str])
