"""Pure: what every agent's adapter must keep to: its functions, its capabilities, what it starts.

`readings.py` holds its parser to the rest, `rehearsal.py` drives it through real processes. A new adapter is in the
registry once all three find nothing.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import get_args

import msgspec
from mz_engine.agents.contract import Adapter, Capabilities, Invocation, Spawn, Tells
from mz_engine.pipelines.definition import Tool
from mz_engine.ports import COUNT_MAX, CallResult, CallSpec, Place
from mz_events.catalog.call import Problem, ProblemClass
from mz_recordings.findings import Finding

from mz_qa.layers.facts import Checked, Said

SESSION = "11111111-2222-4333-8444-555555555555"
TIERS = frozenset({"cheap", "mid", "premium"})
PROMPT = "# Write a note\n\nKeep these rules, word by word:\n\n- A note has a title — always.\n- `x` stays as it is.\n"
PROMPT_BYTES = 1_000_000
CANARY = "canary-value-of-"
FOREIGN = ("DATABASE_URL", "GITHUB_TOKEN", "NPM_TOKEN", "PYPI_TOKEN", "SSH_AUTH_SOCK")
"""Variables that are none of an agent's business."""


def _said(stdout: bytes, status: int | None = 0, problem: Problem | None = None) -> CallResult:
    return CallResult(stdout=stdout, stderr=b"", exit=status, duration_ms=1, problem=problem)


COUNTED = b'{"type":"start"}\n{"type":"count","input_tokens":%s}\n{"type":"end","status":"success"}\n'
ANSWERS = (
    _said(COUNTED % b"1200"),
    _said(b""),
    _said(b"\xff\x00 no JSON \n[[[[\n" + b"[" * 100_000),
    *(_said(COUNTED % number) for number in (b"0", b"-5", b"1e9", b"12.5", b"true", b'"7"', b"null", b"[1]")),
    *(_said(COUNTED % (b"9" * digits)) for digits in (12, 30, 5000)),
    _said(b'{"type":"count"}\n{"type":"count","input_tokens":12'),
    _said(COUNTED % b"1200", 3),
    _said(COUNTED % b"1200", None),
    _said(COUNTED % b"1200", -15, problem=Problem(kind=ProblemClass.TRANSIENT, code="timeout")),
    _said(COUNTED % b"1200", problem=Problem(kind=ProblemClass.PHASE, code="output-limit")),
)
"""What a program may do that is asked to count: it answers, says nothing or something else, fails, or never ends."""

Check = Callable[[Adapter], Iterator[str]]
"""Says what is broken, in words that follow the adapter's name."""


def conform(adapter: Adapter) -> Iterator[Said]:
    """Everything that can be found out without a stream and without a process."""
    for check in (functions, capabilities, estimates, counts, prompts, arguments, environment, tools, sessions):
        yield Checked("contract checks")
        yield from complaints(adapter, check.__name__, check)


def complaints(adapter: Adapter, name: str, check: Check) -> Iterator[Finding]:
    """What a check says, as findings; an exception is one more."""
    try:
        for words in check(adapter):
            yield broken(adapter, name, words)
    except Exception as error:
        yield broken(adapter, name, f"raises {type(error).__name__}: {error}")


def broken(adapter: Adapter, check: str, words: str) -> Finding:
    what = " ".join(f"{adapter.name} {words}".split())
    mend = "mend the adapter, then: mz gate --layer 2"
    return Finding(kind="ADAPTER", what=what[:400], cause=f"{adapter.name}.{check}", mend=mend)


# the contract itself --------------------------------------------------------------------------------------------------
def functions(adapter: Adapter) -> Iterator[str]:
    """All of them are there, and take what the contract says."""
    for name, wanted in inspect.getmembers(Adapter, inspect.isfunction):
        if name.startswith("_"):
            continue
        found = getattr(type(adapter), name, None)
        if not callable(found):
            yield f"has no function {name}"
        elif list(inspect.signature(found).parameters) != list(inspect.signature(wanted).parameters):
            yield f"{name} takes {inspect.signature(found)}, not {inspect.signature(wanted)}"
    if not re.fullmatch(rf"{re.escape(adapter.name)}/[1-9]\d*", adapter.parser):
        yield f"calls its parser {adapter.parser!r}; it is called {adapter.name}/NUMBER"


