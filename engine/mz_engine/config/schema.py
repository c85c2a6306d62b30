"""`mz.yaml` as it is written, with the descriptions that editors and docs show.

`mz_engine.config.configure` parses it into the `Config` of `mz_engine.model.config`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mz_engine.config.prices import PriceForm
from mz_engine.decoding.quantity import format_duration
from mz_engine.model.agent_description import AgentDescription
from mz_engine.model.config import Command, Config, Limits, Models, PullRequests, WorkspaceSettings
from mz_engine.model.pipeline import Autonomy

FILE_NAME = "mz.yaml"
SCHEMA_PATH = ".mz/schema/mz.yaml.json"
"""The JSON Schema that `mz init` writes and the first lines of a starter file name."""

Duration = Annotated[int | str, Meta(description="Seconds, or a text such as 90s, 30m, 1h30m.", examples=["30m"])]
Money = Annotated[int | float | str, Meta(description="US dollars, best as a quoted decimal.", examples=["5.00"])]

DEFAULT_CONFIG = Config()
LIMITS = Limits()
MODELS = Models()
PULL_REQUESTS = PullRequests()
WORKSPACE = WorkspaceSettings()


class FormBase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the written settings."""


class CommandForm(FormBase, frozen=True, kw_only=True):
    run: Annotated[str, Meta(description="A command line for `sh -c`, run in the worktree.")]
    timeout: Annotated[Duration, Meta(description="How long it may take; then its whole process tree is killed.")] = (
        format_duration(Command(run="").timeout_seconds)
    )


class WorkspaceForm(FormBase, frozen=True, kw_only=True):
    setup: Annotated[
        tuple[str, ...],
        Meta(description="Commands run once in each new worktree, which has neither dependencies nor build results."),
    ] = WORKSPACE.setup
    copy: Annotated[
        tuple[str, ...], Meta(description="Ignored files of the main checkout that each worktree gets a copy of.")
    ] = WORKSPACE.copy
    keep: Annotated[
        tuple[str, ...],
        Meta(description="Ignored paths that are kept when a worktree is restored to an earlier state."),
    ] = WORKSPACE.keep


class PullRequestsForm(FormBase, frozen=True, kw_only=True):
    strategy: Annotated[
        Literal["none", "draft", "ready"],
        Meta(description="Whether pull requests are opened, and how; none writes the text to a file for a person."),
    ] = PULL_REQUESTS.strategy
    remote: Annotated[str, Meta(description="The git remote that branches are pushed to.")] = PULL_REQUESTS.remote
    checks_wait: Annotated[Duration, Meta(description="How long checks may be pending before a person is asked.")] = (
        format_duration(PULL_REQUESTS.checks_wait_seconds)
    )
    checks_poll: Annotated[Duration, Meta(description="How often the forge is asked about checks.")] = format_duration(
        PULL_REQUESTS.checks_poll_seconds
    )
    checks_grace: Annotated[
        Duration, Meta(description="How long after a push checks may still appear; then the list counts as complete.")
    ] = format_duration(PULL_REQUESTS.checks_grace_seconds)
    flaky: Annotated[
        tuple[str, ...],
        Meta(description="Checks that are known to fail at random, such as `e2e*`; they are started again."),
    ] = PULL_REQUESTS.flaky
    reruns_max: Annotated[int, Meta(ge=0, description="How often flaky checks are started again.")] = (
        PULL_REQUESTS.reruns_max
    )


class BudgetForm(FormBase, frozen=True, kw_only=True):
    run: Annotated[Money | None, Meta(description="Most that one run may spend; without it there is no limit.")] = None
    feature: Annotated[Money | None, Meta(description="Most that one feature may spend; without it no limit.")] = None


class ModelsForm(FormBase, frozen=True, kw_only=True):
    cheap: Annotated[str | None, Meta(description="Model of the cheap tier; absent: the agent's own.")] = MODELS.cheap
    mid: Annotated[str | None, Meta(description="Model of the mid tier; absent: the agent's own.")] = MODELS.mid
    premium: Annotated[str | None, Meta(description="Model of the premium tier; absent: the agent's own.")] = (
        MODELS.premium
    )


