"""`mz show` as text: one feature, with the attempts and results of each phase."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from mz_projections.views.model import ArtifactView, CommitView
from mz_projections.views.timeline import code_suffix, forbidden_text, landing_text

from mz_cli.common.feature_query import AttemptShape, CommandShape, FeatureDetail, PhaseShape, RejectionShape
from mz_cli.common.run_text import money_text, tokens_cell
from mz_cli.terminal.text import (
    Line,
    Span,
    count_noun,
    format_elapsed,
    iso_time,
    single_line,
    strip_escapes,
    styled_line,
)

COMMIT_SHORT = 12
STATE_STYLES = {"completed": "green", "started": "cyan", "skipped": "yellow", "superseded": "dim"}
PATCH_STYLES = (
    ("diff --git ", "bold"), ("+++ ", "bold"), ("--- ", "bold"), ("index ", "dim"), ("@@ ", "cyan"), ("+", "green"),
    ("-", "red"),
)  # fmt: skip
"""Prefix of a patch line and its style; the first match counts."""


def render_text(detail: FeatureDetail) -> Iterator[Line]:
    """Yield the feature's head data, then the attempts and results of each phase."""
    yield (Span(detail.feature, "bold"), Span(f": {detail.title}"))
    yield from _head_lines(detail)
    setups = [c for c in detail.commands if c.stage == "setup" and not c.phase]
    yield from section("set-up", (text for c in setups for text in command_lines(c)))
    for phase in detail.history:
        yield ()
        yield from _phase_lines(phase, detail)
    yield from section("artifacts", (styled_line(_artifact_text(a, detail)) for a in detail.artifacts))
    yield from section("commits", (styled_line(_commit_text(commit)) for commit in detail.commits))
    yield from section("changed files", (styled_line(f"  {path}") for path in detail.changed_paths))


def _artifact_text(artifact: ArtifactView, detail: FeatureDetail) -> str:
    is_reply = any(artifact in call.artifacts for call in detail.calls)
    name = "/".join(filter(None, (artifact.artifact, artifact.unit)))
    return f"  {name}: {artifact.path or ('the reply' if is_reply else 'the result of a command')}"


def section(name: str, rows: Iterable[Line]) -> Iterator[Line]:
    """Yield a heading and its rows; nothing without rows."""
    lines = list(rows)
    if lines:
        yield from ((), styled_line(f"{name}:", "bold"), *lines)


def _head_lines(detail: FeatureDetail) -> Iterator[Line]:
    checks, answered = detail.checks, detail.waiting is not None and detail.waiting.answered
    facts = {
        "run": detail.run,
        "status": f"{detail.status}{code_suffix(detail.code)}",
        "branch": f"{detail.branch} -> {detail.target}" if detail.branch else None,
        "closed": f"its head is kept as {detail.closed_ref}" if detail.closed_ref else None,
        "merge": landing_text(detail.landed.branch, detail.landed.commit) if detail.landed else None,
        "tags": ", ".join(detail.tags),
        "pull request": detail.pull_request,
        "text for a pull request": None if detail.pull_request else detail.pull_request_text,
        "checks": f"{checks.passed} passed, {checks.failed} failed, {checks.pending} pending" if checks else None,
        "worktree": detail.worktree,
        "depends on": ", ".join(detail.depends_on),
        "held by": detail.blocked_by,
        "until": iso_time(detail.until_us),
        "asks": single_line(detail.waiting.detail or detail.waiting.question_kind) if detail.waiting else None,
        "next": f"{detail.next}, which reads the posted answer" if answered else detail.next,
    }
    for name, value in facts.items():
        if value:
            yield (Span(f"  {name}: ", "dim"), Span(value))


# phases and attempts --------------------------------------------------------------------------------------------------
def _phase_lines(phase: PhaseShape, detail: FeatureDetail) -> Iterator[Line]:
    again = f", iteration {phase.iteration}" if phase.iteration > 1 else ""
    units = f", {len(phase.units_done)} of {count_noun(len(phase.units), 'unit')}" if phase.units else ""
    state = Span(phase.state, STATE_STYLES.get(phase.state, ""))
    yield (Span(phase.phase, "bold"), Span(": "), state, Span(f"{again}{units}"))
    phase_key = phase.phase, phase.iteration
    commands = [c for c in detail.commands if (c.phase, c.iteration) == phase_key]
    calls = [call for call in detail.calls if (call.phase, call.iteration) == phase_key]
    unmatched = [c for c in commands if not any(_belongs_to_call(c, call) for call in calls)]
    yield from (text for c in unmatched if c.stage != "gate" for text in command_lines(c))
    for call in calls:
        judging = [c for c in commands if _belongs_to_call(c, call)]
        yield from _attempt_lines(call, {c.name for c in judging if c.exit != 0})
        yield from (text for c in judging for text in command_lines(c, indent="    "))
    yield from (text for c in unmatched if c.stage == "gate" for text in command_lines(c))
    yield from _patch_lines(phase.diff, indent="  ")


def _belongs_to_call(command: CommandShape, call: AttemptShape) -> bool:
    return call.role == "builder" and (command.unit, command.attempt) == (call.unit, call.attempt)


