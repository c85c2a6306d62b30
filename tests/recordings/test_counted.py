"""What agents counted beforehand: a replay takes it from the story and asks nobody; new calls are counted anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.agents.contract import Invocation
from mz_engine.agents.registry import built_in_adapters
from mz_engine.ports import CallResult, CallSpec, FeatureWorktree
from mz_recordings.cassette.files import CassetteUnreadable, digest, load, save
from mz_recordings.cassette.model import Cassette, RecordedCall
from mz_recordings.cassette.trace import counted_tokens
from mz_recordings.replay.agents import ReplayAgents, recorded_argv
from mz_recordings.rerecord.driver import CachedAgents, HybridAgents

from tests.support.tree import ROOT

LIBRARY = ROOT / "recordings" / "library"
ADAPTER = built_in_adapters()["anthropic"]
ANEW = 77


class CountRequests:
    """Processes of which only questions are asked, and those are counted."""

    def __init__(self) -> None:
        self.questions: list[str] = []

    def spawn(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        raise AssertionError(spec.key)

    def query(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        self.questions.append(spec.key)
        data = b'{"type": "count", "input_tokens": %d}\n' % ANEW
        return CallResult(stdout=data, stderr=b"", exit=0, duration_ms=1)

    def salvage(self, key: str) -> CallResult | None:
        raise AssertionError(key)


@pytest.fixture(scope="module")
def cassette() -> Cassette:
    return load(LIBRARY / "monozukuri-anthropic")


def called(cassette: Cassette, **more: object) -> CallSpec:
    """The first call of a feature, as it was made, in a run of today."""
    call = first(cassette)
    prompt = call.contents[f"{call.recording.identity.name}.prompt.md"].decode()
    spec = CallSpec(
        key="r9/group-thousands/prd/-/1/1/agent.builder",
        worktree=FeatureWorktree(run="r9", feature="group-thousands", branch="feat/group-thousands"),
        agent="anthropic", model=call.recording.model, prompt=prompt, session="s-9", resumes=False,
        tools=("read", "write"), total_seconds=9, idle_seconds=9,
    )  # fmt: skip
    assert recorded_argv(spec, ADAPTER) == call.recording.argv
    return replace(spec, **more)


def first(cassette: Cassette) -> RecordedCall:
    generator = (call for call in cassette.calls if call.recording.identity.feature == "group-thousands")
    return next(item for item in generator if item.recording.identity.phase == "prd")


NOWHERE = Path("/nowhere")
OUTSIDE = {"HOME": "/nowhere"}


def stock(cassette: Cassette, requested: CountRequests) -> CachedAgents:
    return CachedAgents(cassette, NOWHERE, requested, NOWHERE, OUTSIDE)


def test_every_call_of_the_recorded_run_was_counted(cassette: Cassette) -> None:
    """As its own first request was, by the same endpoint."""
    mapping = counted_tokens(cassette)
    requests = {}
    for call in cassette.calls:
        identity = call.recording.identity
        stdout = next(data for name, data in call.contents.items() if name == f"{identity.name}.jsonl")
        usage = ADAPTER.parse_output(CallResult(stdout=stdout, stderr=b"", exit=0, duration_ms=1)).usage
        unit = identity.unit or "-"
        key = (
            f"{identity.feature}/{identity.phase}/{unit}/{identity.iteration}/{identity.attempt}/agent.{identity.role}"
        )
        requests[key] = usage[0].input
    assert mapping == requests
    assert len(mapping) == 20


def test_a_replay_asks_nobody(cassette: Cassette) -> None:
    requested = CountRequests()
    crew = ReplayAgents(cassette, NOWHERE, requested, NOWHERE, OUTSIDE)
    token_count = counted_tokens(cassette)["group-thousands/prd/-/1/1/agent.builder"]
    assert crew.count_tokens(called(cassette)) == token_count
    assert crew.count_tokens(called(cassette, prompt="Another.")) == token_count, (
        "its drift is the prompt's, not a number's"
    )
    assert crew.count_tokens(called(cassette, key="r9/group-thousands/prd/-/1/7/agent.builder")) is None
    assert requested.questions == []


def test_recording_again_asks_only_about_what_is_new(cassette: Cassette, tmp_path: Path) -> None:
    requested = CountRequests()
    identity = first(cassette).recording.identity
    token_count = counted_tokens(cassette)["group-thousands/prd/-/1/1/agent.builder"]

    def team(served: CachedAgents) -> HybridAgents:
        return HybridAgents("monozukuri", {"library": served}, tmp_path / "asked", requested, {})

    same = stock(cassette, requested)
    assert team(same).count_tokens(called(cassette)) == token_count
    assert requested.questions == []
    assert team(same).count_tokens(called(cassette, prompt="Another.")) == ANEW
    assert team(same).count_tokens(called(cassette, model="another")) == ANEW
    without = cassette._replace(calls=tuple(call for call in cassette.calls if call.identity != identity))
    assert team(stock(without, requested)).count_tokens(called(cassette)) == ANEW
    untold = cassette._replace(traces={})
    assert team(stock(untold, requested)).count_tokens(called(cassette)) == ANEW, "its story does not say"
    assert len(requested.questions) == 4


@pytest.mark.parametrize("summary", ['"x"', "-1", "0", "1" + "0" * 40, "true", "1.5", "[]"])
@pytest.mark.slow
def test_what_can_be_no_count_makes_a_cassette_unusable(cassette: Cassette, tmp_path: Path, summary: str) -> None:
    """Sealed or not: an estimate and a reservation follow from it."""

    def changed(trace: bytes) -> bytes:
        return re.sub(rb'"counted_tokens": ?\d+', f'"counted_tokens":{summary}'.encode(), trace)

    stories = {feature: changed(content) for feature, content in cassette.traces.items()}
    assert stories != cassette.traces
    seals = {feature: digest(data) for feature, data in stories.items()}
    made = cassette._replace(manifest=replace(cassette.manifest, traces=seals), traces=stories)
    save(made, tmp_path / "harmed")
    with pytest.raises(CassetteUnreadable, match="is not an event"):
        load(tmp_path / "harmed")
