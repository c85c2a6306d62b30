"""The bundled recordings: whole, clean, and enough to deliver every feature of the sample project without a model."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from mz_cli.app.context import open_log
from mz_engine.agents.claude_code.adapter import ClaudeCode
from mz_engine.agents.registry import load_patterns
from mz_engine.ports import CallResult
from mz_engine.processes.environment import INHERITED_VARIABLES
from mz_engine.run.process import RunProcess
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentFailed, AgentReplied, CallPriced, ReplyParsed
from mz_events.catalog.validation import ArtifactValidated, GateChecked
from mz_events.store import Recorded
from mz_recordings.cassette.files import load
from mz_recordings.cassette.model import Cassette
from mz_recordings.cassette.repository import SAMPLE, create_sample
from mz_recordings.record.recorder import RecordSources, record_run
from mz_recordings.replay.stand_in import DRIFT, install

from tests.cli.drive import on_terminal, spawn
from tests.support.rerecord import BUNDLED
from tests.support.tapes import git

FEATURES = {"month-filter", "month-compare", "group-thousands"}
MONEY = ("estimated_usd", "reported_usd", "computed_usd")
PHASES = ("prd", "techspec", "tasks", "code", "tests", "pr")


def set_stage(folder: Path, outside: Mapping[str, str]) -> tuple[Path, dict[str, str]]:
    """The sample project, and an environment with nothing of the caller's in which `claude` is played."""
    create_sample(folder / "tally", outside)
    install(folder / "bin", BUNDLED, ("claude",), INHERITED_VARIABLES.pattern)
    (folder / "home").mkdir()
    kept = {name: value for name, value in outside.items() if INHERITED_VARIABLES.fullmatch(name)}
    own = {"ANTHROPIC_API_KEY": "unused", "HOME": str(folder / "home"), "PATH": f"{folder / 'bin'}:{outside['PATH']}"}
    return folder / "tally", {**kept, **own}


@pytest.fixture(scope="module")
def cassette() -> Cassette:
    return load(BUNDLED)


def test_every_feature_has_every_phase(cassette: Cassette) -> None:
    result = {(call.recording.identity.feature, call.recording.identity.phase) for call in cassette.calls}
    assert result == {(feature, phase) for feature in FEATURES for phase in PHASES}


def test_one_specification_and_one_implementation_were_reworked(cassette: Cassette) -> None:
    again = {call.recording.identity.path for call in cassette.calls if call.recording.identity.attempt > 1}
    assert again == {"month-compare/techspec.a2", "group-thousands/code.a2"}


def test_they_were_made_by_the_real_cli_against_a_script(cassette: Cassette) -> None:
    assert cassette.manifest.provenance == "scripted-model"
    for call in cassette.calls:
        assert call.recording.version == "2.1.197"
        assert (call.recording.outcome, call.recording.exit) == ("replied", 0)


def test_their_streams_are_read_without_a_doubt(cassette: Cassette) -> None:
    adapter = ClaudeCode(load_patterns())
    for call in cassette.calls:
        stdout = call.contents[f"{call.recording.identity.name}.stream-json"]
        parsed_reply = adapter.parse_output(CallResult(stdout=stdout, stderr=b"", exit=0, duration_ms=1))
        assert (parsed_reply.ending, parsed_reply.problem, parsed_reply.undecodable_lines) == ("success", None, 0)
        assert parsed_reply.reported_nanousd
        assert all(usage.input > 1000 for usage in parsed_reply.usage)


def test_they_name_no_place_of_the_machine_they_were_made_on() -> None:
    here = str(Path(__file__).parents[2]).encode()
    for path in BUNDLED.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            # A template of a temporary directory, a login's name, a loopback port.
            assert not re.search(rb"/tmp/|/root\b|/home/|127\.0\.0\.1", data), path
            assert here not in data, path
            assert socket.gethostname().encode() not in data, path


def test_the_world_is_the_sample_project(cassette: Cassette, tmp_path: Path) -> None:
    """Else the recordings are older than the project: python -m tests.support.rerecord."""
    create_sample(tmp_path / "tally", os.environ)
    assert git(tmp_path / "tally", "rev-parse", "HEAD") == cassette.manifest.fixture.base_commit
    assert git(tmp_path / "tally", "rev-parse", "HEAD^{tree}") == cassette.manifest.fixture.base_tree


class Played(NamedTuple):
    """The demonstration, played once with the bundled recordings."""

    shown: str
    """What its terminal received."""
    root: Path
    events: list[Event]
    troubles: list[str]
    recorded: Cassette
    """The run, recorded again."""


