"""What the memory is worth, measured with a scripted model: `python -m tools.bench.learnings`.

Two mistakes are easy in the simulated project. The model makes the first one unless its prompt tells of it; the second
one always, until a reply was rejected for it. So the first learning helps and the second does not. Runs of the same
size are driven, with the memory and without.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace
from mz_engine.model.pins import Pins
from mz_engine.ports import CallSpec
from mz_engine.prompts.render import LATER_PARTIALS, load_templates
from mz_events.catalog.call import AgentRequested, ContextComposed
from mz_events.names import BUILDER, RunId, is_of_run
from mz_projections.memory.evidence import fold_memory
from mz_projections.memory.learnings import Learning, MemoryRules, learnings
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply, World

RUNS, FEATURES = 3, 6
LAYOUT, NUMBERS = "KeyError: 'total'", "the line is too long"
"""Output of the gates after the first and the second mistake."""


class RunResult(msgspec.Struct, frozen=True):
    """Counts of one run."""

    run: str
    calls: int
    """Of builders."""
    reworks: int
    """Calls after the first of their cell."""
    shown: int
    """Learnings that prompts showed."""


class Measurement(msgspec.Struct, frozen=True):
    runs: tuple[RunResult, ...]
    learnings: tuple[Learning, ...]


def script(spec: CallSpec, files: Files) -> ScriptedReply:
    """The model; of its earlier work it keeps what was right."""
    feature, phase, unit = spec.worktree.feature, *spec.key.split("/")[2:4]
    if phase == "plan":
        listed = [{"id": "u1", "files": [f"{feature}.txt"]}]
        return ScriptedReply(files={f"plans/{feature}.json": json.dumps(listed)})
    if not spec.key.endswith(BUILDER):
        return ScriptedReply(text=json.dumps({"severity": "NONE", "cause": "none", "findings": []}))
    if phase == "build":
        name, rejected = f"{feature}.txt", spec.prompt.partition("MEND")[2].partition("## ")[0]
        knows = LAYOUT in spec.prompt or b"no total" not in files.get(name, b"no total")
        content = f"{'' if knows else 'no '}total {'short' if NUMBERS in rejected else 'long'}"
        return ScriptedReply(files={name: content, f"notes/{feature}.{unit}.md": f"{unit} is done here"})
    return ScriptedReply(files={f"letters/{feature}.md": f"A letter about {feature}"})


def commands(command: str, files: Files) -> tuple[int, str]:
    mistakes = {"check": (b"no total", LAYOUT), "final": (b"long", NUMBERS)}
    content, output = mistakes[command]
    failed = any(content in data for name, data in files.items() if "/" not in name)
    return (1, f"{output}\n1 failed, 2 passed") if failed else (0, "3 passed")


def memory_pins(tokens: int) -> Pins:
    """Return pins with this many tokens of learnings in each phase; 0 switches the memory off."""
    pins, name = trial.pins(), LATER_PARTIALS["learnings"]
    phases = tuple(
        replace(phase, context=replace(phase.context, learnings=tokens), deliver=()) for phase in pins.pipeline.phases
    )
    templates = pins.templates | {name: load_templates()[name]}
    return replace(pins, pipeline=replace(pins.pipeline, phases=phases), templates=templates)


def world_after(tokens: int, runs: int = RUNS, features: int = FEATURES) -> World:
    """Drive runs one after the other in one world, each with new features."""
    world, pins = World(trial.FILES, script, commands), memory_pins(tokens)
    for number in range(1, runs + 1):
        run = RunId(f"r{number}")
        trial.begin(world, pins, {f"f{number}{at}": () for at in range(features)}, run=run)
        drive_run(world, run, pins, seed=number)
    return world


def measure(tokens: int) -> Measurement:
    """Drive runs and count what they needed."""
    world, results = world_after(tokens), list[RunResult]()
    for run in (f"r{number}" for number in range(1, RUNS + 1)):
        events = [recorded.event for recorded in world.store.log if is_of_run(recorded.stream, run)]
        builders = [e.ref for e in events if isinstance(e, AgentRequested) and e.ref.role == BUILDER]
        shown = sum(len(event.learnings) for event in events if isinstance(event, ContextComposed))
        results.append(RunResult(run, len(builders), sum(ref.attempt > 1 for ref in builders), shown))
    rows = fold_memory(world.store.read_all())
    return Measurement(tuple(results), learnings(rows, MemoryRules(), world.now_us))


def lines() -> Iterator[str]:
    """Yield the measurements as text."""
    for title, tokens in (("without memory", 0), ("with memory", 300)):
        measurement = measure(tokens)
        yield title
        for run in measurement.runs:
            yield f"  {run.run}: {FEATURES} features, {run.calls} calls, {run.reworks} reworks, {run.shown} shown"
        for learning in measurement.learnings:
            share = "unknown" if learning.confidence is None else f"{learning.confidence:.2f}"
            gate, uses = learning.key.split()[0], f"{learning.helped} of {learning.uses}"
            yield f"  {learning.id} {gate}: {learning.layer} layer, confidence {share} ({uses}), {learning.status}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines())
