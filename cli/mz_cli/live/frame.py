"""One frame of the live view of a run, as lines for a given terminal size.

Features are in the order of the backlog, and working ones have more lines. Features that do not fit are counted: open
questions and working features are shown first, then stopped and queued ones, then finished ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
from mz_projections.usage import sum_known
from mz_projections.views.model import CallView, FeatureView, RunView

from mz_cli.terminal.text import (
    compact_number,
    exact_usd,
    format_elapsed,
    local_time,
    parse_usd,
    rounded_usd,
    single_line,
)
from mz_cli.terminal.width import (
    Line,
    Span,
    align_both_sides,
    display_width,
    fit_line,
    keep_fitting,
    plain_text,
    sanitised,
)

TITLE_MAX = 200
"""Processed characters of a title; a terminal has room for less."""
LEFT_MIN = 20
"""Minimum cells for name and title; with less room the figures beside them are left out."""
SPINNER_TICK_US = 125_000


class Glyphs(NamedTuple):
    """Symbols of states, which differ by shape and not by colour alone."""

    done: str
    current: str
    pending: str
    failed: str
    waiting: str
    held: str
    stopped: str
    cancelled: str
    quote: str
    rule: str
    full: str
    empty: str
    dot: str
    more: str
    spinner: str


UNICODE = Glyphs("✓", "▸", "·", "✗", "?", "‖", "■", "–", "»", "─", "━", "─", "·", "…", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
ASCII = Glyphs("+", ">", ".", "x", "?", "=", "#", "-", "|", "-", "#", "-", "/", "..", "|/-\\")
STATUS_STYLES = {
    "delivered": ("done", "green"), "merged": ("done", "green"), "tagged": ("done", "green"),
    "skipped": ("done", "dim"), "working": ("current", "cyan"), "waiting": ("waiting", "bold yellow"),
    "held": ("held", "yellow"), "failed": ("failed", "red"), "interrupted": ("stopped", "yellow"),
    "paused": ("held", "yellow"),
    "cancelled": ("cancelled", "dim"), "queued": ("pending", "dim"),
}  # fmt: skip
"""Status -> name of the glyph, and its style."""


class PinnedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Pinned settings of the run; empty and None if unknown."""

    phases: tuple[str, ...] = ()
    agent: str = ""
    autonomy: str = ""
    budget_nanousd: int | None = None
    """Budget of the run; None: no limit."""


def read_pinned_settings(pins: str) -> PinnedSettings:
    """Read the settings from the JSON of pins, also of other versions; empty settings if they are not in it."""
    try:
        decoded = msgspec.json.decode(pins)
        config, budget = decoded["config"], decoded["config"]["budget"].get("run")
        return PinnedSettings(
            phases=tuple(phase["phase"] for phase in decoded["pipeline"]["phases"]),
            agent=config["agent"],
            autonomy=config["autonomy"],
            budget_nanousd=parse_usd(budget) if budget is not None else None,
        )
    except (msgspec.DecodeError, LookupError, TypeError):
        return PinnedSettings()


class FrameContext(msgspec.Struct, frozen=True, kw_only=True):
    """Data for a frame besides the run."""

    now_us: int
    width: int
    height: int
    glyphs: Glyphs
    planned: PinnedSettings
    title: Callable[[FeatureView], str]
    recent_output: Callable[[FeatureView], Sequence[str]]
    """Recent output lines of the feature's agent, the newest last."""
    log: Sequence[str]
    """Last events as text, the newest last."""
    footer: str
    """Available keys."""


