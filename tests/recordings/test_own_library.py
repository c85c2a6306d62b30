"""The project's own library: whole and clean, and made again from nothing. `mz check` plays it."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mz_engine.agents.catalog import AGENTS
from mz_events.adapters.memory import MemoryStore
from mz_events.catalog.call import AgentRequested, ContextComposed, ProblemClass
from mz_events.catalog.run import FeatureOutcome
from mz_events.catalog.validation import GateChecked
from mz_events.names import FeatureId, feature_stream
from mz_projections.rewards.facts import fold_facts
from mz_projections.rewards.reward import reward_of
from mz_recordings.cassette.files import list_cassettes, load
from mz_recordings.cassette.model import Cassette, RecordedCall
from mz_recordings.cassette.trace import event_differences
from mz_recordings.replay.replay import ReplayJob, run_replay

from tests.support.rerecord import BUNDLED, LIBRARY, SCENES, record_scene
from tests.support.tree import ROOT
from tests.support.workshop import TODAY

BYTES_MAX = 1_000_000
"""Of each of them: they come with every clone."""
TRIAL = "trial-claude-code"


@cache
def cassette(name: str) -> Cassette:
    return load(SCENES[name].path)


def documents(*names: str) -> Iterator[dict[str, Any]]:
    """Every event of these cassettes."""
    for name in names:
        for trace in cassette(name).traces.values():
            yield from map(json.loads, trace.splitlines())


def test_every_cassette_of_the_library_is_made_by_a_scene() -> None:
    bundled = [folder for folder in list_cassettes(BUNDLED.parent) if folder.parent == BUNDLED.parent]
    assert {*bundled, *list_cassettes(LIBRARY)} == {scene.path for scene in SCENES.values()}


@pytest.mark.parametrize("name", SCENES)
def test_they_were_made_by_the_real_cli_against_a_script(name: str) -> None:
    manifest, agent = cassette(name).manifest, SCENES[name].agent
    assert (manifest.name, manifest.agent, manifest.provenance) == (name, agent, "scripted-model")
    (version,) = {call.recording.version for call in cassette(name).calls}
    assert version == pinned().get(agent, version) != ""


def pinned() -> dict[str, str]:
    """Version by agent."""
    files_by_agent = {agent.name: files(agent.package) / "install.txt" for agent in AGENTS.values()}
    return {name: file.read_text().split()[1] for name, file in files_by_agent.items() if file.is_file()}


@pytest.mark.parametrize("name", SCENES)
def test_they_are_small(name: str) -> None:
    files = (path for path in SCENES[name].path.rglob("*") if path.is_file())
    assert sum(path.stat().st_size for path in files) < BYTES_MAX


def test_they_name_no_place_of_the_machine_they_were_made_on() -> None:
    here = (str(ROOT).encode(), socket.gethostname().encode())
    for path in LIBRARY.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        assert not re.search(rb"/tmp/|/root\b|/home/|127\.0\.0\.1", data), path
        assert not any(word in data for word in here), path


def test_the_trial_goes_back_and_asks() -> None:
    """A rework, units, a reviewer, a rollback to an earlier phase, a block that an agent raises, a person who rejects
    and then approves, a feature that builds on another, a phase for some, one that is not required."""
    events = list(documents(TRIAL))
    routes = [
        (event["source"], event["to"], event["units"]) for event in events if event["type"] == "phase.rolled-back"
    ]
    assert sorted(routes) == [
        ("build", "build", ["broth"]), ("build", "build", ["loaf"]), ("build", "plan", []), ("build", "plan", []),
    ]  # fmt: skip
    causes = [document["cause"] for document in events if document["type"] == "phase.blocked"]
    assert sorted(causes) == ["code", "person", "spec", "unclear"]
    assert [fields["verdict"] for fields in events if fields["type"] == "human.answered"] == ["reject", "approve"]
    named = {call.recording.identity.path for call in cassette(TRIAL).calls}
    assert named >= {"bread/plan.a2", "bread/build.dough.a2", "bread/build.loaf.i3.reviewer", "menu/ship"}
    assert sorted(event["met"] for event in events if event["type"] == "conditions.checked") == [[], [], ["risky"]]
    assert [event["phase"] for event in events if event["type"] == "phase.skipped"] == ["learn"], "of soup"
    prompts = {call.recording.identity.path: call.content("prompt").decode() for call in cassette(TRIAL).calls}
    assert "+Heat the oven to 250 degrees." in prompts["bread/look"], "a record of what was built"
    assert "blocked by raised.unclear" in prompts["menu/learn"], "a record of what happened, after the delivery"
    assert {item.feature: item.depends_on for item in cassette(TRIAL).manifest.fixture.items} == {
        "bread": (), "soup": (), "menu": ("bread",),
    }  # fmt: skip


@pytest.mark.slow
def test_the_trial_shows_what_guides_a_call_and_what_judges_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card and a skill, files laid out, a ledger of the prompt, a rule that a reviewer judges, rewards."""
    store = MemoryStore()
    monkeypatch.setattr("mz_recordings.replay.replay.MemoryStore", lambda: store)
    made = cassette(TRIAL)
    job = ReplayJob(path=str(SCENES[TRIAL].path), project=str(ROOT), environment={**os.environ}, today=TODAY)
    replayed = run_replay(made, job)
    stream = feature_stream(made.manifest.fixture.run, FeatureId("bread"))
    events = [recorded.event for recorded in store.read(stream)]
    composed = [event for event in events if isinstance(event, ContextComposed) and "/look/" in event.key]
    assert [event.key.rpartition(".")[2] for event in composed] == ["builder", "judge"] * 2
    sources = [part.source for part in composed[0].parts]
    assert {"persona", "skill"} < {*sources}
    assert {part.name for part in composed[0].laid_out} >= {"pages/oven.txt"}
    assert composed[0].tokens_max == 2000
    assert composed[0].hidden_files > 0
    gates = [event for event in events if isinstance(event, GateChecked) and event.judged_by]
    assert [gate.passed for gate in gates] == [False, True]
    (request, _) = [event for event in events if isinstance(event, AgentRequested) and event.card]
    assert (request.card, [skill.name for skill in request.skills]) == ("security", ["security-and-hardening"])
    facts = fold_facts(store.read(stream))
    assert facts is not None
    reward = reward_of(facts, replayed.pins.rewards)
    scores = [("correctness", 0), ("cleanliness", -1), ("discipline", 0)]
    assert (reward.composite, [(part.name, part.score) for part in reward.dimensions]) == (0, scores)


