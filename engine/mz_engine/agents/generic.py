"""Adapter: any program that a description turns into an agent: called by it, and its output read by it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from mz_engine.agents.asking import Answer, ask_version, estimate
from mz_engine.agents.classify import Patterns
from mz_engine.agents.contract import AuthCheck, Capabilities, Invocation, Spawn, Tells, Watch
from mz_engine.agents.generic_form import MODEL, SESSION, TOOLS, AgentDescription
from mz_engine.agents.generic_stream import read_output
from mz_engine.pipelines.definition import Tool
from mz_engine.ports import CallResult, CallSpec, Reading

VERSION = re.compile(rb"\d+(?:\.\d+)+[\w.+-]*")
KNOWN: tuple[Tool, ...] = get_args(Tool)


class Described:
    """Implements `mz_engine.agents.contract.Adapter` for one description."""

    def __init__(self, name: str, description: AgentDescription, patterns: Patterns, install: str = "") -> None:
        """`install` says how to get a program whose description comes with `mz`; empty: `mz.yaml` describes it."""
        self.name, self.parser = name, f"{name}/1"
        self._told, self._patterns, self._install = description, patterns, install

    def capabilities(self) -> Capabilities:
        told = self._told
        models = told.models
        named = models.mid or self.name
        return Capabilities(
            agent=self.name,
            sessions=told.session is not None,
            streaming=told.output.live,
            token_counting="exact" if told.output.usage else "estimate",
            reports_money=told.output.money is not None,
            tells=(tells(told),),
            tools=tuple(tool for tool in KNOWN if getattr(told.allowed, tool) or getattr(told.denied, tool)),
            models={"cheap": models.cheap or named, "mid": named, "premium": models.premium or named},
            auth=tuple(filter(None, (told.login.how, *told.login.variables))) or ("as the program asks for",),
        )

    def check_auth(self, environment: Mapping[str, str]) -> AuthCheck:
        """Looks for the program, its version and what a login leaves behind; calls no model, and shows no secret."""
        command = self._told.command[0]
        if shutil.which(command, path=environment.get("PATH", "")) is None:
            return AuthCheck(
                code="tool-missing",
                message=f"`{command}` is not on PATH",
                fix=(
                    f"{self._install}, or name another agent in mz.yaml"
                    if self._install
                    else f"install it, or change the command of {self.name} in mz.yaml"
                ),
            )
        asked = (command, "--version") if self._told.version is None else self._told.version
        own = self._told.environment
        answer = ask_version(asked, self.name, VERSION, environment, own) if asked else Answer("")
        if answer.version is None:
            return AuthCheck(
                code="tool-missing",
                message=f"`{' '.join(asked)}` gave no version ({answer.why})",
                fix=(
                    f"run it by hand to see why, and {self._install} again"
                    if self._install
                    else f"run it by hand to see why; `version: []` in the description of {self.name} leaves it out"
                ),
            )
        if not self._has_login(environment):
            ways = self.capabilities().auth
            return AuthCheck(
                code="auth-missing",
                message=f"`{command}` has neither a login nor a key",
                fix=f"log in ({'; '.join(ways)})",
                version=answer.version,
            )
        return AuthCheck(version=answer.version)

    def estimate_tokens(self, prompt: str) -> int:
        return estimate(prompt)

    def count_tokens(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> int | None:
        """None: a description does not say how to ask."""
        del spec, environment, spawn
        return None

    def format_prompt(self, prompt: str) -> str:
        return prompt

    def run_phase(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> CallResult:
        return spawn(spec, self.invocation(spec, environment))

    def parse_output(self, result: CallResult, watch: Watch | None = None) -> Reading:
        return read_output(result, self.name, self._told, self._patterns, watch)

    def invocation(self, spec: CallSpec, environment: Mapping[str, str]) -> Invocation:
        """The process to run."""
        told = self._told
        allowed = [word for tool in KNOWN if tool in spec.tools for word in getattr(told.allowed, tool)]
        denied = [word for tool in KNOWN if tool not in spec.tools for word in getattr(told.denied, tool)]
        joined = any(TOOLS in word for word in told.command)
        argv = [word.replace(MODEL, spec.model).replace(TOOLS, ",".join(allowed)) for word in told.command]
        argv += [*([] if joined else allowed), *denied]
        if told.session is not None and spec.session is not None:
            words = told.session.resume if spec.resumes else told.session.new
            argv += [word.replace(SESSION, spec.session) for word in words]
        passed = {name: environment[name] for name in told.passes if name in environment}
        return Invocation(argv=tuple(argv), stdin=spec.prompt.encode(), env={**passed, **told.environment})

    def _has_login(self, environment: Mapping[str, str]) -> bool:
        login = self._told.login
        if not login.variables and not login.files:
            return True
        home = Path(environment.get("HOME", "/nonexistent"))
        places = [home / name.removeprefix("~/") for name in login.files]
        return any(environment.get(name) for name in login.variables) or any(place.exists() for place in places)


def tells(told: AgentDescription) -> Tells:
    """What the output says, as far as the description finds it there."""
    output, usage = told.output, told.output.usage
    return Tells(
        model=output.model is not None or bool(usage and usage.model),
        requests=bool(usage and usage.counts == "request"),
        money=output.money is not None,
        thoughts=bool(usage and usage.reasoning),
        session=output.session is not None,
        cache_writes=(
            "no" if not usage else "by lifetime" if usage.cache_write_1h else "total" if usage.cache_write else "no"
        ),
        evidence=told.evidence,
    )
