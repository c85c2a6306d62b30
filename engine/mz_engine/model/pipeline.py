"""Types of a pipeline. Nothing in the engine knows a phase or a pipeline by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from mz_events.names import BUILDER
from mz_projections.memory.evidence import Kind

from mz_engine.decoding.quantity import Duration, default_duration
from mz_engine.model.agent_description import NonEmpty, Pattern, RepositoryPath, doc, parsed_by
from mz_engine.ref_names import parse_ref_name

CHECKS = "checks"
"""Cause of a block: failed CI checks."""
REVISION = "revision"
"""Cause that routes a person's request to revise delivered work."""
ENGINE_CAUSES = frozenset({CHECKS, REVISION, "base", "baseline", "call", "inputs", "person", "reply"})
"""Causes of blocks that only the engine and people raise."""
PERSON = "person"
"""Stands for a phase where a route leads to a person."""
Autonomy = Literal["supervised", "checkpoint", "full_auto"]
Tool = Literal["read", "write", "shell"]
RESULT_FIELDS = ("exit", "passed", "failed", "coverage")
"""Fields of the result of a command."""
NamedStep = Literal["merge_base", "push", "open_pr", "await_checks", "merge", "close_branch", "close_branches"]
TAG = "tag"
Ending = Literal["merged", "delivered", "tagged", "done"]
ENDINGS: tuple[Ending, ...] = ("merged", "delivered", "tagged", "done")
"""Of the steps of a pipeline, the first of these counts."""


class StepRule(NamedTuple):
    """What a delivery step may come before and after, and what it leads to."""

    needs: str = ""
    """A step that comes before it in the same phase."""
    not_after: tuple[str, ...] = ()
    """Steps that it cannot follow, in its phase or an earlier one."""
    ends_work: bool = False
    """The branch is handed over: later phases change nothing on it."""
    uses_remote: bool = False
    """Left out where nothing leaves the machine."""
    changes_refs: bool = False
    """Changes branches or tags of the user's, which a fork leaves alone."""
    ending: Ending = "done"
    """How a feature ends whose pipeline has the step."""


CLOSING = ("close_branch", "close_branches")
HANDED_OVER = ("open_pr", "merge", *CLOSING)
STEPS: Mapping[str, StepRule] = {
    "merge_base": StepRule(not_after=("push", *HANDED_OVER)),
    "push": StepRule(not_after=HANDED_OVER, uses_remote=True),
    "open_pr": StepRule(needs="push", not_after=HANDED_OVER, ends_work=True, ending="delivered"),
    "await_checks": StepRule(needs="open_pr", not_after=("merge", *CLOSING), uses_remote=True),
    "merge": StepRule(
        needs="merge_base", not_after=("merge", *CLOSING), ends_work=True, changes_refs=True, ending="merged"
    ),
    TAG: StepRule(changes_refs=True, ending="tagged"),
    "close_branch": StepRule(not_after=CLOSING, changes_refs=True),
    "close_branches": StepRule(not_after=CLOSING, changes_refs=True),
}
"""The delivery steps, in their usual order."""


class PipelineStruct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base: an unknown key in a pipeline file is an error."""


class Condition(PipelineStruct, frozen=True, kw_only=True):
    """Holds if a rule is broken, if an artifact's field or the unit's has one of these values, or after so many
    rollbacks of the phase or unit; always, if none of these is named."""

    rule: str | None = None
    artifact: str | None = None
    field: str | None = None
    unit: str | None = None
    """Name of a field of the unit."""
    values: tuple[str, ...] = msgspec.field(default=(), name="in")
    rolled_back: int | None = None

    @property
    def name(self) -> str:
        named = (self.rule, self.artifact and f"{self.artifact}.{self.field}", self.unit and f"unit.{self.unit}")
        return next(filter(None, named), "checkpoint" if self.rolled_back is None else "rolled_back")


Tier = Literal["cheap", "mid", "premium"]
TIERS: tuple[Tier, ...] = ("cheap", "mid", "premium")
"""From the cheapest to the best."""


class Escalation(Condition, frozen=True, kw_only=True):
    """A better tier for the calls for which the condition holds."""

    to: Tier


class AgentUse(PipelineStruct, frozen=True, kw_only=True):
    """How a phase calls its agent."""

    tier: Tier = "mid"
    escalate: tuple[Escalation, ...] = ()
    tools: tuple[Tool, ...] = ("read", "write")
    role: str | None = None
    """Name of a card, whose persona heads the prompt."""
    needs: tuple[str, ...] = ()
    """Instead of `role`: capabilities that the card must have; it is chosen when a run starts."""
    skills: tuple[str, ...] = ()
    """Names of skills that the calls are given, beside those of the card."""
    session: Literal["fresh", "continue"] | None = None
    """Continue the feature's agent session or start one; absent: `sessions` in mz.yaml decides."""
    not_as: str | None = None
    """An earlier phase: the call shares no session with its builder and, with `independence: agent`, no agent."""


