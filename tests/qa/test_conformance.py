"""The conformance suite: the adapters that come with mz keep to it, and each way to break it is found."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_engine.agents.claude_code.adapter import ClaudeCode
from mz_engine.agents.contract import Adapter, AuthCheck, Capabilities, Invocation, Spawn
from mz_engine.agents.described.adapter import DescribedAgent
from mz_engine.agents.reading.call import ObjectObserver
from mz_engine.agents.reading.json_lines import decode_lines, mapping, objects
from mz_engine.agents.registry import built_in_adapters, bundled_descriptions, load_patterns
from mz_engine.ports import CallResult, CallSpec, ParsedReply
from mz_qa.conformance.contract import check_contract, fields_for_version
from mz_qa.conformance.endings import REQUESTED_MODEL, stored_endings, stored_failures
from mz_qa.conformance.live_process import run_adapter
from mz_qa.conformance.parsing import check_coverage, check_parser, reply_errors, try_parse
from mz_qa.layers.adapters import check_adapters, recorded_streams
from mz_recordings.findings.model import Finding

from tests.support.examples import amount
from tests.support.gates import checked, findings, project_of
from tests.support.tree import ROOT

FIELDS = [
    "type", "subtype", "is_error", "item", "usage", "result", "id", "text", "status", "error", "message",
    "input_tokens", "output_tokens", "stats",
]  # fmt: skip
VALUES = st.recursive(
    st.sampled_from((None, False, True))
    | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.sampled_from(FIELDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
lines = st.lists(VALUES, max_size=4).map(lambda values: b"\n".join(json.dumps(value).encode() for value in values))
"""Streams of JSON that no agent wrote, of words that agents use."""

FEW = amount(300, 30)
"""Parses."""
WORKS = next(stored_ending for stored_ending in stored_endings("claude-code") if stored_ending.name == "works")
LATE = WORKS.result.stdout.rstrip().rfind(b"\n")
"""Bytes of that stream in front of its last line."""


@pytest.mark.parametrize(
    "adapter",
    [
        pytest.param(adapter, id=name, marks=pytest.mark.slow if name == "aider" else ())
        for name, adapter in built_in_adapters().items()
    ],
)
def test_what_comes_with_mz_keeps_the_contract(adapter: Adapter) -> None:
    remarks = [
        *check_contract(adapter),
        *check_parser(adapter, stored_endings(adapter.name), stored_failures(), (), 4 * FEW),
    ]
    assert findings(remarks) == []
    counts = checked(remarks)
    assert counts["endings"] > counts["streams"] > 3


@pytest.mark.slow
@pytest.mark.parametrize("adapter", built_in_adapters().values(), ids=lambda adapter: adapter.name)
def test_what_comes_with_mz_keeps_it_through_real_processes(adapter: Adapter) -> None:
    works = next(ending for ending in stored_endings(adapter.name) if ending.name == "works")
    remarks = list(run_adapter(adapter, works, os.environ))
    assert findings(remarks) == []
    assert checked(remarks) == {"rehearsals": 7}


@pytest.mark.parametrize("agent", ["anthropic", "claude-code", "codex", "gemini"])
def test_no_session_is_an_option_of_the_next_call(agent: str) -> None:
    """What an agent runs may write into the agent's output."""
    adapter = built_in_adapters()[agent]
    (works,) = [ending for ending in stored_endings(agent) if ending.name == "works"]
    real = adapter.parse_output(works.result).session
    assert real is not None
    forged = works.result.stdout.replace(real.encode(), b"--yolo")
    assert adapter.parse_output(replace(works.result, stdout=forged)).session is None


@pytest.mark.parametrize("adapter", built_in_adapters().values(), ids=lambda adapter: adapter.name)
@given(stdout=st.binary(max_size=400) | lines, stderr=st.binary(max_size=100), exit_code=st.integers(-15, 255))
def test_any_bytes_give_a_reading_or_a_classified_failure(
    adapter: Adapter, stdout: bytes, stderr: bytes, exit_code: int
) -> None:
    result = CallResult(stdout=stdout, stderr=stderr, exit=exit_code, duration_ms=1, model=REQUESTED_MODEL)
    assert list(reply_errors(adapter, try_parse(adapter, result))) == []


