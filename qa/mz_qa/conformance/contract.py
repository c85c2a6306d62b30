"""Checks of an adapter's contract: its capabilities, its functions, the processes it starts.

`parsing.py` checks its parser, `live_process.py` runs it with real processes. A new adapter may be registered once all
three find nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import get_args

import msgspec
from mz_engine.agents.contract import Adapter, Capabilities, Invocation, ReportedFields, Spawn
from mz_engine.model.pipeline import Tool
from mz_engine.ports import COUNT_MAX, CallResult, CallSpec, FeatureWorktree
from mz_events.catalog.call import Problem, ProblemClass
from mz_recordings.findings.model import Finding

from mz_qa.results import CheckedItem, LayerOutput

SESSION = "11111111-2222-4333-8444-555555555555"
TIERS = frozenset({"cheap", "mid", "premium"})
PROMPT = "# Write a note\n\nKeep these rules, word by word:\n\n- A note has a title — always.\n- `x` stays as it is.\n"
PROMPT_BYTES = 1_000_000
CANARY = "canary-value-of-"
FOREIGN_VARIABLES = ("DATABASE_URL", "GITHUB_TOKEN", "NPM_TOKEN", "PYPI_TOKEN", "SSH_AUTH_SOCK")
"""Variables that no agent may receive."""


def _count_result(stdout: bytes, status: int | None = 0, problem: Problem | None = None) -> CallResult:
    return CallResult(stdout=stdout, stderr=b"", exit=status, duration_ms=1, problem=problem)


COUNT_OUTPUT = b'{"type":"start"}\n{"type":"count","input_tokens":%s}\n{"type":"end","status":"success"}\n'
COUNT_RESULTS = (
    _count_result(COUNT_OUTPUT % b"1200"),
    _count_result(b""),
    _count_result(b"\xff\x00 no JSON \n[[[[\n" + b"[" * 100_000),
    *(
        _count_result(COUNT_OUTPUT % number)
        for number in (b"0", b"-5", b"1e9", b"12.5", b"true", b'"7"', b"null", b"[1]")
    ),
    *(_count_result(COUNT_OUTPUT % (b"9" * digits)) for digits in (12, 30, 5000)),
    _count_result(b'{"type":"count"}\n{"type":"count","input_tokens":12'),
    _count_result(COUNT_OUTPUT % b"1200", 3),
    _count_result(COUNT_OUTPUT % b"1200", None),
    _count_result(COUNT_OUTPUT % b"1200", -15, problem=Problem(kind=ProblemClass.TRANSIENT, code="timeout")),
    _count_result(COUNT_OUTPUT % b"1200", problem=Problem(kind=ProblemClass.PHASE, code="output-limit")),
)
"""Possible outputs of a program that counts tokens: valid, empty, malformed, failed or timed out."""

ContractCheck = Callable[[Adapter], Iterator[str]]
"""Yields violations as text that follows the adapter's name."""


def check_contract(adapter: Adapter) -> Iterator[LayerOutput]:
    """Run all checks that need neither a stream nor a process."""
    for check in (capabilities, estimates, counts, prompts, arguments, environment, tools, sessions):
        yield CheckedItem("contract checks")
        yield from run_check(adapter, check.__name__, check)


def run_check(adapter: Adapter, name: str, check: ContractCheck) -> Iterator[Finding]:
    """Convert the violations of a check to findings; an exception is one too."""
    try:
        for problem in check(adapter):
            yield adapter_finding(adapter, name, problem)
    except Exception as error:
        yield adapter_finding(adapter, name, f"raises {type(error).__name__}: {error}")


def adapter_finding(adapter: Adapter, check: str, problem: str) -> Finding:
    message = " ".join(f"{adapter.name} {problem}".split())
    fix = "fix the adapter, then run: mz doctor --self-test"
    return Finding(kind="ADAPTER", message=message[:400], cause=f"{adapter.name}.{check}", fix=fix)


