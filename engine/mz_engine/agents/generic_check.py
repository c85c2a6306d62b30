"""Pure: what is wrong with the description of an agent, beyond the shape of its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mz_engine.agents import linear
from mz_engine.agents.generic_form import (
    MODEL,
    SESSION,
    TOOLS,
    AgentDescription,
    Selector,
    UsageSelector,
    Where,
)
from mz_engine.shape import Route

PLACEHOLDER = re.compile(r"\{[a-z_]+\}")
PROMPTS = ("{prompt}", "{prompt_file}")
PATH = re.compile(r"[^.\s]+(?:\.[^.\s]+)*\Z")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
CODE = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*\Z")
PROGRAM = re.compile(r"[A-Za-z0-9_][\w.+-]*\Z")
SECRET = re.compile(r"(?i)(key|token|secret|passw|credential)")
PATHS = ("input", "output", "model", "cache_read", "cache_write", "cache_write_1h", "reasoning")

Wrong = tuple[Route, str]
"""Where, and what is wrong there."""


def faults(told: AgentDescription) -> Iterator[Wrong]:
    """All of them, by route within the description; none: a program can be called and read by it."""
    yield from _command(told)
    yield from _arguments(told)
    yield from _environment(told)
    yield from _output(told)
    yield from _ends(told)
    yield from _expressions(told)


def _command(told: AgentDescription) -> Iterator[Wrong]:
    if not told.command:
        yield ("command",), "it names no program"
    elif not PROGRAM.match(told.command[0]):
        yield (
            ("command", 0),
            f"{told.command[0][:80]!r} is not the name of a program on PATH; for one that lies in the repository, "
            "write `sh` or its interpreter, and its path as an argument",
        )
    if told.version is not None and told.version[:1] and not PROGRAM.match(told.version[0]):
        yield ("version", 0), f"{told.version[0][:80]!r} is not the name of a program on PATH"
    if MODEL in "\0".join(told.command) and not told.models.mid:
        yield ("models",), "the command names {model}, and there is no model for the tier `mid`"


def _arguments(told: AgentDescription) -> Iterator[Wrong]:
    session = told.session
    lists: tuple[tuple[Route, tuple[str, ...], tuple[str, ...]], ...] = (
        (("command",), told.command, (MODEL, TOOLS)),
        (("version",), told.version or (), ()),
        *((("allowed", name), getattr(told.allowed, name), ()) for name in ("read", "write", "shell")),
        *((("denied", name), getattr(told.denied, name), ()) for name in ("read", "write", "shell")),
        *(((("session", "new"), session.new, (SESSION,)),) if session else ()),
        *(((("session", "resume"), session.resume, (SESSION,)),) if session else ()),
    )
    for route, words, known in lists:
        for at, word in enumerate(words):
            if "\0" in word:
                yield (*route, at), "an argument cannot hold a NUL"
            for found in PLACEHOLDER.findall(word):
                if found not in known:
                    yield (*route, at), _unknown(found, known)
    if session is not None:
        if SESSION not in "\0".join(session.resume):
            yield ("session", "resume"), "it does not name {session}"
        if SESSION not in "\0".join(session.new) and told.output.session is None:
            yield ("session", "new"), "neither does it name {session}, nor does the output say which session it is"


def _unknown(found: str, known: tuple[str, ...]) -> str:
    if found in PROMPTS:
        return (
            f"{found} cannot stand in an argument, which everybody on the machine can read; the prompt comes on "
            "standard input, and a program that wants a file is given /dev/stdin"
        )
    return f"{found} stands for nothing here; known: {', '.join(known) or 'none'}"


def _environment(told: AgentDescription) -> Iterator[Wrong]:
    for name, value in told.environment.items():
        route = ("environment", name)
        if not VARIABLE.match(name):
            yield route, f"{name[:80]!r} is not the name of an environment variable"
        elif name.startswith("MZ_"):
            yield route, f"{name} is mz's own"
        elif SECRET.search(name) and value:
            yield route, f"{name} looks like a secret, which has no place in a file; name it under `passes` instead"
        if "\0" in value:
            yield route, "a value cannot hold a NUL"
    for at, name in enumerate(told.passes):
        if not VARIABLE.match(name):
            yield ("passes", at), f"{name[:80]!r} is not the name of an environment variable"
    for at, name in enumerate(told.login.variables):
        if name not in told.passes:
            yield ("login", "variables", at), f"{name} is not under `passes`, so the program would not see it"


def _output(told: AgentDescription) -> Iterator[Wrong]:
    output = told.output
    selectors = {
        name: value
        for name in output.__struct_fields__
        if isinstance(value := getattr(output, name), Selector | UsageSelector)
    }
    if output.form == "text":
        for name in selectors:
            yield ("output", name), "there are no objects to find it in: the output is words (`form: text`)"
        if output.stream != "stdout":
            yield ("output", "stream"), "it says where JSON comes out, and the output is words (`form: text`)"
        return
    if output.text is None and output.stream == "stdout":
        yield ("output",), "it has no `text`: where the agent's final words are"
    for name, selector in selectors.items():
        yield from _where(("output", name, "where"), selector.where)
        for field in PATHS if isinstance(selector, UsageSelector) else ("path",):
            path = getattr(selector, field)
            if (path or field == "path") and not PATH.match(path):
                yield ("output", name, field), _not_a_path(path)


def _where(route: Route, where: Where) -> Iterator[Wrong]:
    for path in where:
        if not PATH.match(path):
            yield (*route, path), _not_a_path(path)


def _not_a_path(path: str) -> str:
    return f"{path[:80]!r} is not a path; write keys joined by dots, such as result.usage.input"


def _ends(told: AgentDescription) -> Iterator[Wrong]:
    ends, route = told.ends, ("ends",)
    if told.output.form == "text":
        if not ends.exits and ends.proof is None:
            yield route, "of words nothing but `proof` or `exits` says what a success is"
        for name in ("success", "error", "open", "last"):
            if getattr(ends, name):
                yield (*route, name), "there are no objects to find: the output is words (`form: text`)"
        return
    if not ends.success:
        yield route, "it names no object under `success`, so that no call could end well"
    for name, proof in (("proof", ends.proof), ("disproof", ends.disproof)):
        if proof is not None and proof.stream == told.output.stream:
            yield (*route, name, "stream"), f"{proof.stream} is where JSON comes out; words are on the other stream"
    for name in ("success", "error", "open"):
        for at, where in enumerate(getattr(ends, name)):
            if not where:
                yield (*route, name, at), "it names nothing, and would fit every object"
            yield from _where((*route, name, at), where)
    if ends.last is not None:
        yield from _where((*route, "last"), ends.last)
        if not ends.last:
            yield (*route, "last"), "it names nothing, and would fit every object"


def _expressions(told: AgentDescription) -> Iterator[Wrong]:
    found: list[tuple[Route, str]] = [(("output", "remove", at), one) for at, one in enumerate(told.output.remove)]
    for name, proof in (("proof", told.ends.proof), ("disproof", told.ends.disproof)):
        if proof is not None:
            found.append((("ends", name, "words"), proof.words))
    if told.output.version_words:
        found.append((("output", "version_words"), told.output.version_words))
    for number, problem in enumerate(told.problems):
        found += [(("problems", number, "words", at), one) for at, one in enumerate(problem.words)]
        if not CODE.match(problem.code):
            yield ("problems", number, "code"), f"{problem.code[:80]!r} is not a code such as rate-limit"
    for route, expression in found:
        known = linear.form(expression)
        if known.wrong:
            yield route, f"{expression[:80]!r} is not a regular expression as RE2 knows them: {known.wrong}"
            continue
        if known.empty and route[0] != "output":
            yield route, f"{expression[:80]!r} matches an empty line too, so it says nothing"
        if route[-1] == "version_words" and known.groups != 1:
            yield route, f"{expression[:80]!r} has {known.groups} groups; the version is what its only one matches"
