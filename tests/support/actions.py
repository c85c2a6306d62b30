"""Runs the steps of a GitHub workflow or a composite action as the runner does, as far as ours go.

`run:` with bash, conditions and `${{ }}` by a small evaluator; `uses:` is noted, and not followed. Expressions have
literals, names with dots, `==`, `!=`, `!`, `&&`, `||`, parentheses, `hashFiles`, and the functions that say how the job
stands.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

HOLE = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
TOKEN = re.compile(r"\s*('(?:[^']|'')*'|&&|\|\||==|!=|[!(),]|[\w.-]+)")
STANDING = re.compile(r"\b(success|failure|always|cancelled)\(")
SHELLS = {None: ("bash", "-e"), "bash": ("bash", "--noprofile", "--norc", "-eo", "pipefail")}


class Ran(NamedTuple):
    """What became of one step."""

    name: str
    outcome: str
    """success, failure or skipped."""
    inputs: Mapping[str, str]
    """Of a `uses:`."""
    text: str
    """Both streams of a `run:`."""


class Expression:
    """One expression, taken apart as it is evaluated."""

    def __init__(self, text: str, context: Mapping[str, Any], root: Path, failed: bool) -> None:
        assert "".join(TOKEN.split(text)[::2]).strip() == "", f"not understood: {text}"
        self.tokens, self.context, self.root = TOKEN.findall(text), context, root
        self.standing: Mapping[str, bool] = {
            "success": not failed, "failure": failed, "always": True, "cancelled": False,
        }  # fmt: skip

    def value(self) -> Any:
        result = self.either()
        assert not self.tokens, self.tokens
        return result

    def either(self) -> Any:
        result = self.both()
        while self.skip("||"):
            other = self.both()
            result = result or other
        return result

    def both(self) -> Any:
        result = self.compared()
        while self.skip("&&"):
            other = self.compared()
            result = result and other
        return result

    def compared(self) -> Any:
        result = self.single()
        if self.skip("=="):
            return result == self.single()
        return result != self.single() if self.skip("!=") else result

    def single(self) -> Any:
        token = self.tokens.pop(0)
        if token == "!":
            return not self.single()
        if token == "(":
            result = self.either()
            assert self.skip(")")
            return result
        if token.startswith("'"):
            return token[1:-1].replace("''", "'")
        return self.called(token) if self.skip("(") else self.named(token)

    def called(self, name: str) -> Any:
        if self.skip(")"):
            return self.standing[name]
        assert name == "hashFiles", name
        pattern = self.single()
        assert self.skip(")")
        return "digest" if any(path.is_file() for path in self.root.glob(pattern)) else ""

    def named(self, name: str) -> Any:
        result: Any = self.context
        for part in name.split("."):
            result = result.get(part) if isinstance(result, Mapping) else None
        return "" if result is None else result

    def skip(self, token: str) -> bool:
        if self.tokens[:1] != [token]:
            return False
        self.tokens.pop(0)
        return True


class Job:
    """The steps of one job, in `root`, with the variables of `environment`."""

    def __init__(self, root: Path, environment: Mapping[str, str], context: Mapping[str, Any]) -> None:
        self.root, self.environment, self.context = root, dict(environment), dict(context)
        self.outputs: dict[str, dict[str, dict[str, str]]] = {}
        self.summary, self.output, self.script = (
            root.parent / f"{root.name}.{name}" for name in ("summary", "output", "script")
        )
        self.ran: list[Ran] = []

    @property
    def failed(self) -> bool:
        return any(step.outcome == "failure" for step in self.ran)

    def find(self, name: str) -> Ran:
        return next(step for step in self.ran if step.name == name)

    def run(self, steps: list[Mapping[str, Any]]) -> None:
        for step in steps:
            self.ran.append(self._step(step, step.get("name") or step["uses"]))

    def filled(self, text: str) -> str:
        return HOLE.sub(lambda match: str(self._value(match[1])), text)

    def _value(self, text: str) -> Any:
        return Expression(text, {**self.context, "steps": self.outputs}, self.root, self.failed).value()

    def _wanted(self, condition: str) -> bool:
        match = HOLE.fullmatch(condition.strip())
        text = match[1] if match else condition
        return bool(self._value(text)) and (bool(STANDING.search(text)) or not self.failed)

    def _step(self, step: Mapping[str, Any], name: str) -> Ran:
        if not self._wanted(step.get("if", "success()")):
            return Ran(name, "skipped", {}, "")

        def fill(key: str) -> dict[str, str]:
            return {item: self.filled(str(value)) for item, value in step.get(key, {}).items()}

        if "uses" in step:
            return Ran(name, "success", fill("with"), "")
        self.script.write_text(self.filled(step["run"]))
        self.output.write_text("")
        own = {"GITHUB_OUTPUT": str(self.output), "GITHUB_STEP_SUMMARY": str(self.summary), "GITHUB_ACTIONS": "true"}
        done = subprocess.run(
            [*SHELLS[step.get("shell")], str(self.script)], cwd=self.root, text=True, check=False, timeout=240,
            env={**self.environment, **own, **fill("env")}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        texts = dict(line.split("=", 1) for line in self.output.read_text().splitlines())
        self.outputs[step.get("id", name)] = {"outputs": texts}
        return Ran(name, "failure" if done.returncode else "success", {}, f"{done.stdout}\nexit {done.returncode}\n")