def capabilities(adapter: Adapter) -> Iterator[str]:
    """They are of their types, and name what there is."""
    said = adapter.capabilities()
    try:
        msgspec.convert(msgspec.to_builtins(said), Capabilities)
    except msgspec.ValidationError as error:
        yield f"describes its capabilities wrongly: {error}"
        return
    if said.agent != adapter.name:
        yield f"speaks of the capabilities of {said.agent}"
    if set(said.models) != TIERS or not all(said.models.values()):
        yield f"names models for {', '.join(sorted(said.models)) or 'no tier'}; it needs {', '.join(sorted(TIERS))}"
    unknown = set(said.tools) - set(get_args(Tool))
    if unknown:
        yield f"knows tools that no pipeline can ask for: {', '.join(sorted(unknown))}"
    if not said.auth:
        yield "names no way to log in"
    if not said.tells or said.tells[0].since:
        yield "does not say what its agent's output tells, from the oldest version on"
    versions = [version_key(one.since) for one in said.tells]
    if versions != sorted(set(versions)):
        yield "says what its agent's output tells in another order than that of the versions"


def version_key(version: str) -> tuple[int, ...]:
    """For comparing versions: the numbers in front, `2.0.14-beta.1` as 2.0.14; nothing comes before everything."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(number) for number in found[1].split(".")) if found else ()


def told_by(capabilities: Capabilities, version: str) -> Tells:
    """What the agent's output tells in this version; of an unknown one, what the newest does."""
    if not version:
        return capabilities.tells[-1]
    reached = [one for one in capabilities.tells if version_key(one.since) <= version_key(version)]
    return reached[-1]


def estimates(adapter: Adapter) -> Iterator[str]:
    """Nothing takes no tokens, more takes no fewer, and it is the same each time."""
    text = (PROMPT + "é𝛼 " * 50) * 3
    counts = [adapter.estimate_tokens(text[:size]) for size in range(0, len(text) + 1, 7)]
    if not all(type(count) is int and count >= 0 for count in counts):
        yield "estimates something else than a whole number of tokens"
    if counts[0] != 0:
        yield f"estimates {counts[0]} tokens for an empty prompt"
    if counts != sorted(counts):
        yield "estimates fewer tokens for a longer prompt"
    if not 0 < counts[-1] <= len(text.encode()):
        yield f"estimates {counts[-1]} tokens for {len(text.encode())} bytes"
    if adapter.estimate_tokens(text) != adapter.estimate_tokens(text):
        yield "estimates the same prompt differently"


def counts(adapter: Adapter) -> Iterator[str]:
    """Whatever its program says when it is asked to count, what comes of it can be a number of tokens, or is none; it
    is asked at most once, and nothing that a call would not show is shown to it."""
    (call,) = invocation_of(adapter, spec_of(adapter))
    for answer in ANSWERS:
        started: list[Invocation] = []
        found = adapter.count_tokens(spec_of(adapter), Everything(), _answering(answer, started))
        if found is not None and not (type(found) is int and 0 < found <= COUNT_MAX):
            yield f"counts {str(found)[:40]} tokens where its program says {answer.stdout[:60]!r}"
        if found is not None and (answer.problem is not None or answer.exit != 0):
            yield "takes the word of a program that failed for a count of tokens"
        if len(started) > 1:
            yield f"starts {len(started)} processes to count once"
        line = "\0".join(word for one in started for word in one.argv)
        if CANARY in line or any(part in line for part in PROMPT.split("\n") if len(part) > 12):
            yield "puts a variable's value or the prompt into the arguments when it counts"
        if any(set(one.env) - set(call.env) for one in started):
            yield "passes on more variables to count than to call"


def _answering(answer: CallResult, started: list[Invocation]) -> Spawn:
    def spawn(given: CallSpec, invocation: Invocation) -> CallResult:
        started.append(invocation)
        return answer

    return spawn


def prompts(adapter: Adapter) -> Iterator[str]:
    """Whatever the adapter makes of a prompt, every line of it is still there, in order."""
    made = adapter.format_prompt(PROMPT)
    at = 0
    for line in filter(None, PROMPT.split("\n")):
        at = made.find(line, at)
        if at < 0:
            yield f"loses or moves the line {line!r} of a prompt"
            return
        at += len(line)
    if made != adapter.format_prompt(PROMPT):
        yield "formats the same prompt differently"


