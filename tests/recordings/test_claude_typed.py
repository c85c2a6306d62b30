"""Lines of Claude Code's session logs show the same whichever way they are decoded, and however many at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.agents.claude_code.lines import decode_line
from mz_engine.agents.claude_code.session_log import SESSION, SessionReader
from mz_engine.agents.reading.byte_lines import Piece, blocks, pieces
from mz_engine.agents.reading.records import ModelRequest, ReaderState, TranscriptRecord, UndecodableLine
from mz_engine.transcripts.read import read_piece

from tests.support.tree import ROOT

STORED = ROOT / "tests/cases/transcripts/claude-code"
LINES = tuple(
    line
    for path in sorted(STORED.glob("*-session-*.jsonl"))
    for line in path.read_bytes().splitlines()
    if line.startswith(b"{")
)
ODD = (
    b'{"type":"assistant","sessionId":7,"message":{"id":null,"usage":{"input_tokens":5}},"timestamp":[]}',
    b'{"type":"assistant","message":{"id":"a","content":[1,{"type":"text","text":2},{"type":"tool_use"}],"usage":{}}}',
    b'{"type":"user","isSidechain":"yes","message":{"content":"x"}}',
    b'{"type":"user","isMeta":0,"message":{"content":[{"type":"tool_result","content":[]}]}}',
    b'{"type":"user","toolUseResult":null,"message":"x"}',
    b'{"type":"user","message":{"content":[{"type":"text","text":"\\ud800"}]}}',
    b'{"type":"user","message":{"content":[{"type":"tool_result","content":"\xff"}]}}',
    b'{"type":"assistant","costUSD":0.1,"message":{"id":"a","model":"m","usage":{"output_tokens":3}},"error":null}',
    b'{"type":"assistant","costUSD":1e-400,"message":{"id":"a","model":"m","usage":{"output_tokens":3}}}',
    b'{"type":"progress","data":{"agentId":"q","message":{"type":"assistant","message":{"id":"b","usage":{"x":1.5}}}}}',
    b'{"type":"assistant","message":{"id":"a","usage":{"output_tokens":3,"x":1e99999999999999999999}}}',
    b'{"type":"assistant","message":{"id":"a","usage":null}}',
    b'{"type":"progress","data":[]}',
    b'{"type":"cost-state","totalCostUSD":0.25,"modelUsage":{"m":{"inputTokens":2}},"hasUnknownModelCost":false}',
    b'{"type":"user","type":"summary"}',
    b'{"type":3}',
    b"{}",
)
EVERY = (*LINES, *ODD)
FORCED = b'{"uuid":0,'
"""Of a line that begins so no types are made; the last field of a name counts, and one that is no text is none."""


def forced(line: bytes) -> bytes:
    return FORCED + line[1:] if line[1:].strip() != b"}" else b'{"uuid":0}'


def shown(lines: list[bytes]) -> list[list[TranscriptRecord]]:
    reader = SessionReader(ReaderState())
    return [list(reader.read(line)) for line in lines]


def test_most_stored_lines_are_of_the_usual_shape() -> None:
    assert sum(decode_line(line) is not None for line in LINES) > len(LINES) * 0.7
    assert not any(decode_line(forced(line)) for line in EVERY)


@pytest.mark.parametrize("path", sorted(STORED.glob("*-session-*.jsonl")), ids=lambda path: path.stem)
def test_a_file_shows_the_same_both_ways(path: Path) -> None:
    lines = [line for line in path.read_bytes().splitlines() if line.startswith(b"{")]
    told = shown(lines)
    assert told == shown([forced(line) for line in lines])
    assert any(isinstance(each, ModelRequest) for seen in told for each in seen) or "refused" in path.name
    together = SessionReader(ReaderState()).read_lines(b"".join(line + b"\n" for line in lines), len(lines))
    if all(map(decode_line, lines)):
        assert together == [each for seen in told for each in seen]
    else:
        assert together is None


@pytest.mark.parametrize("line", ODD)
def test_a_line_of_another_shape_shows_the_same_both_ways(line: bytes) -> None:
    assert shown([line, line]) == shown([forced(line), forced(line)])


@given(st.data())
def test_damaged_lines_show_the_same_both_ways(data: st.DataObject) -> None:
    lines = []
    for _ in range(3):
        line = data.draw(st.sampled_from(EVERY))
        begin = data.draw(st.integers(1, len(line)))
        end = data.draw(st.integers(begin, min(begin + 30, len(line))))
        put = data.draw(
            st.one_of(st.binary(max_size=4), st.sampled_from((b"null", b"1", b'"', b"{", b"}", b"[]", b",")))
        )
        lines.append(line[:begin] + put + line[end:])
    assert shown(lines) == shown([forced(line) for line in lines])


def test_bytes_that_are_no_text_spoil_a_line_wherever_they_are() -> None:
    good = b'{"type":"user","unheard":"x","message":{"content":"Go on."}}'
    assert not any(isinstance(each, UndecodableLine) for each in shown([good])[0])
    assert isinstance(shown([good.replace(b'"x"', b'"\xff"')])[0][0], UndecodableLine)
    assert SessionReader(ReaderState()).read_lines(good.replace(b'"x"', b'"\xff"') + b"\n", 1) is None


PARTS = (
    b'{"a":1}',
    b"{}",
    b"{",
    b"}",
    b"",
    b" {}",
    b"{}{}",
    b'{"a":',
    b"1}",
    b"[{}",
    b"\r",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\0",
)


def single(stream: list[Piece]) -> list[tuple[bytes, bool]]:
    """The lines, of blocks too."""
    return [
        (line, piece.is_complete)
        for piece in stream
        for line in (piece.data.splitlines() if piece.lines > 1 else [piece.data])
    ]


@given(
    st.lists(st.tuples(st.sampled_from(PARTS), st.sampled_from((b"\n", b"\n", b"\n", b"\r\n", b"")))),
    st.sampled_from((4, 16, 64, 4096)),
)
def test_blocks_hold_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[bytes, bytes]], size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(b"".join(part + end for part, end in parts))
    with open(path, "rb") as file:
        together = list(blocks(file, 0, size))
        file.seek(0)
        apart = list(pieces(file))
    assert single(together) == single(apart)
    assert [each.offset_end for each in together if each.lines == 1] == [
        each.offset_end for each in apart if each.offset_end in {one.offset_end for one in together if one.lines == 1}
    ]
    assert sum(each.lines for each in together) == len(apart)
    for each in together:
        if each.lines > 1:
            assert all(line[:1] == b"{" and line[-1:] == b"}" for line in each.data.splitlines())


def test_a_line_of_two_objects_is_no_line() -> None:
    good = b'{"type":"user","message":{"content":"Go on."}}'
    assert SessionReader(ReaderState()).read_lines(good + b"\n" + good + b"\n", 2) is not None
    assert SessionReader(ReaderState()).read_lines(good + b"\n" + good + good + b"\n", 2) is None


def test_lines_of_a_block_have_their_own_usage() -> None:
    lines = [b'{"type":"assistant","message":{"id":"m%d","usage":{"output_tokens":%d}}}' % each
             for each in ((1, 5), (2, 5), (2, 6), (2, 6), (1, 5))]  # fmt: skip
    told = SessionReader(ReaderState()).read_lines(b"".join(line + b"\n" for line in lines), len(lines)) or []
    requests = [(each.id, each.usage.output) for each in told if isinstance(each, ModelRequest)]
    assert requests == [(":m1", 5), (":m2", 5), (":m2", 6), (":m1", 5)]
    assert told == [each for seen in shown(lines) for each in seen]


def test_a_block_with_an_odd_line_is_read_line_by_line() -> None:
    block = b"".join(line + b"\n" for line in EVERY if line.endswith(b"}"))
    lines = block.splitlines()
    alone, together = SessionReader(ReaderState()), SessionReader(ReaderState())
    expected = [each for line in lines for each in read_piece(SESSION, alone, Piece(data=line, offset_end=0))]
    assert list(read_piece(SESSION, together, Piece(data=block, offset_end=0, lines=len(lines)))) == expected
