"""Facts: the layers of the gate, in the order in which they run."""

from __future__ import annotations

from mz_qa.layers.adapters import check as adapters
from mz_qa.layers.artifacts import check as artifacts
from mz_qa.layers.facts import Layer
from mz_qa.layers.formats import check as formats
from mz_qa.layers.replays import check as replays
from mz_qa.layers.static import check as static

LAYERS: tuple[Layer, ...] = (
    Layer(1, "static", "settings, pipelines, rules and templates are sound", static),
    Layer(2, "adapters", "every agent's adapter keeps its contract", adapters),
    Layer(3, "artifacts", "rules accept what they ask for, and refuse the rest by name", artifacts),
    Layer(4, "formats", "what older versions wrote is read as it was meant", formats),
    Layer(7, "replays", "recordings play through today's pipeline as recorded", replays),
)
"""5 (a canary against live agents) and 6 (a soak of days) are not built; their numbers stay free."""
NUMBERS = tuple(layer.number for layer in LAYERS)