def play(path: Path) -> Played:
    """Spawning, streaming, parsing, rules, gates and git are real; only `claude` is played."""
    outside = {"NO_COLOR": "1", "GITHUB_TOKEN": "tell-nobody", "ANTHROPIC_MODEL": "x"}
    shown = on_terminal(path, "demo", "--keep", "tally", columns=100, env=outside, code=0)
    with open_log(path / "tally") as log:
        events = [recorded.event for recorded in log.store.read_all()]
        troubles = [
            log.load_text(event.stderr)
            for event in events
            if isinstance(event, AgentReplied | AgentFailed) and _went_wrong(event)
        ]
        (run,) = log.runs()
        recorded = record_run(
            RecordSources(log.root, {**os.environ, "HOME": str(log.root / ".mz/demo/home")}, log.store, log.blobs),
            run,
            name=BUNDLED.name,
            provenance="scripted-model",
            template=SAMPLE,
        ).cassette
    return Played(shown, log.root, events, troubles, recorded)


def _went_wrong(outcome: AgentReplied | AgentFailed) -> bool:
    return not isinstance(outcome, AgentReplied) or outcome.exit != 0


@pytest.mark.slow
def test_they_deliver_every_feature_on_a_terminal(tmp_path: Path, cassette: Cassette) -> None:
    (tmp_path / "a place").mkdir()
    played = play(tmp_path / "a place")
    assert played.troubles == []
    features = msgspec.json.decode(spawn(played.root, "status", "--json").out)["features"]
    assert {feature["id"]: feature["status"] for feature in features} == dict.fromkeys(FEATURES, "delivered")
    assert max(count for feature in features for count in feature["attempts"].values()) > 1
    assert all(float(feature[name]) > 0 for feature in features for name in MONEY)
    assert git(played.root, "show", "feat/month-compare:tally/period.py").count("class Month") == 1

    assert "\x1b" not in played.shown
    assert "group-thousands  delivered" in played.shown
    assert "nothing was spent" in played.shown
    assert f"cd '{played.root}'" in played.shown
    check_what_was_refused_and_mended(played)
    check_that_reported_and_computed_money_agree(played)
    check_that_it_is_recorded_again_as_it_was(played, cassette)


def check_what_was_refused_and_mended(played: Played) -> None:
    refused = {
        violation.rule
        for event in played.events
        if isinstance(event, ArtifactValidated)
        for violation in event.violations
    }
    assert refused == {"techspec.approach", "techspec.paths"}
    assert [event.gate for event in played.events if isinstance(event, GateChecked) and not event.passed] == ["test"]


def check_that_reported_and_computed_money_agree(played: Played) -> None:
    reported = {event.ref.key: event.reported_nanousd for event in played.events if isinstance(event, ReplyParsed)}
    computed = {event.key: event.computed_nanousd for event in played.events if isinstance(event, CallPriced)}
    assert reported == computed
    assert all(reported.values())


def check_that_it_is_recorded_again_as_it_was(played: Played, cassette: Cassette) -> None:
    """On another machine's paths, in another HOME, with other runs and sessions: not a byte differs."""
    again = {item.recording.identity: item for item in played.recorded.calls}
    for call in cassette.calls:
        other = again.pop(call.recording.identity)
        assert dict(other.contents) == dict(call.contents), call.recording.identity.path
        measured = {"recorded_at": "", "duration_ms": 0}
        assert msgspec.structs.replace(other.recording, **measured) == msgspec.structs.replace(
            call.recording, **measured
        )
    assert again == {}
    # The cassette was made before recordings had the results of commands on the base.
    world = msgspec.structs.replace(played.recorded.manifest.fixture, run="", clock_start="", base_results={})
    assert world == msgspec.structs.replace(cassette.manifest.fixture, run="", clock_start="")
    assert played.recorded.manifest.evidence.keys() == cassette.manifest.evidence.keys()


@pytest.mark.slow
def test_a_changed_template_is_drift(tmp_path: Path) -> None:
    """Today's prompt is compared with the recorded one: nothing is served for another."""
    root, environment = set_stage(tmp_path, os.environ)
    features = root / "features.md"
    features.write_text(features.read_text().replace("I want to look at a single month", "Show me one month"))
    git(root, "commit", "-qam", "another wish")
    recorded_events: list[Recorded[Event]] = []
    with RunProcess(root, environment, recorded_events.append) as session:
        session.start({}, ("month-filter",))
        session.drive()
        (reply,) = [recorded.event for recorded in recorded_events if isinstance(recorded.event, AgentReplied)]
        assert reply.exit == DRIFT
        assert (
            "+> The report always covers the whole journal. Show me one month"
            in session.blobs.get(reply.stderr).decode()
        )
