"""Baselines of streams: what the real parser reads, keeps and ignores of them, and how bad a change is."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.agents.catalog import AGENTS, agent_package
from mz_engine.agents.registry import built_in_adapters
from mz_engine.ports import CallResult
from mz_recordings.cassette.files import CassetteUnreadable, list_cassettes, load
from mz_recordings.cassette.model import Identity, RecordedCall
from mz_recordings.drift.stream_baselines import (
    built_in_folder,
    check_streams,
    extend_baseline,
    load_baselines,
    nearest_baseline,
    read_baseline,
    write_baseline,
)
from mz_recordings.drift.stream_shape import (
    Field,
    ObservedStreams,
    StreamShape,
    compare_shapes,
    count_fields_by_use,
    event_name,
    observe_streams,
)

from tests.support.changed import with_file, with_line
from tests.support.examples import examples
from tests.support.make_baselines import adapter_of, observed, stored_streams
from tests.support.rerecord import BUNDLED
from tests.support.tapes import cassette, recording
from tests.support.tree import ROOT

CLAUDE = built_in_adapters()["claude-code"]
CAPTURED = sorted((ROOT / "engine/mz_engine/agents/claude_code/fixtures").glob("*.jsonl"))
BASELINES = load_baselines((built_in_folder(),))
BASELINE = BASELINES["claude-code", "2.1.197"]
INIT: dict[str, object] = {
    "type": "system",
    "subtype": "init",
    "session_id": "s",
    "claude_code_version": "2.1.197",
    "model": "m",
    "plugins": "/",
}
RESULT: dict[str, object] = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "Done.",
    "session_id": "s",
    "mood": None,
}


def lines(*events: object) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def call_of(phase: str, stdout: bytes, **more: object) -> RecordedCall:
    call = recording("1" * 40, identity=Identity(pipeline="p", feature="f", phase=phase), **more)
    return call._replace(contents={"prd.stream-json": stdout})


def observed_streams(*streams: bytes) -> ObservedStreams:
    return observe_streams([call_of(f"call{at}", data) for at, data in enumerate(streams)], CLAUDE)


# what the parser does with a stream -----------------------------------------------------------------------------------
def test_the_parser_itself_says_what_it_reads() -> None:
    wire = observed_streams(lines(INIT, RESULT)).shape
    result = wire.events["result/success"]
    assert result["is_error"] == Field(types=("boolean",), use="read", is_always_present=True)
    assert result["result"] == Field(types=("string",), use="read", is_always_present=True)
    assert result["mood"] == Field(types=("null",), use="ignored", is_always_present=True)
    assert result["errors"] == Field(types=(), use="absent"), "asked for, and never there"
    assert wire.events["system/init"]["plugins"].use == "ignored"
    assert count_fields_by_use(wire)["absent"] > 0


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ({"type": "item.completed", "item": {"type": "error"}}, "item.completed/error"),
        ({"type": "turn.started"}, "turn.started"),
        ({"type": "item.completed", "item": "odd"}, "item.completed"),
        ({"item": {}}, "?"),
    ],
)
def test_an_event_may_be_named_by_what_lies_in_it(event: dict[str, object], name: str) -> None:
    assert event_name(event, agent_package("codex").dialect) == name


def test_what_codex_wrote_is_known() -> None:
    codex = load(BUNDLED.parent / "monozukuri-codex")
    assert list(check_streams(codex, BASELINES, {})) == []
    assert "turn.failed" in BASELINES["codex", "0.169.0"].events


def test_what_is_watched_is_read_as_it_is() -> None:
    for path in CAPTURED:
        result = CallResult(stdout=path.read_bytes(), stderr=b"", exit=1, duration_ms=1)
        assert CLAUDE.parse_output(result, lambda event: event) == CLAUDE.parse_output(result)
        assert observed_streams(result.stdout).shape.events


@given(st.lists(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(
    inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "subtype", "message", "content", "usage", "x.y"]),
    inner, max_size=4), max_leaves=12), max_size=4))  # fmt: skip
@examples(60)
def test_any_stream_has_a_shape(events: list[object]) -> None:
    """And watching it changes nothing of what is read."""
    data = lines(*events)
    observed = observed_streams(data)
    result = CallResult(stdout=data, stderr=b"", exit=0, duration_ms=1)
    assert compare_shapes(observed.shape, observed, CLAUDE, same_calls=True) == ()
    assert isinstance(CLAUDE.parse_output(result).ending, str)


@pytest.mark.parametrize("data", [b"\xff\x00" * 50, b'{"a":' * 5000, b"{" + b'"a":{' * 900 + b"}" * 901, b""])
def test_bytes_that_are_no_stream(data: bytes) -> None:
    assert observed_streams(data).shape.events == {}


# broken frames --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("more", "text"),
    [
        (b'{"type":"assist', 'the last line is cut off: {"type":"assist'),
        (b"no json\n", "a line is not a JSON object"),
        (b'{"type":"user"}\n', "an event follows the final one: user"),
    ],
)
def test_frames_that_no_ended_stream_has(more: bytes, text: str) -> None:
    assert observed_streams(lines(INIT, RESULT) + more).broken_frames == (("f/call0", text),)
    assert observed_streams(lines(INIT, RESULT), lines(INIT, RESULT)).broken_frames == ()


def test_a_call_that_was_ended_may_end_anywhere() -> None:
    call = call_of("x", lines(INIT) + b'{"ty', outcome="lost", exit=None)
    assert observe_streams([call], CLAUDE).broken_frames == ()


# how bad a change is --------------------------------------------------------------------------------------------------
def without(event: dict[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in event.items() if key != name}


@pytest.mark.parametrize(
    ("events", "result"),
    [
        ((INIT, without(RESULT, "is_error")), [("high", "result/success:is_error")]),
        ((INIT, {**RESULT, "is_error": "no"}), [("high", "result/success:is_error")]),
        ((INIT, {**RESULT, "is_error": None}), [("high", "result/success:is_error")]),
        ((without(INIT, "plugins"), RESULT), []),
        (({**INIT, "plugins": 1}, RESULT), [("low", "system/init:plugins")]),
        (({**INIT, "agents": {"deep": {"er": 1}}}, RESULT), [("low", "system/init:agents")]),
        ((INIT, {**RESULT, "mood": "good"}), []),
        ((INIT, {"type": "poem", "lines": 3}, RESULT), [("medium", "poem")]),
        ((INIT, {"type": "system", "subtype": "api_retry", "error_status": 1}, RESULT), [("low", "system/api_retry")]),
        ((INIT, {"type": "rate_limit_event"}, RESULT), [("low", "rate_limit_event")]),
        ((INIT,), []),
    ],
)  # fmt: skip
def test_what_differs_from_a_baseline(events: tuple[object, ...], result: list[tuple[str, str]]) -> None:
    stream_shape = observed_streams(lines(INIT, RESULT), lines(INIT, RESULT)).shape
    changes = compare_shapes(stream_shape, observed_streams(lines(*events)), CLAUDE)
    assert [(change.risk, change.name) for change in changes] == result


def test_a_field_that_was_not_always_there_need_not_come() -> None:
    stream_shape = observed_streams(lines(INIT, RESULT), lines(INIT, without(RESULT, "result"))).shape
    assert compare_shapes(stream_shape, observed_streams(lines(INIT, without(RESULT, "result"))), CLAUDE) == ()


def test_the_words_of_models_and_tools_have_no_shape() -> None:
    def call(value: object) -> dict[str, object]:
        block = {"type": "tool_use", "name": "Write", "input": value}
        return {"type": "assistant", "session_id": "s", "message": {"id": "m", "content": [block]}}

    stream_shape = observed_streams(
        lines(INIT, call({"a": 1}), {**RESULT, "modelUsage": {"one": {"inputTokens": 1}}})
    ).shape
    other = observed_streams(lines(INIT, call({"b": ["x"]}), {**RESULT, "modelUsage": {"two": {"inputTokens": 1}}}))
    assert compare_shapes(stream_shape, other, CLAUDE, same_calls=True) == ()


# files ----------------------------------------------------------------------------------------------------------------
def test_a_baseline_is_read_as_it_was_written(tmp_path: Path) -> None:
    wire = observed_streams(lines(INIT, RESULT)).shape
    path = write_baseline(wire, "made by a test", tmp_path)
    assert path.name == "claude-code-2.1.197.yaml"
    assert read_baseline(path) == wire
    assert load_baselines((built_in_folder(), tmp_path))["claude-code", "2.1.197"] == wire


def test_a_version_never_leads_out_of_the_folder(tmp_path: Path) -> None:
    wire = StreamShape(agent="claude-code", version="../../x", events={})
    assert write_baseline(wire, "r", tmp_path / "wire").parent == tmp_path / "wire"


@pytest.mark.parametrize(
    "text", ["[", "agent: x\n", "a: &a [1]\nb: *a\n", "agent: a\nversion: '1'\nreason: r\nevents: {e: {seen: {}}}"]
)
def test_a_baseline_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x-1.yaml"
    path.write_text(text)
    with pytest.raises(CassetteUnreadable, match=r"x-1\.yaml"):
        read_baseline(path)


def test_the_baseline_of_the_version_else_of_the_last_one_before() -> None:
    stream_shapes = {
        ("a", version): StreamShape(agent="a", version=version, events={}) for version in ("2.1.9", "2.1.10", "3.0.0")
    }

    def actual(version: str) -> str | None:
        wire = nearest_baseline(StreamShape(agent="a", version=version, events={}), stream_shapes)
        return wire.version if wire else None

    assert [actual(version) for version in ("2.1.10", "2.1.99", "1.0.0", "")] == ["2.1.10", "2.1.10", "2.1.9", "3.0.0"]
    assert nearest_baseline(StreamShape(agent="b", version="1", events={}), stream_shapes) is None


def test_a_baseline_grows_by_what_is_seen() -> None:
    stream_shape = observed_streams(lines(INIT, RESULT)).shape
    other = observed_streams(lines(without(INIT, "plugins"), {**RESULT, "is_error": None})).shape
    both = extend_baseline(stream_shape, other)
    assert both.events["system/init"]["plugins"].is_always_present is False
    assert both.events["result/success"]["is_error"].types == ("boolean", "null")
    assert extend_baseline(None, stream_shape) == stream_shape
    twice = observed_streams(lines(INIT, without(INIT, "plugins"), RESULT)).shape
    assert extend_baseline(stream_shape, twice).events["system/init"]["plugins"].is_always_present is False
    assert extend_baseline(twice, stream_shape).events["system/init"]["plugins"].is_always_present is False
    for data in (lines(INIT, RESULT), lines(without(INIT, "plugins"), {**RESULT, "is_error": None})):
        assert compare_shapes(both, observed_streams(data), CLAUDE) == ()


# the baselines that come with mz --------------------------------------------------------------------------------------
def test_what_the_real_command_line_was_seen_to_write_breaks_nothing() -> None:
    """Errors of every kind, captured from it; no cassette holds most of them."""
    assert CAPTURED
    for path in CAPTURED:
        risks = [
            (change.risk, change.description)
            for change in compare_shapes(BASELINE, observed_streams(path.read_bytes()), CLAUDE)
        ]
        assert not [text for risk, text in risks if risk != "low"], path.name


@pytest.mark.slow
def test_the_projects_own_recordings_are_as_their_baseline() -> None:
    """Otherwise write it anew: mz drift recordings/mz_recordings/bundled recordings/library --update-baseline
    --wire recordings/mz_recordings/baselines -m TEXT"""
    for path in (BUNDLED, *list_cassettes(ROOT / "recordings" / "library")):
        assert list(check_streams(load(path), BASELINES, {})) == [], path


@pytest.mark.parametrize(
    ("agent", "version"), [("claude-code", "2.1.197"), ("claude-code", "2.1.330"), ("qwen", "0.24.4")]
)
def test_what_the_real_program_wrote_is_as_its_baseline(agent: str, version: str) -> None:
    """Thoughts, retries without a status and tasks of subagents among it."""
    for name, stdout in stored_streams(agent, version):
        streams = observed(agent, version, iter([(name, stdout)]))
        assert compare_shapes(BASELINES[agent, version], streams, adapter_of(agent)) == (), name
        assert streams.broken_frames == (), name


def test_the_newest_baseline_is_of_the_version_that_was_tested() -> None:
    for agent in {agent for agent, _ in BASELINES} & {name for name, item in AGENTS.items() if item.tested_version}:
        newest = nearest_baseline(StreamShape(agent=agent, version="", events={}), BASELINES)
        assert newest is not None
        assert newest.version == AGENTS[agent].tested_version


def test_thoughts_are_no_defect_even_without_a_baseline_of_them() -> None:
    thoughts = {"type": "system", "subtype": "thinking_tokens", "session_id": "s", "estimated_tokens": 90}
    bare = StreamShape(agent="claude-code", version="2.1.100", events={})
    changes = compare_shapes(bare, observed_streams(lines(INIT, thoughts, RESULT)), CLAUDE)
    assert {change.risk for change in changes} == {"low"}


def test_tasks_may_end_after_the_result() -> None:
    task = {"type": "system", "subtype": "task_notification", "session_id": "s", "status": "completed"}
    assert observed_streams(lines(INIT, RESULT, task)).broken_frames == ()
    (defect,) = observed_streams(lines(INIT, RESULT, task, INIT)).broken_frames
    assert defect[1] == "an event follows the final one: system/init"


def test_a_cassette_of_a_version_without_a_baseline() -> None:
    tape = cassette(recording("1" * 40, version="9.9.9"))
    findings = [difference.finding for difference in check_streams(tape, BASELINES, {})]
    assert "no baseline of claude-code 9.9.9" in findings[0].message
    assert (findings[0].risk, findings[0].fix) == ("low", "mz drift {cassette} --update-baseline -m TEXT")
    assert check_streams(tape, {}, {}) is not None
    documented = msgspec.structs.replace(tape.manifest, provenance="documented")
    assert list(check_streams(tape._replace(manifest=documented), {}, {})) == []


def test_a_stream_that_lost_what_is_read_is_a_grave_finding() -> None:
    full = load(BUNDLED)
    item = full._replace(calls=full.calls[:1])
    path = item.calls[0].recording.identity.path
    lost = with_line(item, path, "result", lambda line: without(line, "is_error"))
    (result,) = [difference.finding for difference in check_streams(lost, BASELINES, {})]
    assert (result.kind, result.risk, result.detail) == (
        "STREAM",
        "high",
        ("- result/success is_error: boolean (read)",),
    )
    cut = with_file(item, path, "stdout", lambda text: text[:-20])
    assert "frames" in {stream.finding.cause for stream in check_streams(cut, BASELINES, {})}
