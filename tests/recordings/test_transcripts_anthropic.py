"""Streams of `mz-anthropic`: what the adapter reads of a call, `mz transcript` and `mz import` read of its file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from mz_engine.agents.anthropic_api.stream import StreamReader
from mz_engine.agents.reading.call import CallOutput, read_call
from mz_engine.agents.reading.records import ModelRequest, Note, ReaderState, TranscriptRecord

from tests.recordings.test_transcripts import summarised
from tests.support.sessionfiles import sums, take
from tests.support.tree import ROOT

LIBRARY = ROOT / "recordings/library/monozukuri-anthropic"
RECORDED = sorted(path for path in LIBRARY.glob("*/*.jsonl") if path.name != "events.jsonl")
STREAMS = [*RECORDED, *sorted((ROOT / "engine/mz_engine/agents/anthropic_api/fixtures").glob("*.jsonl"))]
START = {"type": "start", "version": "2", "model": "m", "session": "s"}


def observed(reader: StreamReader, *events: object) -> list[TranscriptRecord]:
    return [record for event in events for record in reader.read(json.dumps(event).encode())]


def requests(records: list[TranscriptRecord]) -> list[ModelRequest]:
    return [record for record in records if isinstance(record, ModelRequest)]


def request(name: str, **usage: object) -> dict[str, object]:
    return {"type": "request", "id": name, "model": "m", "usage": {"input_tokens": 1, "output_tokens": 1, **usage}}


def call_output(data: bytes) -> CallOutput:
    return read_call(StreamReader(ReaderState()), data)


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_transcript_agrees_with_the_call(path: Path) -> None:
    data = path.read_bytes()
    summary, transcript_summary = call_output(data), summarised(data)
    assert transcript_summary.format == StreamReader.name
    assert [entry.usage for entry in transcript_summary.usages] == list(summary.requests.values())
    assert (transcript_summary.session, transcript_summary.version) == (summary.session, summary.version)
    assert (transcript_summary.status, transcript_summary.undecodable_lines, transcript_summary.unknown_lines) == (
        summary.ending,
        summary.undecodable_lines,
        {},
    )
    assert (transcript_summary.final_text or "") == ((summary.end and summary.end.text) or summary.text)


def test_a_library_is_imported_to_the_last_token(tmp_path: Path) -> None:
    """Its streams lie among artifacts and events, of which an import makes nothing."""
    usages = [usage for path in RECORDED for usage in call_output(path.read_bytes()).requests.values()]
    take(tmp_path / "data", LIBRARY)
    rows = [row for row in sums(tmp_path / "data") if row.requests]
    assert sum(row.requests for row in rows) == len(usages) > 40
    for name in ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h"):
        assert sum(getattr(row, name) for row in rows) == sum(getattr(usage, name) for usage in usages)
    assert all(row.computed_nanousd for row in rows)


def test_a_copy_of_a_stream_counts_once_and_a_call_that_goes_on_for_itself(tmp_path: Path) -> None:
    fixtures, files = ROOT / "engine/mz_engine/agents/anthropic_api/fixtures", tmp_path / "files"
    files.mkdir()
    for name, source in (("a", "works.exit0"), ("b", "works.exit0"), ("c", "continued.exit0")):
        shutil.copy(fixtures / f"{source}.jsonl", files / f"{name}.jsonl")
    outcome = take(tmp_path / "data", files)
    assert (outcome.sessions, outcome.new_requests, outcome.already_counted_requests) == (1, 6, 3)


def test_answers_without_an_id_count_one_by_one_and_a_copy_of_them_once() -> None:
    events = (START, request(""), request(""), request("", output_tokens=2))
    model_requests = requests(observed(StreamReader(ReaderState()), *events))
    assert len({model_request.id for model_request in model_requests}) == 3
    first = StreamReader(ReaderState())
    begun = requests(observed(first, *events[:2]))
    carried = msgspec.json.decode(msgspec.json.encode(first.state()), type=ReaderState)
    assert [*begun, *requests(observed(StreamReader(carried), *events[2:]))] == model_requests


def test_ids_that_a_gateway_uses_again_are_of_another_session() -> None:
    """A gateway that counts from 1 whenever it begins."""
    records = observed(
        StreamReader(ReaderState()), START, request("1"), request("1"), {**START, "session": "t"}, request("1")
    )
    assert len({model_request.id for model_request in requests(records)}) == 2


def test_an_answer_without_a_model_is_of_the_one_that_was_asked_for() -> None:
    (model_request,) = requests(observed(StreamReader(ReaderState()), START, {**request("r"), "model": None}))
    assert model_request.usage == replace(model_request.usage, model="m", input=1)


def test_what_an_api_leaves_out_is_said() -> None:
    records = observed(StreamReader(ReaderState()), START, request("r", cache_creation_input_tokens=5))
    assert [record.code for record in records if isinstance(record, Note)] == ["cache-lifetime"]
    assert requests(records)[0].usage.cache_write_5m == 5