class Timeout(PipelineStruct, frozen=True, kw_only=True):
    total: Duration = default_duration("30m")
    idle: Duration = default_duration("5m")
    """Without a byte of output."""


ITEMS = "items."
"""What the name of an input of items begins with."""
Record = Literal["patch", "results", "approvals", "order", "history", "secrets", "notes"]
RECORDS_OF_PHASES = ("patch", "results")
"""Records that need a phase; the others are also about the whole feature."""


class PhaseInput(PipelineStruct, frozen=True, kw_only=True):
    """What a prompt shows: an artifact of an earlier phase, or the record of what a phase did."""

    artifact: str | None = None
    record: Record | None = None
    """`patch`: the changes of the phase `of` as a unified diff, without papers. `results`: the exit codes and numbers
    of tests of the commands that mz ran in it. The others are texts computed from the feature's stream: what accepted
    each phase, the order of units, what happened, secrets that agents wrote, and a memory of the work."""
    of: str | None = None
    items: str | None = None
    """Instead: all items of this kind that the run has when the work begins, with what became of them."""
    units: Literal["all", "own", "dependencies"] = "all"
    """Of an artifact with one text per unit: those of all units, of the same unit, or of those that it depends on."""
    optional: bool = False
    """The phase starts without it too."""

    @property
    def name(self) -> str:
        return self.artifact or ".".join(filter(None, (self.of, self.record))) or f"{ITEMS}{self.items}"


FILES_TOKENS_MAX = 2000
"""Limit of the files in a prompt where a phase has none of its own."""


class PhaseContext(PipelineStruct, frozen=True, kw_only=True):
    """What the agents of a phase are shown beside their task."""

    files: tuple[str, ...] | None = None
    """Patterns of the files that they see, besides inputs, outputs and what was changed for the unit; absent: all."""
    include: tuple[str, ...] = ()
    """Patterns of files that go into the prompt."""
    exclude: tuple[str, ...] = ()
    tokens_max: int | None = None
    """Limit of the prompt without rules and instructions; absent: only the files are limited."""
    token_budget: int | None = None
    """Limit of the files alone in pipelines that an older mz pinned."""
    learnings: Annotated[int, Meta(ge=0)] = 300
    """Tokens of learnings from earlier work; 0: none."""


class PhaseOutput(PipelineStruct, frozen=True, kw_only=True):
    """An artifact that the phase must produce: a file, or the reply itself without `path`."""

    artifact: str
    path: str | None = None
    """May contain `{feature}` and `{unit}`."""
    rules: str
    """Name of a rule set."""
    delivered: bool = False
    """The file is part of the work; otherwise it is a paper."""
    creates: str | None = None
    """Kind of the items that its units become."""


class PreparedCommand(PipelineStruct, frozen=True, kw_only=True):
    """A command of `mz.yaml`, run before the agent is called; its result goes into the prompt."""

    run: str
    result: str
    """Name of the result in the prompt."""
    per: Literal["unit", "phase"] = "unit"
    must_pass: bool = False
    """A failure blocks the phase before an agent is paid."""
    cause: str = ""
    """Cause of that block; empty: `baseline`."""
    output: str | None = None
    """Artifact with the result, for conditions and later phases."""


class Gate(PipelineStruct, frozen=True, kw_only=True):
    """Either a command of `mz.yaml` or a rule over the artifacts and the tree; exactly one of `run` and `rule`."""

    run: str | None = None
    rule: str | None = None
    cause: str = ""
    """Cause of the block once attempts are used up; empty: the phase's own name."""
    output: str | None = None
    """Artifact with the result of the command, for conditions and later phases."""
    per: Literal["unit", "phase"] = "unit"

    @property
    def name(self) -> str:
        return self.run or self.rule or ""


