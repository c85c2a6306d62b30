"""Failover with two real programs: the first has no login any more, the second is described in mz.yaml."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.call import AgentRequested, AgentSwitched, SessionDropped, SessionDropReason
from mz_events.catalog.feature import FeatureDelivered
from mz_events.names import FeatureId, feature_stream

from tests.support.workshop import SCRIPT, Workshop, clone

pytestmark = pytest.mark.slow

SETTINGS = """\
sessions: continue
failover: [scribe]
agents:
  scribe:
    command: [scribe]
    version: []
    ends: {exits: [0]}
"""
SCRIBE = """#!{python} -IS
import json, os, pathlib, sys
prompt = sys.stdin.read()
_, feature, phase, _, iteration, attempt, _ = os.environ["MZ_KEY"].split("/")
folder = pathlib.Path("notes" if phase == "write" else "letters")
folder.mkdir(exist_ok=True)
(folder / (feature + ".md")).write_text("# From the scribe\\nabout " + feature + " and more\\n")
print("Written.")
"""
REFUSED = {**SCRIPT, "alpha.sign.1.1": {"fail": "API Error: 401 authentication_error: your login has expired"}}


def test_the_work_goes_on_with_the_next_agent_and_replays_so(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, REFUSED, settings=SETTINGS)
    program = tmp_path / "bin" / "scribe"
    program.write_text(SCRIBE.format(python=sys.executable))
    program.chmod(0o755)
    run = workshop.run()
    with SqliteStore(workshop.root / ".mz" / "mz.db") as log:
        events = [item.event for item in log.read(feature_stream(run, FeatureId("alpha")))]
        others = [recorded.event for recorded in log.read(feature_stream(run, FeatureId("beta")))]
    (switch,) = [event for event in events if isinstance(event, AgentSwitched)]
    assert (switch.source, switch.to, switch.code) == ("claude-code", "scribe", "auth-failure")
    requested = [(event.agent, event.ref.phase, event.resumes) for event in events if isinstance(event, AgentRequested)]
    assert requested[:4] == [
        ("claude-code", "write", False), ("claude-code", "write", True), ("claude-code", "sign", True),
        ("scribe", "sign", False),
    ]  # fmt: skip
    assert {agent for agent, _, _ in requested[4:]} == {"scribe"}, "also after a rollback"
    assert [event.reason for event in events if isinstance(event, SessionDropped)] == [SessionDropReason.FAILED]
    assert isinstance(events[-1], FeatureDelivered)
    assert {event.agent for event in others if isinstance(event, AgentRequested)} == {"claude-code"}

    workshop.keep(workshop.record(run).cassette)
    assert clone(workshop.root, tmp_path / "copy").settle().findings == ()