# the contract itself --------------------------------------------------------------------------------------------------
def capabilities(adapter: Adapter) -> Iterator[str]:
    """The names of agent, parser, models, tools and versions are valid."""
    declared = adapter.capabilities()
    if not re.fullmatch(rf"{re.escape(adapter.name)}/[1-9]\d*", adapter.parser):
        yield f"names its parser {adapter.parser!r}; it must be {adapter.name}/NUMBER"
    if set(declared.models) != TIERS or not all(declared.models.values()):
        yield f"names models for {', '.join(sorted(declared.models)) or 'no tier'}; it needs {', '.join(sorted(TIERS))}"
    unknown = set(declared.tools) - set(get_args(Tool))
    if unknown:
        yield f"names tools that pipelines do not know: {', '.join(sorted(unknown))}"
    if not declared.auth:
        yield "has no way to log in"
    if not declared.reported_fields or declared.reported_fields[0].since:
        yield "does not describe its agent's output from the oldest version on"
    versions = [version_key(fields.since) for fields in declared.reported_fields]
    if versions != sorted(set(versions)):
        yield "describes its agent's output in another order than that of the versions"


def version_key(version: str) -> tuple[int, ...]:
    """Return a version's leading numbers for comparison: `2.0.14-beta.1` as 2.0.14; empty sorts first."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(number) for number in match[1].split(".")) if match else ()


def fields_for_version(capabilities: Capabilities, version: str) -> ReportedFields:
    """Return the reported fields for a version; for an unknown one those of the newest."""
    if not version:
        return capabilities.reported_fields[-1]
    candidates = [
        fields for fields in capabilities.reported_fields if version_key(fields.since) <= version_key(version)
    ]
    return candidates[-1]


def estimates(adapter: Adapter) -> Iterator[str]:
    """Estimates are 0 for an empty text, monotonic and deterministic."""
    text = (PROMPT + "é𝛼 " * 50) * 3
    counts = [adapter.estimate_tokens(text[:size]) for size in range(0, len(text) + 1, 7)]
    if not all(type(count) is int and count >= 0 for count in counts):
        yield "does not estimate a whole number of tokens"
    if counts[0] != 0:
        yield f"estimates {counts[0]} tokens for an empty prompt"
    if counts != sorted(counts):
        yield "estimates fewer tokens for a longer prompt"
    if not 0 < counts[-1] <= len(text.encode()):
        yield f"estimates {counts[-1]} tokens for {len(text.encode())} bytes"
    if adapter.estimate_tokens(text) != adapter.estimate_tokens(text):
        yield "estimates the same prompt differently"


def counts(adapter: Adapter) -> Iterator[str]:
    """A count is a valid number of tokens or None, for any output; it starts at most one process, which sees no more
    than a call would."""
    (call,) = invocation_of(adapter, sample_call(adapter))
    for result in COUNT_RESULTS:
        started: list[Invocation] = []
        tokens = adapter.count_tokens(sample_call(adapter), AllVariables(), _spawn_returning(result, started))
        if tokens is not None and not (type(tokens) is int and 0 < tokens <= COUNT_MAX):
            yield f"counts {str(tokens)[:40]} tokens where its program prints {result.stdout[:60]!r}"
        if tokens is not None and (result.problem is not None or result.exit != 0):
            yield "takes a count of tokens from a program that failed"
        if len(started) > 1:
            yield f"starts {len(started)} processes to count once"
        line = "\0".join(word for invocation in started for word in invocation.argv)
        if CANARY in line or any(part in line for part in PROMPT.split("\n") if len(part) > 12):
            yield "puts a variable's value or the prompt into the arguments when it counts"
        if any(set(invocation.env) - set(call.env) for invocation in started):
            yield "passes on more variables to count than to call"


def _spawn_returning(result: CallResult, started: list[Invocation]) -> Spawn:
    def spawn(spec: CallSpec, invocation: Invocation) -> CallResult:
        started.append(invocation)
        return result

    return spawn


def prompts(adapter: Adapter) -> Iterator[str]:
    """A formatted prompt still has every line, in order."""
    formatted = adapter.format_prompt(PROMPT)
    position = 0
    for line in filter(None, PROMPT.split("\n")):
        position = formatted.find(line, position)
        if position < 0:
            yield f"loses or moves the line {line!r} of a prompt"
            return
        position += len(line)
    if formatted != adapter.format_prompt(PROMPT):
        yield "formats the same prompt differently"


# started processes ----------------------------------------------------------------------------------------------------
class AllVariables(Mapping[str, str]):
    """An environment in which every variable is set to a recognisable value."""

    def __getitem__(self, name: str) -> str:
        return CANARY + name

    def __iter__(self) -> Iterator[str]:
        return iter(FOREIGN_VARIABLES)

    def __len__(self) -> int:
        return len(FOREIGN_VARIABLES)


def sample_call(adapter: Adapter, prompt: str = PROMPT, **more: object) -> CallSpec:
    """Return a call of the agent, as the engine would make it."""
    spec = CallSpec(
        key="r1/sample/write/-/1/1/agent.builder",
        worktree=FeatureWorktree(run="r1", feature="sample", branch="feat/sample"),
        agent=adapter.name,
        model=adapter.capabilities().models["mid"],
        prompt=prompt,
        session=None,
        resumes=False,
        tools=pipeline_tools(adapter),
        total_seconds=20,
        idle_seconds=20,
    )
    return msgspec.structs.replace(spec, **more)


def pipeline_tools(adapter: Adapter) -> tuple[Tool, ...]:
    """Return the adapter's tools that pipelines know."""
    return tuple(tool for tool in get_args(Tool) if tool in adapter.capabilities().tools)


