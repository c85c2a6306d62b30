"""Descriptions of programs as agents: how to call them and how to read their output. Used for `agents:` in `mz.yaml`
and for the descriptions bundled with `mz`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from mz_events.names import InvalidName, parse_path

from mz_engine.path_patterns import is_pattern


def doc(description: str, ge: int | None = None, le: int | None = None) -> Meta:
    """Return a description for editors and docs, and limits of a number."""
    return Meta(description=description, ge=ge, le=le)


VALUES_HINT = "see `mz help MZ2013` for valid values"


def parsed_by(parse: Callable[[str], str], hint: str = VALUES_HINT) -> Meta:
    """Return the parser of a text that people write: decoding reports what it rejects, and stores what it returns."""
    return Meta(extra={"parse": parse, "hint": hint})


def matching(pattern: str, meaning: str, hint: str = VALUES_HINT) -> Meta:
    """Return the parser of texts that match the pattern as a whole."""

    def parse(written: str) -> str:
        if not re.fullmatch(pattern, written):
            raise InvalidName(f"{written[:80]!r} is not {meaning}")
        return written

    return parsed_by(parse, hint)


def parse_non_empty(text: str) -> str:
    """Return the text. Raises InvalidName if it is empty."""
    if not text.strip() or "\0" in text:
        raise InvalidName("it is empty")
    return text


def _parse_pattern(text: str) -> str:
    if not is_pattern(parse_non_empty(text)):
        raise InvalidName(f"{text[:80]!r} is not a pattern as in .gitignore")
    return text


NonEmpty = Annotated[str, parsed_by(parse_non_empty)]
RepositoryPath = Annotated[str, parsed_by(parse_path)]
Pattern = Annotated[str, parsed_by(_parse_pattern)]
Variable = Annotated[str, matching(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")]
PATH, PATH_MEANING = r"[^.\s]+(\.[^.\s]+)*", "a path; write keys joined by dots, such as result.usage.input"
FieldPath = Annotated[str, matching(PATH, PATH_MEANING)]
OptionalPath = Annotated[str, matching(f"({PATH})?", PATH_MEANING)]
ProblemCode = Annotated[str, matching(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", "a code such as rate-limit")]
Arguments = tuple[str, ...]
MatchValue = str | int | bool
ObjectMatch = dict[FieldPath, MatchValue]
"""Paths and the values required there, all of them; `"*"` matches any value but null."""

ANYTHING = "*"
MODEL, SESSION, TOOLS = "{model}", "{session}", "{tools}"


class DescriptionPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base."""


class ToolArguments(DescriptionPart, frozen=True, kw_only=True):
    """Arguments by tool; absent: none."""

    read: Annotated[Arguments, doc("For reading files.")] = ()
    write: Annotated[Arguments, doc("For writing files.")] = ()
    shell: Annotated[Arguments, doc("For running commands.")] = ()


class SessionArguments(DescriptionPart, frozen=True, kw_only=True):
    new: Annotated[
        Arguments, doc("Arguments that begin the session {session}; absent: the program names its own.")
    ] = ()
    resume: Annotated[Arguments, doc("Arguments that continue the session {session}.")]


class ModelNames(DescriptionPart, frozen=True, kw_only=True):
    cheap: Annotated[str, doc("Model of the cheap tier; absent: that of mid.")] = ""
    mid: Annotated[str, doc("Model of the mid tier.")] = ""
    premium: Annotated[str, doc("Model of the premium tier; absent: that of mid.")] = ""


class Login(DescriptionPart, frozen=True, kw_only=True):
    """Any of these will do."""

    variables: Annotated[tuple[str, ...], doc("Variables of which one has to be set.")] = ()
    files: Annotated[
        tuple[str, ...], doc("Files that are there after a login, which the program sees; ~/ is the home directory.")
    ] = ()
    how: Annotated[str, doc("How to log in, in words.")] = ""


class Selector(DescriptionPart, frozen=True, kw_only=True):
    """A value in the output: of the objects that fit `where`, what stands at `path`; the last one counts."""

    where: Annotated[ObjectMatch, doc('Paths and values that an object must have; "*" stands for any value.')] = {}
    path: Annotated[FieldPath, doc("Keys joined by dots, such as result.usage.input or items.0.")]


class TextSelector(Selector, frozen=True, kw_only=True):
    joined: Annotated[bool, doc("All of them joined are the text, not the last one.")] = False


class MoneySelector(Selector, frozen=True, kw_only=True):
    """In US dollars."""

    counts: Annotated[
        Literal["request", "call"],
        doc("What one value is the price of: a request, so that they add up, or the whole call."),
    ] = "call"


class UsageSelector(DescriptionPart, frozen=True, kw_only=True):
    where: Annotated[ObjectMatch, doc("Paths and values that an object with token counts has.")] = {}
    input: Annotated[FieldPath, doc("Path of the input tokens.")]
    output: Annotated[FieldPath, doc("Path of the output tokens.")]
    model: Annotated[OptionalPath, doc("Path of the model's name; absent: the one asked for.")] = ""
    cache_read: Annotated[OptionalPath, doc("Path of the tokens read from a cache.")] = ""
    cache_write: Annotated[OptionalPath, doc("Path of the tokens written to a cache.")] = ""
    cache_write_1h: Annotated[OptionalPath, doc("Path of those of them that live for an hour.")] = ""
    reasoning: Annotated[OptionalPath, doc("Path of the reasoning tokens.")] = ""
    cached: Annotated[
        Literal["included", "apart"], doc("Whether the input tokens include what was read from and written to a cache.")
    ] = "included"
    thoughts: Annotated[Literal["included", "apart"], doc("Whether the output tokens include the reasoning ones.")] = (
        "included"
    )
    counts: Annotated[
        Literal["request", "call", "session"],
        doc("What one object counts: a request, so that they add up; the call so far; the session so far."),
    ] = "call"


