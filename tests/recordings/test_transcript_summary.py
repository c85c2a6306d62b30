"""What is made of the things that were seen: each token once, money once, the last end."""

from __future__ import annotations

from mz_engine.agents.claude_code.stream import StreamReader
from mz_engine.agents.reading.records import (
    NOTES,
    AssistantText,
    CostReported,
    ModelRequest,
    Note,
    SessionInfo,
    StreamEnd,
    TranscriptRecord,
    UndecodableLine,
    UnknownLine,
)
from mz_engine.transcripts.summary import SummaryBuilder, TranscriptSummary, usage_totals
from mz_events.catalog.call import Usage

NOW_US = 1_780_000_000_000_000


def folded(*records: TranscriptRecord) -> TranscriptSummary:
    summary = SummaryBuilder(format=StreamReader)
    for record in records:
        summary.add(record)
    return summary.build()


def tokens(input_: int, output: int, model: str = "m", short: int = 0, hour: int = 0) -> Usage:
    return Usage(model=model, input=input_, output=output, cache_write_5m=short, cache_write_1h=hour)


def request(name: str, input_: int, output: int, model: str = "m", short: int = 0, hour: int = 0) -> ModelRequest:
    return ModelRequest(id=name, usage=tokens(input_, output, model, short, hour), at_us=NOW_US)


def end(nanousd: int | None, *usage: Usage, text: str = "done", cumulative: bool = True) -> StreamEnd:
    return StreamEnd(status="success", text=text, reported_nanousd=nanousd, usage=usage, cumulative=cumulative)


def sizes(transcript: TranscriptSummary) -> tuple[int | None, int | None]:
    sums = usage_totals(transcript)
    return sums["input"], sums["output"]


# several ends ---------------------------------------------------------------------------------------------------------
def test_results_of_one_process_count_on() -> None:
    transcript_summary = folded(
        request("a", 10, 1), end(100, tokens(10, 5)), request("b", 20, 1), end(300, tokens(30, 15), text="all done")
    )
    assert (transcript_summary.reported_nanousd, sizes(transcript_summary), transcript_summary.final_text) == (
        300,
        (30, 15),
        "all done",
    )
    assert "several-ends" in transcript_summary.notes


def test_a_second_process_is_told_by_money_that_fell() -> None:
    transcript_summary = folded(
        request("a", 10, 1), end(300, tokens(10, 5)), request("b", 20, 1), end(100, tokens(20, 5))
    )
    assert (transcript_summary.reported_nanousd, sizes(transcript_summary)) == (400, (30, 10))


def test_a_second_process_that_cost_more_is_told_by_its_requests() -> None:
    """Its sums hold no more than its own requests, so they do not hold those before."""
    transcript_summary = folded(
        request("a", 100, 1), end(100, tokens(100, 5)), request("b", 150, 1), end(300, tokens(150, 9))
    )
    assert (transcript_summary.reported_nanousd, sizes(transcript_summary)) == (400, (250, 14))


def test_calls_of_two_sessions_are_two_whatever_they_cost() -> None:
    calls = (SessionInfo(session=name) for name in ("one", "two"))
    transcript_summary = folded(*(record for call in calls for record in (call, end(100, tokens(10, 5)))))
    assert (transcript_summary.reported_nanousd, sizes(transcript_summary)) == (200, (20, 10))


def test_a_second_process_that_used_another_model_is_told_by_what_is_missing() -> None:
    transcript_summary = folded(
        request("a", 10, 1), end(100, tokens(10, 5)), request("b", 20, 1, "n"), end(300, tokens(20, 5, "n"))
    )
    assert (transcript_summary.reported_nanousd, sizes(transcript_summary), transcript_summary.models) == (
        400,
        (30, 10),
        ("m", "n"),
    )


