"""Adapter for programs that a description makes usable as agents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from msgspec.structs import asdict, replace

from mz_engine.agents.classify import ProblemPattern, ProblemPatterns
from mz_engine.agents.contract import Adapter, Capabilities, Invocation, ReportedFields
from mz_engine.agents.described.stream import read_output
from mz_engine.agents.reading.call import ObjectObserver, parsed_reply
from mz_engine.model.agent_description import MODEL, SESSION, TOOLS, AgentDescription, ToolArguments
from mz_engine.model.pipeline import Tool
from mz_engine.ports import CallResult, CallSpec, ParsedReply

ALL_TOOLS: tuple[Tool, ...] = get_args(Tool)


class DescribedAgent(Adapter):
    """The adapter of one description."""

    version_pattern = re.compile(rb"\d+(?:\.\d+)+[\w.+-]*")

    def __init__(self, name: str, description: AgentDescription, patterns: ProblemPatterns, install: str = "") -> None:
        """`install` tells how to get a program whose description is bundled; empty if `mz.yaml` describes it."""
        own = tuple(ProblemPattern(**asdict(problem)) for problem in description.problems)
        super().__init__(replace(patterns, described=own))
        self.name, self.parser, self.features = name, f"{name}/1", capabilities_of(name, description)
        self.passed_variables, self.set_variables = description.passes, description.environment
        self.folders, self.logins = (
            tuple(name.removeprefix("~/") for name in names) for names in (description.folders, description.login.files)
        )
        self.command, self.version_command = description.command[0], description.version
        self.install = install or f"install it or change the command of {name}"
        self.login_fix = f"log in ({'; '.join(self.features.auth)})"
        if not install:
            self.version_fix = f"run it by hand to see why; `version: []` in the description of {name} skips the check"
        self._description = description

    def has_login(self, environment: Mapping[str, str]) -> bool:
        login, home = self._description.login, Path(environment.get("HOME", "/nonexistent"))
        return (
            not (login.variables or login.files)
            or any(environment.get(name) for name in login.variables)
            or any((home / name.removeprefix("~/")).exists() for name in login.files)
        )

    def parse_output(self, result: CallResult, watch: ObjectObserver | None = None) -> ParsedReply:
        output, stderr = read_output(result, self._description, watch)
        return parsed_reply(output, result, self.parser, self._patterns, stderr=stderr)

    def invocation(self, spec: CallSpec, environment: Mapping[str, str]) -> Invocation:
        description = self._description
        allowed = _arguments(description.allowed, spec.tools)
        in_command = any(TOOLS in argument for argument in description.command)
        argv = [
            argument.replace(MODEL, spec.model).replace(TOOLS, ",".join(allowed)) for argument in description.command
        ]
        denied = _arguments(description.denied, tuple(tool for tool in ALL_TOOLS if tool not in spec.tools))
        argv += [*([] if in_command else allowed), *denied]
        if description.session is not None and spec.session is not None:
            arguments = description.session.resume if spec.resumes else description.session.new
            argv += [argument.replace(SESSION, spec.session) for argument in arguments]
        return Invocation(argv=tuple(argv), stdin=spec.prompt.encode(), env=self.call_environment(environment))


def _arguments(by_tool: ToolArguments, tools: tuple[Tool, ...]) -> list[str]:
    return [argument for tool in ALL_TOOLS if tool in tools for argument in getattr(by_tool, tool)]


def capabilities_of(name: str, description: AgentDescription) -> Capabilities:
    models, login, output, usage = description.models, description.login, description.output, description.output.usage
    reported_fields = ReportedFields(
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
    return Capabilities(
        sessions=description.session is not None,
        streaming=output.live,
        token_counting="exact" if usage else "estimate",
        reported_fields=(reported_fields,),
        tools=tuple(
            tool for tool in ALL_TOOLS if getattr(description.allowed, tool) or getattr(description.denied, tool)
        ),
        models={tier: model or models.mid or name for tier, model in asdict(models).items()},
        auth=tuple(filter(None, (login.how, *login.variables))) or ("as the program asks for",),
    )
