"""Pure: one picture of a run at work, as lines of text for a given size. A terminal shows it over and over."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from mz_events.names import Digest
from mz_projections.views import FeatureView, RunView

from mz_cli.render.text import clean, compact, duration, line, money, shorten

LOG_LINES = 5
WORDS_MAX = 200
ENDED = ("delivered", "merged", "tagged", "failed", "cancelled", "skipped")


class Glyphs(msgspec.Struct, frozen=True):
    """States are told apart by shape, never by colour alone."""

    done: str
    current: str
    open: str
    said: str
    rule: str


UNICODE = Glyphs("✓", "▸", "·", "»", "─")
ASCII = Glyphs("x", ">", ".", ">", "-")


class Line(msgspec.Struct, frozen=True):
    text: str
    style: str = ""
    """As rich names it; empty: plain."""


class Scenery(msgspec.Struct, frozen=True, kw_only=True):
    """What the picture needs besides the run."""

    now_us: int
    width: int
    height: int
    glyphs: Glyphs
    planned: tuple[str, ...]
    """Phases of the pipeline, in order."""
    words: Callable[[Digest | None], str]
    log: Sequence[str]
    """What was said last, the newest last."""


def frame(view: RunView, scenery: Scenery) -> tuple[Line, ...]:
    """Head, features at work, those that wait, counts, last words; never more lines than the height."""
    working = [feature for feature in view.features if feature.status == "working"]
    stuck = [feature for feature in view.features if feature.status in ("waiting", "held", "stopped", "failed")]
    head = [_head(view, scenery), Line(scenery.glyphs.rule * scenery.width, "dim")]
    tail = [Line(text, "dim") for text in scenery.log[-LOG_LINES:]]
    room = max(scenery.height - len(head) - len(tail) - 1, 1)
    cards = [card for feature in working for card in _card(feature, scenery)]
    cards += [Line(_stuck(feature), "yellow") for feature in stuck]
    if len(cards) > room:
        cards = [*cards[: room - 1], Line("...", "dim")]
    lines = [*head, *cards, Line(_counts(view), "dim"), *tail][: max(scenery.height, 1)]
    return tuple(Line(shorten(clean(each.text).replace("\n", " "), scenery.width), each.style) for each in lines)


def _head(view: RunView, scenery: Scenery) -> Line:
    ended = sum(feature.status in ENDED for feature in view.features)
    spent = [feature.computed_nanousd for feature in view.features if feature.computed_nanousd is not None]
    parts = [
        f"{ended}/{len(view.features)}",
        *([_elapsed(view.started_us, scenery.now_us)] if view.started_us is not None else []),
        *([money(sum(spent)) or ""] if spent else []),
        f"{view.pipeline} on {view.base}",
        f"run {view.run}",
    ]
    return Line("  ".join(parts), "bold")


def _card(feature: FeatureView, scenery: Scenery) -> list[Line]:
    """Where a feature stands: name and numbers, its phases, what its agent said last."""
    call = feature.calls[-1] if feature.calls else None
    about = [feature.feature]
    if call is not None and call.phase == feature.phase:
        about.append(f"attempt {call.attempt}" + (f" {call.unit}" if call.unit else ""))
        about.append(_elapsed(call.asked_us, scenery.now_us) if call.outcome == "open" else call.outcome)
    if feature.input_tokens is not None:
        about.append(f"{compact(feature.input_tokens)} in, {compact(feature.output_tokens)} out")
    if feature.computed_nanousd is not None:
        about.append(money(feature.computed_nanousd) or "")
    lines = [Line("  ".join(about), "cyan"), Line(f"  {_timeline(feature, scenery)}")]
    said = next((line(scenery.words(call.text)) for call in reversed(feature.calls) if call.text), "")
    return [*lines, Line(f"  {scenery.glyphs.said} {shorten(said, WORDS_MAX)}", "dim")] if said else lines


def _timeline(feature: FeatureView, scenery: Scenery) -> str:
    done, glyphs = feature.completed, scenery.glyphs
    names = scenery.planned or tuple(dict.fromkeys(phase.phase for phase in feature.phases))
    marks = []
    for name in names:
        mark = glyphs.current if name == feature.phase and name not in done else glyphs.open
        marks.append(f"{glyphs.done if name in done else mark} {name}{_units(feature, name)}")
    return "  ".join(marks)


def _units(feature: FeatureView, name: str) -> str:
    phase = feature.phases[-1] if feature.phases else None
    if phase is None or phase.phase != name or not phase.units:
        return ""
    return f" {len(phase.units_done)}/{len(phase.units)}"


def _stuck(feature: FeatureView) -> str:
    asked = feature.waiting
    why = asked.ask.value if asked else (feature.hold.value if feature.hold else feature.code)
    return f"{feature.feature}  {feature.status}" + (f" ({why})" if why else "")


def _counts(view: RunView) -> str:
    found: dict[str, int] = {}
    for feature in view.features:
        found[feature.status] = found.get(feature.status, 0) + 1
    return "  ".join(f"{number} {status}" for status, number in found.items())


def _elapsed(since_us: int, now_us: int) -> str:
    return duration(max(now_us - since_us, 0) / 1_000_000)