def test_a_generation_begins_again_what_failed_mends_a_conflict_and_repeats_a_lost_call() -> None:
    name = "generation-claude-code"
    kinds = [fields["type"] for fields in documents(name)]
    assert (kinds.count("branch.landed"), kinds.count("feature.failed"), kinds.count("feature.retried")) == (5, 1, 1)
    causes = [fields["cause"] for fields in documents(name) if fields["type"] == "phase.blocked"]
    assert causes == ["base", "implement"], "two tasks added a row to the same table; a task broke a test"
    (lost,) = [call for call in cassette(name).calls if call.recording.outcome == "lost"]
    assert (lost.identity.path, lost.recording.exit, kinds.count("agent.lost")) == ("t3/implement.i2", None, 1)
    assert b'"type":"assistant"' in lost.content("stdout")
    assert b'"type":"result"' not in lost.content("stdout")
    assert "t3/implement.i2.a2" in {call.identity.path for call in cassette(name).calls}
    fixture = cassette(name).manifest.fixture
    assert (fixture.cycles, fixture.closing) == (2, "finish")
    assert [item.feature for item in fixture.items if not item.is_own] == ["group-thousands"]


def test_together_they_cover_what_can_go_wrong() -> None:
    """The bundled cassette has none of this."""
    events = list(documents(*(name for name in SCENES if not name.startswith("generation"))))
    kinds = {entry["type"] for entry in events} - {fields["type"] for fields in documents(BUNDLED.name)}
    assert kinds == {
        *("feature.held", "feature.hold-released", "feature.failed", "feature.cancelled"),
        *("human.requested", "human.answered", "phase.blocked", "phase.rolled-back", "tree.restored"),
        *("session.dropped", "learnings.captured", "conditions.checked", "phase.skipped"),
    }
    problems = {(event["problem"]["kind"], event["problem"]["code"]) for event in events if event.get("problem")}
    assert problems == {
        (ProblemClass.TRANSIENT.value, "rate-limit"),
        (ProblemClass.TRANSIENT.value, "connection"),
        (ProblemClass.FATAL.value, "auth-failure"),
        (ProblemClass.NEEDS_PERSON.value, "agent-blocker"),
    }
    assert {element["question_kind"] for element in events if element["type"] == "human.requested"} == {
        "approval",
        "blocker",
        "exhausted",
    }
    assert {document["hold"] for document in events if document["type"] == "feature.held"} == {"timer", "fatal"}
    forbidden = {change["kind"] for item in events for change in item.get("forbidden_changes", ())}
    assert forbidden == {"outside", "special"}


@pytest.mark.slow
@pytest.mark.cli
@pytest.mark.timeout(900)
def test_a_feature_of_the_trial_can_be_made_again_from_nothing(tmp_path: Path) -> None:
    """The same calls, prompts, patches, artifacts and story, by the real program: the feature with a unit, reviews and
    a rollback."""
    kept, ends = cassette(TRIAL), {"soup": FeatureOutcome.DELIVERED}
    made = record_scene(SCENES[TRIAL]._replace(ends=ends, output={}), tmp_path)
    again = {item.recording.identity: item for item in made.calls}
    recorded = [call for call in kept.calls if call.recording.identity.feature in ends]
    assert again.keys() == {call.recording.identity for call in recorded}
    for entry in recorded:
        assert plain(again[entry.recording.identity]) == plain(entry), entry.recording.identity.path
    assert stories(made).keys() == {*ends}
    for feature, text in stories(made).items():
        assert list(event_differences(stories(kept)[feature], text)) == [], "with fields that events gained since"


def plain(call: RecordedCall) -> dict[str, object]:
    """A recording without what is measured, and without the stream: the CLI reports its own retries and waits there."""
    kept = {name: data for name, data in call.contents.items() if not name.endswith(".stream-json")}
    recording = msgspec.to_builtins(msgspec.structs.replace(call.recording, files=(), recorded_at="", duration_ms=0))
    return {**recording, "contents": kept}


def stories(made: Cassette) -> dict[str, bytes]:
    """Without the run's id."""
    run = made.manifest.fixture.run.encode()
    return {feature: data.replace(run, b"<RUN>") for feature, data in made.traces.items()}
