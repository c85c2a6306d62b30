"""The layers of the gate, in the order in which they run."""

from __future__ import annotations

from mz_qa.layers.adapters import check as adapters
from mz_qa.layers.artifacts import check as artifacts
from mz_qa.layers.facts import Layer
from mz_qa.layers.formats import check as formats
from mz_qa.layers.replays import check as replays
from mz_qa.layers.static import check as static

LAYERS: tuple[Layer, ...] = (
    Layer(1, "static", "settings, pipelines, rules and templates are valid", static),
    Layer(2, "adapters", "every agent's adapter fulfils its contract", adapters),
    Layer(3, "artifacts", "rules accept valid artifacts and reject invalid ones by name", artifacts),
    Layer(4, "formats", "data of older versions is read correctly", formats),
    Layer(7, "replays", "replays through the current pipeline match the recordings", replays),
)
"""5 (a canary against live agents) and 6 (a soak test of days) are not implemented; their numbers stay free."""
NUMBERS = tuple(layer.number for layer in LAYERS)
