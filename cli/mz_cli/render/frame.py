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

from mz_cli.render.card import Glyphs, Look, card, row
from mz_cli.render.cells import both_sides, fit_line, keep_fitting, width
from mz_cli.render.planned import Planned
from mz_cli.render.styled import Line, Span, harmless
from mz_cli.render.text import compact, duration, money, usd

LOG_LINES = 5
CARD_LINES_MAX = 5
BAR_CELLS = 30, 8
"""Maximum and minimum."""
RULED = 12
"""Minimum height with horizontal rules."""
TALL = 16
"""Minimum height with the last events."""
DONE = ("delivered", "merged", "tagged", "cancelled", "skipped")
IMPORTANCE = (("waiting",), ("working",), ("held", "failed", "stopped", "paused"), ("queued",), DONE)
"""Statuses in display priority."""


class Scenery(msgspec.Struct, frozen=True, kw_only=True):
    """Data for a frame besides the run."""

    now_us: int
    width: int
    height: int
    glyphs: Glyphs
    planned: Planned
    title: Callable[[FeatureView], str]
    said: Callable[[FeatureView], Sequence[str]]
    """Recent output lines of the feature's agent, the newest last."""
    log: Sequence[str]
    """Last events as text, the newest last."""
    footer: str
    """Available keys."""


def frame(view: RunView, scenery: Scenery) -> tuple[Line, ...]:
    """Return head, features, last events and footer, within the width and height of the context."""
    ruled = scenery.height >= RULED
    rule: list[Line] = [(Span(scenery.glyphs.rule * scenery.width, "dim"),)] if ruled else []
    head = [_title(view, scenery), _progress(view, scenery), *rule]
    foot: list[Line] = [(Span(scenery.footer, "dim"),)] if scenery.footer and scenery.height > len(head) + 1 else []
    room = scenery.height - len(head) - len(foot)
    wanted = sum(CARD_LINES_MAX if feature.status == "working" else 1 for feature in view.features)
    log = _log(scenery, room - wanted)
    body = _features(view, scenery, max(room - len(log), 0))
    lines = [*head, *body, *log, *foot][: max(scenery.height, 1)]
    return tuple(fit_line(harmless(line), scenery.width) for line in lines)


def _log(scenery: Scenery, spare: int) -> list[Line]:
    """Return the last two events on a tall screen, more if there is room to spare."""
    if scenery.height < TALL or not scenery.log:
        return []
    shown = scenery.log[-max(2, min(LOG_LINES, spare - 1)) :]
    return [(Span(scenery.glyphs.rule * scenery.width, "dim"),), *((Span(text, "dim"),) for text in shown)]


# head -----------------------------------------------------------------------------------------------------------------
def _title(view: RunView, scenery: Scenery) -> Line:
    status = f"{view.status} ({view.code})" if view.code else view.status
    left = Span(f"run {view.run}", "bold"), Span(f"  {status}", "cyan" if view.status == "running" else "yellow")
    planned = scenery.planned
    known = [word for word in (f"{view.pipeline} on {view.base}", planned.agent, planned.autonomy) if word.strip()]
    return both_sides(left, (Span(f" {scenery.glyphs.dot} ".join(known), "dim"),), scenery.width, scenery.width)


def _progress(view: RunView, scenery: Scenery) -> Line:
    """Return a progress bar over all phases of all features, and the figures of the run."""
    ended = sum(feature.status in (*DONE, "failed") for feature in view.features)
    figures = [f"{ended}/{len(view.features)} done"]
    begun = view.taken_up_us if view.taken_up_us is not None else view.started_us
    figures += [duration(max(scenery.now_us - begun, 0) / 1_000_000)] if begun is not None else []
    figures += [text for text in (_money(view, scenery.planned), _tokens(view)) if text]
    text = keep_fitting(figures, scenery.width)
    most, least = BAR_CELLS
    bar = min(most, scenery.width - width(text) - 2)
    if bar < least:
        return (Span(text, "bold"),)
    full = int(bar * _share(view, scenery.planned.phases))
    glyphs = scenery.glyphs
    return Span(glyphs.full * full, "green"), Span(glyphs.empty * (bar - full), "dim"), Span(f"  {text}", "bold")


