"""Facts: the settings of one repository, as `mz.yaml`, the environment and the flags leave them. Pinned by each run."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from mz_engine.agents.generic_form import AgentDescription
from mz_engine.pipelines.definition import Autonomy


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: an unknown key in `mz.yaml` is an error."""


class Command(Setting, frozen=True, kw_only=True):
    """A shell command line of the user's, run in the worktree with `sh -c`."""

    run: str
    timeout_seconds: int = 600


class WorkspaceSettings(Setting, frozen=True, kw_only=True):
    setup: tuple[str, ...] = ()
    """Run once per worktree; a fresh one has neither dependencies nor build results."""
    copy: tuple[str, ...] = ()
    """Ignored files of the main checkout to copy into each worktree."""
    keep: tuple[str, ...] = ("node_modules", ".venv")
    """Ignored paths that survive when a tree is restored."""


class PullRequests(Setting, frozen=True, kw_only=True):
    strategy: Literal["none", "draft", "ready"] = "none"
    remote: str = "origin"
    checks_wait_seconds: int = 3600
    """How long checks may be pending before a person is asked."""
    checks_poll_seconds: int = 30
    checks_grace_seconds: int = 60
    """So long after the push checks may still appear; those that are there then are all."""
    flaky: tuple[str, ...] = ()
    """Names of checks that are known to fail for nothing; `*` stands for anything."""
    reruns_max: int = 2
    """How often those are started again."""


class Budget(Setting, frozen=True, kw_only=True):
    """Limits in USD, as decimal strings in `mz.yaml`; integers of nano-dollars here. None: no limit."""

    run_nanousd: int | None = None
    feature_nanousd: int | None = None


class Limits(Setting, frozen=True, kw_only=True):
    """Numbers that rules and prompts share."""

    techspec_files_max: int = 8
    feature_criteria_max: int = 15
    feature_tasks_max: int = 20
    task_files_max: int = 5
    feature_files_max: int = 80
    wait_minutes_max: int = 60
    """A rate limit that asks for more is a question for a person."""
    failover_wait_seconds: int = 300
    """A rate limit that asks for more is a reason to go on with the next agent of `failover`."""


class Models(Setting, frozen=True, kw_only=True):
    """What a tier means for the chosen agent; None: the adapter's own default for the tier."""

    cheap: str | None = None
    mid: str | None = None
    premium: str | None = None


class Rates(Setting, frozen=True, kw_only=True):
    """Prices in nano-dollars for a million tokens. None: as the kind of token that this one is a special case of."""

    input: int
    output: int
    cache_read: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None


class PriceRow(Setting, frozen=True, kw_only=True):
    """What a model costs from a day on, by people who know better than the table."""

    model: str
    """As the agent names it; `*` stands for anything."""
    since: str = ""
    """`YYYY-MM-DD`, UTC; empty: always."""
    rates: Rates
    above_tokens: int | None = None
    """A request with more input than this costs `above`, all of it."""
    above: Rates | None = None
    tiers: dict[str, Rates] = {}
    """By service tier."""


Ratio = Annotated[float, msgspec.Meta(ge=0, le=10**9)]
TokenCount = Annotated[int, msgspec.Meta(ge=0)]
"""Below zero a reservation would make room in a budget."""


class Coefficients(Setting, frozen=True, kw_only=True):
    """What calls of an agent took, against what was estimated; empty `model` or `phase`: any."""

    agent: str
    model: str = ""
    phase: str = ""
    calls: int
    input: Ratio
    """Tokens of input for each one that is reserved without it: of the prompt, and of what its session holds."""
    output: Ratio
    """Tokens of output for each token of reply that the estimate assumes."""
    cache_read: Ratio = 0.0
    """Share of the input."""
    cache_write: Ratio = 0.0
    input_tokens: TokenCount
    """Of a typical call, for estimates before there is a prompt."""
    output_tokens: TokenCount


class Config(Setting, frozen=True, kw_only=True):
    pipeline: str = "monozukuri"
    agent: str = "claude-code"
    failover: tuple[str, ...] = ()
    """Agents that take over, in this order, where the one before cannot go on."""
    sessions: Literal["fresh", "continue"] = "fresh"
    """Whether the calls of a feature's builder go on in one session, in phases that do not say so themselves."""
    base: str | None = None
    """None: the branch that is checked out."""
    backlog: str = "features.md"
    branch_prefix: str = "feat"
    autonomy: Autonomy = "checkpoint"
    parallel_max: int = 2
    sanitize: Literal["strict", "relaxed", "off"] = "strict"
    models: Models = Models()
    commands: dict[str, Command] = {}
    """By name: test, lint, build, ...; pipelines name them in `run`."""
    workspace: WorkspaceSettings = WorkspaceSettings()
    pull_requests: PullRequests = PullRequests()
    budget: Budget = Budget()
    limits: Limits = Limits()
    denied_paths: tuple[str, ...] = (
        ".github/**",
        ".env",
        ".env.*",
        "*.pem",
        "*.p12",
        "*.pfx",
        "*.key",
        "mz.yaml",
        ".mz/**",
    )
    """Never changed by an agent, whatever the phase allows; patterns as in .gitignore."""
    pass_environment: tuple[str, ...] = ()
    """Further variables that agents and commands may see."""
    recordings: str = "recordings"
    """The folder of the recorded agent calls, a cassette each folder in it."""
    agents: dict[str, AgentDescription] = {}
    """Programs of the user's, by the names under which they are agents."""
    prices: tuple[PriceRow, ...] = ()
    """Before those of the table."""
    calibration: tuple[Coefficients, ...] = ()
    """From `calibration.yaml`; the most exact one that fits a call counts."""
