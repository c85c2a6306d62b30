"""The trial pipeline in a simulated world: a backlog, a scripted model, and a person who answers.

The script looks at the prompt and the files only, never at attempts, so that a repeated call gets the same answer.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec.structs import replace
from mz_engine.decide.items import own_texts
from mz_engine.model.config import Command, Config, PullRequests
from mz_engine.model.pins import Pins, encode_pins
from mz_engine.model.pipeline import Phase, Pipeline, TagStep
from mz_engine.pipelines.lint_phase import PipelineFiles
from mz_engine.pipelines.load import load_pipeline, load_valid_pipeline_files
from mz_engine.ports import CallSpec
from mz_events.catalog.run import ItemAdded, RunStarted
from mz_events.names import FeatureId, RunId, run_stream
from mz_events.store import Append

from mz_qa.simulation.world import Files, ScriptedReply, World

ROOT = Path(__file__).resolve().parents[3]
"""mz's own repository, which has the pipeline."""
RUN, FILES = RunId("r1"), {"README.md": "a project"}


@cache
def pipeline_and_files() -> tuple[Pipeline, PipelineFiles]:
    return load_pipeline("trial", ROOT)[0], load_valid_pipeline_files(ROOT)


SHARED = "partials/block.md.j2"
"""A template of mz's own that theirs include."""


def pins(config: Config | None = None) -> Pins:
    """The trial pipeline with its own rules and templates, up to its delivery, without what only some features need."""
    pipeline, made = pipeline_and_files()
    templates = {name: text for name, text in made.templates.items() if name.startswith("trial/") or name == SHARED}
    phases = tuple(phase for phase in pipeline.phases if phase.required and not phase.when)
    pipeline = replace(pipeline, block_file=None, phases=phases)
    return Pins(pipeline=pipeline, rules=made.rules, templates=templates, config=config or trial_config())


def with_merge(pipeline: Pipeline) -> Pipeline:
    """Return the trial pipeline with a delivery into the target branch itself, with tags, and a phase without an agent
    that closes the branch."""
    at_merge = TagStep(tag="v{date}-{item}", at="merge")
    steps = ("merge_base", TagStep(tag="{run}/{item}-ready"), "merge", at_merge, TagStep(tag="{title}-base", at="base"))
    phases = (replace(phase, deliver=steps) if phase.deliver else phase for phase in pipeline.phases)
    return replace(pipeline, phases=(*phases, Phase(phase="tidy", deliver=("close_branch",))))


def trial_config(sessions: Literal["fresh", "continue"] = "fresh", failover: tuple[str, ...] = ()) -> Config:
    return Config(
        agent="simulated", sessions=sessions, failover=failover, parallel_max=2, papers="branch",
        commands={"check": Command(run="check"), "final": Command(run="final")},
        pull_requests=PullRequests(strategy="draft"),
    )  # fmt: skip


def units(feature: str) -> list[dict[str, object]]:
    return [
        {"id": "u2", "depends_on": ["u1"], "files": [f"{feature}2.txt"]},
        {"id": "u1", "files": [f"{feature}1.txt", "shared.txt"] if feature in "ac" else [f"{feature}1.txt"]},
        {"id": "u3", "depends_on": ["u2"], "files": [f"{feature}3.txt"]},
    ]


def script(spec: CallSpec, files: Files) -> ScriptedReply:
    """The model: its first plan of `a` is no JSON; the first code of u1 fails its check; the review of u2 sends the
    unit back once, and finds the second version critical; everything else is right at once."""
    feature, phase, unit, prompt = spec.worktree.feature, *spec.key.split("/")[2:4], spec.prompt
    if phase == "plan":
        good = json.dumps(units(feature))
        bad = feature == "a" and "MEND" not in prompt
        return ScriptedReply(files={f"plans/{feature}.json": "no plan" if bad else good, "stray.txt": "outside"})
    if spec.key.endswith("agent.reviewer"):
        return ScriptedReply(text=json.dumps(verdict(feature, unit, prompt)))
    if phase == "build":
        return ScriptedReply(files=built(feature, unit, prompt))
    folder = {"ship": "letters", "look": "looks", "learn": "lessons"}[phase]
    return ScriptedReply(files={f"{folder}/{feature}.md": f"A letter about {feature}"})


def verdict(feature: str, unit: str, prompt: str) -> dict[str, object]:
    if (feature, unit) != ("a", "u2"):
        return {"severity": "NONE", "cause": "none", "findings": []}
    severity, cause = ("CRITICAL", "none") if "second" in prompt else ("MAJOR", "code")
    finding = {"severity": severity, "path": "a2.txt", "message": "This should be done in another way."}
    return {"severity": severity, "cause": cause, "findings": [finding]}


def built(feature: str, unit: str, prompt: str) -> dict[str, str | None]:
    again = "NOTE" in prompt
    content = "broken" if unit == "u1" and feature == "a" and "MEND" not in prompt else f"{unit} of {feature}"
    return {
        f"{feature}{unit[1]}.txt": content,
        f"notes/{feature}.{unit}.md": f"{'second' if again else 'first'} version of {unit}",
    }


def commands(command: str, files: Files) -> tuple[int, str]:
    broken = [path for path, data in files.items() if data == b"broken"]
    return (1, f"{broken[0]} is broken\n1 failed, 2 passed") if broken else (0, "3 passed")


def begin(
    world: World,
    pinned: Pins,
    items: dict[str, tuple[str, ...]],
    request: bytes = b"Please.",
    run: RunId = RUN,
    integration: str = "",
) -> None:
    """The run's first append: what it was started with, and its items with their dependencies."""
    put = world.blobs.put
    for text in own_texts(pinned):
        put(text.encode())
    started = RunStarted(
        run=run,
        pipeline=pinned.pipeline.pipeline,
        base="main",
        base_commit=world.base,
        pins=put(encode_pins(pinned)),
        mz_version="test",
        integration=integration,
    )
    added = [
        ItemAdded(
            feature=FeatureId(name), source=f"features.md#{name}", priority=3, order=order, body=put(request),
            depends_on=tuple(FeatureId(other) for other in depends_on), title=put(f"Feature {name}".encode()),
        )
        for order, (name, depends_on) in enumerate(items.items())
    ]  # fmt: skip
    world.store.append([Append(run_stream(run), 0, (started, *added))], world.now_us)