def test_a_request_that_grew_is_taken_out_before_it_is_counted_again() -> None:
    """Else the sums would seem too small for what came before."""
    transcript_summary = folded(
        request("a", 10, 1), request("a", 10, 5), end(100, tokens(10, 5)),
        request("b", 20, 1), request("b", 20, 2), request("b", 20, 9), end(200, tokens(30, 14)),
    )  # fmt: skip
    assert (transcript_summary.reported_nanousd, sizes(transcript_summary), transcript_summary.requests) == (
        200,
        (30, 14),
        2,
    )


def test_results_without_any_request_are_each_of_a_process() -> None:
    """`--output-format json`, one after the other in a file; the same line twice is one result."""
    stream_end, two = end(100, tokens(10, 5)), end(300, tokens(30, 15), text="another")
    transcript_summary = folded(stream_end, stream_end, two)
    assert (transcript_summary.reported_nanousd, sizes(transcript_summary)) == (400, (40, 20))


def test_results_that_say_what_is_new_are_added() -> None:
    transcript_summary = folded(
        request("a", 10, 5), end(100, tokens(10, 5), cumulative=False), end(0, cumulative=False), request("b", 20, 1),
        end(50, tokens(20, 9), cumulative=False),
    )  # fmt: skip
    assert (transcript_summary.reported_nanousd, sizes(transcript_summary)) == (150, (30, 14))


def test_the_last_end_counts() -> None:
    transcript_summary = folded(end(1), StreamEnd(status="error", detail="out of luck"))
    assert (transcript_summary.status, transcript_summary.detail) == ("error", "out of luck")
    assert "error" in transcript_summary.notes


def test_requests_after_the_last_end_count_too() -> None:
    transcript_summary = folded(request("a", 10, 5), end(100, tokens(10, 5)), request("b", 20, 7))
    assert sizes(transcript_summary) == (30, 12)


def turn(nanousd: int, total: Usage, of_turn: Usage | None) -> StreamEnd:
    return StreamEnd(status="success", reported_nanousd=nanousd, usage=(total,), turn_usage=of_turn)


def test_a_second_process_without_messages_is_told_by_its_turn() -> None:
    """`--output-format json` after a stream: its totals are no more than its own turn's."""
    first = (request("a", 100, 1), end(100, tokens(100, 5)))
    second = turn(300, tokens(150, 9), tokens(150, 9))
    assert sizes(folded(*first, second)) == (250, 14)
    assert folded(*first, second).reported_nanousd == 400


def test_a_turn_without_messages_of_the_same_process_is_in_its_totals() -> None:
    first = (request("a", 100, 1), end(100, tokens(100, 5)))
    assert sizes(folded(*first, turn(300, tokens(250, 14), tokens(150, 9)))) == (250, 14)
    assert sizes(folded(*first, turn(100, tokens(100, 5), None))) == (100, 5)


# requests and sums ----------------------------------------------------------------------------------------------------
def test_stubs_are_filled_up_by_the_sums() -> None:
    transcript_summary = folded(request("a", 10, 1), request("b", 20, 1), end(100, tokens(30, 50)))
    assert (sizes(transcript_summary), transcript_summary.requests) == ((30, 50), 2)
    assert "stub-output" in transcript_summary.notes
    assert "hidden-requests" not in transcript_summary.notes


def test_requests_that_no_line_shows_are_in_the_sums() -> None:
    transcript_summary = folded(request("a", 10, 5), end(100, tokens(40, 9), tokens(3, 1, "small")))
    assert (sizes(transcript_summary), transcript_summary.models) == ((43, 10), ("m", "small"))
    assert {"hidden-requests", "per-call"} <= set(transcript_summary.notes)


def test_sums_that_hold_less_give_way() -> None:
    transcript_summary = folded(request("a", 10, 5), end(100, tokens(4, 1)))
    assert sizes(transcript_summary) == (10, 5)
    assert "result-short" in transcript_summary.notes


def test_lifetimes_that_the_sums_do_not_tell_are_those_of_the_requests() -> None:
    transcript_summary = folded(request("a", 100, 1, short=10, hour=40), end(100, tokens(100, 9, short=50)))
    sums = usage_totals(transcript_summary)
    assert (sums["cache_write_5m"], sums["cache_write_1h"], sums["output"]) == (10, 40, 9)
    assert "result-short" not in transcript_summary.notes


