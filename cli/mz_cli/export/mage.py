"""Files of Mage: issues in `.beads/issues.jsonl`, with a record of each call as a comment, and `history/`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from mz_engine.decoding.quantity import NANOUSD_PER_USD
from mz_engine.decoding.yaml import format_yaml
from mz_events.catalog.run import ItemAdded
from mz_events.names import Commit
from mz_projections.views.model import DONE_STATUSES, CallView, FeatureView
from mz_recordings.importing.other_tools import MEASURE, STITCH

from mz_cli.export.model import ExportedFeature, ExportedFile, ExportedRun
from mz_cli.terminal.text import iso_time

ISSUE_SOURCES = frozenset(("backlog", "output"))
"""Where the items come from that are issues; calls of the others are no work on an issue."""
AT_WORK = ("working", "waiting", "held", "interrupted", "paused")


def mage_files(run: ExportedRun) -> Iterator[ExportedFile]:
    callers = {feature.view.feature: STITCH if _is_issue(run, feature.item) else MEASURE for feature in run.features}
    records = {
        feature.view.feature: [_record(run, call, callers[call.feature]) for call in feature.view.paid_calls]
        for feature in run.features
    }
    issues = [_issue(run, feature, records) for feature in run.features if callers[feature.view.feature] == STITCH]
    yield ".beads/issues.jsonl", "".join(f"{json.dumps(issue, ensure_ascii=False)}\n" for issue in issues)
    for feature in run.features:
        caller, view = callers[feature.view.feature], feature.view
        task = {"task_id": view.feature, "task_title": run.load_text(view.title)} if caller == STITCH else {}
        for number, (call, record) in enumerate(zip(view.paid_calls, records[view.feature], strict=True), start=1):
            name = f"history/{re.sub('[T:]', '-', record['started_at'][:19])}-{caller}-{view.feature}-{number}"
            yield f"{name}-stats.yaml", format_yaml({**record, **task, **_ending(call)})
            yield f"{name}-prompt.md", run.load_text(call.prompt)


def _is_issue(run: ExportedRun, item: ItemAdded | None) -> bool:
    if item is None or not item.kind or run.pins is None:
        return True
    sources = (kind.sources for kind in run.pins.pipeline.kinds if kind.kind == item.kind)
    return any(ISSUE_SOURCES.intersection(names) for names in sources)


def _issue(run: ExportedRun, feature: ExportedFeature, records: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    view, item = feature.view, feature.item
    made_by = records.get(item.made_by, []) if item and item.made_by else []
    issue = {
        "id": view.feature,
        "title": run.load_text(view.title),
        "description": run.load_text(item.body) if item else "",
        "status": _status(view),
        "issue_type": "task",
        "created_at": iso_time(run.view.started_us),
        "dependencies": [
            {"issue_id": view.feature, "depends_on_id": name, "type": "blocks"} for name in view.depends_on
        ],
        "comments": [
            {"text": json.dumps(record), "created_at": record["started_at"]}
            for record in (*made_by, *records[view.feature])
        ],
    }
    return issue | ({"closed_at": iso_time(view.ended_us)} if issue["status"] == "closed" else {})


def _status(view: FeatureView) -> str:
    """Return the status of the issue; one that failed is open again."""
    return "closed" if view.status in DONE_STATUSES else "in_progress" if view.status in AT_WORK else "open"


def _record(run: ExportedRun, call: CallView, caller: str) -> dict[str, Any]:
    """Return the record of a call, without what is unknown."""
    record: dict[str, Any] = {"caller": caller, "started_at": iso_time(call.requested_at_us), "tokens": {}}
    if call.duration_us is not None:
        record["duration_s"] = call.duration_us // 1_000_000
    if call.input_tokens is not None:
        read, written = call.cache_read_tokens or 0, call.cache_write_tokens or 0
        record["tokens"] = {
            "input": call.input_tokens - read - written,
            "output": call.output_tokens,
            "cache_creation": written,
            "cache_read": read,
        }
    if call.paid_nanousd is not None:
        record["cost_usd"] = call.paid_nanousd / NANOUSD_PER_USD
    before, after = (_counts(run, tree) for tree in (call.tree_before, call.tree_after))
    change = run.sources.change(call.tree_before, call.tree_after) if run.sources else None
    diff = change and {"files": change.files, "insertions": change.insertions, "deletions": change.deletions}
    lines = {"loc_before": before, "loc_after": after, "diff": diff}
    return record | {name: value for name, value in lines.items() if value is not None}


def _ending(call: CallView) -> dict[str, str]:
    is_success = call.status == "replied" and not call.problem
    return {"status": "success"} if is_success else {"status": "error", "error": call.problem or call.status}


def _counts(run: ExportedRun, tree: Commit | None) -> dict[str, int] | None:
    counts = run.sources.counts(tree) if run.sources and tree else None
    if counts is None:
        return None
    kinds = (("production", "code"), ("test", "tests"))
    return {name: sum(number for group, number in counts.items() if group.kind == kind) for name, kind in kinds}
