"""Validation of agent descriptions beyond the types of their fields."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mz_engine.decoding import regex
from mz_engine.decoding.structs import KeyPath
from mz_engine.model.agent_description import (
    MODEL,
    SESSION,
    TOOLS,
    AgentDescription,
    ObjectMatch,
    Selector,
    UsageSelector,
)

PLACEHOLDER = re.compile(r"\{[a-z_]+\}")
PROMPT_PLACEHOLDERS = ("{prompt}", "{prompt_file}")
PATH = re.compile(r"[^.\s]+(?:\.[^.\s]+)*\Z")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
CODE = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*\Z")
PROGRAM = re.compile(r"[A-Za-z0-9_][\w.+-]*\Z")
SECRET = re.compile(r"(?i)(key|token|secret|passw|credential)")
PATHS = ("input", "output", "model", "cache_read", "cache_write", "cache_write_1h", "reasoning")

DescriptionError = tuple[KeyPath, str]
"""Route within the description, and the error there."""


def description_errors(description: AgentDescription) -> Iterator[DescriptionError]:
    """Yield all errors of a description; none if it is usable."""
    yield from _check_command(description)
    yield from _check_arguments(description)
    yield from _check_environment(description)
    yield from _check_output(description)
    yield from _check_ends(description)
    yield from _check_expressions(description)


def _check_command(description: AgentDescription) -> Iterator[DescriptionError]:
    if not description.command:
        yield ("command",), "it names no program"
    elif not PROGRAM.match(description.command[0]):
        yield (
            ("command", 0),
            f"{description.command[0][:80]!r} is not the name of a program on PATH; for one in the repository, "
            "write `sh` or its interpreter, and its path as an argument",
        )
    if description.version is not None and description.version[:1] and not PROGRAM.match(description.version[0]):
        yield ("version", 0), f"{description.version[0][:80]!r} is not the name of a program on PATH"
    if MODEL in "\0".join(description.command) and not description.models.mid:
        yield ("models",), "the command names {model}, and there is no model for the tier `mid`"


def _check_arguments(description: AgentDescription) -> Iterator[DescriptionError]:
    session = description.session
    lists: tuple[tuple[KeyPath, tuple[str, ...], tuple[str, ...]], ...] = (
        (("command",), description.command, (MODEL, TOOLS)),
        (("version",), description.version or (), ()),
        *((("allowed", name), getattr(description.allowed, name), ()) for name in ("read", "write", "shell")),
        *((("denied", name), getattr(description.denied, name), ()) for name in ("read", "write", "shell")),
        *(((("session", "new"), session.new, (SESSION,)),) if session else ()),
        *(((("session", "resume"), session.resume, (SESSION,)),) if session else ()),
    )
    for route, arguments, allowed in lists:
        for index, argument in enumerate(arguments):
            if "\0" in argument:
                yield (*route, index), "an argument cannot hold a NUL"
            for placeholder in PLACEHOLDER.findall(argument):
                if placeholder not in allowed:
                    yield (*route, index), _unknown_placeholder(placeholder, allowed)
    if session is not None:
        if SESSION not in "\0".join(session.resume):
            yield ("session", "resume"), "it does not name {session}"
        if SESSION not in "\0".join(session.new) and description.output.session is None:
            yield ("session", "new"), "it must name {session}, or `output.session` must find the session's id"


def _unknown_placeholder(placeholder: str, allowed: tuple[str, ...]) -> str:
    if placeholder in PROMPT_PLACEHOLDERS:
        return (
            f"{placeholder} is not allowed in an argument, which everybody on the machine can read; the prompt comes "
            "on standard input; pass /dev/stdin to a program that needs a file"
        )
    return f"{placeholder} is not a placeholder here; valid: {', '.join(allowed) or 'none'}"


def _check_environment(description: AgentDescription) -> Iterator[DescriptionError]:
    for name, value in description.environment.items():
        route = ("environment", name)
        if not VARIABLE.match(name):
            yield route, f"{name[:80]!r} is not the name of an environment variable"
        elif name.startswith("MZ_"):
            yield route, f"{name} is reserved for mz"
        elif SECRET.search(name) and value:
            yield route, f"{name} looks like a secret; do not store it in a file, name it under `passes` instead"
        if "\0" in value:
            yield route, "a value cannot hold a NUL"
    for at, name in enumerate(description.passes):
        if not VARIABLE.match(name):
            yield ("passes", at), f"{name[:80]!r} is not the name of an environment variable"
    for at, name in enumerate(description.login.variables):
        if name not in description.passes:
            yield ("login", "variables", at), f"{name} is not under `passes`, so the program would not see it"


def _check_output(description: AgentDescription) -> Iterator[DescriptionError]:
    output = description.output
    selectors = {
        name: value
        for name in output.__struct_fields__
        if isinstance(value := getattr(output, name), Selector | UsageSelector)
    }
    if output.form == "text":
        for name in selectors:
            yield ("output", name), "it needs JSON objects, and the output is plain text (`form: text`)"
        if output.stream != "stdout":
            yield ("output", "stream"), "it selects the stream with JSON, and the output is plain text (`form: text`)"
        return
    if output.text is None and output.stream == "stdout":
        yield ("output",), "`text` is missing: it selects the agent's final text"
    for name, selector in selectors.items():
        yield from _check_match(("output", name, "where"), selector.where)
        for field in PATHS if isinstance(selector, UsageSelector) else ("path",):
            path = getattr(selector, field)
            if (path or field == "path") and not PATH.match(path):
                yield ("output", name, field), _not_a_path(path)


def _check_match(route: KeyPath, where: ObjectMatch) -> Iterator[DescriptionError]:
    for path in where:
        if not PATH.match(path):
            yield (*route, path), _not_a_path(path)


def _not_a_path(path: str) -> str:
    return f"{path[:80]!r} is not a path; write keys joined by dots, such as result.usage.input"


def _check_ends(description: AgentDescription) -> Iterator[DescriptionError]:
    ends, route = description.ends, ("ends",)
    if description.output.form == "text":
        if not ends.exits and ends.proof is None:
            yield route, "with plain text output, `proof` or `exits` must define success"
        for name in ("success", "error", "open", "last"):
            if getattr(ends, name):
                yield (*route, name), "it needs JSON objects, and the output is plain text (`form: text`)"
        return
    if not ends.success:
        yield route, "it has no object under `success`, so no call could succeed"
    for name, proof in (("proof", ends.proof), ("disproof", ends.disproof)):
        if proof is not None and proof.stream == description.output.stream:
            yield (*route, name, "stream"), f"{proof.stream} has the JSON; text is on the other stream"
    for name in ("success", "error", "open"):
        for at, where in enumerate(getattr(ends, name)):
            if not where:
                yield (*route, name, at), "it is empty and would match every object"
            yield from _check_match((*route, name, at), where)
    if ends.last is not None:
        yield from _check_match((*route, "last"), ends.last)
        if not ends.last:
            yield (*route, "last"), "it is empty and would match every object"


def _check_expressions(description: AgentDescription) -> Iterator[DescriptionError]:
    expressions: list[tuple[KeyPath, str]] = [
        (("output", "remove", at), expression) for at, expression in enumerate(description.output.remove)
    ]
    for name, proof in (("proof", description.ends.proof), ("disproof", description.ends.disproof)):
        if proof is not None:
            expressions.append((("ends", name, "words"), proof.words))
    if description.output.version_words:
        expressions.append((("output", "version_words"), description.output.version_words))
    for number, problem in enumerate(description.problems):
        expressions += [(("problems", number, "words", at), expression) for at, expression in enumerate(problem.words)]
        if not CODE.match(problem.code):
            yield ("problems", number, "code"), f"{problem.code[:80]!r} is not a code such as rate-limit"
    for route, expression in expressions:
        info = regex.inspect_expression(expression)
        if info.error:
            yield route, f"{expression[:80]!r} is not a valid RE2 regular expression: {info.error}"
            continue
        if info.matches_empty and route[0] != "output":
            yield route, f"{expression[:80]!r} also matches an empty line"
        if route[-1] == "version_words" and info.groups != 1:
            yield (
                route,
                f"{expression[:80]!r} has {info.groups} groups; it needs exactly one, which matches the version",
            )
