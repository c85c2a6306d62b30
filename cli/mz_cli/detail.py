"""Pure: `mz show`: one feature in full, for JSON and for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import msgspec
from mz_projections.views import CallView, FeatureView, PhaseView, Refusal, RunView

from mz_cli.render.text import duration, instant, line, shorten, usd
from mz_cli.shapes import (
    ArtifactShape,
    AttemptShape,
    CommandShape,
    CommitShape,
    FeatureDetail,
    PhaseShape,
    RefusalShape,
    Tokens,
)
from mz_cli.summary import Words, feature_status, money_words, tokens_cell

COMMIT_SHORT = 12


class OfPhase(Protocol):
    @property
    def phase(self) -> str: ...


P = TypeVar("P", bound=OfPhase)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What of a feature is asked for; None: all of it."""

    phase: str | None = None
    attempt: int | None = None
    prompts: bool = False

    def of(self, rows: Iterable[P]) -> tuple[P, ...]:
        return tuple(row for row in rows if self.phase in (None, row.phase))

    def calls(self, view: FeatureView) -> tuple[CallView, ...]:
        return tuple(call for call in self.of(view.calls) if self.attempt in (None, call.attempt))


def feature_detail(run: RunView, view: FeatureView, wanted: Wanted, words: Words) -> FeatureDetail:
    standing = feature_status(view, run.run, words)
    return FeatureDetail(
        **msgspec.structs.asdict(standing),
        run=run.run,
        target=view.target or None,
        history=tuple(_phase(phase) for phase in wanted.of(view.phases)),
        calls=tuple(_attempt(call, wanted, words) for call in wanted.calls(view)),
        artifacts=tuple(
            ArtifactShape(artifact=a.artifact, phase=a.phase, unit=a.unit or None, path=a.path, digest=a.digest)
            for a in wanted.of(view.artifacts)
        ),
        commands=tuple(_plain(CommandShape, command) for command in wanted.of(view.commands)),
        commits=tuple(_plain(CommitShape, commit) for commit in wanted.of(view.commits)),
        touched=view.touched,
    )


def _plain(shape: Callable[..., Any], view: msgspec.Struct) -> Any:
    """The shape's fields out of the view's, an absent unit as None."""
    fields = {name: getattr(view, name) for name in shape.__struct_fields__}  # type: ignore[attr-defined]
    return shape(**{**fields, "unit": fields["unit"] or None})


def _phase(phase: PhaseView) -> PhaseShape:
    return PhaseShape(
        phase=phase.phase, iteration=phase.iteration, state=phase.state, started_at=instant(phase.started_us),
        ended_at=instant(phase.ended_us), units=phase.units, units_done=phase.units_done,
    )  # fmt: skip


def _attempt(call: CallView, wanted: Wanted, words: Words) -> AttemptShape:
    return AttemptShape(
        key=call.key, place=call.place, phase=call.phase, unit=call.unit or None, iteration=call.iteration,
        attempt=call.attempt, role=call.role, agent=call.agent, model=call.model, asked_at=instant(call.asked_us),
        outcome=call.outcome, exit=call.exit, duration_ms=call.duration_ms, problem=call.problem or None,
        detail=words(call.detail) or None, changed=call.changed, reverted=call.offences,
        refusals=tuple(_refusal(refusal, words) for refusal in call.refusals),
        tokens=Tokens(input=call.input_tokens, output=call.output_tokens),
        estimated_usd=usd(call.estimated_nanousd), reported_usd=usd(call.reported_nanousd),
        computed_usd=usd(call.computed_nanousd), prompt_digest=call.prompt,
        prompt=words(call.prompt) if wanted.prompts else None,
    )  # fmt: skip


def _refusal(refusal: Refusal, words: Words) -> RefusalShape:
    rules = tuple(dict.fromkeys(violation.rule for violation in refusal.violations))
    return RefusalShape(gate=refusal.gate or None, rules=rules, messages=messages(words(refusal.report)))


