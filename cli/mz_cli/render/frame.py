"""One frame of the live view of a run, as lines for a given terminal size.

Features are in the order of the backlog, and working ones have more lines. Features that do not fit are counted: open
questions and working features are shown first, then stopped and queued ones, then finished ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

import msgspec
from mz_projections.views import FeatureView, RunView

from mz_cli.render.card import CardOptions, Glyphs, feature_card, feature_row
from mz_cli.render.cells import align_both_sides, display_width, fit_line, keep_fitting
from mz_cli.render.planned import PinnedSettings
from mz_cli.render.styled import Line, Span, sanitised
from mz_cli.render.text import compact_number, exact_usd, format_elapsed, rounded_usd

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
    figures += [text for text in (_money_text(view, context.planned), _tokens_text(view)) if text]
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
    done = sum(phase_count if f.status in DONE_STATUSES else min(len(f.completed_phases), phase_count) for f in view.features)
    return done / (phase_count * len(view.features)) if view.features else 0.0


def _money_text(view: RunView, planned: PinnedSettings) -> str:
    """Return the charged amount of the budget; without a budget, the computed cost of calls with a price."""
    budget_nanousd = view.budget.run_nanousd if view.budget else planned.budget_nanousd
    if budget_nanousd is not None:
        return f"{rounded_usd(view.committed_nanousd)} of ${exact_usd(budget_nanousd)}"
    priced = [feature.computed_nanousd for feature in view.features if feature.computed_nanousd is not None]
    unpriced = sum(feature.unpriced for feature in view.features)
    more = f" + {unpriced} unpriced" if unpriced else ""
    return f"{rounded_usd(sum(priced))}{more}" if priced else more.removeprefix(" + ")


def _tokens_text(view: RunView) -> str:
    input_tokens = [feature.input_tokens for feature in view.features if feature.input_tokens is not None]
    output_tokens = [feature.output_tokens for feature in view.features if feature.output_tokens is not None]
    return f"{compact_number(sum(input_tokens))} in, {compact_number(sum(output_tokens))} out" if input_tokens or output_tokens else ""


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
        lines += _draw_feature(feature, context, size)
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
        (index for index, feature in enumerate(view.features) if feature.status in statuses) for statuses in STATUS_PRIORITY
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


def _draw_feature(feature: FeatureView, context: FrameContext, size: int) -> list[Line]:
    options = CardOptions(glyphs=context.glyphs, width=context.width, now_us=context.now_us)
    if feature.status != "working":
        return [feature_row(feature, context.title(feature), options)]
    return feature_card(feature, context.title(feature), context.planned.phases, context.recent_output(feature), options)[:size]
