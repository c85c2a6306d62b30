"""Faults in the words of other agents than the reference: each is read by the agent's own parser as what it is."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from mz_engine.agents.catalog import AGENTS
from mz_engine.agents.registry import built_in_adapters
from mz_engine.ports import CallResult, ParsedReply
from mz_qa.conformance.endings import stored_endings
from mz_qa.variants.play import succeeds
from mz_recordings.cassette.model import Kind, RecordedCall, StoredFile
from mz_recordings.faults.faults import FAULTS, FaultOutput, InvalidFaultError, inject, possible_faults, render_fault

from tests.support.tapes import cassette, recording

STDERR_ENDINGS = {name: agent.stderr_endings for name, agent in AGENTS.items() if agent.stderr_endings}

READ = {
    "rate-limit": "rate-limit", "overloaded": "overloaded", "lost-connection": "connection",
    "auth-failure": "auth-failure", "timeout": "no-terminal", "idle": "no-terminal", "hang": "no-terminal",
    "killed": "no-terminal", "turn-limit": "turn-limit", "malformed-artifact": "", "human-blocker": "agent-blocker",
    "crash": "no-terminal",
}  # fmt: skip
"""By fault: the code that the agent's parser gives it."""
SILENT = {"codex": {"turn-limit"}, "aider": {"turn-limit"}, "kiro": {"turn-limit", "lost-connection"}}
"""Faults that a program has no words for."""
UNJUDGED = {"kiro"}
"""Agents of whose standard error there is no second opinion."""
OTHERS = sorted(set(built_in_adapters()) - {"claude-code"})


def works(agent: str) -> CallResult:
    return next(ending.result for ending in stored_endings(agent) if ending.name == "works")


def recorded(agent: str) -> RecordedCall:
    """A recorded call that went well."""
    call_result, usual = works(agent), recording("0" * 40, agent=agent)
    streams: tuple[tuple[Kind, bytes], ...] = (("stdout", call_result.stdout), ("stderr", call_result.stderr))
    files = [file for file in usual.recording.files if file.kind != "stdout"]
    contents = {file.name: usual.contents[file.name] for file in files}
    for kind, data in streams:
        files.append(StoredFile(kind=kind, name=f"prd.{kind}", sha256=hashlib.sha256(data).hexdigest()))
        contents[f"prd.{kind}"] = data
    return RecordedCall(msgspec.structs.replace(usual.recording, files=tuple(files)), contents)


def read(agent: str, spoken: FaultOutput) -> ParsedReply:
    result = CallResult(stdout=spoken.stdout, stderr=spoken.stderr, exit=spoken.exit, duration_ms=1, model="asked")
    return built_in_adapters()[agent].parse_output(result)


@pytest.mark.parametrize("agent", OTHERS)
def test_each_fault_is_read_by_the_agents_own_parser(agent: str) -> None:
    call_result = works(agent)
    assert set(possible_faults(agent, call_result.stdout, call_result.stderr)) == set(FAULTS) - SILENT.get(agent, set())
    codes = {}
    for name in possible_faults(agent, call_result.stdout, call_result.stderr):
        spoken = render_fault(FAULTS[name], agent, call_result.stdout, call_result.stderr)
        assert spoken is not None
        problem = read(agent, spoken).problem
        codes[name] = problem.code if problem else ""
    assert codes == {name: code for name, code in READ.items() if name in codes}


@pytest.mark.parametrize("agent", OTHERS)
def test_what_was_recorded_may_be_anything(agent: str) -> None:
    for stdout in (b"", b"\n", b"words", b"[]\n", b'{"type":', b"\xff\xfe"):
        for name in possible_faults(agent, stdout, stdout):
            spoken = render_fault(FAULTS[name], agent, stdout, stdout)
            assert spoken is not None
            assert read(agent, spoken).problem is not None or agent in STDERR_ENDINGS


def test_a_fault_before_a_call_of_another_agent_keeps_both_streams() -> None:
    changed, _ = inject(cassette(recorded("aider")), "f/prd", "rate-limit")
    first, second = changed.calls
    assert b"litellm.RateLimitError" in first.content("stdout")
    assert b'"message_send"' in second.content("stderr")
    assert b'"message_send"' not in first.content("stderr")


def test_a_fault_that_an_agent_has_no_words_for_is_refused() -> None:
    made = cassette(recorded("codex"))
    with pytest.raises(
        InvalidFaultError, match=r"the form of turn-limit is not known for codex; .*: rate-limit, overloaded"
    ):
        inject(made, "f/prd", "turn-limit")
    assert len(inject(made, "f/prd", "idle")[0].calls) == 2


# variants of agents whose standard error says how a call ended -------------------------------------------------------
@pytest.mark.parametrize("agent", sorted(STDERR_ENDINGS))
def test_ends_on_standard_error_are_what_their_names_say(agent: str) -> None:
    call_result, count = works(agent), 0
    for name, stdout, stderr, code in STDERR_ENDINGS[agent](call_result.stdout, call_result.stderr):
        reading = read(agent, FaultOutput(stdout, stderr, code))
        judged = succeeds(agent, stdout, stderr)
        assert judged == (None if agent in UNJUDGED else reading.ending == "success"), name
        if name.startswith(("ends-", "success-then-")):
            assert reading.problem is not None, name
        if name.endswith("-then-success"):
            assert (reading.ending, reading.problem) == ("success", None), name
        kind = name.removeprefix("ends-").removesuffix("-exit-0")
        if name.startswith("ends-") and kind in READ.values():
            assert reading.problem is not None
            assert reading.problem.code == kind
        count += 1
    assert count > 10