def messages(report: str) -> tuple[str, ...]:
    """A report blob is a JSON array of messages; one that is not is shown as it stands."""
    try:
        return tuple(msgspec.json.decode(report, type=list[str])) if report else ()
    except (msgspec.DecodeError, msgspec.ValidationError):
        return (report,)


# for people -----------------------------------------------------------------------------------------------------------
def page(detail: FeatureDetail, message_max: int | None) -> tuple[str, ...]:
    """The feature as lines of text: what it is, then phase by phase what was tried and what came of it.
    Messages longer than `message_max` characters are cut; None: none is."""
    lines = [f"{detail.id}: {detail.title}", *_head(detail)]
    for phase in detail.history:
        lines += ["", _phase_line(phase)]
        calls = [c for c in detail.calls if (c.phase, c.iteration) == (phase.phase, phase.iteration)]
        lines += [text for call in calls for text in _call_lines(call, message_max)]
    return (*lines, *_results(detail))


def _head(detail: FeatureDetail) -> list[str]:
    facts = {
        "run": detail.run,
        "status": f"{detail.status} ({detail.code})" if detail.code else detail.status,
        "branch": f"{detail.branch} -> {detail.target}" if detail.branch else None,
        "pull request": detail.pull_request,
        "depends on": ", ".join(detail.depends_on),
        "held by": detail.because,
        "until": detail.until,
        "asks": line(detail.waiting.detail or detail.waiting.ask) if detail.waiting else None,
        "next": detail.next,
    }
    return [f"  {name}: {value}" for name, value in facts.items() if value]


def _phase_line(phase: PhaseShape) -> str:
    again = f", iteration {phase.iteration}" if phase.iteration > 1 else ""
    units = f", {len(phase.units_done)} of {len(phase.units)} units" if phase.units else ""
    return f"{phase.phase}: {phase.state}{again}{units}"


def _call_lines(call: AttemptShape, message_max: int | None) -> list[str]:
    def told(text: str) -> str:
        return line(text) if message_max is None else shorten(line(text), message_max)

    unit = f" {call.unit}" if call.unit else ""
    took = f" in {duration(call.duration_ms / 1000)}" if call.duration_ms is not None else ""
    became = f"{call.outcome} ({call.problem})" if call.problem else call.outcome
    cost = money_words(call.estimated_usd, call.reported_usd, call.computed_usd)
    lines = [
        f"  attempt {call.attempt}{unit}, {call.role}: {call.agent} {call.model} {became}{took}; "
        f"{tokens_cell(call.tokens.input, call.tokens.output, whole=True)}; {cost}"
    ]
    lines += [f"    {told(call.detail)}"] if call.detail else []
    lines += [f"    reverted: {reverted}" for reverted in call.reverted]
    for refusal in call.refusals:
        by = refusal.gate or "the rules"
        lines += [f"    refused by {by}: {told(text)}" for text in refusal.messages or refusal.rules]
    if call.prompt is not None:
        lines += ["    prompt:", *(f"    | {text}" for text in call.prompt.splitlines())]
    return lines


def _results(detail: FeatureDetail) -> list[str]:
    lines: list[str] = []
    for command in detail.commands:
        lines.append(f"  {command.phase} {command.stage} {command.name}: {_command_words(command)}")
    sections = [
        ("commands", lines),
        ("artifacts", [f"  {a.artifact}: {a.path or 'the reply'}" for a in detail.artifacts]),
        ("commits", [_commit_line(commit) for commit in detail.commits]),
        ("changed files", [f"  {path}" for path in detail.touched]),
    ]
    return [text for name, rows in sections if rows for text in ("", f"{name}:", *rows)]


def _command_words(command: CommandShape) -> str:
    tests = f"{command.passed or 0} passed, {command.failed or 0} failed, " if command.passed is not None else ""
    ending = "killed at its time limit" if command.exit is None else f"exit {command.exit}"
    return f"{tests}{ending}, {duration(command.duration_ms / 1000)}"


def _commit_line(commit: CommitShape) -> str:
    files = f"{commit.files} file{'' if commit.files == 1 else 's'}"
    return f"  {commit.commit[:COMMIT_SHORT]} {commit.phase}: {files}, +{commit.insertions} -{commit.deletions}"
