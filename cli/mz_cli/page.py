"""`mz show` as text: one feature, with the attempts and results of each phase."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

import msgspec

from mz_cli.render.styled import Line, Span, line_of
from mz_cli.render.text import clean, counted, duration, line, shorten
from mz_cli.shapes.run import AttemptShape, CommandShape, CommitShape, FeatureDetail, PhaseShape, RefusalShape
from mz_cli.summary import money_words, tokens_cell

COMMIT_SHORT = 12
STATES = {"completed": "green", "started": "cyan", "superseded": "dim"}
PATCH_LOOKS = (
    ("diff --git ", "bold"), ("+++ ", "bold"), ("--- ", "bold"), ("index ", "dim"), ("@@ ", "cyan"), ("+", "green"),
    ("-", "red"),
)  # fmt: skip
"""Prefix of a patch line and its style; the first match counts."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for agents' and commands' texts; None: no limit."""

    message_characters: int | None = None
    excerpt_lines: int | None = None


def page(detail: FeatureDetail, limits: Limits) -> Iterator[Line]:
    """Yield the feature's head data, then the attempts and results of each phase."""
    yield (Span(detail.id, "bold"), Span(f": {detail.title}"))
    yield from _head(detail)
    yield from _section(
        "set-up", (text for c in detail.commands if c.stage == "setup" for text in command_lines(c, limits))
    )
    for phase in detail.history:
        yield ()
        yield from _phase(phase, detail, limits)
    yield from _section("artifacts", (line_of(f"  {a.artifact}: {a.path or 'the reply'}") for a in detail.artifacts))
    yield from _section("commits", (line_of(_commit_words(commit)) for commit in detail.commits))
    yield from _section("changed files", (line_of(f"  {path}") for path in detail.touched))


def _section(name: str, rows: Iterable[Line]) -> Iterator[Line]:
    """Yield a heading and its rows; nothing without rows."""
    found = list(rows)
    if found:
        yield from ((), line_of(f"{name}:", "bold"), *found)


def _head(detail: FeatureDetail) -> Iterator[Line]:
    checks = detail.checks
    facts = {
        "run": detail.run,
        "status": f"{detail.status} ({detail.code})" if detail.code else detail.status,
        "branch": f"{detail.branch} -> {detail.target}" if detail.branch else None,
        "pull request": detail.pull_request,
        "text for a pull request": None if detail.pull_request else detail.pull_request_text,
        "checks": f"{checks.green} passed, {checks.red} failed, {checks.pending} pending" if checks else None,
        "worktree": detail.worktree,
        "depends on": ", ".join(detail.depends_on),
        "held by": detail.because,
        "until": detail.until,
        "asks": line(detail.waiting.detail or detail.waiting.ask) if detail.waiting else None,
        "next": _next(detail),
    }
    for name, value in facts.items():
        if value:
            yield (Span(f"  {name}: ", "dim"), Span(value))


def _next(detail: FeatureDetail) -> str | None:
    """Return the next command; for an open question, the one that shows it."""
    asked = detail.waiting
    if asked is None or detail.status != "waiting":
        return detail.next
    return f"{asked.resume}, which reads the posted answer" if asked.answered else asked.commands[0]


# phases and attempts --------------------------------------------------------------------------------------------------
def _phase(phase: PhaseShape, detail: FeatureDetail, limits: Limits) -> Iterator[Line]:
    again = f", iteration {phase.iteration}" if phase.iteration > 1 else ""
    units = f", {len(phase.units_done)} of {counted(len(phase.units), 'unit')}" if phase.units else ""
    state = Span(phase.state, STATES.get(phase.state, ""))
    yield (Span(phase.phase, "bold"), Span(": "), state, Span(f"{again}{units}"))
    here = phase.phase, phase.iteration
    commands = [c for c in detail.commands if (c.phase, c.iteration) == here and c.stage != "setup"]
    calls = [call for call in detail.calls if (call.phase, call.iteration) == here]
    loose = [c for c in commands if not any(_judges(c, call) for call in calls)]
    yield from (text for c in loose if c.stage == "prepare" for text in command_lines(c, limits))
    for call in calls:
        ran = [c for c in commands if _judges(c, call)]
        yield from _attempt(call, limits, {c.name for c in ran})
        yield from (text for c in ran for text in command_lines(c, limits, indent="    "))
    yield from (text for c in loose if c.stage == "gate" for text in command_lines(c, limits))
    yield from _patch(phase.diff, indent="  ")


def _judges(command: CommandShape, call: AttemptShape) -> bool:
    return call.role == "builder" and (command.unit, command.attempt) == (call.unit, call.attempt)


