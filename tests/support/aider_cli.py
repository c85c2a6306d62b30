"""The installed `aider`, set up for a scripted model endpoint; and scripts as aider's model plays them.

It is too big to be installed for the suite, which plays what it wrote: make it by hand where recordings are made,
`python -m venv .clis/aider && .clis/aider/bin/pip install aider-chat==0.86.2`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mz_engine.ports import CallSpec

from tests.support import claude_cli
from tests.support.claude_cli import CLIS
from tests.support.dialects.chat import EDIT, WRITE, ChatRequest
from tests.support.endpoint import Answer, Reply, Request, Script, ToolResult, Unexpected, Use
from tests.support.script_demo import FEATURE, named

MODEL = "openai/gpt-4o"
BIN = CLIS.parents[1] / "aider" / "bin"
STEPS_MAX = 30


def installed() -> bool:
    return (BIN / "aider").exists()


def environment(home: Path, url: str) -> dict[str, str]:
    """A fresh HOME and the scripted endpoint: nothing of the caller's login or settings."""
    (home / ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.org\n")
    return {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": "unused",
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }


def spec(prompt: str, session: str | None, **more: object) -> CallSpec:
    """A call of the adapter with everything filled in."""
    return claude_cli.spec(prompt, session, **{"agent": "aider", "model": MODEL, **more})


class Anything(str):
    """What a tool of another agent would have shown."""

    def __contains__(self, key: object) -> bool:
        return True


@dataclass(frozen=True)
class Further(ChatRequest):
    """The request, as if so many of the tools had been used that it asked for."""

    done: int = 0

    @property
    def cwd(self) -> str:
        """As scripts know it: by the name of the feature, which the prompt names."""
        return f"/somewhere/{named(FEATURE, self.prompt, 'feature')}"

    def results(self) -> list[ToolResult]:
        return [ToolResult(Anything(), failed=False)] * self.done


class AtOnce:
    """A script for agents that use tools, played in one reply: all its edits, in their order. What was written before
    is replaced as a whole."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._written: dict[tuple[str, str], str] = {}
        self._before: dict[str, dict[tuple[str, str], str]] = {}
        """By prompt. aider asks again once it has added the files that a reply names, and forgets its edits."""

    def __call__(self, request: Request) -> Answer:
        self._written = dict(self._before.setdefault(request.prompt, dict(self._written)))
        uses: list[Use] = []
        for _ in range(STEPS_MAX):
            further = Further(request.path, request.headers, request.body, request.size, done=len(uses))
            answer = self._script(further)
            if not isinstance(answer, Reply):
                return answer
            uses += answer.uses
            if not answer.uses:
                return Reply(answer.text, tuple(self._edit_of(further.cwd, use) for use in uses))
        raise Unexpected("the script comes to no end")

    def _edit_of(self, cwd: str, use: Use) -> Use:
        if use.tool not in (WRITE, EDIT):
            return use
        path = cwd, use.arguments["path"]
        before = self._written.get(path)
        if use.tool == WRITE:
            self._written[path] = use.arguments["new"]
            return use if before is None else Use(EDIT, {**use.arguments, "old": before})
        if before is not None:
            self._written[path] = before.replace(use.arguments["old"], use.arguments["new"])
        return use
