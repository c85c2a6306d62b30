"""Facts: what a pipeline is. Nothing in the engine knows a phase or a pipeline by name; it reads these."""

from __future__ import annotations

from typing import Literal

import msgspec

Autonomy = Literal["supervised", "checkpoint", "full_auto"]
Tool = Literal["read", "write", "shell"]
DeliveryStep = Literal["merge_base", "push", "open_pr", "await_checks"]


class Definition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base: an unknown key in a pipeline file is an error."""


class AgentUse(Definition, frozen=True, kw_only=True):
    """Which agent a phase calls, and how."""

    role: str
    tier: Literal["cheap", "mid", "premium"] = "mid"
    tools: tuple[Tool, ...] = ("read", "write")
    session: Literal["fresh", "continue"] | None = None
    """Whether this phase's calls go on in the feature's session; absent: as `sessions` in mz.yaml says."""


class Timeout(Definition, frozen=True, kw_only=True):
    """Written `timeout: {total: 30m, idle: 5m}`; seconds once loaded, in the pins too."""

    total_seconds: int = msgspec.field(default=1800, name="total")
    idle_seconds: int = msgspec.field(default=300, name="idle")
    """Without a byte of output."""


class Input(Definition, frozen=True, kw_only=True):
    artifact: str


class Context(Definition, frozen=True, kw_only=True):
    """Files of the worktree that go into the prompt, within a token budget."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    token_budget: int = 2000


class Output(Definition, frozen=True, kw_only=True):
    """An artifact that the phase must hand over: a file, or the reply itself where `path` is absent."""

    artifact: str
    path: str | None = None
    """May hold `{feature}` and `{unit}`."""
    rules: str
    """Name of a rule set."""


class Preparation(Definition, frozen=True, kw_only=True):
    """A command of `mz.yaml`, run before the agent is called; its result goes into the prompt."""

    run: str
    output: str
    per: Literal["unit", "phase"] = "unit"
    must_pass: bool = False
    """A failure blocks the phase before an agent is paid."""


class Gate(Definition, frozen=True, kw_only=True):
    """Either a command of `mz.yaml` or a rule over the artifacts and the tree; exactly one of `run` and `rule`."""

    run: str | None = None
    rule: str | None = None
    cause: str = ""
    """Of the block, once attempts are used up; empty: the phase's own name."""
    per: Literal["unit", "phase"] = "unit"

    @property
    def name(self) -> str:
        return self.run or self.rule or ""


class Review(Definition, frozen=True, kw_only=True):
    """A second agent call over the same tree; never in the builder's session or context."""

    role: str
    tier: Literal["cheap", "mid", "premium"] = "mid"
    tools: tuple[Tool, ...] = ("read",)
    independent: bool = True
    output: str
    """Artifact: the verdict, taken from the reply."""
    rules: str = "verdict"
    prompt: str


class HumanGate(Definition, frozen=True, kw_only=True):
    """When a person is asked, after the review: an artifact's field has one of these values, or a rule is broken, or
    neither is named (always); and only under these levels of autonomy."""

    artifact: str | None = None
    field: str | None = None
    values: tuple[str, ...] = msgspec.field(default=(), name="in")
    rule: str | None = None
    autonomy: tuple[Autonomy, ...] = ("supervised", "checkpoint", "full_auto")

    @property
    def name(self) -> str:
        return self.rule or (f"{self.artifact}.{self.field}" if self.artifact else "checkpoint")


class Route(Definition, frozen=True, kw_only=True):
    """Where a block with this cause leads."""

    cause: str
    to: str
    scope: Literal["phase", "unit", "tree"] = "phase"
    """phase: the tree from before `to` is restored. unit: only this unit and its dependents, on the present tree. tree:
    the whole of `to` and what follows it, on the present tree."""
    times: int | None = None
    """How often this cause may lead there before a person decides; absent: as often as the other limits allow."""


class ForEach(Definition, frozen=True, kw_only=True):
    """One cell per unit that the artifact lists."""

    artifact: str
    item: str = "unit"
    order: Literal["depends_on", "listed"] = "depends_on"


class Claim(Definition, frozen=True, kw_only=True):
    """Before this phase, the feature claims the files that the artifact lists; a file in flight holds the feature."""

    artifact: str


class Phase(Definition, frozen=True, kw_only=True):
    phase: str
    agent: AgentUse | None = None
    timeout: Timeout = Timeout()
    prompt: str | None = None
    """Name of a template."""
    inputs: tuple[Input, ...] = ()
    claim: Claim | None = None
    context: Context = Context()
    prepare: tuple[Preparation, ...] = ()
    for_each: ForEach | None = None
    outputs: tuple[Output, ...] = ()
    mutations: tuple[str, ...] = ()
    """Patterns (as in .gitignore, `!` takes back) of what may change beyond the outputs; `{unit.files}` and
    `{feature}` are expanded. Empty: the outputs only."""
    gates: tuple[Gate, ...] = ()
    review: Review | None = None
    human: tuple[HumanGate, ...] = ()
    attempts: int = 3
    """Replies that rules or gates may refuse, in all, per iteration."""
    retries: int = 3
    """Failed or lost calls after the first, counted apart."""
    on_block: tuple[Route, ...] = ()
    commit: str | None = None
    """Subject of the engine's commit; may hold `{feature}`, `{title}`, `{phase}` and `{unit}`. Absent: a plain one."""
    deliver: tuple[DeliveryStep, ...] = ()


class Pipeline(Definition, frozen=True, kw_only=True):
    pipeline: str
    version: int
    dependencies: Literal["stacked", "merged"] = "stacked"
    """Stacked: a dependent starts from the delivered dependency's commit. Merged: it waits until the dependency's pull
    request is merged, and starts from the base."""
    terminal: Literal["delivered"] = "delivered"
    rollbacks_max: int = 6
    phases: tuple[Phase, ...]

    def find(self, name: str) -> Phase:
        """Raises KeyError for a phase that is not there."""
        for phase in self.phases:
            if phase.phase == name:
                return phase
        raise KeyError(name)
