"""The built-in pipeline of eight phases, with a valid artifact of each kind, as its agents could write them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from mz_engine.model.pipeline import Pipeline
from mz_engine.pipelines.load import load_pipeline

SAMPLES = {path.stem: path.read_text("utf-8") for path in (Path(__file__).parents[1] / "cases" / "agentswe").iterdir()}
"""Texts by artifact; they fit each other."""


JUDGEMENT = json.dumps(
    {
        "severity": "NONE",
        "cause": "none",
        "findings": [],
        "judged": [
            {"id": name, "result": "met", "reason": "each is named"}
            for name in ("interfaces.explicit", "services.bounded")
        ],
    }
)
"""The answer of the reader who judges an architecture."""


@cache
def agentswe() -> Pipeline:
    return load_pipeline("agentswe", Path(__file__).parent)[0]


def outputs_of(phase: str, feature: str, unit: str = "") -> dict[str, str | None]:
    """Return the files with which a phase is done."""
    outputs = ((output.artifact, output.path or "") for output in agentswe().find_phase(phase).outputs)
    filled = ((name, path.replace("{feature}", feature).replace("{unit}", unit)) for name, path in outputs)
    return {path.replace("*", "001"): SAMPLES[name] for name, path in filled}
