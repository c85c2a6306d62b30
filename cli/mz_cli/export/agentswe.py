"""Files of AgentSWEOS: `tasks/TASK/PHASE/`, contracts, and the shared state of the pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mz_engine.decoding.yaml import format_yaml
from mz_projections.rewards.facts import fold_facts
from mz_projections.rewards.reward import Reward, reward_of
from mz_projections.views.model import CommandView, PhaseView

from mz_cli.common.contract import contract_of
from mz_cli.export.model import ExportedFeature, ExportedFile, ExportedRun, table, to_json
from mz_cli.terminal.text import iso_time

COMPLETED = {
    "implementation": "READY_FOR_VERIFICATION.md",
    "verification": "PASSED.md",
    "security": "CLEARED.md",
    "integration": "MERGED.md",
}
"""Marker of a completed phase, by its name; of any other one APPROVED.md."""
RESULTS = {
    "test": "unit-tests.json",
    "integration": "integration-tests.json",
    "regression": "regression-results.json",
    "secrets": "secrets-scan.json",
}
"""File with the result of a command, by its name; of any other one NAME.json."""
PRIORITIES = ("high", "medium", "low", "none")
ENDED = ("delivered", "merged", "tagged", "done", "failed", "cancelled", "skipped")


def agentswe_files(run: ExportedRun) -> Iterator[ExportedFile]:
    if pins := run.pins:
        for phase in pins.pipeline.phases:
            contract = contract_of(phase, pins.pipeline, pins.rules, pins.config.limits)
            yield f"phases/contracts/{phase.phase}.yaml", format_yaml(contract)
    for feature in run.features:
        for path, text in _task_files(run, feature):
            yield f"tasks/{feature.view.feature}/{path}", text
    states = (_state(feature) for feature in run.features if feature.view.phases)
    yield "shared/pipeline-state.yaml", "---\n".join(map(format_yaml, states))
    yield "shared/queue.md", "".join(_queue_lines(run))
    heads = ("time", "task", "phase", "back to", "cause", "check", "units", "reason", "event")
    yield "shared/rollback-log.md", f"# Rollbacks\n\n{table(heads, _rollback_rows(run))}"
    yield "shared/human-review-queue.md", "# Waiting for a person\n\n" + "".join(_questions(run))
    yield "metrics/pipeline.jsonl", "".join(_metric_lines(run))


def _queue_lines(run: ExportedRun) -> Iterator[str]:
    yield "# Queue\n\n"
    for feature in run.features:
        done = "x" if feature.view.status in ENDED else " "
        yield f"- [{done}] {feature.view.feature}: {_title(run, feature)}\n"


def _title(run: ExportedRun, feature: ExportedFeature) -> str:
    title = feature.view.title or (feature.item.title if feature.item else None)
    return " ".join(run.load_text(title).split())


def _task_files(run: ExportedRun, feature: ExportedFeature) -> Iterator[ExportedFile]:
    view, item = feature.view, feature.item
    meta = {
        "id": view.feature,
        "title": _title(run, feature),
        "priority": PRIORITIES[item.priority] if item else None,
        "created": iso_time(run.view.started_us),
        "status": view.status,
        "depends_on": list(view.depends_on),
    }
    yield "META.yaml", format_yaml(meta)
    if item is not None:
        yield "task.md", f"{run.load_text(item.body).rstrip()}\n"
    for artifact, name, text in run.artifacts(feature):
        yield f"{_folder(artifact.phase, artifact.unit)}/{name}", text
    for phase in feature.phases:
        if phase.state != "superseded":
            yield from _phase_files(run, feature, phase)
    if feature.phases and (facts := fold_facts(feature.events)):
        reward = reward_of(facts, run.pins.rewards if run.pins else None)
        yield f"{feature.phases[-1].phase}/reward.yaml", format_yaml(_reward(feature, reward))


def _folder(phase: str, unit: str) -> str:
    return f"{phase}/units/{unit}" if unit else phase


def _phase_files(run: ExportedRun, feature: ExportedFeature, phase: PhaseView) -> Iterator[ExportedFile]:
    if units := feature.units(phase.phase):
        order = {unit.id: list(unit.depends_on) for unit in units}
        yield f"{phase.phase}/dependency-order.json", to_json({"task_id": feature.view.feature, "units": order})
    for key, trees in feature.unit_trees.items():
        name, _, unit = key.partition("/")
        if name == phase.phase and (patch := "".join(run.patch(before, after) for before, after in trees)):
            yield f"{_folder(name, unit)}/patch.diff", patch
    last = {(ran.unit, ran.name): ran for ran in feature.view.commands if ran.phase == phase.phase}
    for ran in last.values():
        name = RESULTS.get(ran.name, f"{ran.name}.json")
        yield f"{_folder(phase.phase, ran.unit)}/{name}", to_json(_result(feature.view.feature, ran))
    if marker := _marker(run, feature, phase):
        yield f"{phase.phase}/{marker[0]}", marker[1]


def _result(task: str, ran: CommandView) -> dict[str, Any]:
    return {
        "task_id": task,
        "unit_id": ran.unit or None,
        "runner": ran.name,
        "exit_code": ran.exit,
        "passed": ran.passed,
        "failed": ran.failed,
        "new_failures": ran.new_failures,
    }


def _marker(run: ExportedRun, feature: ExportedFeature, phase: PhaseView) -> ExportedFile | None:
    """Return the file that says how the phase ended; None while it is at work."""
    if phase.state == "completed":
        return COMPLETED.get(phase.phase, "APPROVED.md"), f"completed: {iso_time(phase.ended_us)}\n"
    question = feature.view.question
    if question is not None and question.phase == phase.phase:
        text: dict[str, Any] = {
            "code": question.code,
            "since": iso_time(question.since_us),
            "text": run.load_text(question.detail),
        }
        return "HUMAN_REVIEW_REQUIRED.md", format_yaml(text)
    if rollback := feature.open_block(phase.phase):
        block = rollback.block
        text = {"cause": block.cause, "check": block.check, "path": block.path or None, "units": list(block.units)}
        return "BLOCKED.md", format_yaml({**text, "back_to": rollback.to or None, "reason": run.load_text(block.note)})
    return None


def _reward(feature: ExportedFeature, reward: Reward) -> dict[str, Any]:
    last, models = reward.attribution, dict[str, set[str]]()
    for call in feature.view.calls:
        models.setdefault(call.phase, set()).add(call.model)
    return {
        "task_id": reward.feature,
        "timestamp": iso_time(feature.view.ended_us),
        "composite_score": reward.composite,
        "reward_decomposition": {score.name: score.score for score in reward.dimensions},
        "phase_health": {
            phase.phase: {"iterations": phase.iterations, "outcome": phase.outcome}
            | ({"cause": phase.cause} if phase.cause else {})
            for phase in reward.phases
        },
        "failure_attribution": last and {"phase": last.phase, "agent": last.agent, "cause": last.cause},
        "models_used": {phase: sorted(names) for phase, names in models.items()},
        "tool_verified": reward.tool_verified,
    }


def _state(feature: ExportedFeature) -> dict[str, Any]:
    view, current = feature.view, feature.phases[-1]
    rollbacks = [rollback for rollback in feature.rollbacks if rollback.to]
    return {
        "task_id": view.feature,
        "current_phase": current.phase,
        "phase_status": "completed" if current.state == "completed" else "in_progress",
        "phase_started": iso_time(current.started_us),
        "rollback_count_this_phase": sum(rollback.to == current.phase for rollback in rollbacks),
        "total_rollbacks_this_task": len(rollbacks),
        "phase_history": [_history(feature, phase) for phase in feature.phases],
        "human_review_pending": view.question is not None,
        "blocked": view.status in ("waiting", "held", "failed"),
    }


def _history(feature: ExportedFeature, phase: PhaseView) -> dict[str, Any]:
    rollbacks = [rollback for rollback in feature.rollbacks if rollback.to == phase.phase]
    row: dict[str, Any] = {"phase": phase.phase, "status": phase.state, "iterations": phase.iteration}
    if rollbacks:
        row |= {"rollbacks": len(rollbacks), "rollback_reason": rollbacks[-1].block.check}
    return row | ({"completed": iso_time(phase.ended_us)} if phase.state == "completed" else {})


def _rollback_rows(run: ExportedRun) -> Iterator[tuple[object, ...]]:
    pairs = [(feature, rollback) for feature in run.features for rollback in feature.rollbacks]
    for feature, (block, to, recorded) in sorted(pairs, key=lambda pair: pair[1].recorded.position):
        yield (
            iso_time(recorded.recorded_at_us), feature.view.feature, block.phase, to or "a person", block.cause,
            block.check, ", ".join(block.units) or block.unit, run.load_text(block.note), recorded.event_ref,
        )  # fmt: skip


def _questions(run: ExportedRun) -> Iterator[str]:
    for feature in run.features:
        if question := feature.view.question:
            location = "/".join(filter(None, (feature.view.feature, question.phase, question.unit)))
            detail = " ".join(run.load_text(question.detail).split())
            yield f"- [ ] {location}: {question.code} ({question.event_ref}): {detail}\n"


def _metric_lines(run: ExportedRun) -> Iterator[str]:
    """Yield one line for each iteration of a phase that ended, in the order of their ends."""
    phases = [(phase, feature) for feature in run.features for phase in feature.view.phases if phase.ended_us]
    for phase, feature in sorted(phases, key=lambda pair: (pair[0].ended_us or 0, pair[1].view.feature)):
        calls = feature.calls(phase)
        line = {
            "timestamp": iso_time(phase.ended_us),
            "task_id": feature.view.feature,
            "phase": phase.phase,
            "iteration": phase.iteration,
            "status": phase.state,
            "calls": len(calls),
            "rejections": sum(len(call.rejections) for call in calls),
            "models": sorted({call.model for call in calls}),
        }
        yield f"{json.dumps(line, ensure_ascii=False)}\n"
