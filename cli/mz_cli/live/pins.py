"""Pinned settings of a run that the live view shows."""

from __future__ import annotations

import msgspec
from mz_engine.decoding.quantity import Usd, decode_quantity


class PinnedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Pinned settings; empty and None if unknown."""

    phases: tuple[str, ...] = ()
    agent: str = ""
    autonomy: str = ""
    budget_nanousd: int | None = None
    """Budget of the run; None: no limit."""


class _Phase(msgspec.Struct, frozen=True):
    phase: str


class _Pipeline(msgspec.Struct, frozen=True):
    phases: tuple[_Phase, ...] = ()


class _Budget(msgspec.Struct, frozen=True):
    run: Usd | None = None


class _Config(msgspec.Struct, frozen=True):
    agent: str = ""
    autonomy: str = ""
    budget: _Budget = _Budget()


class _Pins(msgspec.Struct, frozen=True):
    """The few keys needed here, so that pins of other versions can be read too."""

    pipeline: _Pipeline = _Pipeline()
    config: _Config = _Config()


_PINS = msgspec.json.Decoder(_Pins, dec_hook=decode_quantity)


def read_pinned_settings(pins: str) -> PinnedSettings:
    """Read the settings from the JSON of pins; empty settings if it is invalid."""
    try:
        decoded = _PINS.decode(pins)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return PinnedSettings()
    return PinnedSettings(
        phases=tuple(phase.phase for phase in decoded.pipeline.phases),
        agent=decoded.config.agent,
        autonomy=decoded.config.autonomy,
        budget_nanousd=decoded.config.budget.run,
    )
