"""An import counts every request once: whatever it is read from, in any order, whoever writes or dies meanwhile."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_engine.agents.reading.records import ReaderState
from mz_engine.decoding.yaml import load_yaml
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.imported import ImportedFileRead, ImportedSessionFound
from mz_projections.imported.model import QuarterSum, count_session
from mz_recordings.importing import file_reader
from mz_recordings.importing.file_reader import encode_reader_state
from mz_recordings.importing.importer import BLOBS, LOCK, LOG, Busy, UnpricedModel

from tests.support.examples import examples
from tests.support.sessionfiles import (
    MODEL,
    NOW,
    OTHER,
    PRICES,
    SESSION,
    prompt,
    request,
    sums,
    take,
    totals,
    views,
    write,
)
from tests.support.tree import ROOT

STORED = ROOT / "tests/cases/transcripts/claude-code"
REPORTED = sorted(
    path
    for kind in ("works", "resumed-stream", "sub-agent", "session", "stream", "json")
    for path in STORED.parent.glob(f"*/{kind}*")
    if path.suffix != ".yaml" and path.with_suffix(".yaml").exists()
)
HALVED = (
    "claude-code/works-session-2.1.329.jsonl",
    "claude-code/sub-agent-stream-2.1.329.jsonl",
    "claude-code/resumed-stream-2.1.197.jsonl",
    "codex/resumed-rollout-0.169.0.jsonl",
    "codex/doubled-rollout-0.104.0-alpha.jsonl",
    "gemini/session-0.61.0.jsonl",
)
AT_S = 1795293000
"""The quarter of an hour in which its sessions were."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "projects"


# what is counted ------------------------------------------------------------------------------------------------------
def test_requests_are_counted_at_the_price_of_their_day(home: Path, files: Path) -> None:
    write(files / f"{SESSION}.jsonl", [prompt(), request(1), request(2, written_1h=500)])
    outcome = take(home, files)
    assert (outcome.files_read, outcome.sessions, outcome.new_requests, outcome.lines) == (1, 1, 2, 3)
    (row,) = sums(home)
    assert (row.session, row.start_s, row.model, row.subagent) == (
        f"session/claude-code/{SESSION}",
        1772366400,
        MODEL,
        "",
    )
    assert (row.requests, row.input, row.output, row.cache_read) == (2, 2920, 200, 2000)
    assert (row.cache_write_5m, row.cache_write_1h, row.reported_nanousd) == (400, 500, None)
    by_hand = 20 * 3000 + 200 * 15000 + 2000 * 300 + 400 * 3750 + 500 * 6000
    assert row.computed_nanousd == by_hand == outcome.computed_nanousd


def test_several_lines_of_one_request_are_one_and_the_fullest_counts(home: Path, files: Path) -> None:
    write(files / "s.jsonl", [request(1, output=3), request(1, output=90), request(1, output=40)])
    take(home, files)
    assert totals(home)[:2] == (1, 90)


def test_a_request_that_another_file_tells_of_is_known(home: Path, files: Path) -> None:
    """A branch begins with the lines of the session that it came from."""
    write(files / f"{SESSION}.jsonl", [request(1), request(2)])
    branch = [request(1, session=OTHER), request(2, session=OTHER), request(3, session=OTHER)]
    write(files / f"{OTHER}.jsonl", branch)
    os.utime(files / f"{SESSION}.jsonl", (1, 1))
    outcome = take(home, files)
    assert (outcome.new_requests, outcome.already_counted_requests) == (3, 2)
    assert {row.session: row.requests for row in sums(home)} == {
        f"session/claude-code/{SESSION}": 2, f"session/claude-code/{OTHER}": 1,
    }  # fmt: skip


def test_sub_agents_count_once_and_after_the_main_conversation(home: Path, files: Path) -> None:
    """Old versions wrote a sub-agent's lines into both files."""
    write(files / SESSION / "subagents/agent-a1.jsonl", [request(2, agent="a1"), request(3, agent="a1")])
    write(files / f"{SESSION}.jsonl", [request(1), request(2)])
    os.utime(files / SESSION / "subagents/agent-a1.jsonl", (1, 1))
    take(home, files)
    assert {(row.subagent, row.requests) for row in sums(home)} == {("", 2), ("a1", 1)}