def feature_lines(feature: FeatureView, context: FrameContext) -> list[Line]:
    """Return a card for a working feature: name and figures, the phases with the duration of the current one, and
    recent output of the agent; else one line with the status and its reason."""
    glyphs, width, now_us = context.glyphs, context.width, context.now_us
    title = f"  {single_line(context.title(feature)[:TITLE_MAX])}"
    name = Span(feature.feature, "bold")
    if feature.status != "working":
        glyph, style = STATUS_STYLES[feature.status]
        reason = _status_reason(feature, now_us)
        status = Span(f"  {feature.status}{': ' if reason else ''}{reason}", style)
        titled = Span(title if feature.status in ("queued", "delivered") else "", "dim")
        left = Span(f"{getattr(glyphs, glyph)} ", style), name, status, titled
        return [align_both_sides(left, _figures(feature), width, LEFT_MIN)]
    call = _current_call(feature)
    calling = call is not None and call.status == "open"
    spinner = glyphs.spinner[now_us // SPINNER_TICK_US % len(glyphs.spinner)] if calling else glyphs.current
    attempt = Span(_attempt_text(feature, call, now_us), "cyan")
    timeline = _timeline(feature, context.planned.phases, glyphs, width - 4 - display_width(attempt.text))
    return [
        align_both_sides((Span(f"{spinner} ", "cyan"), name, Span(title, "dim")), _figures(feature), width, LEFT_MIN),
        align_both_sides((Span("  "), *timeline), (attempt,), width, width),
        *((Span(f"  {glyphs.quote} {text}", "dim"),) for text in context.recent_output(feature)),
    ]


def _current_call(feature: FeatureView) -> CallView | None:
    """Return the last call if it belongs to the current phase."""
    call = feature.calls[-1] if feature.calls else None
    return call if call is not None and call.phase == feature.phase else None


def _attempt_text(feature: FeatureView, call: CallView | None, now_us: int) -> str:
    """Return the attempt and its duration; between calls, the duration of the phase."""
    if call is None:
        since = feature.phases[-1].started_us if feature.phases else feature.started_us
        return "" if since is None else _elapsed(since, now_us)
    role = "" if call.role == "builder" else f"{call.role} "
    unit = f"{call.unit} " if call.unit else ""
    if call.status == "open":
        return f"{unit}{role}attempt {call.attempt}  {_elapsed(call.requested_at_us, now_us)}"
    state = "rejected" if call.rejections else "checking" if call.status == "replied" else call.status
    return f"{unit}{role}attempt {call.attempt}  {state}"


def _figures(feature: FeatureView) -> Line:
    figures = filter(None, (_tokens_text((feature,)), rounded_usd(feature.computed_nanousd)))
    return (Span(text, "dim"),) if (text := "  ".join(figures)) else ()


def _status_reason(feature: FeatureView, now_us: int) -> str:
    """Return the explanation of a status."""
    if feature.status == "waiting" and feature.question is not None:
        question = feature.question
        phase = f" in {question.phase}" if question.phase else ""
        return f"{question.question_kind.value}{phase}, since {_elapsed(question.since_us, now_us)}"
    if feature.status == "held":
        hold = feature.hold.value if feature.hold else "after"
        until = f" until {local_time(feature.until_us)}" if feature.until_us is not None else ""
        return " ".join(word for word in (hold, feature.blocked_by or feature.code) if word) + until
    if feature.status == "queued" and feature.depends_on:
        return f"after {', '.join(feature.depends_on)}"
    return feature.code if feature.status == "failed" else ""


def _timeline(feature: FeatureView, phases: Sequence[str], glyphs: Glyphs, cells: int) -> Line:
    """Return all phases with names if they fit, else a glyph for each and the name of the current one."""
    names = phases or tuple(dict.fromkeys(phase.phase for phase in feature.phases))
    marks = [_phase_mark(feature, name, glyphs) for name in names]
    full_line = tuple(
        span
        for position, (name, mark) in enumerate(zip(names, marks, strict=True))
        for span in (Span("  " if position else ""), mark, Span(f" {name}{_phase_counts(feature, name)}", mark.style))
    )
    if display_width(plain_text(full_line)) <= cells:
        return full_line
    current = f" {feature.phase}{_phase_counts(feature, feature.phase)}" if feature.phase else ""
    return *marks, Span(current, "cyan")


def _phase_mark(feature: FeatureView, name: str, glyphs: Glyphs) -> Span:
    if name in feature.completed_phases:
        return Span(glyphs.done, "green")
    return Span(glyphs.current, "bold cyan") if name == feature.phase else Span(glyphs.pending, "dim")


def _phase_counts(feature: FeatureView, name: str) -> str:
    """Return iteration and finished units of the phase if it is the current one."""
    phase = feature.phases[-1] if feature.phases else None
    if phase is None or phase.phase != name or phase.state != "started":
        return ""
    again = f" #{phase.iteration}" if phase.iteration > 1 else ""
    return again + (f" {len(phase.units_done)}/{len(phase.units)}" if phase.units else "")


def _elapsed(since_us: int, now_us: int) -> str:
    return format_elapsed(max(now_us - since_us, 0) / 1_000_000)


LOG_LINES = 5
CARD_LINES_MAX = 5
BAR_CELLS = 30, 8
"""Maximum and minimum."""
RULES_HEIGHT_MIN = 12
"""Minimum height with horizontal rules."""
LOG_HEIGHT_MIN = 16
"""Minimum height with the last events."""
DONE_STATUSES = ("delivered", "merged", "tagged", "cancelled", "skipped")
STATUS_PRIORITY = (("waiting",), ("working",), ("held", "failed", "interrupted", "paused"), ("queued",), DONE_STATUSES)
"""Statuses in display priority."""


def render_frame(view: RunView, context: FrameContext) -> tuple[Line, ...]:
    """Return head, features, last events and footer, within the width and height of the context."""
    ruled = context.height >= RULES_HEIGHT_MIN
    rule: list[Line] = [(Span(context.glyphs.rule * context.width, "dim"),)] if ruled else []
    head = [_title_line(view, context), _progress_line(view, context), *rule]
    footer: list[Line] = [(Span(context.footer, "dim"),)] if context.footer and context.height > len(head) + 1 else []
    room = context.height - len(head) - len(footer)
    wanted_lines = sum(CARD_LINES_MAX if feature.status == "working" else 1 for feature in view.features)
    log = _log_lines(context, room - wanted_lines)
    body = _feature_lines(view, context, max(room - len(log), 0))
    lines = [*head, *body, *log, *footer][: max(context.height, 1)]
    return tuple(fit_line(sanitised(line), context.width) for line in lines)


def _log_lines(context: FrameContext, spare: int) -> list[Line]:
    """Return the last two events on a tall screen, more if there is room to spare."""
    if context.height < LOG_HEIGHT_MIN or not context.log:
        return []
    shown = context.log[-max(2, min(LOG_LINES, spare - 1)) :]
    return [(Span(context.glyphs.rule * context.width, "dim"),), *((Span(text, "dim"),) for text in shown)]


# head -----------------------------------------------------------------------------------------------------------------
def _title_line(view: RunView, context: FrameContext) -> Line:
    status = f"{view.status} ({view.code})" if view.code else view.status
    left = Span(f"run {view.run}", "bold"), Span(f"  {status}", "cyan" if view.status == "running" else "yellow")
    planned = context.planned
    origin = [word for word in (f"{view.pipeline} on {view.base}", planned.agent, planned.autonomy) if word.strip()]
    return align_both_sides(left, (Span(f" {context.glyphs.dot} ".join(origin), "dim"),), context.width, context.width)


def _progress_line(view: RunView, context: FrameContext) -> Line:
    """Return a progress bar over all phases of all features, and the figures of the run."""
    ended = sum(feature.status in (*DONE_STATUSES, "failed") for feature in view.features)
    figures = [f"{ended}/{len(view.features)} done"]
    started_us = view.resumed_us if view.resumed_us is not None else view.started_us
    figures += [format_elapsed(max(context.now_us - started_us, 0) / 1_000_000)] if started_us is not None else []
    figures += [text for text in (_money_text(view, context.planned), _tokens_text(view.features)) if text]
    text = keep_fitting(figures, context.width)
    bar_max, bar_min = BAR_CELLS
    bar = min(bar_max, context.width - display_width(text) - 2)
    if bar < bar_min:
        return (Span(text, "bold"),)
    full = int(bar * _done_share(view, context.planned.phases))
    glyphs = context.glyphs
    return Span(glyphs.full * full, "green"), Span(glyphs.empty * (bar - full), "dim"), Span(f"  {text}", "bold")


def _done_share(view: RunView, phases: Sequence[str]) -> float:
    """Return the finished share of all phases of all features, from 0 to 1."""
    phase_count = max(len(phases), 1)
    done = sum(
        phase_count if f.status in DONE_STATUSES else min(len(f.completed_phases), phase_count) for f in view.features
    )
    return done / (phase_count * len(view.features)) if view.features else 0.0


def _money_text(view: RunView, planned: PinnedSettings) -> str:
    """Return the charged amount of the budget; without a budget, the computed cost of calls with a price."""
    budget_nanousd = view.budget.run_nanousd if view.budget else planned.budget_nanousd
    if budget_nanousd is not None:
        return f"{rounded_usd(view.committed_nanousd)} of ${exact_usd(budget_nanousd)}"
    computed = rounded_usd(sum_known(feature.computed_nanousd for feature in view.features))
    unpriced = sum(feature.unpriced for feature in view.features)
    return " + ".join(filter(None, (computed, f"{unpriced} unpriced" if unpriced else "")))


def _tokens_text(features: Sequence[FeatureView]) -> str:
    input_tokens = sum_known(feature.input_tokens for feature in features)
    output_tokens = sum_known(feature.output_tokens for feature in features)
    if input_tokens is None and output_tokens is None:
        return ""
    return f"{compact_number(input_tokens)} in, {compact_number(output_tokens)} out"


# features -------------------------------------------------------------------------------------------------------------
def _feature_lines(view: RunView, context: FrameContext, room: int) -> list[Line]:
    """Return as many features as fit, in the order of the backlog, and a count of the others."""
    if not view.features or not room:
        return []
    size = _card_lines(view, room)
    shown = _shown_features(view, size, room)
    left_out = len(view.features) - len(shown)
    lines: list[Line] = []
    for index in sorted(shown):
        feature = view.features[index]
        lines += feature_lines(feature, context)[:size]
    if left_out:
        shown_names = {view.features[index].feature for index in shown}
        others = Counter(feature.status for feature in view.features if feature.feature not in shown_names)
        counted = ", ".join(f"{number} {status}" for status, number in others.items())
        lines.append((Span(f"{context.glyphs.more} {'and ' if shown else ''}{counted}", "dim"),))
    return lines


def _card_lines(view: RunView, room: int) -> int:
    """Return the lines for each working feature that leave room for all others, else for the open questions."""
    working = sum(feature.status == "working" for feature in view.features)
    others = len(view.features) - working
    questions = sum(feature.status == "waiting" for feature in view.features)
    for other_lines in (others, questions + 1):
        for size in range(CARD_LINES_MAX, 1, -1):
            if working * size + other_lines <= room:
                return size
    return 1


def _shown_features(view: RunView, size: int, room: int) -> list[int]:
    """Return indices of the features to show, by priority; one line is reserved for the count unless all fit."""
    ranked = chain.from_iterable(
        (index for index, feature in enumerate(view.features) if feature.status in statuses)
        for statuses in STATUS_PRIORITY
    )
    chosen: list[int] = []
    heights = [size if feature.status == "working" else 1 for feature in view.features]
    remaining = room if sum(heights) <= room else room - 1
    for index in ranked:
        if heights[index] > remaining:
            break
        remaining -= heights[index]
        chosen.append(index)
    return chosen
