"""What `mz transcript` says of every stored file, whole, cut off anywhere, and of files that are none."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_cli.terminal.json import json_document
from mz_cli.usage.transcript import transcript_report
from mz_engine.agents.reading.byte_lines import LINE_BYTES_MAX, buffered
from mz_engine.agents.reading.json_lines import decode_object
from mz_engine.agents.reading.records import NOTES, Format, ModelRequest, ReaderState, TranscriptRecord
from mz_engine.decoding.yaml import load_yaml
from mz_engine.pricing.table import GenaiPrices
from mz_engine.transcripts.read import FORMATS, Undetected, detect_transcript, read_piece
from mz_engine.transcripts.summary import SummaryBuilder, TranscriptSummary, usage_totals
from mz_qa.conformance.parsing import replace_fields

from tests.support.examples import examples, first_of_each
from tests.support.tree import ROOT
from tests.support.values import JSON

CASES = ROOT / "tests/cases/transcripts"
PRICES = GenaiPrices()
JUNE_2026_US = 1_780_300_800_000_000
BYTES_MAX = 60_000
KEYS = ("type", "subtype", "session_id", "sessionId", "message", "usage", "id", "model", "result", "payload", "stats",
        "models", "messages", "tokens", "timestamp", "content", "modelUsage", "total_cost_usd", "uuid",
        "info")  # fmt: skip
ENCODER = msgspec.json.Encoder(decimal_format="number")
FIELDS = {"made", "format", "expected", "requests", "parts", "tools"}


def cases() -> Iterator[tuple[str, Path, Path]]:
    for expected in sorted(CASES.glob("*/*.yaml")):
        (file,) = (path for path in expected.parent.glob(f"{glob_safe(expected.stem)}.*") if path != expected)
        yield f"{expected.parent.name}/{expected.stem}", file, expected


def glob_safe(stem: str) -> str:
    return stem.replace("[", "[[]")


ALL = {name: (file, expected) for name, file, expected in cases()}
FORM_OF = {name: load_yaml(expected.read_text())["format"] for name, (_, expected) in ALL.items()}


def summarised(data: bytes, agent: str | None = None, line_bytes_max: int = LINE_BYTES_MAX) -> TranscriptSummary:
    detected_transcript = detect_transcript(buffered(io.BytesIO(data)), agent, line_bytes_max=line_bytes_max)
    summary = SummaryBuilder(format=detected_transcript.format)
    for sighting in detected_transcript.records():
        summary.add(sighting)
    return summary.build()


def shown(transcript: TranscriptSummary) -> dict[str, object]:
    """mz.transcript/1, notes as codes."""
    plain = json.loads(json_document("transcript", transcript_report(transcript, PRICES, JUNE_2026_US)))
    assert isinstance(plain, dict)
    return {**plain, "notes": sorted(note.partition(":")[0] for note in plain["notes"])}


def codes(plain: dict[str, object]) -> list[str]:
    notes = plain["notes"]
    assert isinstance(notes, list)
    return notes


# the stored files -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ALL)
def test_a_stored_file_says_what_is_expected(name: str) -> None:
    file, path = ALL[name]
    expected = load_yaml(path.read_text())
    assert set(expected) <= FIELDS
    assert expected["made"].startswith(("real ", "constructed "))
    transcript_summary = summarised(file.read_bytes())
    assert transcript_summary.format == expected["format"]
    plain = shown(transcript_summary)
    wanted = {**expected["expected"]}
    if "notes" in wanted:
        wanted["notes"] = sorted(wanted["notes"])
        assert set(wanted["notes"]) <= set(NOTES)
    assert {key: plain[key] for key in wanted} == wanted
    assert transcript_summary.requests == expected.get("requests", transcript_summary.requests)
    assert transcript_summary.tools == expected.get("tools", transcript_summary.tools)
    if "parts" in expected:
        assert sorted({entry.usage.subagent for entry in transcript_summary.usages} - {""}) == sorted(expected["parts"])


def test_stored_files_are_small_and_tell_of_no_machine() -> None:
    for name, (path, *_) in ALL.items():
        data = path.read_bytes()
        assert len(data) <= BYTES_MAX, name
        # Codex calls its main agent /root, and others by paths below that.
        data = data.replace(b"/root/look_around", b"")
        for word in (b"/tmp/transcript", b"/tmp/pytest", b"/root/", str(ROOT).encode()):
            assert word not in data, name


@pytest.mark.parametrize("name", ALL)
def test_a_beginning_never_says_more_than_the_whole(name: str) -> None:
    data = ALL[name][0].read_bytes()
    count = total(summarised(data))
    chance = random.Random(name)
    ends = {chance.randrange(len(data)) for _ in range(6)}
    for end in sorted(ends):
        try:
            part = summarised(data[:end])
        except Undetected:
            continue
        assert total(part) <= count, end


def total(transcript: TranscriptSummary) -> int:
    sums = usage_totals(transcript)
    return (sums["input"] or 0) + (sums["output"] or 0)


@pytest.mark.parametrize("name", ALL)
def test_reading_on_finds_the_same_requests(name: str) -> None:
    """As an importer does with a file that grows: what a reader remembers is kept as JSON."""
    detected_transcript = detect_transcript(buffered(io.BytesIO(ALL[name][0].read_bytes())))
    lines = list(detected_transcript.pieces)
    middle = random.Random(name).randrange(len(lines) + 1)
    full, first = detected_transcript.format(ReaderState()), detected_transcript.format(ReaderState())
    together = counted(entry for line in lines for entry in read_piece(detected_transcript.format, full, line))
    begun = [record for line in lines[:middle] for record in read_piece(detected_transcript.format, first, line)]
    second = detected_transcript.format(msgspec.json.decode(msgspec.json.encode(first.state()), type=ReaderState))
    records = [item for line in lines[middle:] for item in read_piece(detected_transcript.format, second, line)]
    assert counted([*begun, *records]) == together


def counted(records: Iterable[TranscriptRecord]) -> dict[str, tuple[int, str, str]]:
    """The requests, each with the most tokens that are told of it."""
    requests: dict[str, tuple[int, str, str]] = {}
    for record in records:
        if isinstance(record, ModelRequest):
            size = record.usage.input + record.usage.output
            if size >= requests.get(record.id, (0, "", ""))[0]:
                requests[record.id] = (size, record.usage.model, record.usage.subagent)
    return requests


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("claude-code/")])
def test_the_same_requests_told_twice_count_once(name: str) -> None:
    file, _ = ALL[name]
    once, twice = summarised(file.read_bytes()), summarised(file.read_bytes() * 2)
    assert twice.requests == once.requests
    if once.format == "claude-session":
        assert usage_totals(twice) == usage_totals(once)


# bytes of any kind ----------------------------------------------------------------------------------------------------
LINES = sorted({line for file, _ in ALL.values() for line in file.read_bytes().splitlines() if len(line) < 5000})
PIECES = st.one_of(
    st.sampled_from(LINES),
    st.binary(max_size=60),
    st.builds(lambda line, cut: line[:cut], st.sampled_from(LINES), st.integers(0, 400)),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
        max_leaves=20,
    ).map(lambda value: json.dumps(value).encode()),
)


@examples(60)
@given(st.lists(PIECES, max_size=12), st.sampled_from([b"\n", b"\r\n", b"\0\n", b""]))
def test_any_bytes_say_something_or_are_refused(lines: list[bytes], end: bytes) -> None:
    try:
        transcript_summary = summarised(end.join(lines))
    except Undetected:
        return
    plain = shown(transcript_summary)
    assert plain["status"] in ("success", "error", "no-terminal")
    assert all(number is None or number >= 0 for number in usage_totals(transcript_summary).values())


@examples(40)
@given(st.sampled_from(sorted(ALL)), st.lists(st.tuples(st.integers(0, 100_000), st.binary(max_size=4)), max_size=6))
def test_a_damaged_file_is_read_as_far_as_can_be(name: str, wounds: list[tuple[int, bytes]]) -> None:
    data = bytearray(ALL[name][0].read_bytes())
    for at, what in wounds:
        data[at % len(data) : at % len(data) + len(what)] = what
    with contextlib.suppress(Undetected):
        shown(summarised(bytes(data)))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@examples(30)
@given(lines=st.lists(PIECES, max_size=6))
def test_no_reader_raises(form: Format, lines: list[bytes]) -> None:
    reader = form(ReaderState())
    for line in lines:
        list(reader.read(line))
    assert msgspec.json.decode(msgspec.json.encode(reader.state()), type=ReaderState) == reader.state()


def stored_objects(file: Path) -> list[dict[str, object]]:
    """The objects of a file: its lines, or the document."""
    data = file.read_bytes()
    lines = [data] if decode_object(data) else data.splitlines()
    return [event for event in map(decode_object, lines) if event]


def read_and_matched(form: Format, lines: Iterable[bytes]) -> bool:
    """Read all lines, and ask every format whether it knows them."""
    reader = form(ReaderState())
    for line in lines:
        list(reader.read(line))
        if event := decode_object(line):
            for other in FORMATS:
                other.matches(event)
    return msgspec.json.decode(msgspec.json.encode(reader.state()), type=ReaderState) == reader.state()


@pytest.mark.parametrize("name", first_of_each(ALL, lambda name: FORM_OF[name]))
def test_each_type_of_json_in_any_field_is_read(name: str) -> None:
    file, _ = ALL[name]
    (form,) = [form for form in FORMATS if form.name == FORM_OF[name]]
    lines = [ENCODER.encode(event) for event in stored_objects(file)]
    replaced: set[str] = set()
    changed = [data for line in lines for _, data in replace_fields(line, replaced)]
    assert read_and_matched(form, [*lines, *changed])


@examples(100)
@given(st.sampled_from(sorted(ALL)), st.data())
@pytest.mark.slow
def test_any_json_in_any_field_is_read(name: str, draw: st.DataObject) -> None:
    events = stored_objects(ALL[name][0])[:50]
    for event in events:
        part: Any = event
        while part:
            key = draw.draw(st.sampled_from(list(part) if isinstance(part, dict) else range(len(part))))
            if not isinstance(part[key], dict | list) or draw.draw(st.booleans()):
                part[key] = draw.draw(JSON)
                break
            part = part[key]
    lines = [json.dumps(event, default=float).encode() for event in events]
    for form in FORMATS:
        assert read_and_matched(form, lines)


# how files are written down -------------------------------------------------------------------------------------------
EXAMPLE = CASES / "claude-code/works-stream-2.1.197.jsonl"


@pytest.mark.parametrize(
    ("written", "note"),
    [
        (lambda data: b"\xef\xbb\xbf" + data, None),
        (lambda data: data.replace(b"\n", b"\r\n"), None),
        (lambda data: b"\n\n" + data.replace(b"\n", b"\n\n"), None),
        (lambda data: data.rstrip(), None),
        (lambda data: data + b"\0" * 4096, None),
        (lambda data: b"[" + b",".join(data.splitlines()) + b"]", None),
        (lambda data: b"[\n" + b",\n".join(data.splitlines()) + b"\n]\n", None),
        (lambda data: b"\n".join(json.dumps(json.loads(line), indent=2).encode() for line in data.splitlines()), None),
        (lambda data: json.dumps([json.loads(line) for line in data.splitlines()], indent=1).encode(), None),
        (lambda data: data.decode().encode("utf-16"), "utf-16"),
        (lambda data: data.decode().encode("utf-16-le"), "utf-16"),
        (lambda data: data.decode().encode("utf-16-be"), "utf-16"),
        (lambda data: gzip.compress(data), "compressed"),
        (lambda data: gzip.compress(data[:2000]) + gzip.compress(data[2000:]), "compressed"),
        (lambda data: data.replace(b"\n", b""), "mended"),
        (lambda data: data.replace(b"I write", b"I \xff\xfe write"), "mended"),
        (lambda data: data.replace(b"I write", b"I \\ud83d write"), "mended"),
        (lambda data: data.replace(b"I write", b"I \0 write"), "mended"),
    ],
)
def test_however_it_is_written_down_it_says_the_same(written: Callable[[bytes], bytes], note: str | None) -> None:
    data = EXAMPLE.read_bytes()
    plain, other = shown(summarised(data)), shown(summarised(written(data)))
    assert {**other, "notes": None} == {**plain, "notes": None}
    assert set(codes(other)) - set(codes(plain)) == ({note} if note else set())


def test_a_line_that_was_begun_and_never_ended_costs_only_itself() -> None:
    lines = EXAMPLE.read_bytes().splitlines(keepends=True)
    broken = b"".join([*lines[:2], lines[1][:150], *lines[2:]])
    transcript_summary, full = summarised(broken), summarised(b"".join(lines))
    assert usage_totals(transcript_summary) == usage_totals(full)
    assert (transcript_summary.undecodable_lines, transcript_summary.status) == (1, "success")
    assert "mended" in transcript_summary.notes


def test_a_half_written_end_is_no_bad_line() -> None:
    transcript_summary = summarised(EXAMPLE.read_bytes()[:-40])
    assert (transcript_summary.undecodable_lines, transcript_summary.status) == (0, "no-terminal")
    assert {"half-line", "no-terminal"} <= set(transcript_summary.notes)


def test_words_before_the_stream_are_bad_lines() -> None:
    transcript_summary = summarised(b"npm warn something\n(node:1) Warning\n" + EXAMPLE.read_bytes())
    assert (transcript_summary.format, transcript_summary.undecodable_lines, transcript_summary.status) == (
        "claude-stream",
        2,
        "success",
    )


def test_a_broken_compressed_file_is_read_up_to_there() -> None:
    transcript_summary = summarised(gzip.compress(EXAMPLE.read_bytes())[:-200])
    assert "half-line" in transcript_summary.notes


def test_a_long_line_is_passed_over() -> None:
    lines = EXAMPLE.read_bytes().splitlines()
    long = b'{"type":"user","x":"' + b"x" * 100_000 + b'"}'
    transcript_summary = summarised(b"\n".join([lines[0], long, *lines[1:]]), line_bytes_max=50_000)
    assert (transcript_summary.undecodable_lines, transcript_summary.status) == (1, "success")
    assert "long-line" in transcript_summary.notes


@pytest.mark.slow
def test_a_very_long_line_takes_no_memory(tmp_path: Path) -> None:
    """Sparse, so that it takes no room on the disk."""
    path = tmp_path / "long.jsonl"
    head, data = EXAMPLE.read_bytes().split(b"\n", 1)
    with path.open("wb") as file:
        file.write(head + b"\n")
        file.seek(2**28, io.SEEK_CUR)
        file.write(b"\n" + data)
    script = (
        "import re, sys; from mz_engine.transcripts.read import detect_transcript; import mz_engine.pricing.table\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])\n"
        "before = peak()\n"
        "count = sum(1 for _ in detect_transcript(open(sys.argv[1], 'rb')).records())\n"
        "print(count, peak() - before)"
    )
    out = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True).stdout
    count, grown_kib = map(int, out.split())
    assert count > 5
    assert grown_kib < 120 * 1024


# detection ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("data", "agent", "text"),
    [
        (b"", None, "is empty"),
        (b"\n \n\0\0", None, "contains only blanks and zero bytes"),
        (b"# A page\n", None, "has neither a JSON object nor text of a known format; it begins with '# A page'"),
        (b'{"a": 1, "b": 2}\n', None, "its first object has the keys 'a', 'b'"),
        (b'{"type":"syst', None, "it begins with"),
    ],
)
def test_what_is_no_transcript_is_refused_with_what_was_seen(data: bytes, agent: str | None, text: str) -> None:
    with pytest.raises(Undetected, match=re.escape(text)):
        summarised(data, agent)


def test_a_file_of_another_agent_is_named() -> None:
    with pytest.raises(Undetected, match="is claude-stream, which claude-code writes"):
        summarised(EXAMPLE.read_bytes(), "codex")


# notes ----------------------------------------------------------------------------------------------------------------
def test_every_note_is_documented() -> None:
    page = (ROOT / "docs/transcripts.md").read_text()
    assert [code for code, text in NOTES.items() if f"| `{code}` | {text} |\n" not in page] == []


def test_every_remark_of_a_reader_has_words() -> None:
    sources = (*(ROOT / "engine/mz_engine/agents").rglob("*.py"), *(ROOT / "engine/mz_engine/transcripts").glob("*.py"))
    summary = {code for source in sources for code in re.findall(r'Note\(code="([a-z0-9-]+)"\)', source.read_text())}
    assert len(summary) > 5
    assert summary <= set(NOTES)


def test_every_format_is_documented() -> None:
    page = (ROOT / "docs/transcripts.md").read_text()
    assert [form.name for form in FORMATS if f"| `{form.name}` |" not in page] == []
