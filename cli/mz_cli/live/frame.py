"""One frame of the live view of a run, as lines for a given terminal size.

Features are in the order of the backlog, and working ones have more lines. Features that do not fit are counted: open
questions and working features are shown first, then stopped and queued ones, then finished ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, chain

import msgspec
from mz_engine.model.pins import Pins
from mz_projections.usage import sum_known
from mz_projections.views.model import DONE_STATUSES, ENDED_STATUSES, CallView, FeatureStatus, FeatureView, RunView
from rich.cells import set_cell_size

from mz_cli.common.advice import review_commands
from mz_cli.terminal.text import (
    Line,
    Span,
    compact_number,
    display_width,
    exact_usd,
    format_elapsed,
    local_time,
    plain_text,
    rounded_usd,
    sanitised,
    single_line,
    styled_line,
)

TITLE_MAX = 200
"""Processed characters of a title; a terminal has room for less."""
LEFT_MIN = 20
"""Minimum cells for the left side of a line; with less room the right side is left out."""
SPINNER, SPINNER_TICK_US = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", 125_000
DONE, CURRENT, PENDING, RULE, DOT, ELLIPSIS = "✓", "▸", "·", "─", "·", "…"
STATUS_STYLES = {
    "waiting": ("?", "bold yellow"), "working": (CURRENT, "cyan"), "held": ("‖", "yellow"), "paused": ("‖", "yellow"),
    "failed": ("✗", "red"), "interrupted": ("■", "yellow"), "queued": (PENDING, "dim"), "delivered": (DONE, "green"),
    "merged": (DONE, "green"), "tagged": (DONE, "green"), "done": (DONE, "green"), "cancelled": ("–", "dim"),
    "skipped": (DONE, "dim"),
}  # fmt: skip
"""Status -> glyph and style. Glyphs differ by shape, not by colour alone. Features with the last statuses are the first
to be left out."""
CLOSED_STATUSES = (*DONE_STATUSES, "cancelled")
CARD_LINES_MAX: Mapping[FeatureStatus, int] = {"working": 5, "waiting": 3}
"""Maximum number of lines by status; others have one."""
BAR_CELLS_MAX, BAR_CELLS_MIN = 30, 8
LOG_LINES = 5
TALL_MIN = 16
"""Minimum height with the last events and horizontal rules."""


class FrameContext(msgspec.Struct, frozen=True, kw_only=True):
    """Data for a frame besides the run."""

    now_us: int
    width: int
    height: int
    pins: Pins | None
    """None: unknown."""
    title: Callable[[FeatureView], str]
    question: Callable[[FeatureView], str]
    """Text of the feature's open question; may be empty."""
    recent_output: Callable[[FeatureView], Sequence[str]]
    """Recent output lines of the feature's agent, the newest last."""
    log: Sequence[str]
    """Last events as text, the newest last."""
    footer: str
    """Available keys."""

    def phases(self, feature: FeatureView) -> tuple[str, ...]:
        """Return the phases that a feature of its kind goes through."""
        phases = self.pins.pipeline.phases if self.pins else ()
        return tuple(phase.phase for phase in phases if feature.kind in ("", phase.kind))


def render_frame(view: RunView, context: FrameContext) -> tuple[Line, ...]:
    """Return head, features, last events and footer, within the width and height of the context."""
    tall, rule = context.height >= TALL_MIN, styled_line(RULE * context.width, "dim")
    head = [_title_line(view, context), _progress_line(view, context), *([rule] if tall else [])]
    footer = [styled_line(context.footer, "dim")] if context.height > len(head) + 1 else []
    room = max(context.height - len(head) - len(footer), 0)
    log: list[Line] = []
    if tall and context.log:
        # The last two events, more if there is room to spare.
        spare = room - sum(CARD_LINES_MAX.get(feature.status, 1) for feature in view.features)
        log = [rule, *(styled_line(text, "dim") for text in context.log[-max(2, min(LOG_LINES, spare - 1)) :])]
    lines = [*head, *_feature_lines(view, context, room - len(log)), *log, *footer][: context.height]
    return tuple(fit_line(sanitised(line), context.width) for line in lines)


