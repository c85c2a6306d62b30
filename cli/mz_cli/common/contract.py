"""The contract of a phase, in the form of AgentSWEOS: what it needs, makes, may change and may not do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mz_engine.artifacts.validate import requirements
from mz_engine.model.config import Limits
from mz_engine.model.pipeline import Phase, Pipeline
from mz_engine.model.rules import RuleSet


def contract_of(phase: Phase, pipeline: Pipeline, rules: Mapping[str, RuleSet], limits: Limits) -> dict[str, Any]:
    """Return the contract as plain data, with the placeholders of the pipeline. Everything in it is enforced."""
    made = {output.artifact: output for other in pipeline.phases for output in other.outputs}
    paths = [output.path or output.artifact for output in phase.outputs]
    others = [output.path for other in pipeline.phases for output in other.outputs if other is not phase]
    inputs = [use for use in phase.inputs if not use.optional]
    contract = {
        "phase": phase.phase,
        "version": pipeline.version,
        "required_inputs": [
            (made[use.artifact].path or use.artifact) if use.artifact in made else use.name for use in inputs
        ],
        "produced_outputs": paths,
        "validation_rules": [
            text
            for output in phase.outputs
            if output.rules in rules
            for text in requirements(rules[output.rules], limits)
        ],
        "gates": [gate.name for gate in phase.gates],
        "allowed_mutations": [*phase.writable, *(output.path for output in phase.outputs if output.path)],
        "forbidden_actions": [f"write {path}" for path in others if path],
        "context_scope": {
            **({} if phase.context.files is None else {"files": list(phase.context.files)}),
            "include": list(phase.context.include),
            "exclude": list(phase.context.exclude),
        },
    }
    if pipeline.block_file and phase.raisable_causes:
        causes = list(phase.raisable_causes)
        signal = {"path": pipeline.block_file, "causes": causes, "reason": "required", "missing": "required"}
        contract["rollback_signal"] = signal
    return contract
