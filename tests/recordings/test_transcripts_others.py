"""What is seen in transcripts of aider, opencode and Qwen Code, line by line."""

from __future__ import annotations

import json

import pytest
from mz_engine.agents.aider import logs
from mz_engine.agents.opencode import stream as opencode
from mz_engine.agents.qwen import stream as qwen
from mz_engine.agents.reading.records import ModelRequest, ReaderState, StreamEnd, TranscriptRecord


def args(*lines: str, history: bool = False) -> list[TranscriptRecord]:
    reader = logs.HistoryReader(ReaderState()) if history else logs.OutputReader(ReaderState())
    return [record for line in lines for record in reader.read(line.encode())]


def requests(records: list[TranscriptRecord]) -> list[ModelRequest]:
    return [record for record in records if isinstance(record, ModelRequest)]


def test_aiders_rounded_counts() -> None:
    (model_request,) = requests(
        args("Tokens: 12k sent, 1.5k cache write, 9.8k cache hit, 340 received. Cost: $0.05 message, $1 session.")
    )
    usage = model_request.usage
    assert (usage.input, usage.cache_write_5m, usage.cache_read, usage.output) == (12_000, 1_500, 9_800, 340)
    assert requests(args("Tokens: many sent, 3 received."))[:1] == []


def test_the_same_words_in_another_file_are_another_request() -> None:
    tokens = "Tokens: 1.2k sent, 34 received."
    (model_request,), (other,) = requests(args("Hello.", tokens)), requests(args("Goodbye.", tokens))
    assert model_request.id != other.id
    assert requests(args("Hello.", tokens)) == [model_request]


def test_what_a_person_said_in_a_history_is_not_the_answer() -> None:
    records = args(
        "# aider chat started at 2026-06-01 12:00:00", "#### Tell me.", "> Tokens: 1 sent, 2 received.  ", "It is so.",
        "> Tokens: 3 sent, 4 received.  ", history=True,
    )  # fmt: skip
    assert [record.text for record in records if isinstance(record, StreamEnd)] == ["", "It is so."]


def test_an_aider_that_was_refused_late_ended_in_an_error() -> None:
    reader = logs.LogReader(ReaderState())
    events = ("launched", "message_send_starting", "message_send", "message_send_starting", "exit")
    lines = (json.dumps({"event": name, "properties": {}, "user_id": "u", "time": 1}).encode() for name in events)
    (end,) = [record for line in lines for record in reader.read(line) if isinstance(record, StreamEnd)]
    assert end.status == "error"


def test_steps_of_opencode_add_up_to_its_money() -> None:
    reader = opencode.StreamReader(ReaderState())
    steps = [("tool-calls", 0.25), ("tool-calls", 0.5), ("stop", 1)]
    lines = [
        {"type": "step_finish", "sessionID": "s", "timestamp": 1, "part": {"id": str(at), "reason": why, "cost": cost}}
        for at, (why, cost) in enumerate(steps)
    ]
    (end,) = [
        record for line in lines for record in reader.read(json.dumps(line).encode()) if isinstance(record, StreamEnd)
    ]
    assert (end.status, end.reported_nanousd) == ("success", 1_750_000_000)


def opencode_ends(*lines: dict[str, object]) -> list[tuple[str, int | None]]:
    reader = opencode.StreamReader(ReaderState())
    records = [record for line in lines for record in reader.read(json.dumps(line).encode())]
    return [(record.status, record.reported_nanousd) for record in records if isinstance(record, StreamEnd)]


def step(reason: str, cost: float) -> dict[str, object]:
    part = {"id": reason, "reason": reason, "cost": cost}
    return {"type": "step_finish", "sessionID": "s", "timestamp": 1, "part": part}


def test_an_error_of_opencode_keeps_the_money_of_the_steps_before_it() -> None:
    error = {"type": "error", "sessionID": "s", "timestamp": 1, "error": {"name": "APIError"}}
    assert opencode_ends(step("tool-calls", 0.25), error) == [("error", 250_000_000)]
    assert opencode_ends(step("stop", 0.25), error) == [("success", 250_000_000), ("error", None)]


@pytest.mark.parametrize("reason", ["unknown", "length", "error", "content-filter"])
def test_a_step_of_opencode_that_did_not_finish_is_no_success(reason: str) -> None:
    """Some versions ask again after `unknown`: the step after it decides then."""
    assert opencode_ends(step(reason, 0.5)) == [("error", 500_000_000)]
    assert opencode_ends(step(reason, 0.5), step("stop", 1))[-1] == ("success", 1_000_000_000)


@pytest.mark.parametrize("text", ["[API Error: 401 Incorrect API key provided.]", "So far.\n[API Error: 429 slow]\n"])
def test_an_api_error_of_qwen_is_no_success(text: str) -> None:
    result = {"type": "result", "subtype": "success", "is_error": False, "result": text}
    (end,) = list(qwen.StreamReader(ReaderState()).read(json.dumps(result).encode()))
    assert isinstance(end, StreamEnd)
    assert (end.status, end.detail) == ("error", text.strip().removeprefix("So far.\n"))
    result["result"] = f"It prints {text} here."
    (end,) = list(qwen.StreamReader(ReaderState()).read(json.dumps(result).encode()))
    assert isinstance(end, StreamEnd)
    assert end.status == "success"


def test_helpers_of_qwen_are_parts() -> None:
    document = {"event.name": "qwen-code.api_response", "model": "q", "input_token_count": 5, "subagent_name": "memory"}
    line = {"sessionId": "s", "type": "system", "systemPayload": {"uiEvent": document}}
    (model_request,) = requests(list(qwen.SessionReader(ReaderState()).read(json.dumps(line).encode())))
    assert (model_request.usage.subagent, model_request.usage.input) == ("memory", 5)
