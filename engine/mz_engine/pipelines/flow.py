"""Check the order of the phases of a pipeline: needed artifacts exist, and `on_block` routes are valid."""

from __future__ import annotations

from collections.abc import Iterator

from mz_engine.graph import find_cycles
from mz_engine.pipelines.definition import Phase, Pipeline
from mz_engine.pipelines.finding import LintFinding
from mz_engine.shape import KeyPath, did_you_mean


def check_flow(pipeline: Pipeline) -> Iterator[LintFinding]:
    """Yield MZ3003 unknown artifact, MZ3004 used too early, MZ3005 cycle, MZ3006 unreachable, MZ3012 routes, MZ3015 no
    delivery."""
    source = _artifact_producers(pipeline)
    needed_phases = {
        phase.phase: [source[artifact] for _, artifact in _needed_artifacts(phase) if artifact in source]
        for phase in pipeline.phases
    }
    cycles = list(find_cycles(needed_phases))
    stuck_positions: list[int] = []
    for position in range(len(pipeline.phases)):
        findings = list(_check_needs(pipeline, position, source, cycles))
        stuck_positions += [position] if findings else []
        yield from findings
        yield from _check_questions(pipeline, position, source)
        yield from _check_routes(pipeline, position)
    for cycle in cycles:
        stuck_positions.append(min(_phase_position(pipeline, name) for name in cycle))
        at: KeyPath = ("phases", _phase_position(pipeline, cycle[0]), "inputs")
        yield LintFinding(at, "MZ3005", f"phases need each other's artifacts: {' -> '.join([*cycle, cycle[0]])}")
    yield from _check_reachability(pipeline, stuck_positions)


def _artifact_producers(pipeline: Pipeline) -> dict[str, str]:
    """Map each artifact to the first phase that produces it."""
    sources: dict[str, str] = {}
    for phase in pipeline.phases:
        artifacts = [output.artifact for output in phase.outputs] + ([phase.review.output] if phase.review else [])
        for artifact in artifacts:
            sources.setdefault(artifact, phase.phase)
    return sources


def _needed_artifacts(phase: Phase) -> Iterator[tuple[KeyPath, str]]:
    """Yield the artifacts that must exist before the phase begins."""
    for number, phase_input in enumerate(phase.inputs):
        yield ("inputs", number, "artifact"), phase_input.artifact
    if phase.claim:
        yield ("claim", "artifact"), phase.claim.artifact
    if phase.for_each:
        yield ("for_each", "artifact"), phase.for_each.artifact


def _check_needs(
    pipeline: Pipeline, position: int, producers: dict[str, str], cycles: list[list[str]]
) -> Iterator[LintFinding]:
    phase = pipeline.phases[position]
    earlier_phases = {other.phase for other in pipeline.phases[:position]}
    for route, artifact in _needed_artifacts(phase):
        at: KeyPath = ("phases", position, *route)
        producer = producers.get(artifact)
        if producer is None:
            yield LintFinding(at, "MZ3003", f"no phase produces `{artifact[:80]}`", did_you_mean(artifact, producers))
        elif producer == phase.phase:
            yield LintFinding(at, "MZ3005", f"`{phase.phase}` needs `{artifact}`, which it produces itself")
        elif producer not in earlier_phases and not any({producer, phase.phase} <= set(cycle) for cycle in cycles):
            message = f"`{phase.phase}` needs `{artifact}`, which the later phase `{producer}` produces"
            yield LintFinding(at, "MZ3004", message, f"move `{producer}` before `{phase.phase}`")


def _check_questions(pipeline: Pipeline, position: int, producers: dict[str, str]) -> Iterator[LintFinding]:
    """Check questions about artifacts. People are asked after the agent review, so the phase's own artifacts exist."""
    finished_phases = {other.phase for other in pipeline.phases[: position + 1]}
    for number, human in enumerate(pipeline.phases[position].human):
        at: KeyPath = ("phases", position, "human", number, "artifact")
        producer = producers.get(human.artifact or "")
        if human.artifact is not None and producer is None:
            message = f"no phase produces `{human.artifact[:80]}`"
            yield LintFinding(at, "MZ3003", message, did_you_mean(human.artifact, producers))
        elif producer is not None and producer not in finished_phases:
            yield LintFinding(at, "MZ3004", f"`{human.artifact}` is produced by the later phase `{producer}`")


def _check_routes(pipeline: Pipeline, position: int) -> Iterator[LintFinding]:
    phase = pipeline.phases[position]
    earlier = [other.phase for other in pipeline.phases[: position + 1]]
    later = [other.phase for other in pipeline.phases[position + 1 :]]
    causes: set[str] = set()
    for number, route in enumerate(phase.on_block):
        at: KeyPath = ("phases", position, "on_block", number)
        if route.to in later:
            message = f"`on_block` of `{phase.phase}` cannot go to the later phase `{route.to}`"
            yield LintFinding((*at, "to"), "MZ3012", message)
        elif route.to not in earlier:
            message = f"there is no phase `{route.to[:80]}`"
            yield LintFinding((*at, "to"), "MZ3012", message, did_you_mean(route.to, earlier))
        elif route.scope == "unit" and not (phase.for_each and route.to == phase.phase):
            message = f"`scope: unit` is only valid from a phase with `for_each` to itself, not to `{route.to}`"
            yield LintFinding((*at, "scope"), "MZ3012", message)
        if route.times is not None and route.times < 1:
            yield LintFinding((*at, "times"), "MZ3014", f"`times` is {route.times}; it must be at least 1")
        if route.cause in causes:
            yield LintFinding((*at, "cause"), "MZ3012", f"the cause `{route.cause[:80]}` has two routes")
        causes.add(route.cause)


def _check_reachability(pipeline: Pipeline, stuck_positions: list[int]) -> Iterator[LintFinding]:
    phases = pipeline.phases
    first_stuck = min(stuck_positions, default=len(phases))
    if unreachable_phases := phases[first_stuck + 1 :]:
        names = ", ".join(f"`{other.phase}`" for other in unreachable_phases)
        message = f"unreachable: {names}, since `{phases[first_stuck].phase}` can never start"
        yield LintFinding(("phases", first_stuck + 1), "MZ3006", message)
    delivery_position = next((position for position, phase in enumerate(phases) if "open_pr" in phase.deliver), None)
    if delivery_position is None and phases:
        yield LintFinding(("phases",), "MZ3015", "no phase delivers: none has `open_pr` under `deliver`")
    elif delivery_position is not None:
        for position in range(delivery_position + 1, len(phases)):
            message = f"unreachable: `{phases[position].phase}`, since `{phases[delivery_position].phase}` delivers before it"
            yield LintFinding(("phases", position), "MZ3006", message)


def _phase_position(pipeline: Pipeline, name: str) -> int:
    return [phase.phase for phase in pipeline.phases].index(name)
