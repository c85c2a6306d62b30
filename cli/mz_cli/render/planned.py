"""Pinned settings of a run that the live view shows."""

from __future__ import annotations

import msgspec


class Planned(msgspec.Struct, frozen=True, kw_only=True):
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
    run_nanousd: int | None = None


class _Config(msgspec.Struct, frozen=True):
    agent: str = ""
    autonomy: str = ""
    budget: _Budget = _Budget()


class _Pins(msgspec.Struct, frozen=True):
    """The few keys needed here, so that pins of other versions can be read too."""

    pipeline: _Pipeline = _Pipeline()
    config: _Config = _Config()


_PINS = msgspec.json.Decoder(_Pins)


def planned_of(pins: str) -> Planned:
    """Read the settings from the JSON of pins; empty settings if it is invalid."""
    try:
        found = _PINS.decode(pins)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return Planned()
    return Planned(
        phases=tuple(each.phase for each in found.pipeline.phases),
        agent=found.config.agent,
        autonomy=found.config.autonomy,
        budget_nanousd=found.config.budget.run_nanousd,
    )
