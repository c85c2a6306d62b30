"""State files of Monozukuri: `runs/RUN/manifest.json`, the report, and four files for each feature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mz_projections.views.model import FeatureView

from mz_cli.export.model import ExportedFeature, ExportedFile, ExportedRun, to_json
from mz_cli.terminal.text import exact_usd, iso_time

STATUSES = {
    "queued": "created",
    "skipped": "done",
    "working": "in-progress",
    "delivered": "done",
    "merged": "done",
    "tagged": "done",
    "done": "done",
    "failed": "failed",
    "waiting": "paused",
    "held": "deferred",
    "cancelled": "cleaned",
    "interrupted": "paused",
    "paused": "paused",
}
"""Status of a feature there, by that of ours; one with a pull request is `pr-created`."""
RESULTS = {"done": "completed", "pr-created": "completed", "failed": "failed", "cleaned": "failed"}
"""Status in results.json; of any other one `paused`."""


def monozukuri_files(run: ExportedRun) -> Iterator[ExportedFile]:
    view, features, top = run.view, run.features, f"runs/{run.view.run}"
    ended = iso_time(view.last_recorded_us) if view.has_stopped else None
    manifest = {
        "run_id": view.run,
        "started_at": iso_time(view.started_us),
        "updated_at": iso_time(view.last_recorded_us),
        "status": view.status,
        "features": [_manifest_row(feature.view) for feature in features],
        "completed_at": ended,
    }
    yield f"{top}/manifest.json", to_json(manifest)
    rows = [_report_row(run, feature) for feature in features]
    statuses = [_status(feature.view) for feature in features]
    completed = sum(RESULTS.get(status) == "completed" for status in statuses)
    report = {
        "run_id": view.run,
        "started_at": iso_time(view.started_us),
        "finished_at": ended,
        "duration_seconds": _seconds(view.started_us, view.last_recorded_us),
        "headline_pct": round(100 * completed / len(rows)) if rows else None,
        "total_features": len(rows),
        "completed_features": completed,
        "failed_features": statuses.count("failed"),
        "total_tokens": sum(row["tokens"] or 0 for row in rows),
        "total_cost_usd": exact_usd(view.charged_nanousd),
        "features": rows,
    }
    yield f"{top}/report.json", to_json(report)
    for feature in features:
        for path, text in _feature_files(run, feature):
            yield f"{top}/{feature.view.feature}/{path}", text


def _status(view: FeatureView) -> str:
    status = STATUSES[view.status]
    return "pr-created" if status == "done" and view.pull_request else status


def _seconds(start_us: int | None, end_us: int | None) -> int | None:
    return None if start_us is None or end_us is None else (end_us - start_us) // 1_000_000


def _tokens(view: FeatureView) -> int | None:
    numbers = (view.input_tokens, view.output_tokens)
    return None if None in numbers else sum(number or 0 for number in numbers)


def _manifest_row(view: FeatureView) -> dict[str, Any]:
    updated = view.ended_us or max((phase.ended_us or phase.started_us for phase in view.phases), default=None)
    return {
        "feat_id": view.feature,
        "status": _status(view),
        "phase": view.phase or None,
        "updated_at": iso_time(updated),
    }


def _report_row(run: ExportedRun, feature: ExportedFeature) -> dict[str, Any]:
    view = feature.view
    return {
        "id": view.feature,
        "title": run.load_text(view.title),
        "status": _status(view),
        "pr_url": view.pull_request or None,
        "tokens": _tokens(view),
        "cost_usd": exact_usd(view.computed_nanousd),
        "phases_completed": list(view.completed_phases),
        "phase_retries": {phase: count - 1 for phase, count in view.attempts.items() if count > 1},
        "failure_reason": view.code or None,
    }


def _feature_files(run: ExportedRun, feature: ExportedFeature) -> Iterator[ExportedFile]:
    view, status = feature.view, _status(feature.view)
    times = {"created_at": iso_time(view.started_us), "updated_at": _manifest_row(view)["updated_at"]}
    state = {
        "feature_id": view.feature,
        "status": status,
        "branch": view.branch or None,
        **times,
        "phase": view.phase or None,
        "attempts": view.attempts,
        "artifacts": {artifact.artifact: artifact.path for artifact in view.artifacts},
        "pr_url": view.pull_request or None,
        "head_sha": view.commits[-1].commit if view.commits else None,
        "files_actually_touched": list(view.changed_paths),
    }
    yield "state.json", to_json(state)
    results = {
        "feature_id": view.feature,
        "status": RESULTS.get(status, "paused"),
        "title": run.load_text(view.title),
        "pipeline": {phase.phase: phase.state for phase in feature.phases},
        "context_generated": {"files_modified": list(view.changed_paths)},
        "pr_url": view.pull_request or None,
        "duration_seconds": _seconds(view.started_us, view.ended_us),
        "errors": [call.problem for call in view.calls if call.problem],
        "tasks": [unit.id for unit in feature.units()],
    }
    yield "results.json", to_json(results)
    phases = [_cost_row(feature, name) for name in view.attempts]
    cost = {
        "feature_id": view.feature,
        "created_at": times["created_at"],
        "phases": phases,
        "cumulative_tokens": _tokens(view),
        "cumulative_usd": exact_usd(view.computed_nanousd),
    }
    yield "cost.json", to_json(cost)
    if view.question is not None:
        pause = {
            "feat_id": view.feature,
            "pause_kind": "human",
            "reason": view.question.code,
            "paused_at": iso_time(view.question.since_us),
        }
        yield "pause.json", to_json(pause)
    for artifact, name, text in run.artifacts(feature):
        yield "/".join(filter(None, ("artifacts", artifact.phase, artifact.unit, name))), text


def _cost_row(feature: ExportedFeature, phase: str) -> dict[str, Any]:
    calls = [call for call in feature.view.paid_calls if call.phase == phase]
    counted = [call for call in calls if call.input_tokens is not None and call.output_tokens is not None]
    return {
        "phase": phase,
        "estimated_usd": exact_usd(sum(call.estimated_nanousd or 0 for call in calls)),
        "recorded_at": iso_time(max((call.requested_at_us or 0 for call in calls), default=None)),
        "actual_tokens": sum((call.input_tokens or 0) + (call.output_tokens or 0) for call in counted),
    }
