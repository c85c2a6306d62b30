"""Plays the model for the features of the bundled sample project, after `tests/cases/demo/<feature>.yaml`.

The files say, phase by phase and attempt by attempt, what the prompt must hold (`expects`), and then step by step what
the model says and which tools it uses. It works from the request alone: feature, phase and whether the prompt is a
rework are read from the prompt, the working directory from what the CLI says of it. Where something is missing (a
rework message, an earlier artifact, a tool, a tool's success) it raises `Unexpected`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec
from mz_engine.artifacts.load import load_rules
from mz_engine.artifacts.validate import validate
from mz_engine.decoding.yaml import load_yaml
from mz_engine.model.config import Limits

from tests.support.endpoint import Answer, Reply, Request, Unexpected, Use

CASES = Path(__file__).resolve().parents[1] / "cases" / "demo"
FEATURE = re.compile(r"You work on the feature `+([\w-]+)`+")
PHASE = re.compile(r"This is the phase `+([\w-]+)`+")
LITERAL = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*"')
"""A string of JSON, without escapes by number."""
REWORK = "\n## Rework\n"


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One use of a tool; exactly one of the first four is there."""

    read: str = ""
    write: str = ""
    edit: str = ""
    run: str = ""
    text: str = ""
    old: str = ""
    new: str = ""
    shows: str = ""
    """What the tool must answer."""

    def use(self, request: Request) -> Use:
        """What the model asks the agent of this request for."""
        if self.run:
            return request.run(self.run)
        if self.write:
            return request.write(self.write, self.text)
        if self.edit:
            return request.edit(self.edit, self.old, self.new)
        return request.read(self.read)


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    say: str = ""
    use: tuple[Action, ...] = ()


class Take(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One attempt at a phase."""

    steps: tuple[Step, ...]
    expects: tuple[str, ...] = ()
    """What the prompt must hold."""
    refused: str = ""
    """File that the take before wrote and that its rules refused: the prompt must hold every one of their messages."""
    rules: str = ""


Play = dict[str, tuple[Take, ...]]


@cache
def play(feature: str) -> Play:
    path = CASES / f"{feature}.yaml"
    if not path.is_file():
        raise Unexpected(f"there is no script for the feature {feature!r}")
    return msgspec.convert(load_yaml(path.read_text("utf-8")), Play)


def features() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in CASES.glob("*.yaml")))


def demo(request: Request) -> Answer:
    """The script: an answer to any request of the demo."""
    prompt, output = request.prompt, "\n".join(request.user_texts())
    feature, phase = named(FEATURE, output, "feature"), named(PHASE, output, "phase")
    takes = play(feature).get(phase)
    if takes is None:
        raise Unexpected(f"there is no script for the phase {phase!r} of {feature}")
    attempt = 1 if REWORK in f"\n{prompt}" else 0
    if attempt >= len(takes):
        raise Unexpected(f"{feature}/{phase}: no attempt {attempt + 1} was expected; the prompt ends: {prompt[-1500:]}")
    where = f"{feature}/{phase}, attempt {attempt + 1}"
    _check_prompt(request, takes, attempt, where)
    if Path(request.cwd).name != feature:
        raise Unexpected(f"{where}: works in {request.cwd}, which is not this feature's worktree")
    return answer(request, takes[attempt].steps, where)


def named(pattern: re.Pattern[str], output: str, what: str) -> str:
    """As it was said last: in a session an earlier prompt may say it for later ones."""
    result = pattern.findall(output)
    if not result:
        raise Unexpected(f"the prompt names no {what}: {output[:300]!r}")
    return str(result[-1])


def _check_prompt(request: Request, takes: tuple[Take, ...], attempt: int, where: str) -> None:
    """What was said or written before in the session need not be said again."""
    prompt, take = request.prompt, takes[attempt]
    continued = FEATURE.search(prompt) is None
    text = "\n".join(_strings(request.body)) if continued else prompt
    lacking = [word for word in take.expects if word not in text]
    args: list[str] = []
    if take.refused:
        refused = _written(takes[attempt - 1], take.refused)
        args += _messages(take.rules, refused, take.refused)
        args += [] if continued else [line for line in refused.splitlines() if line.strip()]
    for word in (*lacking, *(word for word in args if word not in prompt)):
        raise Unexpected(f"{where}: the prompt lacks {word!r}")


def _strings(value: object) -> Iterator[str]:
    """Every text in a request, those in the arguments of tools too."""
    match value:
        case str():
            yield value
            # Some agents are told what to write by a script, as a literal of it.
            yield from (str(json.loads(text)) for text in LITERAL.findall(value) if "\\n" in text)
            if value.startswith("{"):
                with suppress(ValueError):
                    yield from _strings(json.loads(value))
        case dict():
            for item in value.values():
                yield from _strings(item)
        case list():
            for item in value:
                yield from _strings(item)


def _messages(rules: str, text: str, path: str) -> list[str]:
    """What the rules say of the refused text, word for word."""
    findings = validate(load_rules()[rules], text, path, Limits(), {})
    if not findings:
        raise Unexpected(f"{path}: the rules {rules} have nothing against the first attempt")
    return [finding.message for finding in findings]


def _written(take: Take, path: str) -> str:
    return next(action.text for step in take.steps for action in step.use if action.write == path)


def answer(request: Request, steps: tuple[Step, ...], where: str) -> Answer:
    """The step that follows the results so far. Raises `Unexpected` where a tool is missing or has failed."""
    results = request.results()
    done = 0
    for step in steps:
        if done == len(results):
            return _reply(request, step, where)
        for action, result in zip(step.use, results[done:], strict=False):
            if result.failed or action.shows not in result.text:
                raise Unexpected(f"{where}: {action} answered: {result.text[-1500:]}")
        done += len(step.use)
    raise Unexpected(f"{where}: {len(results)} tool results; the script asked for fewer")


def _reply(request: Request, step: Step, where: str) -> Reply:
    uses = tuple(action.use(request) for action in step.use)
    for use in uses:
        if use.tool not in request.tools:
            raise Unexpected(f"{where}: the tool {use.tool} was not offered")
    return Reply(step.say, uses)
