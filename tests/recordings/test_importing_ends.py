"""What files tell at their ends counts once, whoever else tells of the same calls; and no file can spoil a log."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import combinations, permutations
from pathlib import Path

import msgspec
import pytest
from mz_engine.agents.claude_code.stream import OPEN_MESSAGES_MAX
from mz_engine.transcripts.summary import UNTIL_US
from mz_events.catalog.base import Event
from mz_events.store import Recorded
from mz_projections.imported.store import ImportedStore
from mz_recordings.importing import importer
from mz_recordings.importing.file_reader import TOKENS_MAX
from mz_recordings.importing.importer import ImportProgress

from tests.support.sessionfiles import MODEL, NOW, PRICES, SESSION, request, sums, take, totals, write
from tests.support.tree import ROOT

STORED = ROOT / "tests/cases/transcripts/claude-code"
TOLD_RESUMED = 60_698_100
"""Nano-dollars that the resumed session told at its end."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "files"


def result(number: int, usd: float) -> dict[str, object]:
    """What `claude -p --output-format json` prints."""
    used = {"inputTokens": 100 * number, "outputTokens": 5, "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0}
    return {
        "type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "x", "uuid": f"u{number}",
        "session_id": SESSION, "total_cost_usd": usd, "usage": {"input_tokens": 100 * number, "output_tokens": 5},
        "modelUsage": {MODEL: used},
    }  # fmt: skip


def answer(number: int, tokens: int) -> dict[str, object]:
    """A line of `--output-format stream-json`."""
    message = {"id": f"msg_{number:024d}", "role": "assistant", "model": MODEL, "content": [],
               "usage": {"input_tokens": tokens, "output_tokens": 1}}  # fmt: skip
    return {"type": "assistant", "session_id": SESSION, "message": message}


def record(usd: float, number: int) -> str:
    """What Mage wrote down of such a call."""
    return (
        f"caller: stitch\ntask_id: {number}\nstatus: success\nstarted_at: 2026-03-01T12:00:00Z\n"
        f"tokens:\n  input: 100\n  output: 5\ncost_usd: {usd}\nsession_id: {SESSION}\n"
    )


def test_lines_may_end_with_a_carriage_return_alone(home: Path, files: Path) -> None:
    files.mkdir()
    half = request(3)[:-20]
    (files / "old.jsonl").write_bytes(b"\r".join([request(1), request(2), half]))
    assert take(home, files).new_requests == 0, "its end is not written yet"
    (files / "old.jsonl").write_bytes(b"\r".join([request(1), request(2), request(3)]))
    assert take(home, files).new_requests == 3


def test_a_bad_line_between_carriage_returns_spoils_no_other(home: Path, files: Path) -> None:
    files.mkdir()
    (files / "old.jsonl").write_bytes(b"\r".join([request(1), b"{bad}", request(2)]))
    import_outcome = take(home, files)
    assert (import_outcome.new_requests, import_outcome.undecodable_lines) == (2, 1)
    assert totals(home)[0] == 2


@pytest.mark.parametrize(("hundreds", "short"), [((), 1), ((13,), 1), ((13, 12), 0), ((25,), 0)])
def test_outputs_that_a_log_leaves_open_are_missing_unless_sums_tell_them_all(
    home: Path, files: Path, hundreds: tuple[int, ...], short: int
) -> None:
    """Both requests have 2,420 tokens of input; a stream of one call need not be all of the session."""
    write(files / f"{SESSION}.jsonl", [request(1, ended=False), request(2)])
    for number in hundreds:
        write(files / f"stream-{number}.jsonl", [msgspec.json.encode(result(number, number / 100))])
    assert take(home, files).incomplete_sessions == short
    again = take(home, write(files / "more.jsonl", [request(3, at="2026-03-01T12:30:00.000Z")]))
    assert again.incomplete_sessions == 1, "one request more than the sums have"


def test_a_log_that_goes_on_behind_its_sums_is_open_again(home: Path, files: Path) -> None:
    used = {"inputTokens": 10, "outputTokens": 500, "cacheReadInputTokens": 1000, "cacheCreationInputTokens": 200}
    state = {"type": "cost-state", "sessionId": SESSION, "totalCostUSD": 0.25, "modelUsage": {MODEL: used}}
    lines = [request(1, ended=False, output=1), msgspec.json.encode(state)]
    log = write(files / f"{SESSION}.jsonl", lines)
    assert take(home, files).incomplete_sessions == 0
    write(log, [*lines, request(2, ended=False, output=1)])
    assert take(home, files).incomplete_sessions == 1


@pytest.mark.parametrize("written", [1, 2, 3, 4, 5])
def test_answers_of_sub_agents_that_end_among_one_another_are_whole(home: Path, files: Path, written: int) -> None:
    """Wherever an import comes between; until then what has begun is said to be open."""
    lines = [request(1, ended=False, agent="a"), request(2, ended=False, agent="b"), request(1, agent="a"),
             request(2, agent="b"), request(3)]  # fmt: skip
    log = write(files / f"{SESSION}.jsonl", lines[:written])
    assert take(home, files).incomplete_sessions == (written < 4)
    if written < 5:
        write(log, lines)
        assert take(home, files).incomplete_sessions == 0


def test_an_answer_that_goes_on_is_open_until_its_end_is_imported(home: Path, files: Path) -> None:
    log = write(files / f"{SESSION}.jsonl", [request(1, ended=False)])
    write(files / "copy.jsonl", [request(1, ended=False)])
    assert take(home, files).incomplete_sessions == 1
    write(log, [request(1, ended=False), request(1), request(2)])
    assert take(home, log).incomplete_sessions == 0, "the log that goes further says more than its copy"


def test_of_very_many_open_answers_some_stay_so(home: Path, files: Path) -> None:
    """Their names are not kept, so nobody can know that they ended."""
    most = 2 * OPEN_MESSAGES_MAX
    lines = [request(at, ended=False) for at in range(most)]
    write(files / f"{SESSION}.jsonl", [*lines, *map(request, range(OPEN_MESSAGES_MAX))])
    assert take(home, files).incomplete_sessions == 1


@pytest.mark.parametrize(("name", "short"), [("works-stream-1.0.60", 0), ("sub-agent-stream-1.0.60", 1)])
def test_streams_without_sums_by_model_may_lack_tokens_where_sub_agents_worked(
    home: Path, name: str, short: int
) -> None:
    assert take(home, STORED / f"{name}.jsonl").incomplete_sessions == short


def test_what_a_file_lacks_is_known_however_it_is_read(home: Path, files: Path) -> None:
    """It is told once, in a stretch that is not the last; and is void where the file is another."""
    log = write(files / f"{SESSION}.jsonl", [request(1, ended=False), request(2)])
    assert take(home, files).incomplete_sessions == 1
    write(log, [request(1, ended=False), request(2), request(3)])
    assert take(home, files).incomplete_sessions == 1
    write(log, [request(4), request(5)])
    assert take(home, files).incomplete_sessions == 0


def test_logs_that_leave_out_requests_lack_tokens(home: Path) -> None:
    documents = sorted((ROOT / "tests/cases/transcripts/gemini").glob("*session-0.6*.json"))
    assert take(home, *documents).incomplete_sessions == len(documents) > 0


def money(home: Path) -> int:
    return sum(row.reported_nanousd or 0 for row in sums(home))


# calls and sessions ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "order", [order for number in (2, 3) for order in permutations(("one", "two", "log"), number)], ids="-".join
)
def test_a_log_with_sums_of_its_own_and_the_streams_of_its_calls_are_the_same_money(
    home: Path, files: Path, order: tuple[str, ...]
) -> None:
    """A session that was resumed: two calls with a stream each, and a log that tells what both came to."""
    lines = (STORED / "resumed-stream-2.1.329.jsonl").read_bytes().splitlines()
    end = next(number for number, line in enumerate(lines) if b'"type":"result"' in line) + 1
    summary = {"one": lines[:end], "two": lines[end:],
            "log": (STORED / "resumed-session-2.1.329.jsonl").read_bytes().splitlines()}  # fmt: skip
    for name in order:
        take(home, write(files / f"{name}.jsonl", summary[name]))
    rows = sums(home)
    assert sum(row.computed_nanousd for row in rows) == money(home) == TOLD_RESUMED
    assert (sum(row.input for row in rows), sum(row.output for row in rows)) == (29_867, 5)


