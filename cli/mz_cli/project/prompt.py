"""`mz pipelines prompt`: the prompt of a phase, before a run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import click
from mz_engine.effects.guidance import compose_head
from mz_engine.effects.prompt import ComposedPrompt, SessionPlan, compose_prompt, gather_material
from mz_engine.effects.steps import StepContext, run_steps
from mz_engine.errors.diagnostics import MzError
from mz_engine.git.repository import base_commit
from mz_engine.git.workspace import GitWorkspace
from mz_engine.ports import Ports, Selection
from mz_engine.prompts.render import TemplateError
from mz_engine.run.plan import RunPlan, make_plan
from mz_events.adapters.memory import MemoryBlobs
from mz_events.catalog.feature import FeatureStarted
from mz_events.names import BUILDER, FeatureId, digest_of
from mz_events.redaction.redactor import Secrets
from mz_projections.feature.state import FeatureProgress, InPhase, UnitRun

from mz_cli.app.context import find_root
from mz_cli.app.help import did_you_mean
from mz_cli.terminal.console import print_note, write_file_bytes


def print_prompt(pipeline: str, phase: str, item: str) -> None:
    """Print the prompt for an item of the backlog; on stderr, what it lacks. Raises UsageError and MzError."""
    root = find_root(Path.cwd())
    plan = make_plan(root, os.environ, {"pipeline": pipeline}, (item,), None, digest_of, keeps_views=False)
    phases = {entry.phase: entry for entry in plan.pins.pipeline.phases if entry.prompt}
    if phase not in phases:
        listed = did_you_mean(phase, phases) or f"; phases with a prompt: {', '.join(phases)}"
        raise click.UsageError(f"{pipeline} has no phase {phase!r} with a prompt{listed}")
    try:
        composed = preview(root, plan, phase, item)
    except TemplateError as error:
        raise MzError("MZ3017", str(error), hint="fix the template") from error
    write_file_bytes(sys.stdout, composed.text.encode())
    missing = [use.name for use in phases[phase].inputs]
    missing += [f"the unit of {units.artifact}"] if (units := phases[phase].for_each) else []
    missing += [f"the output of {preparation.run}" for preparation in phases[phase].prepare]
    if missing:
        print_note(f"not there before a run: {', '.join(missing)}")


def preview(root: Path, plan: RunPlan, phase: str, item: str) -> ComposedPrompt:
    """Return the prompt for a feature that starts with this phase, without learnings. Raises TemplateError."""
    _, commit = base_commit(root, plan.pins.config.base, os.environ)
    blobs, texts = MemoryBlobs(), next(entry for entry in plan.items if entry.id == item)
    started = FeatureStarted(
        feature=FeatureId(item),
        run_version=1,
        branch="",
        target=plan.base,
        starts_from=(commit,),
        title=blobs.put(texts.title.encode()),
        body=blobs.put(texts.body.encode()),
    )
    progress = FeatureProgress(started=started, base=commit, head=commit, tree=commit, run_version=1)
    unit_run = UnitRun(unit="", iteration=1, base=commit, tree=commit)
    state = InPhase(progress=progress, phase=phase, units=("",), unit_run=unit_run)
    context = StepContext(run="", feature=item, state=state, pins=plan.pins, base_branch=plan.base)
    memory = SimpleNamespace(select=lambda query: Selection())
    workspace = GitWorkspace(root, plan.pins.config.workspace)
    ports = cast(Ports, SimpleNamespace(workspace=workspace, blobs=blobs, secrets=Secrets({}), memory=memory))
    head, key = run_steps(compose_head(context, BUILDER), ports), context.key("agent.builder", 1)
    material = run_steps(gather_material(context, BUILDER, key, head.texts), ports)
    return run_steps(compose_prompt(context, context.phase.prompt or "", SessionPlan(), material), ports)