# head -----------------------------------------------------------------------------------------------------------------
def _title_line(view: RunView, context: FrameContext) -> Line:
    status = f"{view.status} ({view.code})" if view.code else view.status
    left = Span(f"run {view.run}", "bold"), Span(f"  {status}", "cyan" if view.status == "running" else "yellow")
    config = context.pins.config if context.pins else None
    origin = (f"{view.pipeline} on {view.base}", *((config.agent, config.autonomy) if config else ()))
    return align_both_sides(left, styled_line(f" {DOT} ".join(origin), "dim"), context.width, context.width)


def _progress_line(view: RunView, context: FrameContext) -> Line:
    """Return a progress bar over all phases of all features, and the figures of the run."""
    ended = sum(feature.status in ENDED_STATUSES for feature in view.features)
    now_us = view.last_recorded_us if view.status == "paused" else context.now_us
    elapsed = _elapsed(view.clock_us, now_us or context.now_us) if view.clock_us is not None else ""
    figures = (f"{ended}/{len(view.features)} done", elapsed, _money_text(view, context), _tokens_text(view.features))
    text = "  ".join(filter(None, figures))
    bar = min(BAR_CELLS_MAX, context.width - display_width(text) - 2)
    if bar < BAR_CELLS_MIN:
        return styled_line(text, "bold")
    done = phases = 0
    for feature in view.features:
        most = max(len(context.phases(feature)), 1)
        done += most if feature.status in CLOSED_STATUSES else min(len(feature.completed_phases), most)
        phases += most
    full = bar * done // max(phases, 1)
    return Span("━" * full, "green"), Span(RULE * (bar - full), "dim"), Span(f"  {text}", "bold")