def test_a_fuller_sighting_corrects_what_was_counted(home: Path, files: Path) -> None:
    write(files / f"{SESSION}.jsonl", [request(1, output=5)])
    take(home, files)
    before = totals(home)
    write(files / f"{OTHER}.jsonl", [request(1, output=500, session=OTHER, at="2026-03-02T12:00:00.000Z")])
    outcome = take(home, files)
    assert (outcome.new_requests, outcome.corrected_requests) == (0, 1)
    (row,) = (row for row in sums(home) if row.requests)
    assert (row.session, row.start_s, row.output) == (f"session/claude-code/{SESSION}", 1772366400, 500)
    assert totals(home)[2] - before[2] == 495 * 15000 == outcome.computed_nanousd


def test_the_same_file_under_two_names_counts_once(home: Path, files: Path) -> None:
    lines = [prompt(), request(1), request(2)]
    write(files / "a.jsonl", lines)
    write(files / "copy/b.jsonl", lines)
    outcome = take(home, files)
    assert (outcome.new_requests, outcome.already_counted_requests) == (2, 2)
    with views(home) as imported_store:
        counts = count_session(imported_store.files_of(f"session/claude-code/{SESSION}"))
    assert (counts.prompts, counts.tools) == (1, {"Read": 2})


def test_links_lead_nowhere_twice(home: Path, files: Path) -> None:
    path = write(files / "a.jsonl", [request(1)])
    (files / "hard.jsonl").hardlink_to(path)
    (files / "soft.jsonl").symlink_to(path)
    (files / "loop").symlink_to(files)
    (files / "loop.jsonl").symlink_to(files / "loop.jsonl")
    os.mkfifo(files / "pipe.jsonl")
    outcome = take(home, files, files, path)
    assert (outcome.files, outcome.new_requests, outcome.already_counted_requests) == (1, 1, 0)
    assert [Path(unreadable_file.path).name for unreadable_file in outcome.unreadable] == ["loop.jsonl"]


def test_a_model_without_a_price_is_named_and_not_zero(home: Path, files: Path) -> None:
    write(files / "a.jsonl", [request(1), request(2, model="claude-imaginary-9")])
    outcome = take(home, files)
    assert outcome.unpriced == (UnpricedModel("claude-imaginary-9", 1),)
    assert {row.model: row.unpriced for row in sums(home)} == {MODEL: 0, "claude-imaginary-9": 1}


# streams and what they tell at their ends -----------------------------------------------------------------------------
@pytest.mark.parametrize("order", [("stream", "session"), ("session", "stream"), ("stream", "stream", "session")])
def test_a_stream_and_the_log_of_the_same_session_are_the_same_money(
    home: Path, files: Path, order: tuple[str, ...]
) -> None:
    """Files that the real program wrote; what it reported is what comes out, by whichever way."""
    for number, kind in enumerate(order):
        path = files / f"{number}.jsonl"
        path.parent.mkdir(exist_ok=True)
        shutil.copy(STORED / f"works-{kind}-2.1.197.jsonl", path)
        take(home, path)
        rows = sums(home)
        if "stream" in order[: number + 1]:
            assert sum(row.reported_nanousd or 0 for row in rows) == 98_699_250
        assert sum(row.computed_nanousd for row in rows) == 98_699_250
    assert totals(home)[:2] == (3, 41)
    assert {row.start_s for row in rows if row.requests} == {AT_S}, "the log tells the time, the stream does not"


def test_sub_agents_of_a_stream_are_those_of_the_logs(home: Path, files: Path) -> None:
    for kind in ("stream", "session", "agent"):
        write(files / f"{kind}.jsonl", (STORED / f"sub-agent-{kind}-2.1.197.jsonl").read_bytes().splitlines())
        take(home, files)
    rows = sums(home)
    assert sum(row.computed_nanousd for row in rows) == sum(row.reported_nanousd or 0 for row in rows) == 166_753_800


