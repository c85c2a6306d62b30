"""Records of what phases did, which other phases can take as inputs."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff

from mz_events.names import Commit, Path

from mz_engine.decide.records import cited_texts, record_text, result_text
from mz_engine.decide.units import chosen_units, listed_units
from mz_engine.effects.steps import StepContext, Steps, call_port, get_texts
from mz_engine.model.pipeline import RECORDS_OF_PHASES, PhaseInput
from mz_engine.path_patterns import matches
from mz_engine.ports import Workspace

PATCH_CHARS_MAX = 200_000
"""Of one unit. What follows is left out, and the patch says so."""


COMPARED_MAX = 4_000_000
"""Product of the numbers of lines before and after; comparing takes a time that grows with it."""


def record_texts(context: StepContext, use: PhaseInput) -> Steps[dict[str, str]]:
    """Return the record that an input asks for, by unit; of one about the feature only a text without a unit."""
    progress, prefix, texts = context.phase_state.progress, f"{use.of}/", dict[str, str]()
    if use.record is not None and use.record not in RECORDS_OF_PHASES:
        digests = cited_texts(progress)
        cited = dict(zip(digests, (yield from get_texts(digests)), strict=True))
        return {"": record_text(use.record, use.of, progress, context.pins.pipeline.phases, cited)}
    names = [key.removeprefix(prefix) for key in progress.unit_trees if key.startswith(prefix)]
    unit = listed_units(progress, context.phase).get(context.unit_run.unit)
    for name in (name for name in chosen_units(use, unit, names) if name in names):
        key = f"{prefix}{name}"
        if use.record == "patch":
            parts = []
            for before, after in progress.unit_trees[key]:
                parts.append((yield from patch(context, before, after)))
            texts[name] = "".join(parts)
        else:
            runs = progress.unit_results.get(key, ())
            texts[name] = "\n".join(f"{ran.stage} {ran.name}: {result_text(ran)}" for ran in runs) or "no command ran"
    return texts or {"": "nothing: the phase was left out"}


def patch(context: StepContext, before: Commit, after: Commit) -> Steps[str]:
    """Return the changes between two trees as a unified diff, without papers."""
    papers, lines = context.pins.pipeline.paper_patterns(context.feature), list[str]()
    for change in (yield from call_port(Workspace.changes, before, after)):
        if not matches(papers, change.path) and sum(map(len, lines)) <= PATCH_CHARS_MAX:
            old = yield from call_port(Workspace.read, before, change.path)
            new = yield from call_port(Workspace.read, after, change.path)
            lines += difference(change.path, old, new)
    text = "".join(lines)
    cut = f"\n[the patch is longer than {PATCH_CHARS_MAX:,} characters; the rest is left out]"
    return text if len(text) <= PATCH_CHARS_MAX else text[:PATCH_CHARS_MAX] + cut


def difference(path: Path, old: bytes | None, new: bytes | None) -> Iterator[str]:
    """Yield the lines of a file's unified diff; of a binary file only that it differs."""
    if b"\0" in (old or b"") + (new or b""):
        yield f"binary file {path} differs\n"
        return
    before, after = ((data or b"").decode("utf-8", "replace").split("\n") for data in (old, new))
    before, after = ([f"{line}\n" for line in lines[:-1]] + [lines[-1]] * bool(lines[-1]) for lines in (before, after))
    old_name, new_name = "/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}"
    if len(before) * len(after) > COMPARED_MAX:
        yield from (f"--- {old_name}\n", f"+++ {new_name}\n")
        yield f"[too many lines to compare: {len(before):,} before, {len(after):,} after]\n"
        return
    for line in unified_diff(before, after, old_name, new_name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
