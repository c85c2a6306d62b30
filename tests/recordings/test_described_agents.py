"""A program that only mz.yaml describes delivers a backlog, is recorded, and plays its recordings like any agent."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest
from mz_engine.run.process import RunProcess
from mz_engine.run.settings import load_config
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallPriced, ReplyParsed
from mz_events.names import feature_stream
from mz_qa.variants.play import play_variants
from mz_recordings.drift.compare import compare_cassettes
from mz_recordings.drift.stream_baselines import check_streams, observe_cassette
from mz_recordings.replay.replay import without_git_variables

from tests.support.tree import ROOT
from tests.support.workshop import Copy, Workshop, clone

pytestmark = pytest.mark.slow

CASES = ROOT / "tests" / "cases" / "agents"
LOCAL = (CASES / "local.yaml").read_text()
PROGRAM = """#!{python} -IS
import sys
sys.path.insert(0, {cases!r})
from local_agent import main
sys.exit(main({script!r}))
"""


def local(folder: Path) -> Workshop:
    """The workshop, with `local-agent` as its agent, and no other."""
    made = Workshop(folder, settings=LOCAL)
    (folder / "bin" / "claude").unlink()
    program = folder / "bin" / "local-agent"
    program.write_text(PROGRAM.format(python=sys.executable, cases=str(CASES), script=str(made.script)))
    program.chmod(0o755)
    del made.environment["ANTHROPIC_API_KEY"]
    made.environment["LOCAL_KEY"] = "fake-key-of-the-tests"
    return made


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workshop, str]:
    """The workshop, and the run that is done, recorded, and played by stand-ins once."""
    made = local(tmp_path_factory.mktemp("local"))
    run = made.run()
    made.keep(made.record(run).cassette)
    assert Copy(made.root).settle(keep=True).findings == ()
    return made, run


def test_a_program_of_ones_own_delivers(delivered: tuple[Workshop, str]) -> None:
    made, run = delivered
    events = events_of(made, run)
    requested = {(event.agent, event.model) for event in events if isinstance(event, AgentRequested)}
    assert requested == {("local", "local-2")}
    reads = [entry for entry in events if isinstance(entry, ReplyParsed)]
    good = [read for read in reads if read.ending == "success"]
    assert len(good) == len(reads) - 1 == 7
    assert {(element.reported_nanousd, element.usage[0].output, element.usage[0].cache_read) for element in good} == {
        (15_000_000, 20, 10)
    }
    (full,) = [reply_parsed.problem for reply_parsed in reads if reply_parsed.problem]
    assert (full.code, full.retry_after_seconds) == ("rate-limit", 5)
    assert all(item.unpriced == ("local-2",) for item in events if isinstance(item, CallPriced) and item.unpriced)


def test_what_it_did_is_recorded_and_played_again(delivered: tuple[Workshop, str], tmp_path: Path) -> None:
    copy = clone(delivered[0].root, tmp_path / "clone")
    call = copy.cassette().calls[0].recording
    assert call.argv[:4] == ("local-agent", "--model", "local-2", "--tools=read,edit")
    assert {"LOCAL_KEY", "LOCAL_COLOUR"} <= set(call.environment)
    played = copy.settle()
    assert played.findings == ()
    assert (played.calls_replayed, played.recordings) == (8, 8)


def test_without_its_description_nothing_is_played(delivered: tuple[Workshop, str], tmp_path: Path) -> None:
    copy = clone(delivered[0].root, tmp_path / "clone")
    settings = copy.root / "mz.yaml"
    settings.write_text(settings.read_text().partition("# The example")[0])
    (finding,) = copy.settle().findings
    assert "neither this mz has nor mz.yaml describes" in finding.message


def test_a_changed_description_is_drift(delivered: tuple[Workshop, str], tmp_path: Path) -> None:
    copy = clone(delivered[0].root, tmp_path / "clone")
    copy.edit("mz.yaml", 'command: [local-agent, --model, "{model}", ', 'command: [local-agent, -m, "{model}", ')
    assert {(finding.kind, finding.cause) for finding in copy.settle().findings} == {("CONFIG", "arguments")}


def test_its_recordings_are_compared_as_any_agents(delivered: tuple[Workshop, str], tmp_path: Path) -> None:
    """By a parser that only its description gives."""
    old = clone(delivered[0].root, tmp_path / "clone").cassette()
    described = load_config(delivered[0].root, {}, {}).config.agents
    (first, *others) = old.calls
    (stream,) = [file.name for file in first.recording.files if file.kind == "stdout"]
    content = first.contents[stream]
    dearer = content.replace(b'"0.015"', b'"0.075"').replace(b'"kind": "start"', b'"kind": "start", "new": 1')
    assert dearer.count(b"0.075") == dearer.count(b'"new"') == 1
    new = old._replace(calls=(first._replace(contents={**first.contents, stream: dearer}), *others))
    findings = compare_cassettes(old, new, described)
    assert {(item.kind, item.message) for item in findings} == {
        ("COST", "tokens or cost differ"),
        ("STREAM", "changes that the parser does not depend on: 1 difference from the old recording"),
    }
    assert compare_cassettes(old, new, {}) == ()
    (observed_streams,) = observe_cassette(old, described)
    assert observed_streams.shape.agent == "local"
    assert "version" in str(observed_streams.shape.events)
    live = old._replace(manifest=msgspec.structs.replace(old.manifest, provenance="live"))
    (unknown,) = check_streams(live, {}, described)
    assert unknown.finding.message == "there is no baseline of local"


def test_its_other_ends_are_played(delivered: tuple[Workshop, str], tmp_path: Path) -> None:
    copy = clone(delivered[0].root, tmp_path / "clone")
    outcomes = play_variants(copy.cassette(), copy.root, without_git_variables(os.environ))
    assert len(outcomes) > 500
    assert {
        variant_outcome.variant: variant_outcome.violations
        for variant_outcome in outcomes
        if variant_outcome.violations
    } == {}


def events_of(made: Workshop, run: str) -> list[Event]:
    with RunProcess(made.root, made.environment, lambda _: None) as session:
        streams = (feature_stream(run, feature) for feature in ("alpha", "beta"))
        return [recorded.event for stream in streams for recorded in session.store.read(stream)]