@pytest.mark.parametrize("indent", [None, 2], ids=["one-line", "spread"])
@pytest.mark.parametrize("more", [{}, {"uuid": None}], ids=["id", "no-id"])
def test_calls_of_one_session_are_told_apart_by_what_they_say(
    home: Path, files: Path, indent: int | None, more: dict[str, object]
) -> None:
    """Neither the bracket that all documents begin with nor the same money makes two calls one."""
    files.mkdir()
    for number in (1, 2, 3):
        (files / f"{number}.json").write_text(json.dumps(result(number, 0.01) | more, indent=indent))
    (files / "copy.json").write_text(json.dumps(result(3, 0.01) | more, indent=indent))
    take(home, files)
    assert (sum(row.input for row in sums(home)), money(home)) == (600, 30_000_000)


@pytest.mark.parametrize("uuid", [True, False])
@pytest.mark.parametrize("order", list(permutations(("both", "one", "two"))), ids="-".join)
def test_a_call_counts_once_however_its_result_is_written_anew(
    home: Path, files: Path, uuid: bool, order: tuple[str, ...]
) -> None:
    """A log with two calls of one session; the result of each with other white space, the first within its stream."""
    results = [{**result(number, number / 100), "duration_ms": number} for number in (2, 1)]
    both = [answer(2, 200), results[0], answer(1, 100), results[1]]
    for document in results if not uuid else ():
        del document["uuid"]
    contents = {
        "both": "".join(f"{json.dumps(document)}\n" for document in both),
        "one": json.dumps(both[:2], indent=2),
        "two": json.dumps(results[1], indent=2, sort_keys=True),
    }
    files.mkdir()
    for name in order:
        (files / f"{name}.json").write_text(contents[name])
        take(home, files)
    assert (sum(row.input for row in sums(home)), money(home)) == (300, 30_000_000)


