"""Adapter: runs the layers of the gate, one after the other, all of them, and times each.

What a layer dies of is its finding: the others run all the same.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace
from mz_engine.config import Config
from mz_engine.configfile import load_config
from mz_engine.errors import MzError
from mz_recordings.findings import Finding
from mz_recordings.playing.fleet import find

from mz_qa.layers.facts import Checked, GateResult, Layer, LayerResult, Project, Remark, Status
from mz_qa.layers.table import LAYERS, NUMBERS

FRAMES_SHOWN = 4
NOT_ASKED_FOR = "not asked for"
NOTHING = "there was nothing to check"


def project_at(
    root: Path,
    environment: Mapping[str, str],
    cassettes: tuple[Path, ...],
    workers: int,
    today: datetime,
    say: Callable[[str], None],
    here: Path | None = None,
) -> Project:
    """The project with its root there. `cassettes`: cassettes, or folders of them; empty: the project's library.
    `here` is the current directory, if it is not the root."""
    try:
        config = load_config(root, environment, {}).config
    except MzError:
        config = Config()
    return Project(
        root=root,
        here=here or root,
        environment=dict(environment),
        today=today,
        config=config,
        cassettes=find(cassettes or (root / config.recordings,)),
        workers=workers,
        say=say,
    )


def run_gate(
    project: Project,
    chosen: Collection[int] = NUMBERS,
    allow_empty: Collection[int] = (),
    tell: Callable[[LayerResult], None] = lambda result: None,
    layers: tuple[Layer, ...] = LAYERS,
) -> GateResult:
    """Runs the chosen layers, whatever the earlier ones find; `tell` hears of each as it ends."""
    started, begun = datetime.now(UTC), time.monotonic()
    results = []
    for layer in layers:
        if layer.number in chosen:
            result = run_layer(layer, project, layer.number in allow_empty)
        else:
            result = replace(_blank(layer), reason=NOT_ASKED_FOR)
        tell(result)
        results.append(result)
    return GateResult(
        started=started,
        finished=datetime.now(UTC),
        duration_ms=_since(begun),
        layers=tuple(results),
    )


def run_layer(layer: Layer, project: Project, may_be_empty: bool) -> LayerResult:
    """What came of one layer. Never raises for what is in a project, nor for a bug of the layer."""
    begun = time.monotonic()
    checked, findings, remarks = dict[str, int](), list[Finding](), list[str]()
    try:
        for said in layer.check(project):
            match said:
                case Checked():
                    checked[said.kind] = checked.get(said.kind, 0) + said.count
                case Remark():
                    remarks.append(said.words)
                case _:
                    findings.append(said)
    except Exception as error:
        findings.append(crash(error))
    status: Status = "failed" if findings else "passed"
    if not findings and not any(checked.values()):
        status = "empty" if may_be_empty else "failed"
        if status == "failed":
            findings.append(_empty(layer))
    return replace(
        _blank(layer),
        status=status,
        reason=NOTHING if status == "empty" else "",
        duration_ms=_since(begun),
        checked=checked,
        findings=tuple(findings),
        remarks=tuple(dict.fromkeys(remarks)),
    )


def crash(error: Exception) -> Finding:
    """What a check died of, with the last calls that led there; no path of this machine."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_SHOWN:]
    return Finding(
        kind="CRASH",
        what=" ".join(f"the check itself broke: {type(error).__name__}: {error}".split())[:300],
        detail=tuple(f"  {Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames),
        mend="report it, with these lines",
    )


def _empty(layer: Layer) -> Finding:
    return Finding(
        kind="EMPTY",
        what=f"{NOTHING}, which proves nothing",
        mend=f"record a run: mz run --record; or say that it may be so: mz gate --allow-empty {layer.number}",
    )


def _blank(layer: Layer) -> LayerResult:
    return LayerResult(number=layer.number, name=layer.name, about=layer.about, status="skipped")


def _since(begun: float) -> int:
    return int((time.monotonic() - begun) * 1000)
