"""What stood on a terminal's screen, frame by frame, as one animated SVG.

Frames lie one below the other, and an animation moves them through a window. Whoever wants no motion, and whatever
cannot animate, shows one frame. Text is set cell by cell as far as fonts differ: marks stand alone, rules are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple
from xml.sax.saxutils import escape

CELL = 8.4, 18.0
"""Width and height, in pixels."""
BASE = 13.5
"""From the top of a row to the line that letters stand on."""
PADDING = 16.0
BAR = 34.0
"""Height of the window's title bar."""
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
INK = {
    "default": "#d8dee9", "brightblack": "#8792a5", "green": "#8fd18b", "cyan": "#7cc7d9", "brown": "#e5c07b",
    "red": "#f08a8a",
}  # fmt: skip
"""By the emulator's names of colours; `brown` is what terminals show as yellow."""
PAPER, FRAME, TITLE = "#1b2029", "#3a4252", "#8792a5"
RULES = {"─": 1.2, "━": 3.0}
"""Thickness, in pixels."""


class Cell(NamedTuple):
    text: str
    ink: str
    bold: bool


Row = tuple[Cell, ...]


class Frame(NamedTuple):
    rows: tuple[Row, ...]
    seconds: float
    """For how long it is shown."""


def film(frames: Sequence[Frame], still: int, title: str, description: str) -> str:
    """The SVG. `still`: the frame that is shown where nothing moves."""
    columns, lines = len(frames[0].rows[0]), len(frames[0].rows)
    width, height = columns * CELL[0] + 2 * PADDING, lines * CELL[1] + 2 * PADDING + BAR
    rows = list(dict.fromkeys(row for frame in frames for row in frame.rows))
    number = {row: count for count, row in enumerate(rows)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" '
        f'height="{_n(height)}" role="img" aria-labelledby="title description">',
        f'<title id="title">{escape(title)}</title><desc id="description">{escape(description)}</desc>',
        f"<style>{_style(frames, still, lines * CELL[1])}</style>",
        _window(width, height, title),
        "<defs>",
        *(f'<g id="r{index}">{"".join(_row(row))}</g>' for index, row in enumerate(rows) if _marked(row)),
        "</defs>",
        f'<svg x="{_n(PADDING)}" y="{_n(PADDING + BAR)}" width="{_n(columns * CELL[0])}" '
        f'height="{_n(lines * CELL[1])}">',
        '<g class="film">',
    ]
    for position, frame in enumerate(frames):
        top = position * lines * CELL[1]
        parts += [
            f'<use href="#r{number[row]}" y="{_n(top + at * CELL[1])}"/>'
            for at, row in enumerate(frame.rows)
            if _marked(row)
        ]
    return "\n".join([*parts, "</g></svg></svg>"]) + "\n"


def _style(frames: Sequence[Frame], still: int, height: float) -> str:
    total = sum(frame.seconds for frame in frames)
    steps, begun = [], 0.0
    for index, frame in enumerate(frames):
        steps.append(f"{_n(100 * begun / total)}%{{transform:translateY({_n(-index * height)}px)}}")
        begun += frame.seconds
    inks = "".join(f".{name}{{fill:{colour}}}" for name, colour in INK.items())
    return (
        f"text{{font:14px {FONT};white-space:pre}}.b{{font-weight:700}}{inks}"
        f".film{{transform:translateY({_n(-still * height)}px);animation:film {_n(total)}s step-end infinite}}"
        f"@keyframes film{{{''.join(steps)}}}"
        "@media (prefers-reduced-motion:reduce){.film{animation:none}}"
    )


def _window(width: float, height: float, title: str) -> str:
    frame = f'width="{_n(width - 1)}" height="{_n(height - 1)}" rx="9" fill="{PAPER}" stroke="{FRAME}"'
    dots = "".join(
        f'<circle cx="{_n(PADDING + 5 + 18 * index)}" cy="{_n(BAR / 2 + 3)}" r="5.5" fill="{colour}"/>'
        for index, colour in enumerate(("#e5707a", "#e5c07b", "#8fd18b"))
    )
    text = f'x="{_n(width / 2)}" y="{_n(BAR / 2 + 8)}" text-anchor="middle" fill="{TITLE}"'
    return f'<rect x=".5" y=".5" {frame}/>{dots}<text {text}>{escape(title)}</text>'


def _marked(row: Row) -> bool:
    return any(cell.text.strip() for cell in row)


def _row(row: Row) -> Iterator[str]:
    """Runs of cells that look alike; each mark beyond ASCII is a run of its own, except rules, which are drawn."""
    placed = [(at, cell) for at, cell in enumerate(row) if cell.text]
    for (kind, ink, bold), group in groupby(placed, key=lambda item: (_kind(item), item[1].ink, item[1].bold)):
        cells = list(group)
        text = "".join(cell.text for _, cell in cells).rstrip()
        if not text:
            continue
        left, lead = cells[0][0], len(text) - len(text.lstrip())
        look = f'class="{ink}{" b" if bold else ""}"'
        if kind in RULES:
            thick = RULES[str(kind)]
            yield (
                f'<rect {look} x="{_n(left * CELL[0])}" y="{_n(CELL[1] / 2 - thick / 2)}" '
                f'width="{_n(len(text) * CELL[0])}" height="{_n(thick)}"/>'
            )
            continue
        text = text.lstrip()
        fixed = f' textLength="{_n(len(text) * CELL[0])}"' if text.isascii() and len(text) > 1 else ""
        yield f'<text {look} x="{_n((left + lead) * CELL[0])}" y="{BASE}"{fixed}>{escape(text)}</text>'


def _kind(placed: tuple[int, Cell]) -> object:
    """What may stand in one run: ASCII; one kind of rule; any other mark alone, told apart by its place."""
    at, cell = placed
    if cell.text.isascii():
        return ""
    return cell.text if cell.text in RULES else at


def _n(number: float) -> str:
    """A number with as few characters as it takes."""
    return f"{number:.2f}".rstrip("0").rstrip(".")
