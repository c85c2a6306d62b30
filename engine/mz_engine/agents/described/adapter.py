"""Adapter for programs that a description makes usable as agents."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from mz_engine.agents.classify import ProblemPatterns
from mz_engine.agents.contract import AuthCheck, Capabilities, Invocation, ObjectObserver, ReportedFields
from mz_engine.agents.described.stream import read_output
from mz_engine.agents.process import ProgramAdapter
from mz_engine.agents.version_query import VersionResult, query_version
from mz_engine.model.agent_description import MODEL, SESSION, TOOLS, AgentDescription
from mz_engine.model.pipeline import Tool
from mz_engine.ports import CallResult, CallSpec, ParsedReply

VERSION_PATTERN = re.compile(rb"\d+(?:\.\d+)+[\w.+-]*")
ALL_TOOLS: tuple[Tool, ...] = get_args(Tool)


class DescribedAgent(ProgramAdapter):
    """Implements `mz_engine.agents.contract.Adapter` for one description."""

    def __init__(self, name: str, description: AgentDescription, patterns: ProblemPatterns, install: str = "") -> None:
        """`install` tells how to get a program whose description is bundled; empty if `mz.yaml` describes it."""
        super().__init__(patterns)
        self.name, self.parser = name, f"{name}/1"
        self.passed_variables, self.set_variables = description.passes, description.environment
        self.command, self.install = description.command[0], install
        self._description = description

    def capabilities(self) -> Capabilities:
        description = self._description
        models = description.models
        default_model = models.mid or self.name
        return Capabilities(
            agent=self.name,
            sessions=description.session is not None,
            streaming=description.output.live,
            token_counting="exact" if description.output.usage else "estimate",
            reports_money=description.output.money is not None,
            reported_fields=(reported_fields(description),),
            tools=tuple(
                tool for tool in ALL_TOOLS if getattr(description.allowed, tool) or getattr(description.denied, tool)
            ),
            models={
                "cheap": models.cheap or default_model,
                "mid": default_model,
                "premium": models.premium or default_model,
            },
            auth=tuple(filter(None, (description.login.how, *description.login.variables)))
            or ("as the program asks for",),
        )

    def check_auth(self, environment: Mapping[str, str]) -> AuthCheck:
        """Look for the program, its version and the files or variables of a login."""
        command = self.command
        if shutil.which(command, path=environment.get("PATH", "")) is None:
            return AuthCheck(
                code="tool-missing",
                message=f"`{command}` is not on PATH",
                fix=(
                    f"{self.install}, or name another agent in mz.yaml"
                    if self.install
                    else f"install it, or change the command of {self.name} in mz.yaml"
                ),
            )
        version_command = (command, "--version") if self._description.version is None else self._description.version
        own = self._description.environment
        result = (
            query_version(version_command, self.name, VERSION_PATTERN, environment, own)
            if version_command
            else VersionResult("")
        )
        if result.version is None:
            return AuthCheck(
                code="tool-missing",
                message=f"`{' '.join(version_command)}` printed no version ({result.reason})",
                fix=(
                    f"run it by hand to see why, then {self.install} again"
                    if self.install
                    else f"run it by hand to see why; `version: []` in the description of {self.name} skips the check"
                ),
            )
        if not self.has_login(environment):
            auth = self.capabilities().auth
            return AuthCheck(
                code="auth-missing",
                message=f"`{command}` has neither a login nor a key",
                fix=f"log in ({'; '.join(auth)})",
                version=result.version,
            )
        return AuthCheck(version=result.version)

    def parse_output(self, result: CallResult, watch: ObjectObserver | None = None) -> ParsedReply:
        return read_output(result, self.name, self._description, self._patterns, watch)

    def invocation(self, spec: CallSpec, environment: Mapping[str, str]) -> Invocation:
        """Build the process to run."""
        description = self._description
        allowed = [
            argument for tool in ALL_TOOLS if tool in spec.tools for argument in getattr(description.allowed, tool)
        ]
        denied = [
            argument for tool in ALL_TOOLS if tool not in spec.tools for argument in getattr(description.denied, tool)
        ]
        in_command = any(TOOLS in argument for argument in description.command)
        argv = [
            argument.replace(MODEL, spec.model).replace(TOOLS, ",".join(allowed)) for argument in description.command
        ]
        argv += [*([] if in_command else allowed), *denied]
        if description.session is not None and spec.session is not None:
            arguments = description.session.resume if spec.resumes else description.session.new
            argv += [argument.replace(SESSION, spec.session) for argument in arguments]
        return Invocation(argv=tuple(argv), stdin=spec.prompt.encode(), env=self.call_environment(environment))

    def has_login(self, environment: Mapping[str, str]) -> bool:
        login = self._description.login
        if not login.variables and not login.files:
            return True
        home = Path(environment.get("HOME", "/nonexistent"))
        paths = [home / name.removeprefix("~/") for name in login.files]
        return any(environment.get(name) for name in login.variables) or any(path.exists() for path in paths)


def reported_fields(description: AgentDescription) -> ReportedFields:
    """Return the facts that the description finds in the output."""
    output, usage = description.output, description.output.usage
    return ReportedFields(
        model=output.model is not None or bool(usage and usage.model),
        requests=bool(usage and usage.counts == "request"),
        money=output.money is not None,
        thoughts=bool(usage and usage.reasoning),
        session=output.session is not None,
        cache_writes=(
            "no" if not usage else "by lifetime" if usage.cache_write_1h else "total" if usage.cache_write else "no"
        ),
        evidence=description.evidence,
    )
