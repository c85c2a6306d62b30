"""Layers of `mz check` and of `mz doctor --self-test`; runs them in order and times each. An exception in a layer
becomes a finding of it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Config
from mz_engine.run.settings import load_config
from mz_recordings.cassette.files import find_cassettes
from mz_recordings.findings.model import Finding

from mz_qa.layers import adapters, artifacts, formats, replays, specs, static
from mz_qa.results import CheckedItem, CheckRun, Layer, LayerResult, Project, Remark, Status

LAYERS: tuple[Layer, ...] = (
    Layer(1, "static", "settings, pipelines, rules and templates are valid", static.check),
    Layer(3, "artifacts", "rules accept valid artifacts and reject invalid ones by name", artifacts.check, True),
    Layer(4, "formats", "the log and the recordings are read correctly", formats.check, True),
    Layer(7, "replays", "replays through the current pipeline match the recordings", replays.check),
    Layer(8, "specs", "specifications fulfil their rules, and cite each other completely", specs.check, True),
)
"""Layers that check the project. 5 (a canary against live agents) and 6 (a soak test of days) are not implemented;
their numbers stay free."""
SELF_TEST_LAYERS: tuple[Layer, ...] = (
    Layer(1, "static", "bundled pipelines, rules and templates are valid", static.check_bundled),
    Layer(2, "adapters", "every agent's adapter fulfils its contract", adapters.check),
    Layer(
        3, "artifacts", "bundled rules accept valid artifacts and reject invalid ones by name", artifacts.check_bundled
    ),
    Layer(4, "formats", "data of older versions is read correctly", formats.check_bundled),
    Layer(7, "replays", "every ending of a recorded call is handled as required", replays.check_bundled),
)
"""Layers that check mz itself."""
NUMBERS = tuple(layer.number for layer in LAYERS)

FRAMES_SHOWN = 4
NOT_SELECTED = "not selected"
NOTHING_CHECKED = "nothing to check"


def load_project(
    root: Path,
    environment: Mapping[str, str],
    cassettes: tuple[Path, ...],
    workers: int,
    now: datetime,
    report_progress: Callable[[str], None],
    cwd: Path | None = None,
) -> Project:
    """Load the project at a root. `cassettes` are cassettes or folders of them; empty: the project's library. `cwd` is
    the current directory, if it is not the root."""
    try:
        config = load_config(root, environment, {}).config
    except MzError:
        config = Config()
    return Project(
        root=root,
        cwd=cwd or root,
        environment=dict(environment),
        now=now,
        config=config,
        cassettes=find_cassettes(cassettes or (root / config.recordings,)),
        workers=workers,
        report_progress=report_progress,
    )


def run_layers(
    project: Project,
    chosen: Collection[int] | None = None,
    allow_empty: Collection[int] = (),
    on_result: Callable[[LayerResult], None] = lambda result: None,
    layers: tuple[Layer, ...] = LAYERS,
) -> CheckRun:
    """Run the chosen layers (None: all), whatever earlier ones find; call `on_result` after each."""
    started, started_s = datetime.now(UTC), time.monotonic()
    results = []
    for layer in layers:
        if chosen is None or layer.number in chosen:
            result = run_layer(layer, project, layer.may_be_empty or layer.number in allow_empty)
        else:
            result = replace(_skipped_result(layer), reason=NOT_SELECTED)
        on_result(result)
        results.append(result)
    return CheckRun(
        started=started, finished=datetime.now(UTC), duration_ms=_elapsed_ms(started_s), layers=tuple(results)
    )


def run_layer(layer: Layer, project: Project, may_be_empty: bool) -> LayerResult:
    """Run one layer. Never raises for a project's content, nor for a bug of the layer."""
    started_s = time.monotonic()
    checked, findings, remarks = dict[str, int](), list[Finding](), list[str]()
    try:
        for item in layer.check(project):
            match item:
                case CheckedItem():
                    checked[item.kind] = checked.get(item.kind, 0) + item.count
                case Remark():
                    remarks.append(item.text)
                case _:
                    findings.append(item)
    except Exception as error:
        findings.append(crash_finding(error))
    status: Status = "failed" if findings else "passed"
    if not findings and not any(checked.values()):
        status = "empty" if may_be_empty else "failed"
        if status == "failed":
            findings.append(
                Finding(
                    kind="NOTHING-CHECKED", message=f"{NOTHING_CHECKED}, so nothing was verified",
                    fix=f"record a run: mz run --record; or allow it: mz check --allow-empty {layer.number}",
                )
            )  # fmt: skip
    return replace(
        _skipped_result(layer),
        status=status,
        reason=NOTHING_CHECKED if status == "empty" else "",
        duration_ms=_elapsed_ms(started_s),
        checked=checked,
        findings=tuple(findings),
        remarks=tuple(dict.fromkeys(remarks)),
    )


def crash_finding(error: Exception) -> Finding:
    """Return a finding for an exception, with its last frames and no absolute path."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_SHOWN:]
    return Finding(
        kind="INTERNAL-ERROR",
        message=" ".join(f"internal error in the check: {type(error).__name__}: {error}".split())[:300],
        detail=tuple(f"  {Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames),
        fix="report it with these lines",
    )


def _skipped_result(layer: Layer) -> LayerResult:
    return LayerResult(number=layer.number, name=layer.name, about=layer.about, status="skipped")


def _elapsed_ms(started_s: float) -> int:
    return int((time.monotonic() - started_s) * 1000)