class LimitsForm(FormBase, frozen=True, kw_only=True):
    techspec_files_max: Annotated[int, Meta(ge=1, description="Most files that a technical specification lists.")] = (
        LIMITS.techspec_files_max
    )
    feature_criteria_max: Annotated[int, Meta(ge=1, description="More acceptance criteria: a person is asked.")] = (
        LIMITS.feature_criteria_max
    )
    feature_tasks_max: Annotated[int, Meta(ge=1, description="More tasks in a feature: a person is asked.")] = (
        LIMITS.feature_tasks_max
    )
    task_files_max: Annotated[int, Meta(ge=1, description="Most files that one task may touch.")] = (
        LIMITS.task_files_max
    )
    feature_files_max: Annotated[int, Meta(ge=1, description="More files in a feature: a person is asked.")] = (
        LIMITS.feature_files_max
    )
    wait_max: Annotated[Duration, Meta(description="A rate limit with a longer wait is a question for a person.")] = (
        format_duration(LIMITS.wait_minutes_max * 60)
    )
    failover_wait: Annotated[
        Duration, Meta(description="A rate limit with a longer wait switches to the next agent of `failover`.")
    ] = format_duration(LIMITS.failover_wait_seconds)


class ConfigForm(FormBase, frozen=True, kw_only=True):
    pipeline: Annotated[
        str, Meta(description="Name of pipelines/NAME.yaml or of a built-in pipeline, or the path of a pipeline file.")
    ] = DEFAULT_CONFIG.pipeline
    agent: Annotated[str, Meta(description="Which agent is called.")] = DEFAULT_CONFIG.agent
    agents: Annotated[
        dict[str, AgentDescription],
        Meta(description="Programs of your own as agents, by name: how they are called, and how their output is read."),
    ] = {}
    failover: Annotated[
        tuple[str, ...],
        Meta(
            description="Agents to switch to, in this order, when the one before has no login, no program, no credit, "
            "a long rate limit or no retries left."
        ),
    ] = DEFAULT_CONFIG.failover
    sessions: Annotated[
        Literal["fresh", "continue"],
        Meta(
            description="Whether the calls of a feature continue one session of the agent or start new ones; phases "
            "can override it. Agents without sessions always start anew."
        ),
    ] = DEFAULT_CONFIG.sessions
    base: Annotated[
        str | None,
        Meta(description="Branch that features start from and pull requests target; absent: the current one."),
    ] = DEFAULT_CONFIG.base
    backlog: Annotated[str, Meta(description="The Markdown file with the features.")] = DEFAULT_CONFIG.backlog
    branch_prefix: Annotated[str, Meta(description="Features get branches PREFIX/ID.")] = DEFAULT_CONFIG.branch_prefix
    autonomy: Annotated[
        Autonomy,
        Meta(description="How often a person is asked: after planning too (supervised), at gates, or never."),
    ] = DEFAULT_CONFIG.autonomy
    parallel_max: Annotated[int, Meta(ge=1, le=64, description="How many features are worked on at the same time.")] = (
        DEFAULT_CONFIG.parallel_max
    )
    sanitize: Annotated[
        Literal["strict", "relaxed", "off"],
        Meta(description="What happens to backlog text that tries to give orders to the agent."),
    ] = DEFAULT_CONFIG.sanitize
    models: ModelsForm = ModelsForm()
    commands: Annotated[
        dict[str, str | CommandForm],
        Meta(
            description="Commands by name, such as test, lint and build; pipelines run them before and after an agent."
        ),
    ] = {}
    workspace: WorkspaceForm = WorkspaceForm()
    pull_requests: PullRequestsForm = PullRequestsForm()
    budget: BudgetForm = BudgetForm()
    limits: LimitsForm = LimitsForm()
    denied_paths: Annotated[
        tuple[str, ...],
        Meta(description="Paths that no agent may change, whatever the phase allows; patterns as in .gitignore."),
    ] = DEFAULT_CONFIG.denied_paths
    pass_environment: Annotated[
        tuple[str, ...], Meta(description="Further environment variables that agents and commands may see.")
    ] = DEFAULT_CONFIG.pass_environment
    recordings: Annotated[str, Meta(description="The folder of the library of recorded agent calls.")] = (
        DEFAULT_CONFIG.recordings
    )
    prices: Annotated[
        tuple[PriceForm, ...], Meta(description="Your own prices of models; they come before the price table.")
    ] = ()
