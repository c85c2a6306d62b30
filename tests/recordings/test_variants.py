"""What a recorded call might have come to: variants are derived from bytes alone, and played by stand-ins too."""

from __future__ import annotations

import json

import pytest
from mz_engine.agents.catalog import AGENTS
from mz_recordings.cassette.model import RecordedCall
from mz_recordings.faults.faults import HUGE_BYTES, Variant, derive_variants

from tests.support.tapes import STDOUT, recording

TREE = "0" * 40


def variants(stdout: str = STDOUT, **more: object) -> dict[str, Variant]:
    call = recording(TREE, **more)
    contents = {**call.contents, "prd.stream-json": stdout.encode()}
    return {variant.name: variant for variant in derive_variants(RecordedCall(call.recording, contents))}


def test_variants_of_a_call_have_names_of_their_own_and_differ() -> None:
    result = derive_variants(recording(TREE))
    assert len({variant.name for variant in result}) == len(result) > 150
    assert len({variant[2:] for variant in result}) == len(result)
    assert not any(variant.stdout == STDOUT.encode() and variant[3:] == (b"", 0, None, True) for variant in result)


def test_output_is_cut_after_and_within_every_line() -> None:
    data, lines = STDOUT.encode(), STDOUT.encode().splitlines(keepends=True)
    result = variants()
    assert result["empty"].stdout == b""
    assert result["cut-after-line-1"].stdout == lines[0]
    assert result["cut-in-line-2"].stdout == data[: len(lines[0]) + len(lines[1]) // 2]
    assert {name for name in result if name.startswith("cut-in-line")} == {"cut-in-line-1", "cut-in-line-2"}


def test_output_is_cut_within_a_character_where_there_is_one() -> None:
    cut = variants('{"type":"user","text":"größer"}\n' + STDOUT)["cut-in-a-character-of-line-1"].stdout
    with pytest.raises(UnicodeDecodeError, match="unexpected end of data"):
        cut.decode()
    assert "cut-in-a-character-of-line-1" not in variants()
    with pytest.raises(UnicodeDecodeError):
        variants()["cut-in-a-character"].stdout.decode()


def test_processes_end_in_every_way_that_was_seen() -> None:
    result = variants()
    assert {result[f"whole-exit-{code}"].exit for code in (-9, -15, 143, 1)} == {-9, -15, 143, 1}
    assert {result[f"cut-before-the-end-exit-{code}"].exit for code in (-9, -15, 143)} == {-9, -15, 143}
    assert result["whole-and-timeout"].ended_by_mz is not None
    assert not result["nothing-changed"].keeps_changes


def test_a_line_is_longer_than_anything_that_agents_write() -> None:
    assert len(max(variants()["huge-line-before-the-end"].stdout.split(b"\n"), key=len)) > HUGE_BYTES


def test_ends_are_told_in_the_agents_words() -> None:
    result = variants()
    limit = json.loads(result["ends-error_max_turns"].stdout.splitlines()[-1])
    assert (limit["subtype"], limit["is_error"], "result" in limit) == ("error_max_turns", True, False)
    api = json.loads(result["ends-api-error-429"].stdout.splitlines()[-1])
    assert (api["subtype"], api["is_error"], api["api_error_status"]) == ("success", True, 429)
    assert result["success-then-error_max_turns"].stdout.startswith(STDOUT.encode())
    assert result["error_max_turns-then-success"].stdout.endswith(STDOUT.encode().splitlines(keepends=True)[-1])


def test_an_agent_whose_words_are_not_known_has_the_other_variants() -> None:
    assert "another" not in AGENTS
    result = variants(agent="another")
    assert "cut-after-line-1" in result
    assert not [name for name in result if name.startswith("ends-")]


@pytest.mark.parametrize("stdout", ["", "\n", "no json\n", "[]\n", '{"type":'])
def test_whatever_was_recorded_has_variants(stdout: str) -> None:
    assert variants(stdout)
