"""Pins: the inputs that a run fixes at its start. `RunStarted` cites them as one blob; every decision reads them."""

from __future__ import annotations

from functools import cache
from typing import Self

import msgspec
from msgspec.structs import replace
from mz_events.catalog.run import RunStarted
from mz_projections.memory.learnings import DEFAULT_RULES, MemoryRules
from mz_projections.rewards.reward import Rewards

from mz_engine.decoding.quantity import decode_quantity, encode_quantity
from mz_engine.model.card import Guidance
from mz_engine.model.config import Command, Config
from mz_engine.model.pipeline import Edit, Phase, PhaseOutput, Pipeline
from mz_engine.model.rules import JUDGED, ExactIds, FieldRule, ProseRule, RuleSet
from mz_engine.ref_names import fill

MET, BROKEN = "met", "broken"


class Pins(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pipeline: Pipeline
    rules: dict[str, RuleSet]
    templates: dict[str, str]
    config: Config
    memory: MemoryRules = DEFAULT_RULES
    without: tuple[str, ...] = ()
    """Ids of learnings that no prompt shows; of a fork that measures their effect."""
    rewards: Rewards | None = None
    """Those that the pipeline names."""
    guidance: dict[str, Guidance] = {}
    """By phase, of phases with a card or skills."""
    first_commands: Commands | None = None
    """Those with which the run started, if a resumed run read them again."""

    def of_kind(self, kind: str) -> Pins:
        """Return the pins for an item of this kind, which goes through phases of its own."""
        return replace(self, pipeline=self.pipeline.of_kind(kind)) if self.pipeline.items else self

    @property
    def edits(self) -> dict[str, Edit]:
        """Return the edits by name, without those that change nothing: so the settings turn one off."""
        edits = {**self.pipeline.edits, **self.config.edits}
        return {name: edit for name, edit in edits.items() if edit != Edit()}

    @property
    def reads_items(self) -> bool:
        """Return True if a phase is told of other items, creates some, which must not be duplicates, or closes the
        branches of all."""
        return any(
            any(use.items for use in phase.inputs)
            or any(output.creates for output in phase.outputs)
            or "close_branches" in phase.deliver
            for phase in self.pipeline.phases
        )

    def branch(self, template: str, item: str, base: str, integration: str) -> str:
        """Return the name of a branch of an item, from a template of its kind."""
        values = {"prefix": self.config.branch_prefix, "item": item, "base": base, "integration": integration}
        return fill(template, values)

    def item_branch(self, kind: str, item: str, started: RunStarted) -> str:
        """Return the name of the branch of an item's own."""
        return self.branch(self.pipeline.find_kind(kind).branch, item, started.base, started.integration)

    def target_branch(self, kind: str, item: str, started: RunStarted) -> str:
        """Return the name of the branch that the work on an item is for."""
        return self.branch(self.pipeline.find_kind(kind).onto, item, started.base, started.integration)

    def judged_rules(self, phase: Phase) -> tuple[ProseRule, ...]:
        """Return the rules about the phase's outputs that its reviewer judges."""
        return tuple(rule for output in phase.outputs for rule in self.rules[output.rules].judged_rules)

    def rules_of(self, phase: Phase, output: PhaseOutput) -> RuleSet:
        """Return the rule set of an output; a verdict also has to answer each judged rule."""
        rules, review = self.rules[output.rules], phase.agent_review
        judged = self.judged_rules(phase) if review is not None and output.artifact == review.output else ()
        return replace(rules, rules=(*rules.rules, *answer_rules(rules.name, judged))) if judged else rules


def answer_rules(name: str, judged: tuple[ProseRule, ...]) -> tuple[FieldRule | ExactIds, ...]:
    """Return the rules of a verdict that has to answer each judged rule."""
    listed = "; ".join(f"`{rule.id}`: {rule.requirement}" for rule in judged)
    wanted = f"`{JUDGED}` is a list with one object for each of these rules, with its `id` and `result`: {listed}"
    return (
        FieldRule(id=f"{name}.judged", field=JUDGED, type="objects", requirement=wanted, message="`judged` {found}"),
        ExactIds(
            id=f"{name}.judged_ids", field="id", within=JUDGED, values=tuple(rule.id for rule in judged),
            requirement="Each of these rules is answered once.", message="`judged`: {found}",
        ),
        FieldRule(
            id=f"{name}.judged_result", field="result", within=JUDGED, type="choice", values=(MET, BROKEN),
            requirement="Each answer has a `result`: {values}.", message="answer {item}: `result` {found}",
        ),
        FieldRule(
            id=f"{name}.judged_reason", field="reason", within=JUDGED, type="text", min=1,
            requirement="Each answer has a `reason`.", message="answer {item}: `reason` {found}",
        ),
    )  # fmt: skip


class Commands(msgspec.Struct, frozen=True):
    """The settings that a resumed run takes over when they were corrected; `CommandsChanged` cites them as a blob."""

    commands: dict[str, Command]
    setup: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    """`workspace.inputs`, on which the set-up depends."""
    read: tuple[str, ...] = ()
    """`sandbox.read`: what they may read of HOME."""
    pass_environment: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Config) -> Self:
        workspace, read, passed = config.workspace, config.sandbox.read, config.pass_environment
        return cls(config.commands, workspace.setup, workspace.inputs, read, passed)

    def apply(self, pins: Pins) -> Pins:
        workspace = replace(pins.config.workspace, setup=self.setup, inputs=self.inputs)
        sandbox, passed = replace(pins.config.sandbox, read=self.read), self.pass_environment
        changes = {"commands": self.commands, "workspace": workspace, "sandbox": sandbox, "pass_environment": passed}
        first = pins.first_commands or Commands.of(pins.config)
        return replace(pins, config=replace(pins.config, **changes), first_commands=first)

    def changes_from(self, earlier: Commands) -> tuple[str, ...]:
        """Return what differs from earlier ones, as lines of a diff: `- commands.test: old`, `+ commands.test: new`."""
        texts = {"-": earlier._texts(), "+": self._texts()}
        changed = dict(sorted(texts["-"].items() ^ texts["+"].items()))
        return tuple(f"{sign} {name}: {texts[sign][name]}" for name in changed for sign in texts if name in texts[sign])

    def _texts(self) -> dict[str, str]:
        """Return each setting that is not empty on one line: line breaks in commands are escaped."""
        lists = {"workspace.setup": self.setup, "workspace.inputs": self.inputs, "sandbox.read": self.read}
        lists["pass_environment"] = self.pass_environment
        texts = {name: msgspec.json.encode(values).decode() for name, values in lists.items() if values}
        for name, command in self.commands.items():
            texts |= {f"commands.{name}": repr(command.run)[1:-1], f"commands.{name}.timeout": command.timeout.format()}
        return texts


_ENCODER = msgspec.json.Encoder(enc_hook=encode_quantity, order="deterministic")


def encode_pins(pins: Pins | Commands) -> bytes:
    """Encode pins canonically: the same pins give the same bytes."""
    return _ENCODER.encode(pins)


def decode_pins(data: bytes) -> Pins:
    return _decoder().decode(data)


def decode_commands(data: bytes) -> Commands:
    return msgspec.json.decode(data, type=Commands, dec_hook=decode_quantity)


@cache
def _decoder() -> msgspec.json.Decoder[Pins]:
    """Return the decoder, made at the first use: making it takes longer than short commands, which decode no pins."""
    return msgspec.json.Decoder(Pins, dec_hook=decode_quantity)