def _money_text(view: RunView, context: FrameContext) -> str:
    """Return the charged amount of the budget; without a budget, the computed cost of calls with a price."""
    pinned_nanousd = context.pins.config.budget.run_nanousd if context.pins else None
    budget_nanousd = view.budget.run_nanousd if view.budget else pinned_nanousd
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
    features, statuses = view.features, Counter(feature.status for feature in view.features)
    cards = sum(statuses[status] for status in CARD_LINES_MAX)
    others = len(features) - cards
    # If not even short cards leave room for all other features, leave some for the count.
    reserved = others if cards * 2 + others <= room else 1
    size = max(1, min(max(CARD_LINES_MAX.values()), (room - reserved) // max(cards, 1)))
    heights = [min(size, CARD_LINES_MAX.get(feature.status, 1)) for feature in features]
    by_priority = sorted(range(len(features)), key=lambda index: tuple(STATUS_STYLES).index(features[index].status))
    used = accumulate(heights[index] for index in by_priority)
    available = room if sum(heights) <= room else room - 1
    shown = sorted(index for index, height in zip(by_priority, used, strict=True) if height <= available)
    lines = [*chain.from_iterable(feature_lines(features[index], context)[: heights[index]] for index in shown)]
    statuses.subtract(features[index].status for index in shown)
    if left_out := ", ".join(f"{number} {status}" for status, number in statuses.items() if number):
        lines.append(styled_line(f"{ELLIPSIS} {'and ' if shown else ''}{left_out}", "dim"))
    return lines


def feature_lines(feature: FeatureView, context: FrameContext) -> list[Line]:
    """Return a card for a working feature: name and figures, the phases with the duration of the current one, and
    recent output of the agent; else one line with the status and its reason."""
    width, now_us = context.width, context.now_us
    title = f"  {single_line(context.title(feature)[:TITLE_MAX])}"
    name = Span(feature.feature, "bold")
    figures = filter(None, (_tokens_text((feature,)), rounded_usd(feature.computed_nanousd)))
    right = styled_line("  ".join(figures), "dim")
    if feature.status != "working":
        glyph, style = STATUS_STYLES[feature.status]
        reason = _status_reason(feature, now_us)
        status = Span(f"  {feature.status}{': ' if reason else ''}{reason}", style)
        titled = Span(title if feature.status in ("queued", "delivered") else "", "dim")
        line = align_both_sides((Span(f"{glyph} ", style), name, status, titled), right, width)
        return [line, *(styled_line(f"  » {text}", style) for text in _question_texts(feature, context))]
    call = feature.calls[-1] if feature.calls and feature.calls[-1].phase == feature.phase else None
    calling = call is not None and call.status == "open"
    spinner = SPINNER[now_us // SPINNER_TICK_US % len(SPINNER)] if calling else CURRENT
    attempt = _attempt_text(feature, call, now_us)
    timeline = _timeline(feature, context.phases(feature), width - 4 - display_width(attempt))
    return [
        align_both_sides((Span(f"{spinner} ", "cyan"), name, Span(title, "dim")), right, width),
        align_both_sides((Span("  "), *timeline), styled_line(attempt, "cyan"), width, width),
        *(styled_line(f"  » {text}", "dim") for text in context.recent_output(feature)),
    ]


def _question_texts(feature: FeatureView, context: FrameContext) -> Iterator[str]:
    """Yield what a person is asked, and how to answer."""
    if feature.status == "waiting":
        if text := single_line(context.question(feature)[:TITLE_MAX]):
            yield text
        show, answer, *_ = review_commands(feature)
        yield f"{show}; {answer}"


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


def _status_reason(feature: FeatureView, now_us: int) -> str:
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


def _timeline(feature: FeatureView, phases: Sequence[str], cells: int) -> Line:
    """Return all phases with names if they fit, else a glyph for each and the name of the current one."""
    marks, labels, counts = [], [], _phase_counts(feature)
    for name in phases or dict.fromkeys(phase.phase for phase in feature.phases):
        mark = Span(PENDING, "dim")
        if name in feature.completed_phases:
            mark = Span(DONE, "green")
        elif name == feature.phase:
            mark = Span(CURRENT, "bold cyan")
        marks.append(mark)
        labels.append(Span(f"{mark.text} {name}{counts if name == feature.phase else ''}  ", mark.style))
    if display_width(plain_text(tuple(labels))) <= cells:
        return tuple(labels)
    return *marks, Span(f" {feature.phase}{counts}", "cyan")


def _phase_counts(feature: FeatureView) -> str:
    """Return iteration and finished units of the current phase."""
    phase = feature.phases[-1] if feature.phases else None
    if phase is None or phase.state != "started":
        return ""
    again = f" #{phase.iteration}" if phase.iteration > 1 else ""
    return again + (f" {len(phase.units_done)}/{len(phase.units)}" if phase.units else "")


def _elapsed(since_us: int, now_us: int) -> str:
    return format_elapsed(max(now_us - since_us, 0) / 1_000_000)


# width ----------------------------------------------------------------------------------------------------------------
def fit(text: str, cells: int) -> str:
    """Cut the text to at most that many cells, with an ellipsis at the end."""
    if display_width(text) <= cells:
        return text
    return set_cell_size(text, cells - 1) + ELLIPSIS if cells > 0 else ""


def fit_line(line: Line, cells: int) -> Line:
    """Cut the line to at most that many cells."""
    fitting: list[Span] = []
    for span in line:
        text = fit(span.text, cells)
        fitting.append(Span(text, span.style))
        cells -= display_width(text)
        if text != span.text:
            break
    return tuple(fitting)


def align_both_sides(left: Line, right: Line, cells: int, left_min: int = LEFT_MIN) -> Line:
    """Return one line with `right` at its right edge. `left` is cut to `left_min` cells before `right` is left out."""
    right_cells = display_width(plain_text(right))
    room = cells - right_cells - 2
    if not right_cells or room < min(left_min, display_width(plain_text(left))):
        return fit_line(left, cells)
    left = fit_line(left, room)
    return (*left, Span(" " * (room + 2 - display_width(plain_text(left)))), *right)
