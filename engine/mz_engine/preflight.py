"""Adapter: what must be there before anything is paid: the agent, its login, and the commands of `mz.yaml`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from mz_engine.adapters.git import GitWorkspace
from mz_engine.adapters.git_process import Git
from mz_engine.adapters.git_remote import has_remote
from mz_engine.adapters.git_repository import describe
from mz_engine.agents.contract import Adapter
from mz_engine.agents.generic_form import AgentDescription
from mz_engine.agents.registry import UnknownAgent, adapters
from mz_engine.config import Config
from mz_engine.errors import Diagnostic, MzError

PLAIN_WORD = re.compile(r"[\w./+-]+\Z")
ASSIGNMENT = re.compile(r"\w+=\S*\Z")
SHELL_WORDS = frozenset(
    """
    if for while until case { ( ! . : cd test [ true false exit set export unset eval exec command echo printf umask
    source time trap ulimit
    """.split()  # noqa: SIM905
)


def known_agent(name: str, described: Mapping[str, AgentDescription]) -> Adapter:
    """Its adapter, where mz has one, or `mz.yaml` describes it. Raises MzError (MZ1004) for any other name."""
    known = adapters(described)
    if name not in known:
        unknown = UnknownAgent(name, tuple(sorted(known)))
        raise MzError("MZ1004", str(unknown), hint="choose one with `agent:` in mz.yaml")
    return known[name]


def check_agent(name: str, environment: Mapping[str, str], described: Mapping[str, AgentDescription]) -> None:
    """Raises MzError: MZ1004 without the agent's program, MZ1005 without a login. Calls no model."""
    check = known_agent(name, described).check_auth(environment)
    if check.code:
        code = "MZ1004" if check.code == "tool-missing" else "MZ1005"
        raise MzError(code, check.message, hint=check.fix)


def agents_of(config: Config) -> tuple[str, ...]:
    """Every agent that a run may call: its own, and those that may take over."""
    return tuple(dict.fromkeys((config.agent, *config.failover)))


def check_agents(config: Config, environment: Mapping[str, str]) -> None:
    """As `check_agent`, for every agent that a run may call: one that cannot take over is of no use when it has to."""
    for name in agents_of(config):
        check_agent(name, environment, config.agents)


def check_commands(root: Path, config: Config, environment: Mapping[str, str]) -> None:
    """Raises MzError (MZ1004) with every command whose program is nowhere."""
    missing = missing_programs(root, config, environment)
    if missing:
        raise MzError.of(
            Diagnostic(
                code="MZ1004",
                message=f"`{name}` needs {program}, which is not on PATH",
                hint=f"install it, or change {name} in mz.yaml",
            )
            for name, program in missing.items()
        )


def missing_programs(root: Path, config: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """By setting, such as `commands.test`, the program that is neither on PATH nor in the repository. What a shell must
    take apart is left to it; what a path leads to may be made by the set-up of each worktree."""
    lines = {f"commands.{name}": command.run for name, command in config.commands.items()}
    lines |= {f"workspace.setup[{at}]": line for at, line in enumerate(config.workspace.setup)}
    programs = {name: program_of(line) for name, line in lines.items()}
    made = bool(config.workspace.setup)
    return {
        name: program
        for name, program in programs.items()
        if program and not (made and "/" in program) and not _is_here(program, root, environment)
    }


def _is_here(program: str, root: Path, environment: Mapping[str, str]) -> bool:
    if "/" in program:
        return (root / program).exists()
    return shutil.which(program, path=environment.get("PATH")) is not None


def check_delivery(workspace: GitWorkspace, config: Config, environment: Mapping[str, str]) -> None:
    """Raises MzError where pull requests are wanted and cannot be opened: no remote (MZ1003), no `gh` (MZ1004)."""
    _check_delivery(workspace.has_remote, config, environment)


def _check_delivery(is_there: Callable[[str], bool], config: Config, environment: Mapping[str, str]) -> None:
    wanted = config.pull_requests
    if wanted.strategy == "none":
        return
    instead = "or set pull_requests.strategy to none in mz.yaml: the branch stays here, with a file for its description"
    if not is_there(wanted.remote):
        hint = f"`git remote add {wanted.remote} URL`, {instead}"
        raise MzError("MZ1003", f"pull requests go to the remote {wanted.remote!r}, which is not there", hint=hint)
    if not shutil.which("gh", path=environment.get("PATH")):
        raise MzError("MZ1004", "pull requests need `gh`, which is not on PATH", hint=f"install it, {instead}")


def lacks(root: Path, config: Config, environment: Mapping[str, str]) -> Iterator[Diagnostic]:
    """What a run would refuse to begin without, as warnings: the agent and its login, programs of commands, the remote
    and `gh`. Raises RepositoryUnusable, and MzError (MZ1004) for an agent that nobody knows."""
    for name in agents_of(config):
        known_agent(name, config.agents)
    git = Git(describe(root, environment).directory, environment)
    checks: tuple[Callable[[], None], ...] = (
        lambda: check_agents(config, environment),
        lambda: check_commands(root, config, environment),
        lambda: _check_delivery(lambda name: has_remote(git, name), config, environment),
    )
    for check in checks:
        try:
            check()
        except MzError as error:
            yield from (replace(each, severity="warning") for each in error.diagnostics)


def program_of(command: str) -> str | None:
    """The program that a command line begins with; None where only a shell can tell."""
    words = [word for word in command.split() if not ASSIGNMENT.match(word)]
    if not words or not PLAIN_WORD.match(words[0]) or words[0] in SHELL_WORDS:
        return None
    return words[0]
