"""What a prompt is made of: files for context, and artifacts of units."""

from __future__ import annotations

import contextlib
from hashlib import sha256

import pytest
from msgspec.structs import replace
from mz_engine.effects.prompt import LEFT_OUT_READ_MAX, context_files, input_texts
from mz_engine.effects.steps import Do, Emit, StepContext, Steps, T
from mz_engine.effects.validation import artifact_texts, check_changes
from mz_engine.model.config import Config
from mz_engine.ports import Workspace
from mz_events.catalog.feature import PhaseCompleted, PhaseStarted, UnitCompleted, UnitStarted
from mz_events.catalog.validation import ArtifactParsed, Change, ChangesChecked
from mz_events.names import BUILDER, Digest, Path
from mz_qa.simulation import trial

from tests.support.steps import BASE, OPENED, accepted, committed, planned, ref, replied, state_after


def answered(steps: Steps[T], replies: dict[tuple[object, ...], object], calls: list[str] | None = None) -> T:
    """Drives steps with replies by their last arguments; the first is the default."""
    try:
        step = next(steps)
        while True:
            assert isinstance(step, Do)
            if calls is not None:
                calls.append(str(step.arguments[-1]))
            step = steps.send(replies.get(step.arguments[-1:]))
    except StopIteration as end:
        value: T = end.value
        return value


def test_a_file_that_is_too_big_is_left_out_and_those_after_it_are_not() -> None:
    files = {"a.md": b"a" * 30, "big.md": b"b" * 100, "c.md": b"c" * 10, "d.md": b"d"}
    replies: dict[tuple[object, ...], object] = {(name,): text for name, text in files.items()}
    replies[(BASE,)] = tuple(Path(name) for name in files)
    shown, left_out = answered(context_files(BASE, ["*.md"], 40), replies)
    assert [(file.path, file.text) for file in shown] == [("a.md", "a" * 30), ("c.md", "c" * 10)]
    assert left_out == {"big.md": 25, "d.md": 0}


def test_not_every_file_of_a_big_repository_is_read() -> None:
    paths = tuple(Path(f"{number}.md") for number in range(1000))
    replies: dict[tuple[object, ...], object] = {(path,): b"text" for path in paths}
    calls: list[str] = []
    shown, left_out = answered(context_files(BASE, ["*.md"], 0), {**replies, (BASE,): paths}, calls)
    assert (shown, len(left_out), len(calls)) == ((), 1000, 1 + LEFT_OUT_READ_MAX)


UNIT_IDS = ("u1", "u2")


def digest(text: str) -> Digest:
    return Digest(sha256(text.encode()).hexdigest())


def built(*texts: str) -> StepContext:
    """In the trial's last phase, after a unit for each text wrote its note."""
    units = UNIT_IDS[: len(texts)]
    events = [*planned(), PhaseStarted(phase="build", iteration=1, units=units)]
    for unit, text in zip(units, texts, strict=True):
        reply = accepted(ref("build", unit=unit), note=())
        events.append(UnitStarted(phase="build", unit=unit, iteration=1))
        events += (replace(e, digest=digest(text)) if isinstance(e, ArtifactParsed) else e for e in reply)
        events += *committed("build", unit), UnitCompleted(phase="build", unit=unit)
    events += PhaseCompleted(phase="build"), PhaseStarted(phase="ship", iteration=1)
    state = state_after(*events, UnitStarted(phase="ship", unit="", iteration=1))
    return StepContext(run="r1", feature="a", state=state, pins=trial.pins(), base_branch="main")


@pytest.mark.parametrize(
    ("texts", "note"), [(("First.",), "First."), (("First.", "Second."), "[unit u1]\n\nFirst.\n\n[unit u2]\n\nSecond.")]
)
def test_a_phase_gets_the_artifacts_of_all_units(texts: tuple[str, ...], note: str) -> None:
    context = built(*texts)
    replies: dict[tuple[object, ...], object] = {(digest(text),): text.encode() for text in texts}
    plan = context.phase_state.progress.artifacts["plan"].digest
    replies[(plan,)] = b"the plan"
    assert answered(input_texts(context, BUILDER), replies) == {"plan": "the plan", "note": note}
    of_units = {f"note/{unit}": text for unit, text in zip(UNIT_IDS, texts, strict=False)}
    assert answered(artifact_texts(context), replies) == {"plan": "the plan", "note": texts[-1], **of_units}


@pytest.mark.parametrize(
    ("scope", "reverted"), [(None, ["README.md"]), ("packages/api", ["README.md", "packages/api.md", "packages/web/b"])]
)
def test_changes_outside_of_the_scope_are_reverted(scope: str | None, reverted: list[str]) -> None:
    """Artifacts are excepted, wherever the pipeline puts them."""
    pins = trial.pins(config=Config(scope=scope, denied_paths=("*.pem",)))
    phases = tuple(replace(phase, writable=("packages/",)) for phase in pins.pipeline.phases)
    pins = replace(pins, pipeline=replace(pins.pipeline, phases=phases))
    state = state_after(
        *OPENED, PhaseStarted(phase="plan", iteration=1), UnitStarted(phase="plan", unit="", iteration=1),
        *replied(ref("plan")),
    )  # fmt: skip
    context = StepContext(run="r1", feature="a", state=state, pins=pins, base_branch="main")
    paths = ["README.md", "packages/api.md", "packages/api/a", "packages/web/b", "plans/a.json"]
    steps, checked = check_changes(context), None
    reply: object = None
    with contextlib.suppress(StopIteration):
        while True:
            step = steps.send(reply)
            reply = None
            if isinstance(step, Do) and step.method is Workspace.changes:
                reply = [Change(path=Path(path), kind="added") for path in paths]
            elif isinstance(step, Do) and step.method is Workspace.revert_paths:
                reply = BASE
            elif isinstance(step, Do) and step.method is Workspace.ensure:
                reply = False
            elif isinstance(step, Emit):
                (checked,) = step.events
    assert isinstance(checked, ChangesChecked)
    assert [(change.kind, change.path) for change in checked.forbidden_changes] == [("outside", p) for p in reverted]