def _share(view: RunView, phases: Sequence[str]) -> float:
    """Return the finished share of all phases of all features, from 0 to 1."""
    each = max(len(phases), 1)
    done = sum(each if f.status in DONE else min(len(f.completed), each) for f in view.features)
    return done / (each * len(view.features)) if view.features else 0.0


def _money(view: RunView, planned: Planned) -> str:
    """Return the charged amount of the budget; without a budget, the computed cost of calls with a price."""
    budget_nanousd = view.budget.run_nanousd if view.budget else planned.budget_nanousd
    if budget_nanousd is not None:
        return f"{money(view.committed_nanousd)} of ${usd(budget_nanousd)}"
    priced = [feature.computed_nanousd for feature in view.features if feature.computed_nanousd is not None]
    unpriced = sum(feature.unpriced for feature in view.features)
    more = f" + {unpriced} unpriced" if unpriced else ""
    return f"{money(sum(priced))}{more}" if priced else more.removeprefix(" + ")


def _tokens(view: RunView) -> str:
    taken = [feature.input_tokens for feature in view.features if feature.input_tokens is not None]
    given = [feature.output_tokens for feature in view.features if feature.output_tokens is not None]
    return f"{compact(sum(taken))} in, {compact(sum(given))} out" if taken or given else ""


# features -------------------------------------------------------------------------------------------------------------
def _features(view: RunView, scenery: Scenery, room: int) -> list[Line]:
    """Return as many features as fit, in the order of the backlog, and a count of the others."""
    if not view.features or not room:
        return []
    size = _card_size(view, room)
    shown = _chosen(view, size, room)
    left_out = len(view.features) - len(shown)
    lines: list[Line] = []
    for place in sorted(shown):
        feature = view.features[place]
        lines += _drawn(feature, scenery, size)
    if left_out:
        named = {view.features[place].feature for place in shown}
        others = Counter(feature.status for feature in view.features if feature.feature not in named)
        counted = ", ".join(f"{number} {status}" for status, number in others.items())
        lines.append((Span(f"{scenery.glyphs.more} {'and ' if shown else ''}{counted}", "dim"),))
    return lines


def _card_size(view: RunView, room: int) -> int:
    """Return the lines for each working feature that leave room for all others, else for the open questions."""
    working = sum(feature.status == "working" for feature in view.features)
    others = len(view.features) - working
    questions = sum(feature.status == "waiting" for feature in view.features)
    for rest in (others, questions + 1):
        for size in range(CARD_LINES_MAX, 1, -1):
            if working * size + rest <= room:
                return size
    return 1


def _chosen(view: RunView, size: int, room: int) -> list[int]:
    """Return indices of the features to show, by priority; one line is reserved for the count unless all fit."""
    ranked = chain.from_iterable(
        (place for place, feature in enumerate(view.features) if feature.status in statuses) for statuses in IMPORTANCE
    )
    chosen: list[int] = []
    heights = [size if feature.status == "working" else 1 for feature in view.features]
    left = room if sum(heights) <= room else room - 1
    for place in ranked:
        if heights[place] > left:
            break
        left -= heights[place]
        chosen.append(place)
    return chosen


def _drawn(feature: FeatureView, scenery: Scenery, size: int) -> list[Line]:
    look = Look(glyphs=scenery.glyphs, cells=scenery.width, now_us=scenery.now_us)
    if feature.status != "working":
        return [row(feature, scenery.title(feature), look)]
    return card(feature, scenery.title(feature), scenery.planned.phases, scenery.said(feature), look)[:size]
