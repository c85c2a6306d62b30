"""Check that phases and units of a pipeline cannot write each other's outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mz_events.names import BadName, parse_path

from mz_engine.patterns import matches
from mz_engine.pipelines.definition import Output, Phase, Pipeline
from mz_engine.pipelines.finding import Finding
from mz_engine.shape import Route

SAMPLES = {"feature": "feature-id", "unit": "unit-id", "title": "Title", "phase": "phase"}
UNIT_FILES = "{unit.files}"

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def check_writes(pipeline: Pipeline) -> Iterator[Finding]:
    """Yield MZ3010 a phase or unit that may write another's outputs, MZ3016 unknown placeholders, MZ2013 bad paths."""
    for position, phase in enumerate(pipeline.phases):
        at: Route = ("phases", position)
        yield from _placeholders(phase, at)
        yield from _outputs(pipeline, position)
        yield from _mutations(pipeline, position)


def _placeholders(phase: Phase, at: Route) -> Iterator[Finding]:
    unit = {"unit"} if phase.for_each else set()
    texts: list[tuple[Route, str, set[str]]] = [
        ((*at, "outputs", number, "path"), output.path or "", {"feature"} | unit)
        for number, output in enumerate(phase.outputs)
    ]
    for key, patterns in (("include", phase.context.include), ("exclude", phase.context.exclude)):
        texts += [((*at, "context", key, number), each, {"feature"} | unit) for number, each in enumerate(patterns)]
    more = {"feature"} | unit | ({"unit.files"} if phase.for_each else set())
    texts += [((*at, "mutations", number), each, more) for number, each in enumerate(phase.mutations)]
    texts.append(((*at, "commit"), phase.commit or "", {"feature", "title", "phase"} | unit))
    for route, text, allowed in texts:
        hint = "known here: " + ", ".join(f"{{{each}}}" for each in sorted(allowed))
        for name in _PLACEHOLDER.findall(text):
            if name not in allowed:
                yield Finding(route, "MZ3016", f"unknown placeholder `{{{name[:40]}}}`", hint)
            elif name == "unit.files" and text != UNIT_FILES:
                said = f"`{UNIT_FILES}` must be a whole entry: each of the files becomes a pattern"
                yield Finding(route, "MZ3016", said)
        if {"{", "}"} & set(_PLACEHOLDER.sub("", text)):
            yield Finding(route, "MZ3016", "unbalanced brace", hint)


def _outputs(pipeline: Pipeline, position: int) -> Iterator[Finding]:
    phase = pipeline.phases[position]
    others = {_sample(output.path): output for other in pipeline.phases[:position] for output in _files(other)}
    own: set[str] = set()
    for number, output in enumerate(phase.outputs):
        if output.path is None:
            continue
        at: Route = ("phases", position, "outputs", number, "path")
        path = _sample(output.path)
        try:
            path = str(parse_path(path))
        except BadName as error:
            yield Finding(at, "MZ2013", str(error))
        if path in own or path in others:
            yield Finding(at, "MZ3010", f"another output has the path `{output.path}` too")
        if phase.for_each and "{unit}" not in output.path:
            hint = "add `{unit}` to the path"
            yield Finding(at, "MZ3010", f"every unit would overwrite `{output.path}`", hint)
        own.add(path)


def _mutations(pipeline: Pipeline, position: int) -> Iterator[Finding]:
    phase = pipeline.phases[position]
    patterns = tuple(_sample(each) for each in phase.mutations if each != UNIT_FILES)
    at: Route = ("phases", position, "mutations")
    try:
        covered = [
            (other, output)
            for other in pipeline.phases
            for output in _files(other)
            if other.phase != phase.phase and matches(patterns, _sample(output.path))
        ]
    except ValueError as error:
        yield Finding(at, "MZ2013", f"invalid .gitignore pattern: {error}")
        return
    for other, output in covered:
        said = f"`{phase.phase}` may change `{output.path}`, which `{other.phase}` produces"
        yield Finding(at, "MZ3010", said, f'exclude it with a last pattern "!{output.path}" or one for its folder')


def _files(phase: Phase) -> list[Output]:
    return [output for output in phase.outputs if output.path is not None]


def _sample(text: str | None) -> str:
    """Replace placeholders by sample values."""
    return _PLACEHOLDER.sub(lambda match: SAMPLES.get(match[1], match[0]), text or "")