def invocation_of(adapter: Adapter, spec: CallSpec) -> tuple[Invocation, ...]:
    """Return the processes that the adapter starts for the call; exactly one if it fulfils its contract."""
    started: list[Invocation] = []
    result = CallResult(stdout=b"", stderr=b"", exit=0, duration_ms=1)
    adapter.run_call(spec, AllVariables(), _spawn_returning(result, started))
    return tuple(started)


def arguments(adapter: Adapter) -> Iterator[str]:
    """A call starts one process, with the complete prompt on stdin only, and calls the requested model."""
    prompt = PROMPT + "é𝛼 " * (PROMPT_BYTES // 7)
    started = invocation_of(adapter, sample_call(adapter, prompt, model="model-of-the-gate"))
    if len(started) != 1:
        yield f"starts {len(started)} processes for one call"
        return
    (invocation,) = started
    line = "\0".join(invocation.argv)
    if invocation.stdin.decode("utf-8", "replace") != prompt:
        yield "does not pass the complete prompt on standard input, where nobody else can read it"
    if any(part in line for part in PROMPT.split("\n") if len(part) > 12):
        yield "puts the prompt into the arguments, where everybody on the machine can read it"
    if CANARY in line:
        yield "puts a variable's value into the arguments, where everybody on the machine can read it"
    if "model-of-the-gate" not in line and "model-of-the-gate" not in invocation.env.values():
        yield "does not call the requested model"


def environment(adapter: Adapter) -> Iterator[str]:
    """Only variables that the agent reads are passed, each under its own name."""
    (invocation,) = invocation_of(adapter, sample_call(adapter))
    foreign = sorted(set(invocation.env) & set(FOREIGN_VARIABLES))
    if foreign:
        yield f"passes variables that no agent may receive: {', '.join(foreign)}"
    # A list, such as PATH, may be made longer, and a folder be below that of another variable.
    first_parts = {name: value.split(":")[0] for name, value in invocation.env.items()}
    values = {name: value for name, value in first_parts.items() if value.startswith(CANARY) and "/" not in value}
    swapped = [name for name, value in values.items() if value != CANARY + name]
    if swapped:
        yield f"gives {', '.join(sorted(swapped))} another variable's value"


def tools(adapter: Adapter) -> Iterator[str]:
    """Each tool changes the process that is started."""
    agent_tools = pipeline_tools(adapter)
    (without_tools,) = invocation_of(adapter, sample_call(adapter, tools=()))
    for tool in agent_tools:
        (with_tool,) = invocation_of(adapter, sample_call(adapter, tools=(tool,)))
        if with_tool.argv == without_tools.argv and with_tool.env == without_tools.env:
            yield f"starts the agent alike with and without the tool {tool}"


def sessions(adapter: Adapter) -> Iterator[str]:
    """Sessions are started and continued by id if the agent supports sessions, and only then."""
    plain, begun, continued = (
        invocation_of(adapter, sample_call(adapter, session=session, resumes=resumes))[0].argv
        for session, resumes in ((None, False), (SESSION, False), (SESSION, True))
    )
    if not adapter.capabilities().sessions:
        if SESSION in "\0".join((*begun, *continued)):
            yield "has no sessions, but passes a session's id"
        return
    if SESSION in plain or SESSION not in continued:
        yield "does not continue the given session"
    if begun == continued:
        yield "starts and continues a session with the same arguments"