@pytest.mark.slow
def test_an_adapter_without_streams_proves_nothing(tmp_path: Path) -> None:
    class Unknown(Broken):
        name = "unknown-agent"
        parser = "unknown-agent/1"

    first = findings(check_adapters(project_of(tmp_path), {"unknown-agent": Unknown()}))
    assert any("has no stored streams" in item.message for item in first)
    assert all(finding.kind == "ADAPTER" for finding in first)


def test_recordings_are_read_with_all_that_was_kept_of_the_call() -> None:
    """aider says on standard error how a call ended."""
    project = project_of(ROOT, ROOT / "recordings" / "library" / "monozukuri-aider")
    recorded = list(recorded_streams(project, "aider"))
    assert recorded
    read = [built_in_adapters()["aider"].parse_output(stream.result) for stream in recorded]
    assert {reply.ending for reply in read} == {"success"}
    assert all(item.usage for item in read)


# planted defects ------------------------------------------------------------------------------------------------------
class Broken(ClaudeCode):
    """The reference adapter, to be broken in one place."""

    def __init__(self) -> None:
        super().__init__(load_patterns())

    def started(self, invocation: Invocation) -> Invocation:
        return invocation

    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        return reading

    def run_call(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> CallResult:
        return super().run_call(
            spec, environment, lambda call_spec, invocation: spawn(call_spec, self.started(invocation))
        )

    def parse_output(self, result: CallResult, watch: ObjectObserver | None = None) -> ParsedReply:
        return self.read(result, super().parse_output(result, watch))


class NamesParser(Broken):
    parser = "claude-code"


class KnowsTools(Broken):
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), tools=("read", "browse"))


class LacksTier(Broken):
    def capabilities(self) -> Capabilities:
        models = super().capabilities().models
        return replace(super().capabilities(), models={"mid": models["mid"]})


class Shrinks(Broken):
    def estimate_tokens(self, prompt: str) -> int:
        return len(prompt) % 100


