"""Adapter for the Anthropic API, called through mz's own program (`main.py`), which runs like any agent's
command."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mz_engine.agents.anthropic_api.model import TURNS_MAX
from mz_engine.agents.anthropic_api.stream import StreamReader, read_count
from mz_engine.agents.contract import Adapter, AuthCheck, Capabilities, Invocation, ReportedFields, Spawn
from mz_engine.ports import CallSpec

COMMAND = "mz-anthropic"
KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


class AnthropicApi(Adapter):
    """Reports exact tokens of every request and continues sessions; the API reports no money."""

    name = "anthropic"
    folders = (".local/state/mz/anthropic", "$XDG_STATE_HOME/mz/anthropic")
    parser = "anthropic/1"
    reader = StreamReader
    features = Capabilities(
        reported_fields=(
            ReportedFields(
                model=True, requests=True, thoughts=True, session=True, cache_writes="by lifetime", evidence="recorded"
            ),
        ),
        bundled=True,
        models={"cheap": "claude-haiku-4-5", "mid": "claude-sonnet-4-6", "premium": "claude-opus-4-8"},
        auth=KEY_VARIABLES,
    )
    command = COMMAND
    install = "install mz"
    login_missing = "the Anthropic API has no key"
    login_fix = "set ANTHROPIC_API_KEY to a key of console.anthropic.com"
    key_variables = KEY_VARIABLES
    passed_variables = (*KEY_VARIABLES, "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS")

    def check_auth(self, environment: Mapping[str, str]) -> AuthCheck:
        """Look for the program, also beside mz's Python, its version and a key."""
        return super().check_auth({**environment, **_path(environment)})

    def count_tokens(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> int | None:
        """Count by the API, including instructions and tools; free of charge."""
        count_call = self.invocation(spec, environment)
        result = spawn(spec, msgspec.structs.replace(count_call, argv=(*count_call.argv, "--count")))
        return None if result.problem or result.exit != 0 else read_count(result.stdout)

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