def test_a_sum_without_messages_says_how_many_requests_it_is_made_of() -> None:
    """Else half a million tokens would be priced as one long request."""
    sums = Usage(model="m", input=500_000, output=900, requests=20)
    (entry,) = folded(end(1, sums)).usages
    assert entry.usage.requests == 20
    assert [usage_at_time.usage.requests for usage_at_time in folded(request("a", 5, 1), end(1, sums)).usages] == [
        None,
        None,
    ]


def test_a_killed_call_is_not_free() -> None:
    transcript_summary = folded(request("a", 10, 5), end(0))
    assert (transcript_summary.reported_nanousd, sizes(transcript_summary)) == (None, (10, 5))
    assert folded(end(0)).reported_nanousd == 0


def test_the_count_of_a_session_includes_what_no_line_shows() -> None:
    transcript_summary = folded(request("a", 10, 5), CostReported(reported_nanousd=7, usage=(tokens(30, 9),)))
    assert (transcript_summary.reported_nanousd, sizes(transcript_summary), transcript_summary.status) == (
        7,
        (30, 9),
        "no-terminal",
    )


def test_money_of_requests_is_a_sum_only_where_each_tells_it() -> None:
    model_request = ModelRequest(id="a", usage=tokens(1, 1), reported_nanousd=5)
    assert folded(model_request).reported_nanousd == 5
    assert folded(model_request, request("b", 1, 1)).reported_nanousd is None


def test_a_message_that_the_main_conversation_has_too_is_not_the_sub_agents() -> None:
    shown = ModelRequest(id="a", usage=Usage(model="m", input=1, output=1, subagent="x"))
    transcript_summary = folded(shown, request("a", 1, 1))
    assert [entry.usage.subagent for entry in transcript_summary.usages] == [""]


def test_a_time_that_cannot_be_is_no_time() -> None:
    """Half of the clocks that are wrong say 1970."""
    wild = [ModelRequest(id=str(at), usage=tokens(1, 1), at_us=at) for at in (0, -(10**15), 253_402_387_140_000_000)]
    assert [entry.at_us for entry in folded(*wild).usages] == [None, None, None]
    assert "no-times" in folded(*wild).notes
    model_request = ModelRequest(id="k", usage=tokens(1, 1), at_us=1_780_000_000_000_000)
    assert {entry.at_us for entry in folded(*wild, model_request).usages} == {model_request.at_us}


# the rest -------------------------------------------------------------------------------------------------------------
def test_words_go_on_until_others_begin() -> None:
    transcript_summary = folded(
        AssistantText(text="one"), AssistantText(text="two"), AssistantText(text=" three", continues=True)
    )
    assert transcript_summary.final_text == "two three"


def test_unknown_lines_are_counted_by_type_up_to_a_bound() -> None:
    transcript_summary = folded(
        *(UnknownLine(type=f"t{number}") for number in range(30)), UnknownLine(type="t1"), UndecodableLine(reason="x")
    )
    assert len(transcript_summary.unknown_lines) == 21
    assert (
        transcript_summary.unknown_lines["t1"],
        transcript_summary.unknown_lines["others"],
        transcript_summary.undecodable_lines,
    ) == (2, 10, 1)


def test_notes_come_in_the_order_of_their_table() -> None:
    transcript_summary = folded(
        Note(code="utf-16"), Note(code="half-line"), SessionInfo(session="s"), SessionInfo(session="t")
    )
    codes = list(NOTES)
    assert [codes.index(note) for note in transcript_summary.notes] == sorted(
        codes.index(note) for note in transcript_summary.notes
    )
    assert "several-sessions" in transcript_summary.notes


def test_nothing_is_known_of_nothing() -> None:
    transcript_summary = folded()
    assert (
        transcript_summary.version,
        transcript_summary.session,
        transcript_summary.final_text,
        transcript_summary.reported_nanousd,
    ) == (None, None, None, None)
    assert set(usage_totals(transcript_summary).values()) == {None}