class Miscounts(Broken):
    """Whatever its program says is a number."""

    def count_tokens(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> int | None:
        result = spawn(spec, Invocation(argv=("claude", "--count"), stdin=b"", env={}))
        match = re.search(rb"-?[0-9]{1,40}", result.stdout)
        return int(match[0]) if match else None


class CountsAloud(Broken):
    def count_tokens(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> int | None:
        spawn(spec, Invocation(argv=("claude", "--count", spec.prompt), stdin=b"", env=dict(environment)))
        return None


class Shortens(Broken):
    def format_prompt(self, prompt: str) -> str:
        return prompt.replace("- `x` stays as it is.\n", "")


class Tells(Broken):
    def started(self, invocation: Invocation) -> Invocation:
        return replace(invocation, argv=(*invocation.argv, invocation.stdin.decode()[:100]))


class Leaks(Broken):
    def started(self, invocation: Invocation) -> Invocation:
        return replace(invocation, argv=(*invocation.argv, f"--key={invocation.env['ANTHROPIC_API_KEY']}"))


class Passes(Broken):
    def run_call(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> CallResult:
        def other(call_spec: CallSpec, invocation: Invocation) -> CallResult:
            return spawn(call_spec, replace(invocation, env={**invocation.env, **environment}))

        return ClaudeCode.run_call(self, spec, environment, other)


class Swaps(Broken):
    def started(self, invocation: Invocation) -> Invocation:
        return replace(invocation, env={"OTHER_KEY": invocation.env["ANTHROPIC_API_KEY"]})


class Prefers(Broken):
    def started(self, invocation: Invocation) -> Invocation:
        at = invocation.argv.index("--model") + 1
        return replace(invocation, argv=(*invocation.argv[:at], "its-own", *invocation.argv[at + 1 :]))


class Forgets(Broken):
    def started(self, invocation: Invocation) -> Invocation:
        argv = ["--session-id" if word == "--resume" else word for word in invocation.argv]
        return replace(invocation, argv=tuple(argv))


class Ignores(Broken):
    def started(self, invocation: Invocation) -> Invocation:
        return replace(invocation, argv=tuple(w for w in invocation.argv if not w.startswith(("--tools", "--allowed"))))


class Twice(Broken):
    def run_call(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> CallResult:
        super().run_call(spec, environment, spawn)
        return super().run_call(spec, environment, spawn)


@pytest.mark.parametrize(
    ("adapter", "check", "text"),
    [
        (NamesParser, "capabilities", "names its parser"),
        (KnowsTools, "capabilities", "browse"),
        (LacksTier, "capabilities", "it needs cheap, mid, premium"),
        (Shrinks, "estimates", "fewer tokens for a longer prompt"),
        (Miscounts, "counts", "counts -5 tokens"),
        (Miscounts, "counts", "a program that failed"),
        (CountsAloud, "counts", "the prompt into the arguments"),
        (CountsAloud, "counts", "more variables to count than to call"),
        (Shortens, "prompts", "loses or moves the line '- `x` stays as it is.'"),
        (Tells, "arguments", "puts the prompt into the arguments"),
        (Leaks, "arguments", "puts a variable's value into the arguments"),
        (Prefers, "arguments", "does not call the requested model"),
        (Twice, "arguments", "starts 2 processes"),
        (Passes, "environment", "GITHUB_TOKEN"),
        (Swaps, "environment", "another variable's value"),
        (Forgets, "sessions", "starts and continues a session with the same arguments"),
        (Ignores, "tools", "alike with and without the tool read"),
    ],
)
def test_a_broken_contract_is_named(adapter: type[Broken], check: str, text: str) -> None:
    ones = [item for item in findings(check_contract(adapter())) if item.cause == f"claude-code.{check}"]
    assert any(text in entry.message for entry in ones), ones
    assert all(
        (finding.kind, finding.fix) == ("ADAPTER", "fix the adapter, then run: mz doctor --self-test")
        for finding in ones
    )


class Raises(Broken):
    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        if reading.undecodable_lines:
            raise KeyError("type")
        return reading


class Believes(Broken):
    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        good = result.exit == 0 and reading.ending == "success"
        return reading if good or reading.problem else replace(reading, ending="error", problem=failures_problem())


class Trusts(Broken):
    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        early = reading.ending == "no-terminal" and b'"type"' in result.stdout and result.problem is None
        return replace(reading, ending="success", problem=None) if early else reading


class TrustsLate(Broken):
    """Where little more than the last word is missing."""

    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        late = reading.ending == "no-terminal" and len(result.stdout) >= LATE and result.problem is None
        return replace(reading, ending="success", problem=None) if late else reading


class Peeks(Broken):
    """At bytes of a line that it cannot read."""

    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        half = not result.stdout.endswith(b"\n") and reading.ending == "no-terminal"
        return replace(reading, text=result.stdout[-9:].decode("utf-8", "replace")) if half else reading


class Unclassed(Broken):
    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        return replace(reading, problem=None) if reading.ending == "no-terminal" else reading


class Rolls(Broken):
    count = 0

    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        self.count += 1
        return replace(reading, undecodable_lines=self.count)


class Overrules(Broken):
    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        return reading if result.problem is None else super().parse_output(replace(result, problem=None))


class Surrogates(Broken):
    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        return replace(reading, text=result.stdout.decode("utf-8", "surrogateescape"))


class Free(Broken):
    def capabilities(self) -> Capabilities:
        output = super().capabilities()
        return replace(
            output, reported_fields=(*output.reported_fields[:-1], replace(output.reported_fields[-1], money=False))
        )


class Swells(Broken):
    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        return replace(reading, usage=tuple(replace(item, cache_read=item.input + 1) for item in reading.usage))


class Nameless(Broken):
    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        return replace(reading, usage=tuple(replace(item, model="") for item in reading.usage))


class Boasts(Broken):
    def capabilities(self) -> Capabilities:
        output = super().capabilities()
        return replace(
            output, reported_fields=(*output.reported_fields[:-1], replace(output.reported_fields[-1], thoughts=True))
        )


class Forged(Broken):
    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        return replace(reading, session="--resume" if reading.session else None)


class Looks(Broken):
    """Up a tool's name, whatever it is."""

    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        for event in filter(None, decode_lines(result.stdout)):
            for block in objects(mapping(event.get("message")).get("content")):
                hash(block.get("name"))
        return reading


class Misreads(Broken):
    def read(self, result: CallResult, reading: ParsedReply) -> ParsedReply:
        wrong = reading.problem is not None and reading.problem.code == "rate-limit"
        return replace(reading, problem=replace(reading.problem, code="overloaded")) if wrong else reading  # type: ignore[type-var]


def failures_problem() -> Any:
    parse = built_in_adapters()["claude-code"].parse_output
    return next(parse(failure.result).problem for failure in stored_failures())


SHOWN_BY: dict[type[Broken], str] = {TrustsLate: "hour", Misreads: "429"}
"""The ending that shows a defect, where that of a call that works does not."""


@pytest.mark.parametrize(
    ("adapter", "text"),
    [
        (Raises, "raises on damaged bytes: KeyError: 'type'"),
        (Believes, "believes exit code 1 rather than the stream's final event"),
        (Trusts, "parses a cut-off stream as a success"),
        (TrustsLate, "parses a cut-off stream as a success"),
        (Peeks, "parses a cut-off object as more than a bad line"),
        (Unclassed, "takes empty output for a reply"),
        (Rolls, "reads the same bytes differently"),
        (Overrules, "ignores that mz ended the call"),
        (Surrogates, "returns a reply that cannot be encoded"),
        (Free, "claims money: False, but recorded streams show True"),
        (Swells, "counts more cached tokens than input tokens"),
        (Nameless, "counts tokens without a model name"),
        (Boasts, "claims thoughts: True, but recorded streams show False"),
        (Forged, "takes '--resume' for a session"),
        (Looks, "raises on damaged bytes: TypeError: unhashable type: 'list'"),
        (Misreads, "parses the code of the ending 429 as overloaded; expected rate-limit"),
    ],
)
@pytest.mark.slow
def test_a_broken_parser_is_named(adapter: type[Broken], text: str) -> None:
    name = SHOWN_BY.get(adapter, "works")
    endings = [ending for ending in stored_endings("claude-code") if ending.name == name]
    remarks = check_parser(adapter(), endings, (), (), 120)  # Not all of them: to try all fields takes longest.
    assert any(isinstance(remark, Finding) and text in remark.message for remark in remarks)


class Stumbles(DescribedAgent):
    """Over two lines at once, which no stream has that was only cut off."""

    def parse_output(self, result: CallResult, watch: ObjectObserver | None = None) -> ParsedReply:
        reading = super().parse_output(result, watch)
        if reading.undecodable_lines > 1:
            raise ValueError("lines")
        return reading


@pytest.mark.slow
def test_damage_is_done_where_the_last_word_stands() -> None:
    """aider's stands on standard error."""
    aider = Stumbles("aider", bundled_descriptions()["aider"], load_patterns())
    works = [ending for ending in stored_endings("aider") if ending.name == "works"]
    result = findings(check_parser(aider, works, (), (), 60))
    assert any("raises on damaged bytes: ValueError: lines" in finding.message for finding in result)


def test_the_ends_that_everybody_meets_must_be_stored() -> None:
    endings = [ending for ending in stored_endings("claude-code") if ending.expected.code != "auth-failure"]
    (finding,) = findings(check_coverage(Broken(), endings))
    assert "no stored streams of these endings: auth-failure" in finding.message


def test_what_is_told_depends_on_the_version() -> None:
    output = Broken().capabilities()
    versions = ("1.0.3", "2.0.14", "2.1.4", "2.1.197", "3.0", "")
    since = [fields_for_version(output, version).since for version in versions]
    assert since == ["", "2.0.14", "2.0.14", "2.1.197", "2.1.197", "2.1.197"]


class Careless(Broken):
    def check_auth(self, environment: Mapping[str, str]) -> AuthCheck:
        check = super().check_auth(environment)
        return replace(check, message=environment.get("ANTHROPIC_API_KEY", ""))

    def run_call(self, spec: CallSpec, environment: Mapping[str, str], spawn: Spawn) -> CallResult:
        result = super().run_call(spec, environment, spawn)
        return replace(result, stdout=result.stdout[:10], stderr=b"", problem=None)


@pytest.mark.slow
def test_a_broken_call_is_named() -> None:
    texts = {finding.cause: finding.message for finding in findings(run_adapter(Careless(), WORKS, os.environ))}
    wanted = {
        "check_auth": "reveals a secret", "answers": "changes the bytes", "redacts": "parses a reply differently",
        "fails": "classifies a rate limit as no-terminal",
        "times_out": "was ended by timeout", "idles": "was ended by idle", "missing": "when its program is missing",
    }  # fmt: skip
    assert {check for check, text in wanted.items() if text in texts.get(f"claude-code.{check}", "")} == set(wanted)