def _attempt_lines(call: AttemptShape, shown_commands: Collection[str]) -> Iterator[Line]:
    """Yield one attempt. `shown_commands`: names of the commands whose output is shown below it."""
    unit = f" {call.unit}" if call.unit else ""
    elapsed = f" in {format_elapsed(call.duration_ms / 1000)}" if call.duration_ms is not None else ""
    outcome = f"{call.status} ({call.problem})" if call.problem else call.status
    cost = money_text(call.estimated_nanousd, call.reported_nanousd, call.computed_nanousd)
    yield styled_line(
        f"  attempt {call.attempt}{unit}, {call.role}: {call.agent} {call.model} {outcome}{elapsed}; "
        f"{tokens_cell(call.tokens.input, call.tokens.output).exact}; {cost}"
    )
    if call.detail:
        yield styled_line(f"    {single_line(call.detail)}")
    yield from _output_lines(call)
    reverted = (forbidden_text(*change.split(" ", 1)) for change in call.forbidden_changes)
    yield from (styled_line(f"    reverted: {text}", "yellow") for text in reverted)
    yield from (text for rejection in call.rejections for text in _rejection_lines(rejection, shown_commands))
    if call.prompt_text is not None:
        yield styled_line("    prompt:")
        yield from (styled_line(f"    | {text}") for text in strip_escapes(call.prompt_text).splitlines())
    yield from _patch_lines(call.diff, indent="    ")


def _output_lines(call: AttemptShape) -> Iterator[Line]:
    """Yield exit code and output of a failed call, or the option that shows the output."""
    if not call.problem or call.stdout is None:
        return
    facts = [f"exit {call.exit}"] if call.exit is not None else []
    undecodable = call.undecodable_lines
    facts += [f"{count_noun(undecodable, 'line')} of output cannot be decoded"] if undecodable else []
    facts += ["--output shows its output"] if call.stdout_text is None and call.stderr_text is None else []
    yield styled_line(f"    {'; '.join(facts)}", "dim")
    for name, text in (("stdout", call.stdout_text), ("stderr", call.stderr_text)):
        if text is not None:
            yield styled_line(f"    {name}:{'' if text else ' (empty)'}", "dim")
            yield from (styled_line(f"    | {output_line}") for output_line in strip_escapes(text).splitlines())


def _rejection_lines(rejection: RejectionShape, shown_commands: Collection[str]) -> Iterator[Line]:
    """Yield `rejected: path:line: message (rule X)` for each violation."""
    gate = f"gate {rejection.gate}" if rejection.gate else ""
    for violation in rejection.violations:
        location = f"{violation.path or ''}{f':{violation.line}' if violation.line is not None else ''}"
        rule = "" if violation.rule == rejection.gate else f"rule {violation.rule}"
        source = ", ".join(part for part in (gate, rule) if part)
        is_shown = violation.rule == rejection.gate and rejection.gate in shown_commands
        message_text = "" if is_shown else short_message(violation.message or "", location, violation.rule)
        if any(f"(`{name}`)" in message_text for name in shown_commands):
            message_text = message_text.partition("; it printed:\n")[0]  # The output is shown below.
        message = ": ".join(part for part in (location, single_line(message_text)) if part)
        yield styled_line(f"    rejected: {message} ({source})" if message else f"    rejected by {source}", "red")
    others = () if rejection.gate in shown_commands else rejection.messages[len(rejection.violations) :]
    yield from (styled_line(f"    rejected: {single_line(text)} ({gate or 'rules'})", "red") for text in others)
    if not rejection.violations and not others:
        yield styled_line(f"    rejected by {gate or 'rules'}", "red")


def short_message(message: str, location: str, rule: str) -> str:
    """Return an agent's message without its location prefix and rule suffix."""
    return message.removeprefix(f"{location}: ").removesuffix(f" [{rule}]")


# commands, commits, patches -------------------------------------------------------------------------------------------
def command_lines(command: CommandShape, indent: str = "  ") -> Iterator[Line]:
    """Yield the command's result, with its full output if included, else the excerpt of a failure."""
    succeeded = command.exit == 0 or command.new_failures == 0
    yield styled_line(f"{indent}{command.stage} {command.name}: {command_text(command)}", "" if succeeded else "red")
    if command.output_text is not None:
        yield from (styled_line(f"{indent}  | {text}") for text in strip_escapes(command.output_text).splitlines())
    elif not succeeded:
        yield from (styled_line(f"{indent}  | {text}", "dim") for text in strip_escapes(command.excerpt).splitlines())


def command_text(command: CommandShape) -> str:
    tests = f"{command.passed or 0} passed, {command.failed or 0} failed, " if command.passed is not None else ""
    tests += "" if command.new_failures is None else f"{command.new_failures or 'none'} of them new, "
    ending = "killed at its time limit" if command.exit is None else f"exit {command.exit}"
    return f"{tests}{ending}, {format_elapsed(command.duration_ms / 1000)}"


def _commit_text(commit: CommitView) -> str:
    files = count_noun(commit.files, "file")
    return f"  {commit.commit[:COMMIT_SHORT]} {commit.phase}: {files}, +{commit.insertions} -{commit.deletions}"


def _patch_lines(diff: str | None, indent: str) -> Iterator[Line]:
    if diff is None:
        return
    yield styled_line(f"{indent}diff:")
    for text in strip_escapes(diff).splitlines() or ["(nothing changed)"]:
        yield styled_line(f"{indent}{text}", patch_style(text))


def patch_style(text: str) -> str:
    return next((style for beginning, style in PATCH_STYLES if text.startswith(beginning)), "")
