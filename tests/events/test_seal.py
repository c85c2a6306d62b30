"""A seal's text is read as it was written, and no other text passes for one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_events.names import StreamId
from mz_events.seal import InvalidSeal, differences, parse_seals, seal_of
from mz_events.store import Head

NAMES = st.from_regex(r"(run|inbox|erased)/r[0-9a-f]{4}(/[A-Za-z0-9_-]{1,20})?", fullmatch=True).map(StreamId)
HEADS = st.dictionaries(
    NAMES, st.builds(Head, st.integers(1, 10**9), st.binary(min_size=32, max_size=32)), min_size=1, max_size=5
)
END = "-----END SSH SIGNATURE-----\n"
SIGNATURE = f"-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n{END}"
STREAMS = {StreamId("run/r4f1"): Head(3, bytes(32)), StreamId("run/r4f1/login"): Head(7, b"\1" * 32)}
SEAL = seal_of(STREAMS, "ab12", "r4f1")


@given(HEADS, st.sampled_from((None, "r4f1")), st.sampled_from(("", SIGNATURE)), st.sampled_from(("\n", "\r\n")))
def test_a_text_is_read_as_it_was_written(
    heads: Mapping[StreamId, Head], run: str | None, signature: str, end: str
) -> None:
    seal = replace(seal_of(heads, "ab12", run), signature=signature)
    text = f"# Title\n\nSome text.\n\n{seal.text}\nMore.\n\nMz-Seal: {seal.root}\n{seal.text}"
    assert parse_seals(text.replace("\n", end)) == ((seal, seal), (seal.root,))
    assert seal.heads == heads


def test_a_root_alone_is_a_reference() -> None:
    assert parse_seals(f"Text.\n\nMz-Seal: {SEAL.root}\r\n") == ((), (SEAL.root,))
    assert parse_seals("Mz-Seal: none") == ((), ())


LINES = tuple(range(SEAL.statement.count("\n")))


@pytest.mark.parametrize("index", LINES)
def test_a_changed_or_missing_line_is_no_seal(index: int) -> None:
    lines = SEAL.statement.splitlines()
    changed = lines[index][:-1] + ("0" if lines[index][-1] != "0" else "1")
    for edited in ([changed], []):
        text = "\n".join([*lines[:index], *edited, *lines[index + 1 :]])
        if index == 0 and not edited:
            assert parse_seals(text)[0] == ()
            continue
        with pytest.raises(InvalidSeal):
            parse_seals(text)


def test_a_cut_signature_and_a_newer_format() -> None:
    (unsigned,), _ = parse_seals(SEAL.statement + SIGNATURE.removesuffix(END))
    assert unsigned == SEAL
    with pytest.raises(InvalidSeal, match="of a newer mz"):
        parse_seals(SEAL.statement.replace("mz-seal 1", "mz-seal 2"))


def test_a_log_may_grow_and_not_change() -> None:
    ends = {stream: {head.version: head.chain} for stream, head in STREAMS.items()}
    grown = {**ends, StreamId("run/r4f1"): {3: bytes(32), 9: b"\7" * 32}, StreamId("run/r4f1/export"): {1: b"\2" * 32}}
    assert list(differences(SEAL, grown)) == []
    login = StreamId("run/r4f1/login")
    for changed, expected in (
        ({}, "the stream is missing; 7 events"),
        ({6: b"\1" * 32}, "the stream was cut: it ends at version 6"),
        ({7: b"\3" * 32}, "made anew"),
        ({7: b"\3" * 32, 8: b"\4" * 32}, "made anew"),
    ):
        log = {**grown, login: changed} if changed else {name: ends[name] for name in ends if name != login}
        ((event_ref, message),) = differences(SEAL, log)
        assert (event_ref, expected in message) == ("run/r4f1/login@7", True)