class AgentReview(PipelineStruct, frozen=True, kw_only=True):
    """A second agent call over the same tree; never in the builder's session or context."""

    role: str
    when: tuple[Condition, ...] = ()
    """Only if one of these holds; empty: always."""
    tier: Tier = "mid"
    escalate: tuple[Escalation, ...] = ()
    tools: tuple[Tool, ...] = ("read",)
    not_as: str | None = None
    """This phase or an earlier one; with `independence: agent` another agent than its builder's is called."""
    output: str
    """Artifact with the verdict, extracted from the reply."""
    rules: str = "verdict"
    prompt: str


class PersonGate(Condition, frozen=True, kw_only=True):
    """When a person is asked, after the review; only under these levels of autonomy."""

    autonomy: tuple[Autonomy, ...] = ("supervised", "checkpoint", "full_auto")


RefName = Annotated[str, parsed_by(parse_ref_name)]
"""Name of a branch or tag; may contain placeholders."""


class TagStep(PipelineStruct, frozen=True, kw_only=True):
    """Tag a commit."""

    tag: RefName
    at: Literal["head", "base", "merge"] = "head"
    """head: of the feature's branch. base: of the target before the merge, else the commit that the branch last took
    in or began with. merge: of the target after it."""


class BlockRoute(PipelineStruct, frozen=True, kw_only=True):
    """Target of a block with this cause."""

    cause: str
    to: str
    """A phase, or `person`: a person decides."""
    scope: Literal["phase", "unit", "tree"] = "phase"
    """phase: restore the tree from before `to`. unit: only the units concerned and their dependents, on the current
    tree. tree: the whole of `to` and what follows it, on the current tree."""
    max_times: int | None = None
    """How often this cause may take the route before a person decides; absent: limited by the other settings only."""


class ForEach(PipelineStruct, frozen=True, kw_only=True):
    """Run the phase once per unit that the artifact lists."""

    artifact: str
    item: str = "unit"
    order: Literal["depends_on", "listed"] = "depends_on"


class Claim(PipelineStruct, frozen=True, kw_only=True):
    """Before this phase, the feature claims the files that the artifact lists; it is held while another has one of
    them."""

    artifact: str


ItemSource = Literal["backlog", "output", "start", "cycle", "finish", "cancel"]
Limit = int | str
"""A number, or the name of one of the `limits` of mz.yaml."""


class ItemKind(PipelineStruct, frozen=True, kw_only=True):
    """A kind of items: where they come from, between which branches their work goes, and limits.

    Names of branches may contain `{prefix}`, `{item}`, `{base}` and `{integration}`."""

    kind: str
    sources: tuple[ItemSource, ...] = msgspec.field(name="from")
    """backlog: the backlog. output: outputs with `creates`. The others are one item each, which the run adds: start:
    before all others. cycle: in each cycle. finish, cancel: when a person ends the run."""
    branch: RefName = "{prefix}/{item}"
    starts: RefName = ""
    """Branch whose newest commit is the start; empty: `onto`."""
    onto: RefName = "{base}"
    """Branch that the work is for."""
    parallel: Limit | None = None
    """How many are worked on at the same time; absent: `parallel_max` alone limits it. Items of which both list a file
    are never worked on at the same time."""
    attempts: Limit = 1
    """How often one that failed is begun in all, once in each cycle."""
    when_stuck: Literal["ask", "fail"] = "ask"
    """ask: a person decides where nothing works. fail: the item fails."""


FEATURE = ItemKind(kind="", sources=("backlog",))
"""The kind of all items of a pipeline that defines none."""


class Cycle(PipelineStruct, frozen=True, kw_only=True):
    """How often work is planned and worked off."""

    max: Limit
    unchanged_max: Limit
    """So many cycles in a row in which nothing was delivered are the last."""


