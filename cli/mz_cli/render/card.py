"""One feature in the live view of a run: a card of several lines while it is working, else one line."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from mz_projections.views import CallView, FeatureView

from mz_cli.render.cells import align_both_sides, display_width
from mz_cli.render.styled import Line, Span, plain_text
from mz_cli.render.text import compact_number, format_elapsed, local_time, rounded_usd, single_line

TITLE_MAX = 200
"""Processed characters of a title; a terminal has room for less."""
LEFT_MIN = 20
"""Minimum cells for name and title; with less room the figures beside them are left out."""
SPINNER_TICK_US = 125_000


class Glyphs(msgspec.Struct, frozen=True, kw_only=True):
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


UNICODE = Glyphs(
    done="✓", current="▸", pending="·", failed="✗", waiting="?", held="‖", stopped="■", cancelled="–", quote="»", rule="─",
    full="━", empty="─", dot="·", more="…", spinner="⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏",
)  # fmt: skip
ASCII = Glyphs(
    done="+", current=">", pending=".", failed="x", waiting="?", held="=", stopped="#", cancelled="-", quote="|", rule="-",
    full="#", empty="-", dot="/", more="..", spinner="|/-\\",
)  # fmt: skip
STATUS_STYLES = {
    "delivered": ("done", "green"), "merged": ("done", "green"), "tagged": ("done", "green"),
    "skipped": ("done", "dim"), "working": ("current", "cyan"), "waiting": ("waiting", "bold yellow"),
    "held": ("held", "yellow"), "failed": ("failed", "red"), "interrupted": ("stopped", "yellow"),
    "paused": ("held", "yellow"),
    "cancelled": ("cancelled", "dim"), "queued": ("open", "dim"),
}  # fmt: skip
"""Status -> name of the glyph, and its style."""


class CardOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options for showing a feature."""

    glyphs: Glyphs
    width: int
    """Width of a line in cells."""
    now_us: int


def feature_card(feature: FeatureView, title: str, phases: Sequence[str], output_lines: Sequence[str], options: CardOptions) -> list[Line]:
    """Return name and figures, the phases with the duration of the current one, and recent output of the agent."""
    call, glyphs, width_cells, now_us = _current_call(feature), options.glyphs, options.width, options.now_us
    calling = call is not None and call.status == "open"
    spinner = glyphs.spinner[now_us // SPINNER_TICK_US % len(glyphs.spinner)] if calling else glyphs.current
    name = Span(f"{spinner} ", "cyan"), Span(feature.feature, "bold"), Span(f"  {_short_title(title)}", "dim")
    attempt = Span(_attempt_text(feature, call, now_us), "cyan")
    timeline = _timeline(feature, phases, glyphs, width_cells - 4 - display_width(attempt.text))
    return [
        align_both_sides(name, _figures(feature), width_cells, LEFT_MIN),
        align_both_sides((Span("  "), *timeline), (attempt,), width_cells, width_cells),
        *((Span(f"  {glyphs.quote} {text}", "dim"),) for text in output_lines),
    ]


def feature_row(feature: FeatureView, title: str, options: CardOptions) -> Line:
    """Return the status of a feature that is not working, with the reason."""
    glyph, style = STATUS_STYLES[feature.status]
    reason = _status_reason(feature, options.now_us)
    left = (
        Span(f"{getattr(options.glyphs, glyph)} ", style),
        Span(feature.feature, "bold"),
        Span(f"  {feature.status}{': ' if reason else ''}{reason}", style),
        Span(f"  {_short_title(title)}" if feature.status in ("queued", "delivered") else "", "dim"),
    )
    return align_both_sides(left, _figures(feature), options.width, LEFT_MIN)


def _short_title(title: str) -> str:
    return single_line(title[:TITLE_MAX])


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
        return f"{unit}{role}attempt {call.attempt}  {_elapsed(call.requested_us, now_us)}"
    state = "rejected" if call.rejections else "checking" if call.status == "replied" else call.status
    return f"{unit}{role}attempt {call.attempt}  {state}"


def _figures(feature: FeatureView) -> Line:
    figures = []
    if feature.input_tokens is not None or feature.output_tokens is not None:
        figures.append(f"{compact_number(feature.input_tokens)} in, {compact_number(feature.output_tokens)} out")
    if feature.computed_nanousd is not None:
        figures.append(rounded_usd(feature.computed_nanousd) or "")
    return (Span("  ".join(figures), "dim"),) if figures else ()


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
