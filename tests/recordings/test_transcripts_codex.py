"""What Codex's files say together: copies count once, a stream and a session agree, a file may be read in pieces."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_engine.agents.codex.stream import RolloutReader, StreamReader
from mz_engine.agents.reading.records import Format, ModelRequest, ReaderState, SessionInfo, StreamEnd, TranscriptRecord
from mz_events.catalog.call import Usage

from tests.support.tree import ROOT

CASES = ROOT / "tests/cases/transcripts/codex"
ROLLOUTS = sorted(CASES.glob("*-rollout-*.jsonl"))
VERSIONS = ("0.104.0", "0.143.0", "0.169.0")


def observed(path: Path, form: Format) -> list[TranscriptRecord]:
    reader = form(ReaderState())
    return [sighting for line in path.read_bytes().splitlines() for sighting in reader.read(line)]


def requests(path: Path) -> dict[str, Usage]:
    return {record.id: record.usage for record in observed(path, RolloutReader) if isinstance(record, ModelRequest)}


def tokens(usages: list[Usage]) -> tuple[int, int, int]:
    inputs, outputs = sum(usage.input for usage in usages), sum(usage.output for usage in usages)
    return inputs, outputs, sum(usage.cache_read for usage in usages)


def test_a_copied_request_has_the_id_of_the_original() -> None:
    original, copy = requests(CASES / "original-rollout-0.50.jsonl"), requests(CASES / "copied-rollout-0.50.jsonl")
    assert original.items() < copy.items()
    (own,) = copy.keys() - original.keys()
    assert copy[own].input == 9400


def test_turns_are_copied_too(tmp_path: Path) -> None:
    """Versions that name turns need no head of the copied session."""
    lines = (CASES / "doubled-rollout-0.104.0-alpha.jsonl").read_text().splitlines(keepends=True)
    copy = tmp_path / "copy.jsonl"
    copy.write_text("".join([lines[0].replace("0199a213", "0199b324"), *lines[1:]]).replace("T10:00", "T11:11"))
    assert requests(copy) == requests(CASES / "doubled-rollout-0.104.0-alpha.jsonl")


def test_what_a_fork_took_is_not_what_its_origin_took() -> None:
    """Newer forks copy nothing, and count on from where they were forked."""
    origin, fork = requests(CASES / "works-rollout-0.169.0.jsonl"), requests(CASES / "forked-rollout-2-0.169.0.jsonl")
    assert not origin.keys() & fork.keys()
    assert tokens(list(fork.values()))[1] == 155
    (opened, *_) = [
        record
        for record in observed(CASES / "forked-rollout-2-0.169.0.jsonl", RolloutReader)
        if isinstance(record, SessionInfo)
    ]
    assert opened.parent == "11111111-2222-4333-8444-555555555555"
    assert opened.session != opened.parent


@pytest.mark.parametrize("name", ["works-rollout", "resumed-rollout", "forked-rollout-2", "sub-agent-rollout-2"])
def test_sums_alone_tell_the_same_requests(name: str, tmp_path: Path) -> None:
    """Also of a thread that is older than its file."""
    path, bare = CASES / f"{name}-0.169.0.jsonl", tmp_path / "bare.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    bare.write_text("".join(line for line in lines if '"token_usage_record"' not in line))
    assert requests(bare) == requests(path)


@pytest.mark.parametrize("version", VERSIONS)
def test_stream_and_session_agree(version: str) -> None:
    stream, rollout = CASES / f"works-stream-{version}.jsonl", CASES / f"works-rollout-{version}.jsonl"
    (end,) = [record for record in observed(stream, StreamReader) if isinstance(record, StreamEnd)]
    assert tokens(list(end.usage)) == tokens(list(requests(rollout).values()))


def test_a_sub_agent_belongs_to_its_session() -> None:
    path = CASES / "sub-agent-rollout-2-0.169.0.jsonl"
    opened = next(record for record in observed(path, RolloutReader) if isinstance(record, SessionInfo))
    assert (opened.subagent, opened.session) == ("look_around", opened.parent)
    assert {usage.subagent for usage in requests(path).values()} == {"look_around"}


@pytest.mark.parametrize("path", ROLLOUTS, ids=lambda path: str(path.stem))
def test_a_file_is_read_on_where_it_was_left(path: Path) -> None:
    lines, records = path.read_bytes().splitlines(), observed(path, RolloutReader)
    for cut in range(len(lines) + 1):
        first = RolloutReader(ReaderState())
        sightings = [sighting for line in lines[:cut] for sighting in first.read(line)]
        second = RolloutReader(first.state())
        sightings += [sighting for line in lines[cut:] for sighting in second.read(line)]
        assert [record for record in sightings if isinstance(record, ModelRequest)] == [
            item for item in records if isinstance(item, ModelRequest)
        ]
