"""Records of what phases did, which other phases can take as inputs."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff

from mz_events.names import Path

from mz_engine.decide.units import chosen_units, listed_units
from mz_engine.effects.steps import StepContext, Steps, call_port
from mz_engine.model.pipeline import PhaseInput
from mz_engine.path_patterns import matches
from mz_engine.ports import Workspace

PATCH_CHARS_MAX = 200_000
"""Of one unit. What follows is left out, and the patch says so."""


def patches(context: StepContext, use: PhaseInput) -> Steps[dict[str, str]]:
    """Return the changes of a phase by unit, each as a unified diff; without papers."""
    progress, papers = context.phase_state.progress, context.pins.pipeline.paper_patterns(context.feature)
    prefix, unit_run = f"{use.of}/", context.unit_run
    trees = {key.removeprefix(prefix): pair for key, pair in progress.unit_trees.items() if key.startswith(prefix)}
    unit = listed_units(progress, context.phase).get(unit_run.unit)
    texts = dict[str, str]()
    for name in (name for name in chosen_units(use, unit, trees) if name in trees):
        before, after = trees[name]
        lines = list[str]()
        for change in (yield from call_port(Workspace.changes, before, after)):
            if not matches(papers, change.path) and sum(map(len, lines)) <= PATCH_CHARS_MAX:
                old = yield from call_port(Workspace.read, before, change.path)
                new = yield from call_port(Workspace.read, after, change.path)
                lines += difference(change.path, old, new)
        text = "".join(lines)
        cut = f"\n[the patch is longer than {PATCH_CHARS_MAX:,} characters; the rest is left out]"
        texts[name] = text if len(text) <= PATCH_CHARS_MAX else text[:PATCH_CHARS_MAX] + cut
    return texts


def difference(path: Path, old: bytes | None, new: bytes | None) -> Iterator[str]:
    """Yield the lines of a file's unified diff; of a binary file only that it differs."""
    if b"\0" in (old or b"") + (new or b""):
        yield f"binary file {path} differs\n"
        return
    before, after = ((data or b"").decode("utf-8", "replace").splitlines(keepends=True) for data in (old, new))
    old_name, new_name = "/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}"
    for line in unified_diff(before, after, old_name, new_name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
