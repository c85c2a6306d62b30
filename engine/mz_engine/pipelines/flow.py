"""Check the order of the phases of a pipeline: needed artifacts exist, and `on_block` routes are valid."""

from __future__ import annotations

from collections.abc import Iterator

from mz_engine.graph import find_cycles
from mz_engine.pipelines.definition import Phase, Pipeline
from mz_engine.pipelines.finding import Finding
from mz_engine.shape import Route, did_you_mean


def check_flow(pipeline: Pipeline) -> Iterator[Finding]:
    """Yield MZ3003 unknown artifact, MZ3004 used too early, MZ3005 cycle, MZ3006 unreachable, MZ3012 routes, MZ3015 no
    delivery."""
    source = _sources(pipeline)
    needs = {
        phase.phase: [source[artifact] for _, artifact in _uses(phase) if artifact in source]
        for phase in pipeline.phases
    }
    cycles = list(find_cycles(needs))
    stuck: list[int] = []
    for position in range(len(pipeline.phases)):
        missing = list(_uses_found(pipeline, position, source, cycles))
        stuck += [position] if missing else []
        yield from missing
        yield from _questions(pipeline, position, source)
        yield from _routes(pipeline, position)
    for cycle in cycles:
        stuck.append(min(_position(pipeline, each) for each in cycle))
        at: Route = ("phases", _position(pipeline, cycle[0]), "inputs")
        yield Finding(at, "MZ3005", f"phases need each other's artifacts: {' -> '.join([*cycle, cycle[0]])}")
    yield from _unreachable(pipeline, stuck)


def _sources(pipeline: Pipeline) -> dict[str, str]:
    """Map each artifact to the first phase that produces it."""
    sources: dict[str, str] = {}
    for phase in pipeline.phases:
        artifacts = [output.artifact for output in phase.outputs] + ([phase.review.output] if phase.review else [])
        for artifact in artifacts:
            sources.setdefault(artifact, phase.phase)
    return sources


def _uses(phase: Phase) -> Iterator[tuple[Route, str]]:
    """Yield the artifacts that must exist before the phase begins."""
    for number, each in enumerate(phase.inputs):
        yield ("inputs", number, "artifact"), each.artifact
    if phase.claim:
        yield ("claim", "artifact"), phase.claim.artifact
    if phase.for_each:
        yield ("for_each", "artifact"), phase.for_each.artifact


def _uses_found(
    pipeline: Pipeline, position: int, source: dict[str, str], cycles: list[list[str]]
) -> Iterator[Finding]:
    phase = pipeline.phases[position]
    before = {each.phase for each in pipeline.phases[:position]}
    for route, artifact in _uses(phase):
        at: Route = ("phases", position, *route)
        maker = source.get(artifact)
        if maker is None:
            yield Finding(at, "MZ3003", f"no phase produces `{artifact[:80]}`", did_you_mean(artifact, source))
        elif maker == phase.phase:
            yield Finding(at, "MZ3005", f"`{phase.phase}` needs `{artifact}`, which it produces itself")
        elif maker not in before and not any({maker, phase.phase} <= set(cycle) for cycle in cycles):
            said = f"`{phase.phase}` needs `{artifact}`, which the later phase `{maker}` produces"
            yield Finding(at, "MZ3004", said, f"move `{maker}` before `{phase.phase}`")


def _questions(pipeline: Pipeline, position: int, source: dict[str, str]) -> Iterator[Finding]:
    """Check questions about artifacts. People are asked after the agent review, so the phase's own artifacts exist."""
    there = {each.phase for each in pipeline.phases[: position + 1]}
    for number, human in enumerate(pipeline.phases[position].human):
        at: Route = ("phases", position, "human", number, "artifact")
        maker = source.get(human.artifact or "")
        if human.artifact is not None and maker is None:
            said = f"no phase produces `{human.artifact[:80]}`"
            yield Finding(at, "MZ3003", said, did_you_mean(human.artifact, source))
        elif maker is not None and maker not in there:
            yield Finding(at, "MZ3004", f"`{human.artifact}` is produced by the later phase `{maker}`")


def _routes(pipeline: Pipeline, position: int) -> Iterator[Finding]:
    phase = pipeline.phases[position]
    earlier = [each.phase for each in pipeline.phases[: position + 1]]
    later = [each.phase for each in pipeline.phases[position + 1 :]]
    causes: set[str] = set()
    for number, route in enumerate(phase.on_block):
        at: Route = ("phases", position, "on_block", number)
        if route.to in later:
            said = f"`on_block` of `{phase.phase}` cannot go to the later phase `{route.to}`"
            yield Finding((*at, "to"), "MZ3012", said)
        elif route.to not in earlier:
            said = f"there is no phase `{route.to[:80]}`"
            yield Finding((*at, "to"), "MZ3012", said, did_you_mean(route.to, earlier))
        elif route.scope == "unit" and not (phase.for_each and route.to == phase.phase):
            said = f"`scope: unit` is only valid from a phase with `for_each` to itself, not to `{route.to}`"
            yield Finding((*at, "scope"), "MZ3012", said)
        if route.times is not None and route.times < 1:
            yield Finding((*at, "times"), "MZ3014", f"`times` is {route.times}; it must be at least 1")
        if route.cause in causes:
            yield Finding((*at, "cause"), "MZ3012", f"the cause `{route.cause[:80]}` has two routes")
        causes.add(route.cause)


def _unreachable(pipeline: Pipeline, stuck: list[int]) -> Iterator[Finding]:
    phases = pipeline.phases
    first = min(stuck, default=len(phases))
    if after := phases[first + 1 :]:
        names = ", ".join(f"`{each.phase}`" for each in after)
        said = f"unreachable: {names}, since `{phases[first].phase}` can never start"
        yield Finding(("phases", first + 1), "MZ3006", said)
    delivering = next((position for position, phase in enumerate(phases) if "open_pr" in phase.deliver), None)
    if delivering is None and phases:
        yield Finding(("phases",), "MZ3015", "no phase delivers: none has `open_pr` under `deliver`")
    elif delivering is not None:
        for position in range(delivering + 1, len(phases)):
            said = f"unreachable: `{phases[position].phase}`, since `{phases[delivering].phase}` delivers before it"
            yield Finding(("phases", position), "MZ3006", said)


def _position(pipeline: Pipeline, name: str) -> int:
    return [phase.phase for phase in pipeline.phases].index(name)