# reading on -----------------------------------------------------------------------------------------------------------
def test_a_file_that_grows_is_read_on(home: Path, files: Path) -> None:
    path = write(files / "a.jsonl", [request(1), request(2)])
    assert take(home, files).bytes_read == path.stat().st_size
    before = path.stat().st_size
    with open(path, "ab") as file:
        file.write(request(3) + b"\n" + request(4)[:100])
    outcome = take(home, files)
    assert (outcome.new_requests, outcome.bytes_read) == (1, len(request(3)) + 1)
    with open(path, "ab") as file:
        file.write(request(4)[100:] + b"\n")
    outcome = take(home, files)
    assert (outcome.new_requests, outcome.already_counted_requests, outcome.bytes_read) == (1, 0, len(request(4)) + 1)
    assert totals(home)[0] == 4
    with views(home) as imported_store:
        (row,) = imported_store.files()
    assert (row.read.offset_end, row.read.lines) == (path.stat().st_size, 4)
    assert row.read.offset_end > before


def test_files_that_did_not_change_are_not_opened(home: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(files / "a.jsonl", [request(1)])
    take(home, files)
    opened: list[object] = []
    monkeypatch.setattr(file_reader, "open", lambda *args, **_: opened.append(args), raising=False)
    outcome = take(home, files)
    assert (outcome.unchanged_files, outcome.files_read, opened) == (1, 0, [])


def test_a_file_that_was_replaced_is_read_anew(home: Path, files: Path) -> None:
    path = write(files / "a.jsonl", [prompt(), request(1), request(2)])
    take(home, files)
    write(path, [prompt(at="2026-03-01T13:00:00.000Z"), request(2), request(7), request(8)])
    outcome = take(home, files)
    assert (outcome.new_requests, outcome.already_counted_requests) == (2, 1)
    assert totals(home)[0] == 4
    write(path, [request(9)])
    assert take(home, files).new_requests == 1
    with views(home) as imported_store:
        (row,) = imported_store.files()
    assert (row.read.prompts, row.read.lines) == (0, 1)


@pytest.mark.slow
def test_a_file_may_be_cut_anywhere(home: Path, files: Path) -> None:
    lines = [prompt(), *(request(number) for number in range(6)), request(2, output=900)]
    data = b"".join(line + b"\n" for line in lines)
    path = files / "a.jsonl"
    path.parent.mkdir()
    for end in [*range(0, len(data), 97), len(data)]:
        path.write_bytes(data[:end])
        take(home, files)
    assert totals(home)[:2] == (6, 5 * 100 + 900)


@pytest.mark.slow
@pytest.mark.parametrize("path", REPORTED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_real_file_comes_to_what_is_known_of_it(home: Path, files: Path, path: Path) -> None:
    """To the last token and nano-dollar, as `mz transcript` says it too."""
    expected = load_yaml(path.with_suffix(".yaml").read_text("utf-8"))["expected"]
    rows = counted(home, files / path.name, path.read_bytes())
    for field in ("input", "output", "cache_read"):
        if expected["usage"][field] is not None:
            assert sum(getattr(row, field) for row in rows) == expected["usage"][field]
    if expected["computed_usd"] is not None:
        assert sum(row.computed_nanousd for row in rows) == int(Decimal(expected["computed_usd"]) * 10**9)
    if expected["reported_usd"] is not None:
        assert sum(row.reported_nanousd or 0 for row in rows) == int(Decimal(expected["reported_usd"]) * 10**9)


@pytest.mark.slow
@pytest.mark.parametrize("name", HALVED)
def test_a_real_file_in_two_halves_is_the_same_as_at_once(home: Path, files: Path, name: str) -> None:
    """What a reader remembers is kept between two imports."""
    data = (STORED.parent / name).read_bytes()
    file = Path(name).name
    quarter_sums = [replace(row, session="") for row in counted(home / "whole", files / "whole" / file, data)]
    counted(home / "parts", files / "parts" / file, data[: len(data) // 2])
    assert quarter_sums
    assert [replace(row, session="") for row in counted(home / "parts", files / "parts" / file, data)] == quarter_sums


def counted(home: Path, path: Path, data: bytes) -> tuple[QuarterSum, ...]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (1_772_000_000, 1_772_000_000))
    take(home, path)
    return tuple(row for row in sums(home) if row.requests or row.reported_nanousd)


def test_what_cannot_be_carried_is_read_from_the_beginning() -> None:
    assert encode_reader_state(ReaderState(session="s", names=(("toolu_1", "code-reviewer"),)))
    assert encode_reader_state(ReaderState(session="s", names=(("toolu_1", "a\nb"),))) == ""
    assert encode_reader_state(ReaderState(version="x" * 200)) == ""
    assert "home" not in encode_reader_state(ReaderState(cwd="/home/dev"))


# bad input ------------------------------------------------------------------------------------------------------------
def test_bad_lines_are_counted_and_passed_over(home: Path, files: Path) -> None:
    bad = [b"{nope", b"\xff\xfe\x00", b"[]" * 3, b"", b"   ", b'{"type": "novelty", "sessionId": "x"}', b"\x00" * 50]
    write(files / "a.jsonl", [request(1), *bad, request(2)])
    outcome = take(home, files)
    assert outcome.new_requests == 2
    assert outcome.undecodable_lines == 2
    with views(home) as imported_store:
        (row,) = imported_store.files()
    assert row.read.unknown == {"novelty": 1}


@pytest.mark.slow
def test_a_huge_line_is_passed_over_in_little_memory(home: Path, files: Path) -> None:
    """In another process, so that its memory is its own. (`ru_maxrss` would tell of the process that began it.)"""
    path = write(files / "a.jsonl", [request(1)])
    with open(path, "r+b") as file:
        file.seek(150_000_000)
        file.write(b"\n" + request(2) + b"\n")
    program = (
        "import re, sys\nfrom pathlib import Path\nfrom tests.support.sessionfiles import take\n"
        "found = take(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "peak = re.search(r'VmHWM:\\s*(\\d+) kB', Path('/proc/self/status').read_text())\n"
        "print(found.new_requests, found.undecodable_lines, int(peak[1]) // 1024)"
    )
    args = [sys.executable, "-c", program, str(home), str(files)]
    done = subprocess.run(args, cwd=ROOT, capture_output=True, text=True, check=True)
    new, bad, megabytes = map(int, done.stdout.split())
    assert (new, bad) == (2, 1)
    assert megabytes < 200


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(home: Path, files: Path) -> None:
    write(files / "a.jsonl", [request(1)])
    (files / "notes.json").write_text("[1, 2]")
    loop = files / "loop"
    loop.symlink_to(loop)
    outcome = take(home, files, loop, files / "notes.json")
    assert outcome.new_requests == 1
    assert [item.path for item in outcome.unreadable] == [str(loop)]
    assert [unreadable_file.path for unreadable_file in outcome.unknown_format] == [str(files / "notes.json")]
    assert take(home, files).skipped_files == 1


def test_times_that_cannot_be_are_kept_and_said(home: Path, files: Path) -> None:
    late = "2099-01-01T00:00:00.000Z"
    write(files / "a.jsonl", [request(1, at=late), request(2, at="0001-01-01T00:00:00Z"), request(3, at="soon")])
    outcome = take(home, files)
    assert (outcome.future_dated_requests, outcome.undated_requests) == (3, 2)
    assert sum(row.requests for row in sums(home)) == 3


HOSTILE = ("../../etc", "a/b", "x" * 5000, "\u202eevil", "", "a b", "é", "a\x00b", "sha256", "-rf")


@examples(12)
@given(st.lists(st.sampled_from(HOSTILE) | st.text(max_size=40), min_size=5, max_size=5), st.integers(-5, 2**70))
@pytest.mark.slow
def test_names_of_files_can_do_no_harm(tmp_path_factory: pytest.TempPathFactory, names: list[str], number: int) -> None:
    session, model, agent, version, kind = (name.encode("utf-8", "replace").decode() for name in names)
    path = tmp_path_factory.mktemp("hostile")
    line = msgspec.json.decode(request(1, session=session, model=model, agent=agent, version=version))
    line["message"]["usage"]["output_tokens"] = number if number < 2**63 else str(number)
    write(path / "f/a.jsonl", [msgspec.json.encode(line), msgspec.json.encode({"type": kind}), request(2)])
    take(path / "data", path / "f")
    with SqliteStore(path / "data" / LOG, read_only=True) as store:
        for stream, _ in store.streams():
            assert stream.count("/") == 2
            assert len(stream) < 200
            assert stream.isascii()
            assert ".." not in stream.split("/")
        for recorded in store.read_all():
            if isinstance(recorded.event, ImportedFileRead):
                assert all(name.isascii() and len(name) < 200 for name in recorded.event.unknown)


def test_no_word_of_anybody_is_kept(home: Path, files: Path) -> None:
    write(files / "a.jsonl", [prompt(), request(1)])
    take(home, files)
    payloads = b"".join(path.read_bytes() for path in home.iterdir() if path.is_file())
    assert b"words of a person" not in payloads
    assert b"/home/dev" not in payloads
    assert str(files).encode() not in payloads
    with SqliteStore(home / LOG, read_only=True) as store:
        events = [recorded.event for recorded in store.read_all()]
    blobs = FileBlobs(home / BLOBS)
    (opened,) = (event for event in events if isinstance(event, ImportedSessionFound))
    (read,) = (event for event in events if isinstance(event, ImportedFileRead))
    assert opened.project is not None
    assert blobs.get(opened.project) == b"/home/dev/app"
    assert blobs.get(read.paths) == f"{files / 'a.jsonl'}\0".encode()


def test_what_mz_drove_is_marked(home: Path, files: Path) -> None:
    write(files / "a.jsonl", [request(1, cwd="/home/dev/app/.mz/worktrees/r1/login")])
    take(home, files)
    with views(home) as imported_store:
        (session,) = imported_store.sessions()
    assert session.by_mz


# one at a time, and death ---------------------------------------------------------------------------------------------
def test_a_second_import_is_refused(home: Path, files: Path) -> None:
    write(files / "a.jsonl", [request(1)])
    home.mkdir()
    with open(home / LOCK, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Busy):
            take(home, files)
    assert take(home, files).new_requests == 1


DYING = """
import os, signal, sys
from pathlib import Path
from mz_events.adapters.sqlite_log import SqliteStore
from mz_recordings.importing import importer
from tests.support.sessionfiles import take

home, files, moment, last = sys.argv[1:]
appends, append, _ = 0, SqliteStore.append, importer.REQUESTS_PER_BATCH

def dying(*args):
    global appends
    appends += 1
    if appends == int(last) and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    appended = append(*args)
    if appends == int(last) and moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return appended

importer.REQUESTS_PER_BATCH, SqliteStore.append = 100, dying
take(Path(home), Path(files))
"""


@pytest.mark.slow
def test_an_import_that_is_killed_loses_nothing_and_counts_nothing_twice(home: Path, files: Path) -> None:
    for number in range(30):
        lines = [request(number * 50 + turn, session=f"s-{number}") for turn in range(80)]
        write(files / f"s-{number}.jsonl", lines)
    for moment, last in (("before", 1), ("after", 1), ("after", 4), ("before", 3), ("after", 2)):
        arguments = (str(home), str(files), moment, str(last))
        assert subprocess.run([sys.executable, "-c", DYING, *arguments], cwd=ROOT).returncode == -signal.SIGKILL
    take(home, files)
    assert totals(home)[0] == 30 * 50 + 30


# any order ------------------------------------------------------------------------------------------------------------
@examples(10)
@given(st.data())
@pytest.mark.slow
def test_however_it_is_cut_and_ordered_each_request_counts_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("orders")
    summary = data.draw(st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 8), st.integers(1, 900), st.sampled_from(["", "sub"])),
        min_size=1, max_size=30,
    ))  # fmt: skip
    best: dict[int, int] = {}
    for file, number, output, part in summary:
        path = folder / f"f/{file}.jsonl"
        path.parent.mkdir(exist_ok=True)
        with open(path, "ab") as target:
            target.write(request(number, session=f"s-{file}", output=output, agent=part) + b"\n")
        best[number] = max(best.get(number, 0), output)
        if data.draw(st.booleans()):
            take(folder / "data", folder / "f")
    take(folder / "data", folder / "f")
    requests, output, nanousd = totals(folder / "data")
    assert (requests, output) == (len(best), sum(best.values()))
    assert nanousd == sum(10 * 3000 + 1000 * 300 + 200 * 3750 + output * 15000 for output in best.values())


def test_the_clock_of_the_log_is_ours(home: Path, files: Path) -> None:
    write(files / "a.jsonl", [request(1)])
    take(home, files)
    with SqliteStore(home / LOG, read_only=True) as store:
        assert {recorded.recorded_at_us for recorded in store.read_all()} == {int(NOW * 1_000_000)}
    assert PRICES.table.startswith("genai-prices")
