"""Checks before a run costs money: agents and their logins, commands of `mz.yaml`, remote and `gh`. Warnings name tools
that an agent does not have, and models without a price under a budget."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import UnknownAgent, all_adapters
from mz_engine.effects.prompt import configured_model
from mz_engine.errors.diagnostics import Diagnostic, MzError
from mz_engine.git.process import Git
from mz_engine.git.repository import describe_repository, has_remote
from mz_engine.model.agent_description import AgentDescription
from mz_engine.model.config import Config
from mz_engine.model.pipeline import Pipeline
from mz_engine.run.settings import LoadedConfig

PLAIN_PROGRAM = re.compile(r"[\w./+-]+\Z")
ASSIGNMENT = re.compile(r"\w+=\S*\Z")
SHELL_WORDS = frozenset(
    """
    if for while until case { ( ! . : cd test [ true false exit set export unset eval exec command echo printf umask
    source time trap ulimit
    """.split()  # noqa: SIM905
)


def find_agent(name: str, described: Mapping[str, AgentDescription]) -> Adapter:
    """Return the adapter of a built-in or described agent. Raises MzError (MZ1004) for any other name."""
    adapters_by_name = all_adapters(described)
    if name not in adapters_by_name:
        unknown = UnknownAgent(name, tuple(sorted(adapters_by_name)))
        raise MzError("MZ1004", str(unknown), hint="choose one with `agent:` in mz.yaml")
    return adapters_by_name[name]


def unknown_agents(loaded: LoadedConfig) -> Iterator[Diagnostic]:
    """Yield an error for each configured agent that is neither built in nor described."""
    names = [("agent", loaded.config.agent), *(("failover", name) for name in loaded.config.failover)]
    for key, name in names:
        try:
            find_agent(name, loaded.config.agents)
        except MzError as error:
            located = loaded.with_location(key, MzError("MZ2013", f"`{key}`: {error.message}", hint=error.hint))
            yield from located.diagnostics


def check_agent(name: str, environment: Mapping[str, str], described: Mapping[str, AgentDescription]) -> None:
    """Check program and login of an agent, without calling a model. Raises MzError: MZ1004 program, MZ1005 login."""
    check = find_agent(name, described).check_auth(environment)
    if check.code:
        code = "MZ1004" if check.code == "tool-missing" else "MZ1005"
        raise MzError(code, check.message, hint=check.fix)


def check_agents(root: Path, config: Config, environment: Mapping[str, str]) -> None:
    """Check every agent that a run may call, successors included. Raises MzError."""
    for name in config.agent_order:
        check_agent(name, environment, config.agents)


def check_commands(root: Path, config: Config, environment: Mapping[str, str]) -> None:
    """Check that the program of every command exists. Raises MzError (MZ1004) with all that are missing."""
    missing = tuple(
        Diagnostic(
            code="MZ1004",
            message=f"`{name}` needs {program}, which is not on PATH",
            hint=f"install it, or change {name} in mz.yaml",
        )
        for name, program in missing_programs(root, config, environment).items()
    )
    if missing:
        raise MzError.from_diagnostics(missing)


def missing_programs(root: Path, config: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """Return missing programs by setting, such as `commands.test`: neither on PATH nor in the repository.

    Skips command lines that only a shell can parse, and paths if there is a set-up that may create them.
    """
    lines = {f"commands.{name}": command.run for name, command in config.commands.items()}
    lines |= {f"workspace.setup[{index}]": line for index, line in enumerate(config.workspace.setup)}
    programs = {name: program_of(line) for name, line in lines.items()}
    has_setup = bool(config.workspace.setup)
    return {
        name: program
        for name, program in programs.items()
        if program and not (has_setup and "/" in program) and not _is_installed(program, root, environment)
    }


def _is_installed(program: str, root: Path, environment: Mapping[str, str]) -> bool:
    if "/" in program:
        return (root / program).exists()
    return shutil.which(program, path=environment.get("PATH")) is not None


def check_delivery(root: Path, config: Config, environment: Mapping[str, str]) -> None:
    """Check that configured pull requests can be opened. Raises MzError: no remote (MZ1003), no `gh` (MZ1004)."""
    settings = config.pull_requests
    if settings.strategy == "none":
        return
    alternative = "or set pull_requests.strategy to none in mz.yaml: branch and description then stay on this machine"
    if not has_remote(Git(describe_repository(root, environment).directory, environment), settings.remote):
        hint = f"`git remote add {settings.remote} URL`, {alternative}"
        raise MzError("MZ1003", f"the remote {settings.remote!r} for pull requests does not exist", hint=hint)
    if not shutil.which("gh", path=environment.get("PATH")):
        raise MzError("MZ1004", "pull requests need `gh`, which is not on PATH", hint=f"install it, {alternative}")


PREREQUISITES = (check_agents, check_commands, check_delivery)
"""What a run needs before anything is written or paid."""


def preflight_warnings(root: Path, config: Config, environment: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Return the errors with which a run would refuse to start, as warnings.

    Raises RepositoryUnusable, and MzError (MZ1004) for an unknown agent.
    """
    for name in config.agent_order:
        find_agent(name, config.agents)
    for check in PREREQUISITES:
        try:
            check(root, config, environment)
        except MzError as error:
            yield from (replace(diagnostic, severity="warning") for diagnostic in error.diagnostics)


def program_of(command: str) -> str | None:
    """Return the program that a command line starts; None if only a shell can tell."""
    parts = [word for word in command.split() if not ASSIGNMENT.match(word)]
    if not parts or not PLAIN_PROGRAM.match(parts[0]) or parts[0] in SHELL_WORDS:
        return None
    return parts[0]


UNREPORTED_TOOL = "read"
"""A tool that is never reported as missing: prompts hold or name what the agent needs to read."""


def missing_tools(pipeline: Pipeline, config: Config) -> tuple[Diagnostic, ...]:
    """Return a warning (MZ3019) for each agent and tool. An agent that describes no tools is assumed to have all."""
    phases_by_tool: dict[tuple[str, str], dict[str, None]] = {}
    for name, adapter in _agents(config):
        agent_tools = adapter.capabilities().tools
        for phase in pipeline.phases if agent_tools else ():
            for tool in (tool for call in phase.calls for tool in call.tools):
                if tool not in (UNREPORTED_TOOL, *agent_tools):
                    phases_by_tool.setdefault((name, tool), {})[f"`{phase.phase}`"] = None
    warnings = []
    for (agent, missing), phases in phases_by_tool.items():
        users = f"the phase {', '.join(phases)} asks" if len(phases) == 1 else f"the phases {', '.join(phases)} ask"
        message = f"{users} for the tool `{missing}`, which the agent {agent} does not have"
        hint = (
            f"the call is made without it; choose another agent, or remove `{missing}` from `tools:` there. For an "
            "agent of your own, list its tools in `allowed:` and `denied:` under `agents:`"
        )
        warnings.append(Diagnostic(code="MZ3019", message=message, hint=hint, severity="warning"))
    return tuple(warnings)


def unpriced_models(pipeline: Pipeline, config: Config, has_price: Callable[[str], bool]) -> tuple[Diagnostic, ...]:
    """Return a warning (MZ2016) if a budget is set and models of the run have no price."""
    if config.budget.run_nanousd is None and config.budget.feature_nanousd is None:
        return ()
    models = dict.fromkeys(
        configured_model(config, name, call.tier) or adapter.capabilities().models[call.tier]
        for name, adapter in _agents(config)
        for phase in pipeline.phases
        for call in phase.calls
    )
    unpriced = [model for model in models if not has_price(model)]
    if not unpriced:
        return ()
    models_have = "the model has" if len(unpriced) == 1 else "these models have"
    message = f"a budget is set, but {models_have} no price: {', '.join(unpriced)}; no money is reserved for calls"
    hint = "add prices under `prices:` in mz.yaml; without them only costs that the agent reports count"
    return (Diagnostic(code="MZ2016", message=message, hint=hint, severity="warning"),)


def _agents(config: Config) -> Iterator[tuple[str, Adapter]]:
    """Return the agents that a run may call; unknown names are reported elsewhere."""
    adapters_by_name = all_adapters(config.agents)
    for name in config.agent_order:
        if name in adapters_by_name:
            yield name, adapters_by_name[name]
