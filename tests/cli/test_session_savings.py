"""What sessions saved: counted by feature, summed, and compared with a run of the same work."""

from __future__ import annotations

from mz_cli.cost.sessions import SessionCost, measured_figures, session_cost, session_sums
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentRequested,
    CallRef,
    CallSettled,
    ReplyParsed,
    SessionDropped,
    SessionDropReason,
    Usage,
)
from mz_events.names import FeatureId, StreamId
from mz_events.store import Recorded

from tests.support.steps import BASE, DIGEST, recorded


def key(attempt: int) -> str:
    return f"r1/a/plan/-/1/{attempt}/agent.builder"


def ref(attempt: int) -> CallRef:
    return CallRef(key=key(attempt), phase="plan", unit="", iteration=1, attempt=attempt, role="builder")


def requested(attempt: int, sent: int | None = None, count: int | None = None) -> AgentRequested:
    return AgentRequested(
        ref=ref(attempt), agent="x", model="m", prompt=DIGEST, template="t", full_prompt=sent is None, session="s",
        resumes=sent is not None, tree=BASE, estimated_tokens=1, estimated_nanousd=1, keeps_session=True,
        prompt_tokens=sent, full_prompt_tokens=count,
    )  # fmt: skip


def read(attempt: int, *usage: Usage) -> ReplyParsed:
    return ReplyParsed(ref=ref(attempt), parser="p", ending="success", session="s", text=DIGEST, usage=usage)


def settled(attempt: int, nanousd: int) -> CallSettled:
    return CallSettled(feature=FeatureId("a"), key=key(attempt), nanousd=nanousd)


USAGE = Usage(model="m", input=100, output=10, cache_read=70, cache_write_5m=20, cache_write_1h=5)


def folded(*events: Event, stream: str = "run/r1/a") -> SessionCost:
    return session_cost("r1", recorded(*events, stream=stream), frozenset())


def test_calls_of_a_feature_are_counted() -> None:
    ended = SessionDropped(key=key(4), session="s", reason=SessionDropReason.FAILED)
    item = folded(
        requested(1), read(1, USAGE), settled(1, 5), requested(2, 30, 100), read(2, USAGE), settled(2, 7),
        requested(3, 10, 50), ended, requested(4),
    )  # fmt: skip
    sums = session_sums(item, "a")
    assert (sums.name, sums.calls, sums.continued_calls, sums.sessions) == ("a", 4, 2, 2)
    assert sums.dropped == {"failed": 1}
    assert (sums.sent_tokens, sums.full_prompt_tokens, sums.saved) == (40, 150, 0.7333)
    assert {figure.figure: figure.run for figure in measured_figures(item.calls, item.calls)} == {
        "input": "200", "new-input": "60", "cache-reads": "140", "output": "20", "usd": "0.000000012", "calls": "4",
    }  # fmt: skip


def test_a_newer_reading_takes_the_place_of_the_older_one() -> None:
    item = folded(requested(1), read(1), read(1, USAGE))
    assert item.calls[0].input_tokens == 100


def test_what_stands_in_the_stream_of_the_run_too_counts_once() -> None:
    mine = recorded(requested(1), settled(1, 5))
    runs = recorded(settled(1, 5), stream="run/r1")
    (call,) = session_cost("r1", (*mine, *runs), frozenset()).calls
    assert call.charged_nanousd == 5


def test_copies_of_another_run_are_paid_there() -> None:
    copies = [replaced(item) for item in recorded(requested(1), settled(1, 5))]
    assert session_cost("r2", copies, frozenset()).calls == ()


def replaced(item: Recorded[Event]) -> Recorded[Event]:
    from msgspec.structs import replace

    return replace(item, stream=StreamId("run/r2/a"), causation=f"run/r1/a@{item.version}")


def test_features_add_up() -> None:
    dropped = SessionDropped(key=key(1), session="s", reason=SessionDropReason.FAILED)
    events = (
        *recorded(requested(1), requested(2, 5, 9), read(2, USAGE)),
        *recorded(dropped, requested(1), stream="run/r1/b"),
    )
    both = session_sums(session_cost("r1", events, frozenset()), None)
    assert (both.name, both.calls, both.continued_calls, both.sessions) == (None, 3, 1, 2)
    assert (both.sent_tokens, both.dropped) == (5, {"failed": 1})


def test_savings_are_shares_of_what_was_before() -> None:
    mine = folded(requested(1), read(1, Usage(model="m", input=80, output=0, cache_read=40)), settled(1, 9))
    baseline = folded(requested(1), read(1, Usage(model="m", input=100, output=0, cache_read=20)), settled(1, 10))
    assert {figure.figure: figure.saved for figure in measured_figures(mine.calls, baseline.calls)} == {
        "input": 0.2, "new-input": 0.5, "cache-reads": -1.0, "output": None, "usd": 0.1, "calls": 0.0,
    }  # fmt: skip