def _attempt(call: AttemptShape, limits: Limits, ran: Container[str]) -> Iterator[Line]:
    """Yield one attempt. `shown_commands`: names of the commands whose output is shown below it."""
    unit = f" {call.unit}" if call.unit else ""
    took = f" in {duration(call.duration_ms / 1000)}" if call.duration_ms is not None else ""
    became = f"{call.outcome} ({call.problem})" if call.problem else call.outcome
    whole = limits.message_characters is None
    cost = money_words(call.estimated_usd, call.reported_usd, call.computed_usd, whole)
    yield line_of(
        f"  attempt {call.attempt}{unit}, {call.role}: {call.agent} {call.model} {became}{took}; "
        f"{tokens_cell(call.tokens.input, call.tokens.output, whole=True)}; {cost}"
    )
    if call.detail:
        yield line_of(f"    {_told(call.detail, limits)}")
    yield from _printed(call)
    yield from (line_of(f"    reverted: {reverted}", "yellow") for reverted in call.reverted)
    yield from (text for refusal in call.refusals for text in _refusal(refusal, limits, ran))
    if call.prompt is not None:
        yield line_of("    prompt:")
        yield from (line_of(f"    | {text}") for text in clean(call.prompt).splitlines())
    yield from _patch(call.diff, indent="    ")


def _printed(call: AttemptShape) -> Iterator[Line]:
    """Yield exit code and output of a failed call, or the option that shows the output."""
    if not call.problem or call.stdout_digest is None:
        return
    known = [f"exit {call.exit}"] if call.exit is not None else []
    known += [f"{counted(call.bad_lines, 'line')} of output cannot be decoded"] if call.bad_lines else []
    known += ["--output shows its output"] if call.stdout is None and call.stderr is None else []
    yield line_of(f"    {'; '.join(known)}", "dim")
    for name, text in (("stdout", call.stdout), ("stderr", call.stderr)):
        if text is not None:
            yield line_of(f"    {name}:{'' if text else ' (empty)'}", "dim")
            yield from (line_of(f"    | {each}") for each in clean(text).splitlines())


def _refusal(refusal: RefusalShape, limits: Limits, ran: Container[str]) -> Iterator[Line]:
    """Yield `rejected: path:line: message (rule X)` for each violation."""
    gate = f"gate {refusal.gate}" if refusal.gate else ""
    for broken in refusal.violations:
        place = f"{broken.path or ''}{f':{broken.line}' if broken.line is not None else ''}"
        rule = "" if broken.rule == refusal.gate else f"rule {broken.rule}"
        by = ", ".join(part for part in (gate, rule) if part)
        bare = bare_message(broken.message or "", place, broken.rule)
        told = ": ".join(part for part in (place, _told(bare, limits)) if part)
        yield line_of(f"    rejected: {told} ({by})" if told else f"    rejected by {by}", "red")
    others = () if refusal.gate in ran else refusal.messages[len(refusal.violations) :]
    yield from (line_of(f"    rejected: {_told(text, limits)} ({gate or 'rules'})", "red") for text in others)
    if not refusal.violations and not others:
        yield line_of(f"    rejected by {gate or 'rules'}", "red")


def bare_message(message: str, place: str, rule: str) -> str:
    """Return an agent's message without its location prefix and rule suffix."""
    return message.removeprefix(f"{place}: ").removesuffix(f" [{rule}]")


def _told(text: str, limits: Limits) -> str:
    most = limits.message_characters
    return line(text) if most is None else shorten(line(text), most)


# commands, commits, patches -------------------------------------------------------------------------------------------
def command_lines(command: CommandShape, limits: Limits, indent: str = "  ") -> Iterator[Line]:
    """Yield the command's result, with its full output if included, else the excerpt of a failure."""
    good = command.exit == 0
    yield line_of(f"{indent}{command.stage} {command.name}: {command_words(command)}", "" if good else "red")
    if command.output is not None:
        yield from (line_of(f"{indent}  | {text}") for text in clean(command.output).splitlines())
    elif not good:
        told = clean(command.excerpt).splitlines()
        most = len(told) if limits.excerpt_lines is None else limits.excerpt_lines
        yield from (line_of(f"{indent}  | {text}", "dim") for text in told[:most])
        if len(told) > most:
            yield line_of(f"{indent}  | ... {counted(len(told) - most, 'more line')}; --output shows all", "dim")


def command_words(command: CommandShape) -> str:
    tests = f"{command.passed or 0} passed, {command.failed or 0} failed, " if command.passed is not None else ""
    ending = "killed at its time limit" if command.exit is None else f"exit {command.exit}"
    return f"{tests}{ending}, {duration(command.duration_ms / 1000)}"


def _commit_words(commit: CommitShape) -> str:
    files = counted(commit.files, "file")
    return f"  {commit.commit[:COMMIT_SHORT]} {commit.phase}: {files}, +{commit.insertions} -{commit.deletions}"


def _patch(diff: str | None, indent: str) -> Iterator[Line]:
    if diff is None:
        return
    yield line_of(f"{indent}diff:")
    for text in clean(diff).splitlines() or ["(nothing changed)"]:
        yield line_of(f"{indent}{text}", patch_look(text))


def patch_look(text: str) -> str:
    """Return the style of a patch line."""
    return next((style for beginning, style in PATCH_LOOKS if text.startswith(beginning)), "")
