"""Adapter for the Anthropic API, called through mz's own program (`anthropic_loop`), which runs like any agent's
command."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mz_engine.agents.anthropic_api.model import TURNS_MAX
from mz_engine.agents.anthropic_api.stream import read_count, read_stream
from mz_engine.agents.contract import AuthCheck, Capabilities, Invocation, ObjectObserver, ReportedFields, Spawn
from mz_engine.agents.process import ProgramAdapter
from mz_engine.ports import CallResult, CallSpec, ParsedReply

COMMAND = "mz-anthropic"

KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
PASSED_VARIABLES = (*KEY_VARIABLES, "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS")

REPORTED_FIELDS = (
    ReportedFields(
        model=True, requests=True, money=False, thoughts=True, session=True, cache_writes="by lifetime",
        evidence="recorded",
    ),
)  # fmt: skip


class AnthropicApi(ProgramAdapter):
    """Reports exact tokens of every request and continues sessions; the API reports no money."""

    name = "anthropic"
    parser = "anthropic/1"
    command = COMMAND
    install = "install mz"
    login_missing = AuthCheck(
        code="auth-missing",
        message="the Anthropic API has no key",
        fix="set ANTHROPIC_API_KEY to a key of console.anthropic.com",
    )
    key_variables = KEY_VARIABLES
    passed_variables = PASSED_VARIABLES

    def capabilities(self) -> Capabilities:
        return Capabilities(
            agent=self.name,
            sessions=True,
            streaming=True,
            token_counting="exact",
            reports_money=False,
            reported_fields=REPORTED_FIELDS,
            tools=("read", "write", "shell"),
            bundled=True,
            models={"cheap": "claude-haiku-4-5", "mid": "claude-sonnet-4-6", "premium": "claude-opus-4-8"},
            auth=KEY_VARIABLES,
        )

    def check_auth(self, environment: Mapping[str, str]) -> AuthCheck:
        """Look for the program, also beside mz's Python, its version and a key."""
        return super().check_auth({**environment, **_path(environment)})

    def count_tokens(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> int | None:
        """Count by the API, including instructions and tools; free of charge."""
        count_call = self.invocation(spec, environment)
        result = spawn(spec, msgspec.structs.replace(count_call, argv=(*count_call.argv, "--count")))
        return None if result.problem or result.exit != 0 else read_count(result.stdout)

    def parse_output(self, result: CallResult, watch: ObjectObserver | None = None) -> ParsedReply:
        return read_stream(result, self.parser, self._patterns, watch)

    def invocation(self, spec: CallSpec, environment: Mapping[str, str]) -> Invocation:
        """Build the process to run: the prompt goes to stdin, keys only into the environment."""
        argv = [COMMAND, "--model", spec.model]
        if spec.session is not None:
            argv += ["--resume" if spec.resumes else "--session", spec.session]
        argv += [f"--tools={','.join(spec.tools)}", f"--max-turns={TURNS_MAX}"]
        env = {**self.call_environment(environment), **_path(environment)}
        return Invocation(argv=tuple(argv), stdin=spec.prompt.encode(), env=env)


def _path(environment: Mapping[str, str]) -> dict[str, str]:
    """Return PATH extended by the directory of mz's Python if the program is not on it; else nothing."""
    path = environment.get("PATH", os.defpath)
    if shutil.which(COMMAND, path=path):
        return {}
    return {"PATH": f"{path}{os.pathsep}{Path(sys.executable).parent}"}