@pytest.mark.parametrize("uuid", [True, False])
@pytest.mark.parametrize("order", list(permutations(("ab", "bc", "c"))), ids="-".join)
def test_a_call_counts_once_in_lists_that_overlap(home: Path, files: Path, uuid: bool, order: tuple[str, ...]) -> None:
    """Each list has a call that another one has too, and one of its own."""
    results = {name: {**result(number, number / 100), "duration_ms": number} for number, name in enumerate("abc", 1)}
    for document in results.values() if not uuid else ():
        del document["uuid"]
    files.mkdir()
    for name in order:
        (files / f"{name}.jsonl").write_text("".join(f"{json.dumps(results[call])}\n" for call in name))
        take(home, files)
    assert (sum(row.input for row in sums(home)), money(home)) == (600, 60_000_000)
    assert take(home, files).corrected_requests == 0


@pytest.mark.parametrize("order", list(permutations(("both", "one", "two"))), ids="-".join)
def test_calls_of_several_sessions_in_one_file_count_for_each(home: Path, files: Path, order: tuple[str, ...]) -> None:
    """As `claude -p ... >> calls.jsonl` leaves them; and each session has a log of its own."""
    contents = {
        "one": (STORED / "works-session-2.1.197.jsonl").read_bytes(),
        "two": another((STORED / "works-session-2.1.329.jsonl").read_bytes()),
    }
    streams = (STORED / "works-stream-2.1.197.jsonl", STORED / "works-stream-2.1.329.jsonl")
    contents["both"] = streams[0].read_bytes() + another(streams[1].read_bytes())
    for name in order:
        take(home, write(files / f"{name}.jsonl", contents[name].splitlines()))
    by_session: dict[str, int] = {}
    for row in sums(home):
        by_session[row.session] = by_session.get(row.session, 0) + row.computed_nanousd
    assert sorted(by_session.values()) == [66_402_150, 98_699_250]
    assert money(home) == 66_402_150 + 98_699_250


