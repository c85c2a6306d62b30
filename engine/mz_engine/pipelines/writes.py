"""Check that phases and units of a pipeline cannot write each other's outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mz_events.names import InvalidName, parse_path

from mz_engine.patterns import matches
from mz_engine.pipelines.definition import Phase, PhaseOutput, Pipeline
from mz_engine.pipelines.finding import LintFinding
from mz_engine.shape import KeyPath

SAMPLE_VALUES = {"feature": "feature-id", "unit": "unit-id", "title": "Title", "phase": "phase"}
UNIT_FILES = "{unit.files}"

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def check_writes(pipeline: Pipeline) -> Iterator[LintFinding]:
    """Yield MZ3010 a phase or unit that may write another's outputs, MZ3016 unknown placeholders, MZ2013 bad paths."""
    for position, phase in enumerate(pipeline.phases):
        at: KeyPath = ("phases", position)
        yield from _check_placeholders(phase, at)
        yield from _check_outputs(pipeline, position)
        yield from _check_writable(pipeline, position)


def _check_placeholders(phase: Phase, at: KeyPath) -> Iterator[LintFinding]:
    unit = {"unit"} if phase.for_each else set()
    texts: list[tuple[KeyPath, str, set[str]]] = [
        ((*at, "outputs", number, "path"), output.path or "", {"feature"} | unit)
        for number, output in enumerate(phase.outputs)
    ]
    for key, patterns in (("include", phase.context.include), ("exclude", phase.context.exclude)):
        texts += [((*at, "context", key, number), pattern, {"feature"} | unit) for number, pattern in enumerate(patterns)]
    writable_names = {"feature"} | unit | ({"unit.files"} if phase.for_each else set())
    texts += [((*at, "mutations", number), pattern, writable_names) for number, pattern in enumerate(phase.mutations)]
    texts.append(((*at, "commit"), phase.commit or "", {"feature", "title", "phase"} | unit))
    for route, text, allowed in texts:
        hint = "known here: " + ", ".join(f"{{{pattern}}}" for pattern in sorted(allowed))
        for name in _PLACEHOLDER.findall(text):
            if name not in allowed:
                yield LintFinding(route, "MZ3016", f"unknown placeholder `{{{name[:40]}}}`", hint)
            elif name == "unit.files" and text != UNIT_FILES:
                message = f"`{UNIT_FILES}` must be a whole entry: each of the files becomes a pattern"
                yield LintFinding(route, "MZ3016", message)
        if {"{", "}"} & set(_PLACEHOLDER.sub("", text)):
            yield LintFinding(route, "MZ3016", "unbalanced brace", hint)


def _check_outputs(pipeline: Pipeline, position: int) -> Iterator[LintFinding]:
    phase = pipeline.phases[position]
    other_paths = {_fill_samples(output.path): output for other in pipeline.phases[:position] for output in _file_outputs(other)}
    own_paths: set[str] = set()
    for number, output in enumerate(phase.outputs):
        if output.path is None:
            continue
        at: KeyPath = ("phases", position, "outputs", number, "path")
        path = _fill_samples(output.path)
        try:
            path = str(parse_path(path))
        except InvalidName as error:
            yield LintFinding(at, "MZ2013", str(error))
        if path in own_paths or path in other_paths:
            yield LintFinding(at, "MZ3010", f"another output has the path `{output.path}` too")
        if phase.for_each and "{unit}" not in output.path:
            hint = "add `{unit}` to the path"
            yield LintFinding(at, "MZ3010", f"every unit would overwrite `{output.path}`", hint)
        own_paths.add(path)


def _check_writable(pipeline: Pipeline, position: int) -> Iterator[LintFinding]:
    phase = pipeline.phases[position]
    patterns = tuple(_fill_samples(pattern) for pattern in phase.mutations if pattern != UNIT_FILES)
    at: KeyPath = ("phases", position, "mutations")
    try:
        covered = [
            (other, output)
            for other in pipeline.phases
            for output in _file_outputs(other)
            if other.phase != phase.phase and matches(patterns, _fill_samples(output.path))
        ]
    except ValueError as error:
        yield LintFinding(at, "MZ2013", f"invalid .gitignore pattern: {error}")
        return
    for other, output in covered:
        message = f"`{phase.phase}` may change `{output.path}`, which `{other.phase}` produces"
        yield LintFinding(at, "MZ3010", message, f'exclude it with a last pattern "!{output.path}" or one for its folder')


def _file_outputs(phase: Phase) -> list[PhaseOutput]:
    return [output for output in phase.outputs if output.path is not None]


def _fill_samples(text: str | None) -> str:
    """Replace placeholders by sample values."""
    return _PLACEHOLDER.sub(lambda match: SAMPLE_VALUES.get(match[1], match[0]), text or "")
