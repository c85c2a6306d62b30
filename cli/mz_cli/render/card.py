"""One feature in the live view of a run: a card of several lines while it is working, else one line."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from mz_projections.views import CallView, FeatureView

from mz_cli.render.cells import both_sides, width
from mz_cli.render.styled import Line, Span, plain
from mz_cli.render.text import clock, compact, duration, line, money

TITLE_MAX = 200
"""Processed characters of a title; a terminal has room for less."""
LEFT_MIN = 20
"""Minimum cells for name and title; with less room the figures beside them are left out."""
TICKS_US = 125_000


class Glyphs(msgspec.Struct, frozen=True, kw_only=True):
    """Symbols of states, which differ by shape and not by colour alone."""

    done: str
    current: str
    open: str
    failed: str
    waiting: str
    held: str
    stopped: str
    cancelled: str
    said: str
    rule: str
    full: str
    empty: str
    dot: str
    more: str
    spinner: str


UNICODE = Glyphs(
    done="✓", current="▸", open="·", failed="✗", waiting="?", held="‖", stopped="■", cancelled="–", said="»", rule="─",
    full="━", empty="─", dot="·", more="…", spinner="⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏",
)  # fmt: skip
ASCII = Glyphs(
    done="+", current=">", open=".", failed="x", waiting="?", held="=", stopped="#", cancelled="-", said="|", rule="-",
    full="#", empty="-", dot="/", more="..", spinner="|/-\\",
)  # fmt: skip
LOOKS = {
    "delivered": ("done", "green"), "merged": ("done", "green"), "tagged": ("done", "green"),
    "skipped": ("done", "dim"), "working": ("current", "cyan"), "waiting": ("waiting", "bold yellow"),
    "held": ("held", "yellow"), "failed": ("failed", "red"), "stopped": ("stopped", "yellow"),
    "paused": ("held", "yellow"),
    "cancelled": ("cancelled", "dim"), "queued": ("open", "dim"),
}  # fmt: skip
"""Status -> name of the glyph, and its style."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Options for showing a feature."""

    glyphs: Glyphs
    cells: int
    """Width of a line in cells."""
    now_us: int


def card(feature: FeatureView, title: str, phases: Sequence[str], said: Sequence[str], look: Look) -> list[Line]:
    """Return name and figures, the phases with the duration of the current one, and recent output of the agent."""
    call, glyphs, cells, now_us = _current(feature), look.glyphs, look.cells, look.now_us
    calling = call is not None and call.outcome == "open"
    mark = glyphs.spinner[now_us // TICKS_US % len(glyphs.spinner)] if calling else glyphs.current
    name = Span(f"{mark} ", "cyan"), Span(feature.feature, "bold"), Span(f"  {_short(title)}", "dim")
    about = Span(_about(feature, call, now_us), "cyan")
    timeline = _timeline(feature, phases, glyphs, cells - 4 - width(about.text))
    return [
        both_sides(name, _figures(feature), cells, LEFT_MIN),
        both_sides((Span("  "), *timeline), (about,), cells, cells),
        *((Span(f"  {glyphs.said} {words}", "dim"),) for words in said),
    ]


def row(feature: FeatureView, title: str, look: Look) -> Line:
    """Return the status of a feature that is not working, with the reason."""
    glyph, style = LOOKS[feature.status]
    why = _why(feature, look.now_us)
    left = (
        Span(f"{getattr(look.glyphs, glyph)} ", style),
        Span(feature.feature, "bold"),
        Span(f"  {feature.status}{': ' if why else ''}{why}", style),
        Span(f"  {_short(title)}" if feature.status in ("queued", "delivered") else "", "dim"),
    )
    return both_sides(left, _figures(feature), look.cells, LEFT_MIN)


def _short(title: str) -> str:
    return line(title[:TITLE_MAX])


def _current(feature: FeatureView) -> CallView | None:
    """Return the last call if it belongs to the current phase."""
    call = feature.calls[-1] if feature.calls else None
    return call if call is not None and call.phase == feature.phase else None


def _about(feature: FeatureView, call: CallView | None, now_us: int) -> str:
    """Return the attempt and its duration; between calls, the duration of the phase."""
    if call is None:
        since = feature.phases[-1].started_us if feature.phases else feature.started_us
        return "" if since is None else _elapsed(since, now_us)
    who = "" if call.role == "builder" else f"{call.role} "
    unit = f"{call.unit} " if call.unit else ""
    if call.outcome == "open":
        return f"{unit}{who}attempt {call.attempt}  {_elapsed(call.asked_us, now_us)}"
    became = "rejected" if call.refusals else "checking" if call.outcome == "replied" else call.outcome
    return f"{unit}{who}attempt {call.attempt}  {became}"


def _figures(feature: FeatureView) -> Line:
    figures = []
    if feature.input_tokens is not None or feature.output_tokens is not None:
        figures.append(f"{compact(feature.input_tokens)} in, {compact(feature.output_tokens)} out")
    if feature.computed_nanousd is not None:
        figures.append(money(feature.computed_nanousd) or "")
    return (Span("  ".join(figures), "dim"),) if figures else ()


def _why(feature: FeatureView, now_us: int) -> str:
    """Return the explanation of a status."""
    if feature.status == "waiting" and feature.waiting is not None:
        asked = feature.waiting
        place = f" in {asked.phase}" if asked.phase else ""
        return f"{asked.ask.value}{place}, since {_elapsed(asked.since_us, now_us)}"
    if feature.status == "held":
        hold = feature.hold.value if feature.hold else "after"
        until = f" until {clock(feature.until_us)}" if feature.until_us is not None else ""
        return " ".join(word for word in (hold, feature.because or feature.code) if word) + until
    if feature.status == "queued" and feature.depends_on:
        return f"after {', '.join(feature.depends_on)}"
    return feature.code if feature.status == "failed" else ""


def _timeline(feature: FeatureView, phases: Sequence[str], glyphs: Glyphs, cells: int) -> Line:
    """Return all phases with names if they fit, else a glyph for each and the name of the current one."""
    names = phases or tuple(dict.fromkeys(phase.phase for phase in feature.phases))
    marks = [_mark(feature, name, glyphs) for name in names]
    long = tuple(
        span
        for place, (name, mark) in enumerate(zip(names, marks, strict=True))
        for span in (Span("  " if place else ""), mark, Span(f" {name}{_counts(feature, name)}", mark.style))
    )
    if width(plain(long)) <= cells:
        return long
    current = f" {feature.phase}{_counts(feature, feature.phase)}" if feature.phase else ""
    return *marks, Span(current, "cyan")


def _mark(feature: FeatureView, name: str, glyphs: Glyphs) -> Span:
    if name in feature.completed:
        return Span(glyphs.done, "green")
    return Span(glyphs.current, "bold cyan") if name == feature.phase else Span(glyphs.open, "dim")


def _counts(feature: FeatureView, name: str) -> str:
    """Return iteration and finished units of the phase if it is the current one."""
    phase = feature.phases[-1] if feature.phases else None
    if phase is None or phase.phase != name or phase.state != "started":
        return ""
    again = f" #{phase.iteration}" if phase.iteration > 1 else ""
    return again + (f" {len(phase.units_done)}/{len(phase.units)}" if phase.units else "")


def _elapsed(since_us: int, now_us: int) -> str:
    return duration(max(now_us - since_us, 0) / 1_000_000)
