"""What Gemini CLI prints, what it logs and what its adapter reads agree with one another, to the last token."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from mz_engine.agents.gemini.stream import SessionReader
from mz_engine.agents.reading.byte_lines import buffered
from mz_engine.agents.reading.records import (
    AssistantText,
    ModelRequest,
    ReaderState,
    SessionInfo,
    ToolUse,
    TranscriptRecord,
    UserPrompt,
)
from mz_engine.agents.registry import built_in_adapters
from mz_engine.ports import CallResult
from mz_engine.transcripts.read import detect_transcript
from mz_engine.transcripts.summary import SummaryBuilder, TranscriptSummary, usage_totals

from tests.support.gemini_cases import GEMINI
from tests.support.make_gemini_transcripts import STORED


def stored(name: str) -> bytes:
    return (STORED / name).read_bytes()


def transcript(data: bytes) -> TranscriptSummary:
    detected_transcript = detect_transcript(buffered(io.BytesIO(data)))
    summary = SummaryBuilder(format=detected_transcript.format)
    for sighting in detected_transcript.records():
        summary.add(sighting)
    return summary.build()


def tokens(*names: str) -> dict[str, int]:
    sums = [usage_totals(transcript(stored(name))) for name in names]
    return {field: sum(numbers[field] or 0 for numbers in sums) for field in sums[0]}


@pytest.mark.parametrize("version", ["0.44.0", "0.61.0"])
def test_streams_and_logs_of_the_same_calls_agree(version: str) -> None:
    assert tokens(f"stream-{version}.jsonl") == tokens(f"session-{version}.jsonl")


def test_a_stream_includes_sub_agents_and_logs_have_them_apart() -> None:
    logs = ("delegating-session-0.61.0.jsonl", "sub-agent-session-0.61.0.jsonl")
    assert tokens("delegating-stream-0.61.0.jsonl") == tokens(*logs)


@pytest.mark.parametrize("version", ["0.6.1", "0.24.5"])
def test_documents_of_sessions_lack_tokens_and_say_so(version: str) -> None:
    log, printed = tokens(f"session-{version}.json"), tokens(f"json-{version}.json")
    assert log["input"] < printed["input"]
    assert "tool-requests" in transcript(stored(f"session-{version}.json")).notes


def test_a_log_that_was_copied_counts_once() -> None:
    log = stored("session-0.61.0.jsonl")
    assert usage_totals(transcript(log + log)) == usage_totals(transcript(log))


@pytest.mark.parametrize("name", GEMINI.existing)
def test_the_adapter_reads_the_same(name: str) -> None:
    call = GEMINI.stored(name)
    if not call.stdout:
        return
    parsed_reply, read = built_in_adapters()["gemini"].parse_output(call), transcript(call.stdout)
    assert (parsed_reply.ending, parsed_reply.session) == (read.status, read.session)
    assert sum(usage.input for usage in parsed_reply.usage) == (usage_totals(read)["input"] or 0)
    assert sum(usage.output for usage in parsed_reply.usage) == (usage_totals(read)["output"] or 0)
    if parsed_reply.ending == "success":
        assert parsed_reply.text == read.final_text


def test_the_stored_stream_is_what_the_adapter_takes() -> None:
    result = CallResult(stdout=stored("stream-0.61.0.jsonl"), stderr=b"", exit=0, duration_ms=1)
    assert built_in_adapters()["gemini"].parse_output(result).text == "Done: note.md is there."


# line by line ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["session-0.61.0.jsonl", "rewound-session.jsonl", "sub-agent-session-0.61.0.jsonl"])
def test_a_log_is_read_on_where_it_was_left(name: str) -> None:
    """What is remembered between two lines is in the carry: requests, tools, names and prompts are the same."""
    lines = stored(name).splitlines()
    kinds = (ModelRequest, ToolUse, SessionInfo, UserPrompt, AssistantText)
    records = list(_sightings(lines, anew=False))
    assert [sighting for sighting in _sightings(lines, anew=True) if isinstance(sighting, kinds)] == [
        item for item in records if isinstance(item, kinds)
    ]
    assert sum(isinstance(entry, ToolUse) for entry in records) == len(
        {record.id for record in records if isinstance(record, ToolUse)}
    )


def _sightings(lines: list[bytes], *, anew: bool) -> Iterator[TranscriptRecord]:
    reader = SessionReader(ReaderState())
    for line in lines:
        yield from reader.read(line)
        if anew:
            reader = SessionReader(reader.state())