class Phase(PipelineStruct, frozen=True, kw_only=True):
    phase: str
    kind: str = msgspec.field(default="", name="for")
    """The kind of items that go through the phase; only where the pipeline defines kinds."""
    when: tuple[Condition, ...] = ()
    """Each of its units is skipped unless one of these holds; empty: never skipped."""
    required: bool = True
    """False: where its failure would ask a person or halt the run, the feature continues without it."""
    agent: AgentUse | None = None
    timeout: Timeout = msgspec.field(default_factory=Timeout)
    prompt: str | None = None
    """Name of a template."""
    inputs: tuple[PhaseInput, ...] = ()
    claim: Claim | None = None
    context: PhaseContext = PhaseContext()
    edit: str | None = None
    """Name of a change of files in mz.yaml, which is made before the agent is called."""
    prepare: tuple[PreparedCommand, ...] = ()
    for_each: ForEach | None = None
    outputs: tuple[PhaseOutput, ...] = ()
    writable: tuple[str, ...] = ()
    """Patterns (as in .gitignore, `!` excludes) of allowed changes beyond the outputs; `{unit.files}` and `{feature}`
    are expanded. Empty: the outputs only."""
    gates: tuple[Gate, ...] = ()
    agent_review: AgentReview | None = None
    ask_person: tuple[PersonGate, ...] = ()
    attempts: int = 3
    """Replies that rules or gates may reject per iteration."""
    retries: int = 3
    """Failed or lost calls after the first, counted separately."""
    on_block: tuple[BlockRoute, ...] = ()
    commit: str | None = None
    """Subject of the engine's commit; may contain `{feature}`, `{title}`, `{phase}` and `{unit}`. Absent: a plain
    one."""
    deliver: tuple[NamedStep | TagStep, ...] = ()

    @property
    def steps(self) -> dict[str, NamedStep | TagStep]:
        """Return the delivery steps in their order, by names that are unique in the phase."""
        return {step if isinstance(step, str) else f"{TAG}.{at}": step for at, step in enumerate(self.deliver)}

    @property
    def hands_over(self) -> bool:
        """Return True if later phases change nothing on the branch."""
        return any(STEPS[kind_of(step)].ends_work for step in self.deliver)

    @property
    def raisable_causes(self) -> tuple[str, ...]:
        """Return the causes that the phase's agent may block it with: those with a route that nothing else raises."""
        others = {gate.cause or self.phase for gate in self.gates} | ENGINE_CAUSES
        others |= {preparation.cause for preparation in self.prepare}
        return tuple(route.cause for route in self.on_block if route.cause not in others)

    @property
    def calls(self) -> tuple[AgentUse | AgentReview, ...]:
        """Return how the phase calls its builder and its reviewer, as far as it has them."""
        return tuple(use for use in (self.agent, self.agent_review) if use is not None)

    def call_of(self, role: str) -> AgentUse | AgentReview:
        """Return how the phase calls this role."""
        use = self.agent if role == BUILDER else self.agent_review
        assert use is not None
        return use


def kind_of(step: NamedStep | TagStep) -> str:
    """Return the key of a step in `STEPS`."""
    return step if isinstance(step, str) else TAG


def label_of(step: NamedStep | TagStep) -> str:
    """Return what people read of a step."""
    return step if isinstance(step, str) else f"{TAG} {step.tag}"


class CheckBase(PipelineStruct, frozen=True, kw_only=True, tag_field="kind"):
    """A rule over the feature with arguments; `rule:` names it as it does built-in ones."""


class ChangesCheck(CheckBase, frozen=True, kw_only=True):
    """A rule about changed files, without outputs of phases."""

    over: Literal["feature", "unit"] = "feature"
    """All changes of the feature, or those of the present phase or unit."""


class PathsCheck(ChangesCheck, frozen=True, kw_only=True, tag="paths"):
    """No file that matches these patterns changed."""

    patterns: tuple[str, ...]


class AddedCheck(ChangesCheck, frozen=True, kw_only=True, tag="added"):
    """No added line matches the regular expression."""

    pattern: str
    files: tuple[str, ...] = ()
    """Patterns of the files that are searched; empty: all."""
    unless_in: str | None = None
    """Artifact whose text may name the match, or its first group."""


class RequestCheck(CheckBase, frozen=True, kw_only=True, tag="request"):
    """The request does not match the regular expression."""

    pattern: str


class ValueCheck(CheckBase, frozen=True, kw_only=True, tag="value"):
    """These artifacts have one of these values in a field; absent ones are no violation."""

    artifacts: tuple[str, ...]
    field: str
    values: tuple[str, ...] = msgspec.field(name="in")


class FirstCheck(CheckBase, frozen=True, kw_only=True, tag="first"):
    """Each id of the artifact was in that of a feature delivered before the artifact was written."""

    artifact: str


class NoLearningCheck(CheckBase, frozen=True, kw_only=True, tag="no_learning"):
    """The call is given a learning of this kind."""

    of: Kind