class OutputFormat(DescriptionPart, frozen=True, kw_only=True):
    form: Annotated[
        Literal["text", "json", "jsonl"], doc("Words for people, one JSON document, or a JSON object on each line.")
    ] = "text"
    stream: Annotated[Literal["stdout", "stderr"], doc("Where JSON comes out; the other stream is text.")] = "stdout"
    live: Annotated[bool, doc("It writes as it works; else the idle timeout of a phase must leave it time.")] = True
    text: Annotated[
        TextSelector | None, doc("The agent's final text; absent: what it writes for people on standard output.")
    ] = None
    remove: Annotated[tuple[str, ...], doc("Regular expressions: what is removed from each line of that text.")] = ()
    usage: Annotated[UsageSelector | None, doc("Tokens.")] = None
    money: Annotated[MoneySelector | None, doc("What the call cost, in US dollars.")] = None
    session: Annotated[Selector | None, doc("Id of the session.")] = None
    model: Annotated[Selector | None, doc("Name of the model that answers.")] = None
    version: Annotated[Selector | None, doc("Version of the program.")] = None
    version_pattern: Annotated[
        str, doc("A regular expression: its group is the version, in text on standard output.")
    ] = ""
    error: Annotated[Selector | None, doc("What went wrong, as text.")] = None
    status: Annotated[Selector | None, doc("HTTP status of the model's API.")] = None


class TextProof(DescriptionPart, frozen=True, kw_only=True):
    stream: Annotated[Literal["stdout", "stderr"], doc("Where it stands.")] = "stderr"
    pattern: Annotated[str, doc("A regular expression that a line of it matches.")]


class EndConditions(DescriptionPart, frozen=True, kw_only=True):
    """What shows how a call ended. The last object that is any of `success`, `error`, `open` decides."""

    success: Annotated[tuple[ObjectMatch, ...], doc("Objects that say that the work is done.")] = ()
    error: Annotated[tuple[ObjectMatch, ...], doc("Objects that say that it failed.")] = ()
    open: Annotated[tuple[ObjectMatch, ...], doc("Objects after which another of these has to follow.")] = ()
    last: Annotated[ObjectMatch | None, doc("The object without which the program did not come to its end.")] = None
    exits: Annotated[tuple[int, ...], doc("Exit codes of success. Many programs exit 0 after a failure too.")] = ()
    proof: Annotated[TextProof | None, doc("Words that only a success writes.")] = None
    disproof: Annotated[TextProof | None, doc("Words that only a failure writes.")] = None


class DescribedProblem(DescriptionPart, frozen=True, kw_only=True):
    """A kind of failure, and how the program tells of it; these are tried before those that mz knows."""

    code: Annotated[ProblemCode, doc("Its name, such as rate-limit, auth-failure, model-missing.")]
    kind: Annotated[
        Literal["transient", "phase", "fatal", "needs-person"],
        doc("What follows: wait and try again, try again, stop, ask a person."),
    ]
    patterns: Annotated[tuple[str, ...], doc("Regular expressions; a line of the agent's text matches one.")]
    retry_after: Annotated[
        Annotated[int, Meta(ge=1)] | None, doc("Seconds until another try, where the program does not say.")
    ] = None


class AgentDescription(DescriptionPart, frozen=True, kw_only=True):
    """A program as an agent. The prompt goes in on standard input, and only there: everybody can see arguments."""

    command: Annotated[
        Arguments,
        doc(
            "Program and arguments; {model} and {tools} stand for what is asked for. The prompt comes on "
            "standard input: a program that wants a file is given /dev/stdin."
        ),
    ]
    version: Annotated[
        Arguments | None, doc("What prints its version; absent: the program with --version; []: nothing does.")
    ] = None
    models: ModelNames = ModelNames()
    session: Annotated[SessionArguments | None, doc("How a session is continued; absent: it cannot be.")] = None
    allowed: Annotated[
        ToolArguments,
        doc(
            "Arguments for the tools that a phase may use. With {tools} in the command they stand there, "
            "joined by commas, else at the end."
        ),
    ] = ToolArguments()
    denied: Annotated[ToolArguments, doc("Arguments, at the end, for the tools that a phase may not use.")] = (
        ToolArguments()
    )
    environment: Annotated[
        dict[Variable, str], doc("Variables that are set; no place for secrets, which `passes` names.")
    ] = {}
    passes: Annotated[
        tuple[Variable, ...], doc("Names of your variables that the program may see, such as its key.")
    ] = ()
    login: Login = Login()
    folders: Annotated[
        Arguments,
        doc(
            "Folders below HOME with the program's login, settings and sessions. With mount namespaces, what a call "
            "changes there is seen by calls of its feature alone, except a refreshed login."
        ),
    ] = ()
    output: OutputFormat = OutputFormat()
    ends: EndConditions
    problems: tuple[DescribedProblem, ...] = ()
    evidence: Annotated[
        Literal["recorded", "constructed", "documented"],
        doc("How it is known what the output tells: by running it, or from its documentation."),
    ] = "documented"
