"""The settings of one repository, from `mz.yaml`, the environment and flags. Each run pins them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from mz_engine.model.agent_description import AgentDescription
from mz_engine.model.pipeline import Autonomy


class SettingsBase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the settings; an unknown key in `mz.yaml` is an error."""


class Command(SettingsBase, frozen=True, kw_only=True):
    """A command line of the user, run in the worktree with `sh -c`."""

    run: str
    timeout_seconds: int = 600


class WorkspaceSettings(SettingsBase, frozen=True, kw_only=True):
    setup: tuple[str, ...] = ()
    """Run once per worktree; a fresh one has neither dependencies nor build results."""
    copy: tuple[str, ...] = ()
    """Ignored files of the main checkout to copy into each worktree."""
    keep: tuple[str, ...] = ("node_modules", ".venv")
    """Ignored paths that survive when a tree is restored."""


class PullRequests(SettingsBase, frozen=True, kw_only=True):
    strategy: Literal["none", "draft", "ready"] = "none"
    remote: str = "origin"
    checks_wait_seconds: int = 3600
    """Maximum time that CI checks may be pending before a person is asked."""
    checks_poll_seconds: int = 30
    checks_grace_seconds: int = 60
    """Time after the push in which CI checks may still appear; after it the list counts as complete."""
    flaky: tuple[str, ...] = ()
    """Names of CI checks that are known to fail at random; `*` matches anything."""
    reruns_max: int = 2
    """Maximum number of times that flaky checks are started again."""


class Budget(SettingsBase, frozen=True, kw_only=True):
    """Limits in USD, as decimal strings in `mz.yaml`; integers of nano-dollars here. None: no limit."""

    run_nanousd: int | None = None
    feature_nanousd: int | None = None


class Limits(SettingsBase, frozen=True, kw_only=True):
    """Numbers that rules and prompts share."""

    techspec_files_max: int = 8
    feature_criteria_max: int = 15
    feature_tasks_max: int = 20
    task_files_max: int = 5
    feature_files_max: int = 80
    wait_minutes_max: int = 60
    """A rate limit with a longer wait is a question for a person."""
    failover_wait_seconds: int = 300
    """A rate limit with a longer wait switches to the next agent of `failover`."""


class Models(SettingsBase, frozen=True, kw_only=True):
    """Models of the configured agent by tier; None: the adapter's default."""

    cheap: str | None = None
    mid: str | None = None
    premium: str | None = None


class Rates(SettingsBase, frozen=True, kw_only=True):
    """Prices in nano-dollars for a million tokens. None: the price of the more general kind of token."""

    input: int
    output: int
    cache_read: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None


class PriceRow(SettingsBase, frozen=True, kw_only=True):
    """The user's prices of a model from a date on; they come before the built-in table."""

    model: str
    """As the agent names it; `*` matches anything."""
    since: str = ""
    """`YYYY-MM-DD`, UTC; empty: always."""
    rates: Rates
    above_tokens: int | None = None
    """A request with more input than this costs `above` as a whole."""
    above: Rates | None = None
    tiers: dict[str, Rates] = {}
    """By service tier."""


Ratio = Annotated[float, msgspec.Meta(ge=0, le=10**9)]
TokenCount = Annotated[int, msgspec.Meta(ge=0)]
"""Not negative: a negative reservation would enlarge the budget."""


class Coefficients(SettingsBase, frozen=True, kw_only=True):
    """Used against estimated tokens for a group of calls; empty `model` or `phase`: any."""

    agent: str
    model: str = ""
    phase: str = ""
    calls: int
    input: Ratio
    """Used / estimated input; the estimate includes a continued session."""
    output: Ratio
    """Used / estimated output."""
    cache_read: Ratio = 0.0
    """Share of the input."""
    cache_write: Ratio = 0.0
    input_tokens: TokenCount
    """Tokens of a typical call, for estimates before its prompt is known."""
    output_tokens: TokenCount


class Config(SettingsBase, frozen=True, kw_only=True):
    pipeline: str = "monozukuri"
    agent: str = "claude-code"
    failover: tuple[str, ...] = ()
    """Successors of the agent, in this order, for when it cannot continue."""
    sessions: Literal["fresh", "continue"] = "fresh"
    """Default for phases: the calls of a feature's builder start new sessions, or continue one."""
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
    """Paths that no agent may change, whatever the phase allows; patterns as in .gitignore."""
    pass_environment: tuple[str, ...] = ()
    """Additional variables that agents and commands may see."""
    recordings: str = "recordings"
    """The library: a folder of cassettes."""
    agents: dict[str, AgentDescription] = {}
    """The user's own agents, by name."""
    prices: tuple[PriceRow, ...] = ()
    """They come before the built-in table."""
    calibration: tuple[Coefficients, ...] = ()
    """From `calibration.yaml`; a call uses the coefficients of the narrowest group that it belongs to."""
