"""The pins of a run as far as reports use them: its phases and their checks.

Decoded leniently: pins of any version are accepted, and unknown keys ignored.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec


class PinnedGate(msgspec.Struct, frozen=True):
    run: str | None = None
    """Command of `mz.yaml`."""
    rule: str | None = None


class PinnedPhase(msgspec.Struct, frozen=True):
    phase: str
    agent: Any = None
    """None: no agent is called."""
    outputs: tuple[Any, ...] = ()
    gates: tuple[PinnedGate, ...] = ()
    prepare: tuple[PinnedGate, ...] = ()
    agent_review: Any = None
    writable: tuple[Any, ...] = ()
    edit: str | None = None


class PinnedPipeline(msgspec.Struct, frozen=True):
    phases: tuple[PinnedPhase, ...] = ()


class PinnedConfig(msgspec.Struct, frozen=True):
    commands: dict[str, Any] = {}
    gates: dict[str, Any] = {}
    edits: dict[str, Any] = {}


class PinnedRun(msgspec.Struct, frozen=True):
    pipeline: PinnedPipeline = PinnedPipeline()
    config: PinnedConfig = PinnedConfig()

    def unconfigured_commands(self) -> dict[str, tuple[str, ...]]:
        """Return the commands that phases name but `mz.yaml` lacks, so nothing ran: by name, with the phases."""
        phases_by_command: dict[str, tuple[str, ...]] = {}
        for phase in self.pipeline.phases:
            for name in dict.fromkeys(step.run for step in (*phase.prepare, *phase.gates) if step.run):
                if name not in self.config.commands:
                    phases_by_command[name] = (*phases_by_command.get(name, ()), phase.phase)
        return phases_by_command

    def writes_nothing(self, phases: Collection[str]) -> bool:
        """Return True if none of these phases, which are known, may change a file."""
        read_only = {
            phase.phase
            for phase in self.pipeline.phases
            if not phase.writable and phase.edit not in self.config.edits
            if not any("path" in output for output in phase.outputs)
        }
        return bool(phases) and read_only.issuperset(phases)

    def unchecked_phases(self) -> tuple[str, ...]:
        """Return phases with an agent but no check: no output with rules, no gate that ran, no review."""
        return tuple(
            phase.phase
            for phase in self.pipeline.phases
            if phase.agent is not None and not phase.outputs and phase.agent_review is None
            if not any(gate.rule or gate.run in self.config.commands for gate in phase.gates)
        )


_DECODER = msgspec.json.Decoder(PinnedRun)


def decode_pinned(data: bytes) -> PinnedRun | None:
    """Return the decoded pins; None if the bytes are not pins."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
