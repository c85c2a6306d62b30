"""Logs of several runs, made at random: a few names, so that events meet each other; most of them legal."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    CallPriced,
    CallRef,
    CallSettled,
    ReplyParsed,
    Usage,
)
from mz_events.catalog.feature import (
    FeatureDelivered,
    FeatureStarted,
    HumanAnswered,
    HumanRequested,
    PhaseStarted,
    RolledBack,
    UnitStarted,
)
from mz_events.catalog.run import (
    AnswerAccepted,
    FeatureAdmitted,
    FeatureOutcome,
    FeatureStopped,
    ItemAdded,
    ItemSkipped,
    RunFinished,
    RunHalted,
    RunIdle,
    RunResumed,
    RunStarted,
    RunStopRequested,
)
from mz_events.catalog.validation import GateChecked
from mz_events.names import Digest, FeatureId, StreamId, feature_stream, run_stream

from tests.support.samples import sample

RUNS = ("r1", "r2")
FEATURES = ("a", "b", "c")

digests = st.sampled_from([Digest("0" * 64), Digest("1" * 64)])
amounts = st.none() | st.integers(0, 10**12)
usages = st.lists(st.builds(
    Usage, model=st.just("m"), input=st.integers(0, 10**6), output=st.integers(0, 10**6),
    cache_read=st.integers(0, 9), cache_write_5m=st.integers(0, 9), cache_write_1h=st.integers(0, 9),
), max_size=2).map(tuple)  # fmt: skip


@st.composite
def run_events(draw: st.DrawFn) -> Event:
    """An event of a run's own stream."""
    feature = FeatureId(draw(st.sampled_from(FEATURES)))
    kinds: list[Callable[[], Event]] = [
        lambda: replace(sample(RunStarted), pipeline=draw(st.sampled_from(["one", "two"]))),
        lambda: replace(sample(ItemAdded), feature=feature, source=f"f.md#{feature}", body=draw(digests)),
        lambda: replace(sample(ItemSkipped), feature=feature),
        lambda: replace(sample(FeatureAdmitted), feature=feature),
        lambda: replace(sample(FeatureStopped), feature=feature, status=draw(st.sampled_from(FeatureOutcome))),
        lambda: replace(sample(AnswerAccepted), feature=feature),
        lambda: CallSettled(feature=feature, key=f"r1/{feature}/1", nanousd=draw(st.integers(0, 99))),
    ]
    return draw_one(draw, kinds, (RunResumed, RunHalted, RunStopRequested, RunIdle, RunFinished))


@st.composite
def feature_events(draw: st.DrawFn, run: str, feature: str) -> Event:
    """An event of a feature's stream."""
    attempt = draw(st.integers(1, 3))
    ref = replace(sample(CallRef), key=f"{run}/{feature}/{attempt}", attempt=attempt)
    kinds: list[Callable[[], Event]] = [
        lambda: replace(sample(AgentRequested), ref=ref, estimated_nanousd=draw(amounts)),
        lambda: replace(sample(AgentReplied), ref=ref),
        lambda: replace(sample(AgentFailed), ref=ref),
        lambda: replace(sample(AgentLost), ref=ref),
        lambda: replace(sample(ReplyParsed), ref=ref, usage=draw(usages), reported_nanousd=draw(amounts)),
        lambda: CallPriced(key=ref.key, computed_nanousd=draw(amounts)),
        lambda: CallSettled(feature=FeatureId(feature), key=ref.key, nanousd=draw(st.integers(0, 99))),
        lambda: replace(sample(GateChecked), passed=False),
        lambda: RolledBack(source="phase", to="phase", units=draw(st.sampled_from([(), ("unit",)]))),
    ]
    return draw_one(
        draw, kinds, (FeatureStarted, UnitStarted, FeatureDelivered, HumanRequested, HumanAnswered, PhaseStarted)
    )


def draw_one(draw: st.DrawFn, kinds: list[Callable[[], Event]], plain: tuple[type[Event], ...]) -> Event:
    """One of the kinds, with what it alone needs, or a sample of a plain one."""
    number = draw(st.integers(0, len(kinds) + len(plain) - 1))
    return kinds[number]() if number < len(kinds) else sample(plain[number - len(kinds)])


@st.composite
def entries(draw: st.DrawFn) -> tuple[StreamId, Event]:
    run = draw(st.sampled_from(RUNS))
    if draw(st.booleans()):
        return run_stream(run), draw(run_events())
    feature = draw(st.sampled_from(FEATURES))
    return feature_stream(run, feature), draw(feature_events(run, feature))


logs = st.lists(entries(), max_size=40)
"""Streams and events in the order of the log."""
