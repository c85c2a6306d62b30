"""Pure: `mz show` for people: one feature as lines of text, phase by phase: what was tried, and what came of it."""

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
"""How lines of a patch begin, and how they look; the first that fits counts."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of others' words is shown; None: all of them."""

    message_characters: int | None = None
    excerpt_lines: int | None = None


def page(detail: FeatureDetail, limits: Limits) -> Iterator[Line]:
    """The feature as lines: what it is, then phase by phase what was tried and what came of it."""
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
    """A heading and its rows; nothing without rows."""
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
        "checks": f"{checks.green} green, {checks.red} red, {checks.pending} pending" if checks else None,
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
    """A question is best looked at before it is answered."""
    asked = detail.waiting
    if asked is None or detail.status != "waiting":
        return detail.next
    return f"{asked.resume}, which takes the answer that was left" if asked.answered else asked.commands[0]


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
    """`ran`: names of the commands that judged it; what they printed is shown below it."""
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
    """What is known of a failed call besides its words: how the program ended, and what it printed or where to see
    that."""
    if not call.problem or call.stdout_digest is None:
        return
    known = [f"exit {call.exit}"] if call.exit is not None else []
    known += [f"{counted(call.bad_lines, 'line')} of its output cannot be read"] if call.bad_lines else []
    known += ["--output shows what it printed"] if call.stdout is None and call.stderr is None else []
    yield line_of(f"    {'; '.join(known)}", "dim")
    for name, text in (("stdout", call.stdout), ("stderr", call.stderr)):
        if text is not None:
            yield line_of(f"    {name}:{'' if text else ' (nothing)'}", "dim")
            yield from (line_of(f"    | {each}") for each in clean(text).splitlines())


def _refusal(refusal: RefusalShape, limits: Limits, ran: Container[str]) -> Iterator[Line]:
    """Each violation: the rule, where, and in which words."""
    by = f"gate {refusal.gate}" if refusal.gate else "rule"
    for broken in refusal.violations:
        rule = "" if broken.rule == refusal.gate else f" {broken.rule}"
        place = f"{broken.path or ''}{f':{broken.line}' if broken.line is not None else ''}"
        where = f" ({place})" if place else ""
        bare = bare_message(broken.message or "", place, broken.rule)
        told = f": {_told(bare, limits)}" if bare else ""
        yield line_of(f"    refused by {by}{rule}{where}{told}", "red")
    others = () if refusal.gate in ran else refusal.messages[len(refusal.violations) :]
    yield from (line_of(f"    refused by {by}: {_told(text, limits)}", "red") for text in others)
    if not refusal.violations and not others:
        yield line_of(f"    refused by {by}", "red")


def bare_message(message: str, place: str, rule: str) -> str:
    """A message for an agent begins with the place and ends with the rule; here both are said already."""
    return message.removeprefix(f"{place}: ").removesuffix(f" [{rule}]")


def _told(text: str, limits: Limits) -> str:
    most = limits.message_characters
    return line(text) if most is None else shorten(line(text), most)


# commands, commits, patches -------------------------------------------------------------------------------------------
def command_lines(command: CommandShape, limits: Limits, indent: str = "  ") -> Iterator[Line]:
    """One line; below it all of the output where that is asked for, else the end of what a failure printed."""
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
    """The style of a line of a patch."""
    return next((style for beginning, style in PATCH_LOOKS if text.startswith(beginning)), "")