# what it starts -------------------------------------------------------------------------------------------------------
class Everything(Mapping[str, str]):
    """An environment in which every variable is set, each to a value that can be found again."""

    def __getitem__(self, name: str) -> str:
        return CANARY + name

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(FOREIGN)

    def __len__(self) -> int:
        return len(FOREIGN)


def spec_of(adapter: Adapter, prompt: str = PROMPT, **more: object) -> CallSpec:
    """A call of the agent, as the engine would make it."""
    usual = CallSpec(
        key="r1/sample/write/-/1/1/agent.builder",
        place=Place(run="r1", feature="sample", branch="feat/sample"),
        agent=adapter.name,
        model=adapter.capabilities().models["mid"],
        prompt=prompt,
        session=None,
        resumes=False,
        tools=known_tools(adapter),
        total_seconds=20,
        idle_seconds=20,
    )
    return msgspec.structs.replace(usual, **more)


def known_tools(adapter: Adapter) -> tuple[Tool, ...]:
    """Those that the adapter names and that a pipeline can ask for."""
    return tuple(tool for tool in get_args(Tool) if tool in adapter.capabilities().tools)


def invocation_of(adapter: Adapter, spec: CallSpec) -> tuple[Invocation, ...]:
    """What the adapter starts for the call; exactly one where it keeps its contract."""
    started: list[Invocation] = []

    def spawn(given: CallSpec, invocation: Invocation) -> CallResult:
        started.append(invocation)
        return CallResult(stdout=b"", stderr=b"", exit=0, duration_ms=1)

    adapter.run_phase(spec, Everything(), spawn)
    return tuple(started)


def arguments(adapter: Adapter) -> Iterator[str]:
    """One process; the whole prompt goes in where nobody else can read it; the model is the one that was asked for."""
    prompt = PROMPT + "é𝛼 " * (PROMPT_BYTES // 7)
    started = invocation_of(adapter, spec_of(adapter, prompt, model="model-of-the-gate"))
    if len(started) != 1:
        yield f"starts {len(started)} processes for one call"
        return
    (one,) = started
    line = "\0".join(one.argv)
    if one.stdin.decode("utf-8", "replace") != prompt:
        yield "does not pass the whole prompt on standard input, which alone takes one of any size, unseen by others"
    if any(part in line for part in PROMPT.split("\n") if len(part) > 12):
        yield "puts the prompt into the arguments, where everybody on the machine can read it"
    if CANARY in line:
        yield "puts a variable's value into the arguments, where everybody on the machine can read it"
    if "model-of-the-gate" not in line and "model-of-the-gate" not in one.env.values():
        yield "does not call the model that it was told to call"


def environment(adapter: Adapter) -> Iterator[str]:
    """Only variables that the agent reads pass, and none of them under another's name."""
    (one,) = invocation_of(adapter, spec_of(adapter))
    foreign = sorted(set(one.env) & set(FOREIGN))
    if foreign:
        yield f"passes on variables that are none of its business: {', '.join(foreign)}"
    # A list, such as PATH, may be made longer.
    whole = {name: value.split(":")[0] for name, value in one.env.items()}
    swapped = [name for name, value in whole.items() if value.startswith(CANARY) and value != CANARY + name]
    if swapped:
        yield f"gives {', '.join(sorted(swapped))} another variable's value"


def tools(adapter: Adapter) -> Iterator[str]:
    """Each tool that it says it knows makes a difference, and none is given unasked."""
    known = known_tools(adapter)
    (none,) = invocation_of(adapter, spec_of(adapter, tools=()))
    for tool in known:
        (one,) = invocation_of(adapter, spec_of(adapter, tools=(tool,)))
        if one.argv == none.argv and one.env == none.env:
            yield f"starts the agent alike with and without the tool {tool}"


def sessions(adapter: Adapter) -> Iterator[str]:
    """A session is begun and continued by its id where the agent has sessions, and nowhere else."""
    plain, begun, continued = (
        invocation_of(adapter, spec_of(adapter, session=session, resumes=resumes))[0].argv
        for session, resumes in ((None, False), (SESSION, False), (SESSION, True))
    )
    if not adapter.capabilities().sessions:
        if SESSION in "\0".join((*begun, *continued)):
            yield "has no sessions, and passes on the id of one"
        return
    if SESSION in plain or SESSION not in continued:
        yield "does not continue the session that it was given"
    if begun == continued:
        yield "begins a session as it continues one"
