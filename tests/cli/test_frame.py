"""The picture of a run: what it shows at every size, and that nothing breaks it."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_cli.live.frame import SPINNER, STATUS_STYLES, FrameContext, fit, render_frame
from mz_cli.terminal.text import STYLES, Line, display_width, plain_text, wrap
from mz_engine.decoding.quantity import Usd
from mz_engine.model.config import Budget, Config
from mz_engine.model.pins import Pins
from mz_events.catalog.feature import QuestionKind
from mz_events.catalog.run import Hold
from mz_projections.views.model import CallView, FeatureStatus, FeatureView, PhaseView, RunView
from mz_projections.views.run import run_view
from mz_qa.simulation import trial
from syrupy.assertion import SnapshotAssertion

from tests.cli.stored_run import RUN, START_US, StoredRun
from tests.support.views import CALL, question

HOSTILE = "\x1b[31mred\x1b[0m\nsecond \u202e🎉" + "x" * 10_000
NOW_US = START_US + 100_000_000
PHASES = ("prd", "techspec", "tasks", "code", "tests", "pr")
PINS = trial.pins(Config(agent="claude-code", autonomy="checkpoint", budget=Budget(run_nanousd=Usd(5_000_000_000))))


def pins_of(*phases: str) -> Pins:
    phase = PINS.pipeline.phases[0]
    renamed = tuple(replace(phase, phase=name) for name in phases)
    return replace(PINS, pipeline=replace(PINS.pipeline, phases=renamed))


PLANNED = pins_of(*PHASES)


def scenery(
    width: int = 80, height: int = 24, text: str = "Let people log in", pins: Pins | None = PLANNED
) -> FrameContext:
    return FrameContext(
        now_us=NOW_US,
        width=width,
        height=height,
        pins=pins,
        title=lambda _: text,
        question=lambda _: text,
        recent_output=lambda _: (text, text),
        log=("12:00:00 prd begins", "12:00:01 prd is done"),
        footer="Ctrl-C: come to rest",
    )


def texts(lines: tuple[Line, ...]) -> list[str]:
    return [plain_text(line).rstrip() for line in lines]


def call(phase: str = "code", attempt: int = 2) -> CallView:
    return replace(CALL, phase=phase, attempt=attempt, run=RUN, requested_at_us=NOW_US - 12_000_000)


def at_work(name: str = "login") -> FeatureView:
    done = PhaseView(phase="prd", iteration=1, started_us=START_US, state="completed")
    phase = PhaseView(phase="code", iteration=1, started_us=START_US, units=("a", "b"), units_done=("a",))
    return FeatureView(feature=name, status="working", phases=(done, phase), calls=(call(),))


def one_of_each() -> RunView:
    requested = question(QuestionKind.APPROVAL, "size", "tasks", since_us=START_US)
    features = (
        FeatureView(feature="first", status="delivered"),
        at_work(),
        FeatureView(feature="audit", status="waiting", question=requested),
        FeatureView(feature="export", status="held", hold=Hold.TIMER, until_us=NOW_US),
        FeatureView(feature="after", status="held", blocked_by="audit"),
        FeatureView(feature="broken", status="failed", code="rejected"),
        FeatureView(feature="halted", status="interrupted"),
        FeatureView(feature="unwanted", status="cancelled"),
        FeatureView(feature="later", depends_on=("audit", "export")),
        FeatureView(feature="past", status="skipped"),
    )
    return RunView(run=RUN, pipeline="monozukuri", base="main", started_us=START_US, clock_us=START_US,
                   charged_nanousd=1_250_000_000, features=features)  # fmt: skip


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (100, 40), (60, 12), (20, 8)])
def test_the_picture(columns: int, lines: int, snapshot: SnapshotAssertion) -> None:
    assert texts(render_frame(one_of_each(), scenery(columns, lines))) == snapshot


def test_the_picture_of_a_story(stored_run: StoredRun, snapshot: SnapshotAssertion) -> None:
    view = run_view(RUN, [item for item in stored_run.recorded if item.position < 30])
    assert texts(render_frame(view, scenery(pins=pins_of("prd", "code", "pr")))) == snapshot


def test_every_state_has_a_mark_of_its_own_shape() -> None:
    """Meaning never lies in a colour alone."""
    glyphs = {status: glyph for status, (glyph, _) in STATUS_STYLES.items()}
    states = ("waiting", "working", "held", "failed", "interrupted", "queued", "delivered", "cancelled")
    assert len({glyphs[status] for status in states}) == len(states)
    assert set(glyphs) == set(get_args(FeatureStatus))
    assert all(display_width(glyph) == 1 for glyph in (*glyphs.values(), *SPINNER))


TEXTS = st.text(max_size=30) | st.just(HOSTILE) | st.just("漢字🎉" * 50)
STATUSES = st.sampled_from(["working", "waiting", "queued", "delivered", "held", "failed"])


@settings(max_examples=50)
@given(st.integers(1, 120), st.integers(1, 40), st.lists(STATUSES, max_size=30), TEXTS)
@pytest.mark.slow
def test_the_picture_fits(columns: int, lines: int, statuses: list[str], text: str) -> None:
    features = tuple(replace(at_work(f"f{number}"), status=status) for number, status in enumerate(statuses))
    shown = render_frame(RunView(run=RUN, started_us=5, features=features), scenery(columns, lines, text))
    assert len(shown) <= lines
    assert all(display_width(plain_text(line)) <= columns for line in shown)
    assert not any(character in plain_text(line) for line in shown for character in "\x1b\n\t\u202e")
    assert all(span.style in STYLES for line in shown for span in line)


def test_what_has_no_room_is_counted_and_questions_come_first() -> None:
    many = [at_work(f"f{number}") for number in range(20)]
    feature_view = FeatureView(feature="asks", status="waiting")
    view = RunView(run=RUN, features=(*many, feature_view))
    shown = texts(render_frame(view, scenery(height=10)))
    assert any("asks" in line for line in shown)
    assert any(line.startswith("… and 15 working") for line in shown), shown
    assert len(shown) == 10


def test_features_keep_their_places() -> None:
    shown = texts(render_frame(one_of_each(), scenery(80, 40)))
    places = [next(n for n, line in enumerate(shown) if f" {view.feature} " in line) for view in one_of_each().features]
    assert places == sorted(places)


def test_the_bar_grows_with_phases() -> None:
    done = tuple(PhaseView(phase=phase, iteration=1, started_us=1, state="completed") for phase in PHASES[:3])
    half = RunView(run=RUN, features=(FeatureView(feature="a", status="working", phases=done),))
    bar = plain_text(render_frame(half, scenery())[1]).split("  ")[0]
    assert bar == "━" * 15 + "─" * 15


def test_a_card_has_the_phases_of_its_kind() -> None:
    phases = [replace(phase, kind=phase.phase[0]) for phase in pins_of("plan", "cut", "check", "merge").pipeline.phases]
    pins = replace(PINS, pipeline=replace(PINS.pipeline, phases=tuple(phases)))
    current = PhaseView(phase="cut", iteration=1, started_us=1)
    feature = FeatureView(feature="a", kind="c", status="working", phases=(current,))
    shown = texts(render_frame(RunView(run=RUN, features=(feature,)), replace(scenery(), pins=pins)))
    (card,) = (line for line in shown if "cut" in line)
    assert card.split("  ")[1:3] == ["▸ cut", "· check"]
    assert "plan" not in card
    assert "merge" not in card


def test_without_a_budget_unknown_money_is_said() -> None:
    priced = replace(call(), computed_nanousd=500_000_000, status="replied")
    unpriced = replace(call(), status="replied", priced=True)
    feature = FeatureView(feature="a", status="working", calls=(priced, unpriced))
    shown = texts(render_frame(RunView(run=RUN, features=(feature,)), scenery(pins=None)))
    assert "$0.5000 + 1 unpriced" in shown[1]
    assert "$0.0000 of $5.00" in texts(render_frame(RunView(run=RUN), scenery()))[1]


@pytest.mark.slow
def test_a_run_with_thousands_of_features_is_drawn() -> None:
    calls = tuple(replace(call(phase), computed_nanousd=5, status="replied") for phase in PHASES)
    done = FeatureView(feature="f", status="delivered", calls=calls)
    features = tuple(replace(done, feature=f"f{number}") for number in range(5000))
    view = RunView(run=RUN, features=(*features, at_work()))
    shown = texts(render_frame(view, scenery()))
    assert any("delivered" in line and "… and 49" in line for line in shown), shown


@given(TEXTS, st.integers(0, 60))
@pytest.mark.slow
def test_text_fits(text: str, cells: int) -> None:
    assert display_width(fit(text, cells)) <= cells
    assert fit(text, cells) == text or cells == 0 or fit(text, cells).endswith("…")


@given(st.text(alphabet="ab 漢🎉", max_size=60), st.integers(2, 20))
def test_wrapping_loses_nothing(text: str, cells: int) -> None:
    lines = wrap(text, cells)
    assert all(display_width(line) <= cells or " " not in line for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_long_words_stay_whole() -> None:
    assert wrap("an abcdefg x", 4) == ["an", "abcdefg", "x"]