@pytest.mark.parametrize(
    "order",
    [order for names in combinations(("stream", "total", "session"), 2) for order in permutations(names)],
    ids="-".join,
)
def test_a_model_that_answers_by_another_name_counts_once(home: Path, files: Path, order: tuple[str, ...]) -> None:
    """Asked for `claude-sonnet-4-5`; the lines have the dated name, and every total the other."""
    contents = {name: (STORED / f"works-{name}-2.1.330.jsonl").read_bytes() for name in ("stream", "session")}
    contents["total"] = contents["stream"].splitlines()[-1]
    for name in order:
        take(home, write(files / f"{name}.jsonl", contents[name].splitlines()))
    rows = [row for row in sums(home) if row.output]
    assert {row.model for row in rows} == {"claude-sonnet-4-5-20250929"}
    assert (sum(row.input for row in rows), sum(row.output for row in rows)) == (45_069, 41)
    assert sum(row.computed_nanousd for row in rows) == money(home) == 66_400_350


@pytest.mark.parametrize("order", list(permutations(("stream", "session"))), ids="-".join)
@pytest.mark.parametrize(
    ("name", "requests", "tokens"), [("works", 3, (7903, 67, 5128)), ("sub-agent", 4, (8507, 56, 5100))]
)
def test_the_stream_and_the_log_of_a_qwen_are_the_same_requests(
    home: Path, files: Path, name: str, requests: int, tokens: tuple[int, ...], order: tuple[str, ...]
) -> None:
    """No id is in both; the stream shows several messages of a request, and none with a subagent's tokens."""
    for kind in order:
        content = (STORED.parent / f"qwen/{name}-{kind}-0.24.4.jsonl").read_bytes()
        take(home, write(files / f"{kind}.jsonl", content.splitlines()))
    rows = sums(home)
    assert tuple(sum(getattr(row, field) for row in rows) for field in ("input", "output", "cache_read")) == tokens
    assert sum(row.requests for row in rows) == requests


def another(data: bytes) -> bytes:
    """The same calls, of another session."""
    session = data.replace(b"11111111-2222-4333-8444-555555555555", b"99999999-2222-4333-8444-555555555555")
    return session.replace(b"msg_0", b"msg_9").replace(b'"uuid":"', b'"uuid":"9')


@pytest.mark.slow
def test_a_stream_comes_to_the_same_however_often_it_is_read_while_it_grows(home: Path, files: Path) -> None:
    """Two processes: the second one's last end includes the one before it, but nothing of the first process."""
    summary = (answer(1, 300), result(3, 0.1), answer(2, 100), result(1, 0.05), answer(3, 100), result(2, 0.08))
    path = write(files / "a.jsonl", [])
    for number in range(1, len(summary) + 1):
        write(path, [json.dumps(document).encode() for document in summary[:number]])
        take(home, path)
        observed = sum(row.input for row in sums(home)), money(home)
    assert observed == (500, 180_000_000)


def test_a_last_line_that_is_whole_needs_no_end(home: Path, files: Path) -> None:
    """Programs print one document without a line end; a log may be cut just there."""
    line = request(1)
    path = write(files / "a.jsonl", [])
    path.write_bytes(line)
    assert take(home, path).new_requests == 1
    path.write_bytes(line + b"\n" + request(2)[:-1])
    assert take(home, path).new_requests == 0
    path.write_bytes(line + b"\n" + request(2) + b"\n")
    assert take(home, path).lines == 1
    assert totals(home)[0] == 2


def test_words_before_a_stream_do_not_make_two_calls_one(home: Path, files: Path) -> None:
    files.mkdir()
    for number in (1, 2):
        (files / f"{number}.jsonl").write_text(f"Loaded cached credentials.\n{json.dumps(result(number, 0.01))}\n")
    take(home, files)
    assert sum(row.input for row in sums(home)) == 300