Check = PathsCheck | AddedCheck | RequestCheck | ValueCheck | FirstCheck | NoLearningCheck


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of files by mz itself: first some are deleted, then some are written."""

    delete: Annotated[
        tuple[Pattern, ...], doc("Files that are deleted, but for those of `denied_paths`; patterns as in .gitignore.")
    ] = ()
    write: Annotated[
        dict[RepositoryPath, NonEmpty],
        doc(
            "Files that are written, each with a template of pipelines/templates/edits/: `go.mod: edits/go.mod.j2`. "
            "Paths and patterns may contain `{item}` and `{integration}`."
        ),
    ] = {}


class Pipeline(PipelineStruct, frozen=True, kw_only=True):
    REPLACED: ClassVar[Mapping[str, str]] = {
        "terminal": "leave it out: how a feature ends follows from the steps under `deliver`"
    }
    """Keys of earlier versions, and what to do instead."""
    pipeline: str
    version: int
    dependencies: Literal["stacked", "merged"] = "stacked"
    """Stacked: a dependent starts from the delivered dependency's commit. Merged: it waits until the dependency's pull
    request is merged, and starts from the base."""
    rollbacks_max: int = 6
    block_file: str | None = None
    """File that an agent may write instead of its outputs, to block its phase; may contain `{feature}`, `{phase}` and
    `{unit}`."""
    rewards: str | None = None
    """Name of a file that says how well a feature went."""
    checks: dict[str, Check] = {}
    """Rules of its own by name."""
    edits: dict[str, Edit] = {}
    """Its edits by name; those of mz.yaml with the same name take their place."""
    integration: RefName = ""
    """Name of the branch of a run into which its items are merged; may contain `{time}`. Empty: there is none."""
    cycle: Cycle | None = None
    items: tuple[ItemKind, ...] = ()
    """Kinds of items; absent: one, for the items of the backlog."""
    phases: tuple[Phase, ...]

    @property
    def kinds(self) -> tuple[ItemKind, ...]:
        return self.items or (FEATURE,)

    def find_kind(self, name: str) -> ItemKind:
        """Return a kind of items. Raises KeyError for an unknown name."""
        for kind in self.kinds:
            if kind.kind == name:
                return kind
        raise KeyError(name)

    def kind_from(self, source: ItemSource) -> ItemKind | None:
        """Return the kind of the items that come from there, if there is one."""
        return next((kind for kind in self.kinds if source in kind.sources), None)

    def of_kind(self, kind: str) -> Pipeline:
        """Return the pipeline as items of this kind go through it."""
        if not self.items:
            return self
        phases = tuple(phase for phase in self.phases if phase.kind == kind)
        return replace(self, items=(self.find_kind(kind),), phases=phases)

    def paper_patterns(self, feature: str) -> tuple[str, ...]:
        """Return patterns of the files in which a feature's papers lie."""
        outputs = (output for phase in self.phases for output in phase.outputs if output.path and not output.delivered)
        return tuple(f"/{o.path.replace('{feature}', feature).replace('{unit}', '*')}" for o in outputs if o.path)

    @property
    def revision_phase(self) -> str:
        """Return the phase from which delivered work is revised: as the last phase routes the cause `revision`, else
        failed CI checks; else the first phase that may change more than its outputs."""
        last = max(self.phases, key=lambda phase: (phase.hands_over, bool(phase.deliver), phase is self.phases[-1]))
        routes = {route.cause: route.to for route in last.on_block}
        first = next((phase for phase in self.phases if phase.writable), self.phases[0])
        return routes.get(REVISION) or routes.get(CHECKS) or first.phase

    @property
    def calls(self) -> tuple[tuple[Phase, AgentUse | AgentReview], ...]:
        """Return each phase with how it calls its builder, and with how it calls its reviewer."""
        return tuple((phase, use) for phase in self.phases for use in phase.calls)

    def is_after_delivery(self, phase: Phase) -> bool:
        """Return True for a phase that follows the one that hands the branch over; it leaves the branch alone."""
        for other in self.phases:
            if other.phase == phase.phase or other.hands_over:
                return other.phase != phase.phase
        raise KeyError(phase.phase)

    @property
    def ending(self) -> Ending:
        """Return how a feature ends, by the delivery steps."""
        endings = {STEPS[kind_of(step)].ending for phase in self.phases for step in phase.deliver}
        return next((ending for ending in ENDINGS if ending in endings), "done")

    def is_checked_by_others(self, phase: str) -> bool:
        """Return True if a call elsewhere must not be by the agent of this phase."""
        return any(use.not_as == phase for other in self.phases for use in other.calls)

    def find_phase(self, name: str) -> Phase:
        """Return a phase. Raises KeyError for an unknown name."""
        for phase in self.phases:
            if phase.phase == name:
                return phase
        raise KeyError(name)
