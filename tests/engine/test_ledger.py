"""The ledger of a prompt: its parts add up to it, and what may give way does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_engine.effects.prompt import ComposedPrompt, SessionPlan, compose_prompt, gather_material
from mz_engine.effects.steps import Do, StepContext, Steps
from mz_engine.model.config import Config, Limits
from mz_engine.model.pipeline import PhaseContext
from mz_engine.ports import Memory, Secrets, SelectedLearning, Selection, Workspace
from mz_engine.prompts.ledger import bullets, covered_tokens, fitting_failures, prompt_parts, tokens_of
from mz_engine.prompts.render import CommandData, ContextFile, PromptData, ReworkData, UnitData, load_templates, render
from mz_events.catalog.call import ContextComposed, ContextPart
from mz_events.catalog.feature import PhaseStarted, UnitStarted
from mz_events.names import BUILDER
from mz_events.store import Blobs
from mz_qa.simulation import trial

from tests.support.examples import examples
from tests.support.steps import OPENED, state_after

LONG = "A sentence that is long enough to be told apart."
DATA = PromptData(
    feature="f", title="Count", body=LONG, phase="code", role=BUILDER, inputs={}, outputs=(), prepared=(), gates=(),
    may_change=(), denied=(), limits=Limits(), interactive=True, rework=None, notes=(), context=(), unit=None,
)  # fmt: skip
PARTS = {
    "note": replace(DATA, notes=(f"{LONG} Once.\n\nAnd more.", "short")),
    "input": replace(DATA, inputs={"plan": f"# Plan\n\n{LONG}\n"}),
    "command": replace(DATA, prepared=(CommandData(name="test", command="make", passed=False, excerpt=LONG * 2),)),
    "unit": replace(DATA, unit=UnitData(id="u1", files=("a_module/first.py", "a_module/second.py"))),
    "rework": replace(DATA, rework=ReworkData(messages=(f"{LONG} It:\n  printed this in two\n  lines",), artifacts={})),
    "failures": replace(DATA, known_failures=("tests/test_a.py::test_one", "tests/test_a.py::test_two")),
    "learning": replace(DATA, learnings=(SelectedLearning(id="L-1", text=f"{LONG} Long ago."),)),
    "file": replace(DATA, context=(ContextFile(path="README.md", text=f"# Read\n\n{LONG}"),)),
}


@pytest.mark.parametrize("source", PARTS)
def test_each_source_has_its_tokens(source: str) -> None:
    prompt = render(load_templates(), "code.md.j2", PARTS[source])
    parts = prompt_parts(prompt, PARTS[source], ())
    assert [part.source for part in parts] == ["instructions", "request", source]
    assert parts[1].tokens == tokens_of(f"> {LONG}"[2:])
    assert sum(part.tokens for part in parts) == tokens_of(prompt)


@given(
    st.builds(
        PromptData,
        **{name: st.just(getattr(DATA, name)) for name in DATA.__struct_fields__ if name not in {"inputs", "notes"}},
        inputs=st.dictionaries(st.text(min_size=1), st.text()),
        notes=st.lists(st.text()).map(tuple),
    )
)
@examples(30)
def test_the_parts_add_up_to_the_prompt(data: PromptData) -> None:
    prompt = render(load_templates(), "code.md.j2", data)
    parts = prompt_parts(prompt, data, [ContextPart(source="file", name="a", tokens=9, left_out=True)])
    assert sum(part.tokens for part in parts if not part.left_out) == tokens_of(prompt)
    assert all(part.tokens >= 0 for part in parts)


def test_a_text_that_two_parts_have_counts_where_it_is_shown() -> None:
    data = replace(DATA, inputs={"plan": LONG}, notes=(LONG,), body="x")
    parts = prompt_parts(render({"a.j2": "{{ inputs.plan }}\n"}, "a.j2", data), data, ())
    assert covered_tokens(parts) == tokens_of(LONG)


def test_failures_that_fit() -> None:
    names = ("one", "two", "three")
    length = len(bullets(names[:2])) + 1
    assert [len(fitting_failures(names, n)) for n in (-1, length - 1, length, 1000)] == [0, 1, 2, 3]
    many = tuple(map(str, range(500)))
    assert fitting_failures(many, 10**6) == many, "those that are only counted need no room"


FILES = {"README.md": b"r" * 400, "big.md": b"b" * 40_000}
FAILURES = b'{"check": ["tests/test_one", "tests/test_two"]}'


def all_steps(context: StepContext) -> Steps[ComposedPrompt]:
    material = yield from gather_material(context, BUILDER, "key")
    return (yield from compose_prompt(context, context.phase.prompt or "", SessionPlan(), material))


def composed(use: PhaseContext, failures: bytes | None = None) -> ContextComposed:
    """The ledger of the trial's first prompt."""
    pins = trial.pins(config=Config())
    phases = tuple(replace(phase, context=use) for phase in pins.pipeline.phases)
    pins = replace(pins, pipeline=replace(pins.pipeline, phases=phases))
    state = state_after(
        *OPENED, PhaseStarted(phase="plan", iteration=1), UnitStarted(phase="plan", unit="", iteration=1)
    )
    context = StepContext(run="r1", feature="a", state=state, pins=pins, base_branch="main")
    answers: Mapping[object, object] = {
        Workspace.paths: tuple(FILES), Blobs.get: LONG.encode(), Memory.select: Selection(),
    }  # fmt: skip
    steps, reply = all_steps(context), None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return end.value.ledger("key", end.value.text, use.tokens_max)  # type: ignore[no-any-return]
        assert isinstance(step, Do)
        last = step.arguments[-1]
        reply = last if step.method is Secrets.redact else answers.get(step.method) or FILES[last]


@pytest.mark.parametrize(
    ("use", "left_out", "over"),
    [
        (PhaseContext(include=("*.md",)), ["big.md"], 0),
        (PhaseContext(include=("*.md",), tokens_max=20_000), [], 0),
        (PhaseContext(include=("*.md",), tokens_max=130), ["big.md"], 0),
        (PhaseContext(include=("*.md",), tokens_max=100), ["README.md", "big.md"], 0),
        (PhaseContext(include=("*.md",), tokens_max=1), ["README.md", "big.md"], 23),
        (PhaseContext(include=("*.md",), token_budget=99), ["README.md", "big.md"], 0),
    ],
    ids=["files alone", "all fits", "one file", "none", "over", "pinned by an older mz"],
)
def test_files_give_way_and_the_request_does_not(use: PhaseContext, left_out: list[str], over: int) -> None:
    event = composed(use)
    assert [part.name for part in event.parts if part.left_out] == left_out
    assert "request" in {part.source for part in event.parts}
    assert (event.over, event.tokens_max) == (over, use.tokens_max)