@pytest.mark.parametrize("records_first", [True, False])
def test_a_record_counts_where_the_call_has_no_file_of_its_own(home: Path, files: Path, records_first: bool) -> None:
    """Three calls at the same money, of which one left its own file: two records more."""
    files.mkdir()
    for number in (1, 2, 3):
        (files / f"{number}.yaml").write_text(record(0.01, number))
    call = files.parent / "call.json"
    call.write_text(json.dumps(result(1, 0.01)))
    for path in (files, call) if records_first else (call, files):
        take(home, path)
    for _ in range(2):
        assert (sum(row.input for row in sums(home)), money(home)) == (300, 30_000_000)
        assert take(home, path).corrected_requests == 0, "nothing is new"


# death in the middle of a file ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("suffix", ["jsonl", "utf-16"])
@pytest.mark.slow
def test_an_import_that_dies_in_the_middle_of_a_file_goes_on_with_it(
    home: Path, files: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file itself is the same as when its first requests were counted."""
    monkeypatch.setattr(importer, "REQUESTS_PER_BATCH", 1000)
    path = write(files / f"a.{suffix}", [request(number) for number in range(2500)])
    if suffix == "utf-16":
        path.write_text(path.read_text(), "utf-16")

    class Killed(ImportedStore):
        """Dies behind the first append."""

        refreshed = 0

        def refresh(self, appended: Sequence[Recorded[Event]] = ()) -> None:
            self.refreshed += 1
            if self.refreshed > 1:
                raise KeyboardInterrupt
            super().refresh(appended)

    with monkeypatch.context() as patch:
        patch.setattr(importer, "ImportedStore", Killed)
        with pytest.raises(KeyboardInterrupt):
            take(home, path)
    assert 1000 <= totals(home)[0] < 2500
    take(home, path)
    assert totals(home)[0] == 2500
    import_progresses: list[ImportProgress] = []
    again = importer.import_files(
        home, PRICES.price_entry, PRICES.table, [path], import_progresses.append, now=lambda: NOW
    )
    assert (again.unchanged_files, import_progresses) == (1, [])


# numbers that cannot be -----------------------------------------------------------------------------------------------
def test_numbers_that_cannot_be_do_not_spoil_the_log(home: Path, files: Path) -> None:
    """Neither those of a file nor those that a price makes of them."""
    line = msgspec.json.decode(request(1))
    line["message"]["usage"] = {"input_tokens": 10**12, "output_tokens": 10**12}
    first = write(files / "a.jsonl", [msgspec.json.encode(line)])
    for path in (first, *(write(files / f"{number}.jsonl", [request(number)]) for number in (2, 3, 4))):
        importer.import_files(home, lambda *_: 1 << 70, "dear", [path], now=lambda: NOW)
    (row,) = sums(home)
    assert (row.requests, row.output) == (4, TOKENS_MAX + 300)
    assert isinstance(row.computed_nanousd, int)
    assert row.computed_nanousd > 1 << 62


@pytest.mark.parametrize("modified_s", [-(10**10), 10**11])
def test_a_file_of_an_impossible_time_is_counted_at_one_that_can_be(home: Path, files: Path, modified_s: int) -> None:
    path = write(files / "a.jsonl", [request(1, at="never")])
    os.utime(path, (modified_s, modified_s))
    assert take(home, files).undated_requests == 1
    (row,) = sums(home)
    assert 0 <= row.start_s < UNTIL_US // 1_000_000


def test_words_in_place_of_names_are_not_kept(home: Path, files: Path) -> None:
    """Tools, sub-agents and types of lines that read like a sentence become digests."""
    line = msgspec.json.decode(request(1, agent="the secret helper"))
    line["message"]["content"][0]["name"] = "Tell nobody the secret word"
    odd = {"type": "my secret plan", "sessionId": SESSION}
    write(files / "a.jsonl", [msgspec.json.encode(line), msgspec.json.encode(odd)])
    assert take(home, files).new_requests == 1
    assert not any(b"secret" in path.read_bytes() for path in home.rglob("*") if path.is_file())
