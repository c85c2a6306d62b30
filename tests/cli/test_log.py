"""`mz log`: what happened, an event a line, for people, for programs, and as it happens."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest
from mz_events.catalog.feature import FeatureHeld
from mz_events.catalog.run import FeatureOutcome, FeatureStopped, Hold, RunStopRequested
from mz_events.names import FeatureId
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import MZ, Mz, on_terminal
from tests.cli.stored_run import RUN, StoredRun


def test_in_a_pipe(stored_run: StoredRun, mz: Mz, snapshot: SnapshotAssertion) -> None:
    answer = mz("log", "--all")
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out == snapshot
    assert {line.count("\t") for line in answer.out.splitlines()} == {3}


def test_as_json_lines(stored_run: StoredRun, mz: Mz) -> None:
    lines = [msgspec.json.decode(line) for line in mz("log", "--json").out.splitlines()]
    assert lines[0] == {"type": "version", "schema": "mz.log/1"}
    assert [line["position"] for line in lines[1:]] == [entry.position for entry in stored_run.recorded]
    assert [line["event_ref"] for line in lines[1:]] == [item.event_ref for item in stored_run.recorded]
    requested = next(line for line in lines if line["type"] == "agent.requested")
    assert requested["role"] == "intent"
    assert requested["event"]["ref"]["phase"] == "prd"


CORRECTED = ["- commands.test: make test", "+ commands.test: make check"]


@pytest.mark.parametrize("options", [(), ("--all",)])
def test_a_corrected_command_is_shown_as_it_was_and_as_it_is(
    stored_run: StoredRun, mz: Mz, options: tuple[str, ...]
) -> None:
    event_ref = stored_run.correct()
    shown = on_terminal(stored_run.home, "log", *options, columns=200, env={"NO_COLOR": "1"}).splitlines()
    lines = [line for line in shown if event_ref in line]
    assert len(lines) == 3
    assert [text in line for text, line in zip(CORRECTED, lines[1:], strict=True)] == [True, True]
    rows = [line.split("\t") for line in mz("log", *options).out.splitlines()]
    assert [row[2:] for row in rows if row[1] == event_ref][1:] == [["commands.changed", text] for text in CORRECTED]
    entries = [msgspec.json.decode(line) for line in mz("log", "--json").out.splitlines()[1:]]
    [changes] = [entry["changes"] for entry in entries if entry["type"] == "commands.changed"]
    assert [changes[0][:22], changes[1][:22]] == ["- commands.test: make ", "+ commands.test: make "]
    assert {len(entry["changes"]) for entry in entries if entry["type"] != "commands.changed"} == {0}


def test_one_feature(stored_run: StoredRun, mz: Mz) -> None:
    lines = [msgspec.json.decode(line) for line in mz("log", "audit", "--json").out.splitlines()]
    assert {line["stream"] for line in lines[1:]} == {f"run/{RUN}", f"run/{RUN}/audit"}
    assert {line["event"].get("feature", "audit") for line in lines[1:]} == {"audit"}
    both = mz("log", "--all", "audit", "export").out
    assert "export may start" in both
    assert "login" not in both


def test_a_feature_that_is_not_there(stored_run: StoredRun, mz: Mz) -> None:
    answer = mz("log", "audi")
    assert answer.exit == 10
    assert "did you mean `audit`?" in answer.err


def test_a_feature_that_has_not_begun(stored_run: StoredRun, mz: Mz) -> None:
    assert mz("log", "--all", "later").out.count("\n") == 1


def test_following_ends_with_a_run_at_rest(stored_run: StoredRun, mz: Mz) -> None:
    assert mz("log", "--follow").out == mz("log").out


@pytest.mark.slow
def test_following_tells_what_comes(home: Path) -> None:
    log = StoredRun(home).begin("login", "audit")
    child = subprocess.Popen([*MZ, "log", "-f", "--json"], cwd=home, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(4)]
    log.wait("audit")
    log.admit("login")
    log.to_run(RunStopRequested())
    log.to_run(FeatureStopped(feature=FeatureId("login"), version=1, status=FeatureOutcome.INTERRUPTED))
    value, _ = child.communicate(timeout=30)
    log.close()
    assert child.returncode == 0
    places = [msgspec.json.decode(line).get("event_ref") for line in [*lines, *value.splitlines()]]
    assert places == [None, *(item.event_ref for item in log.recorded)]


def test_on_a_terminal(stored_run: StoredRun, snapshot: SnapshotAssertion) -> None:
    assert on_terminal(stored_run.home, "log", "audit") == snapshot


def test_what_agents_and_people_wrote_is_harmless(stored_run: StoredRun, mz: Mz) -> None:
    stored_run.to_feature("audit", held("\x1b[2Jevil\u009b31m"))
    stored_run.close()
    assert "\x1b" not in mz("log").out
    out = mz("log", "--json").out
    assert "\x1b" not in out
    assert "\u009b" not in out
    assert msgspec.json.decode(out.splitlines()[-1])["event"]["code"] == "\x1b[2Jevil\u009b31m"


def held(code: str) -> FeatureHeld:
    return FeatureHeld(hold=Hold.FATAL, code=code)


def test_milestones_by_default_and_every_event_on_demand(stored_run: StoredRun, mz: Mz) -> None:
    milestones, everything = mz("log").out.splitlines(), mz("log", "--all").out.splitlines()
    assert [line for line in everything if line in milestones] == milestones
    assert len(everything) == len(stored_run.recorded)
    types = {line.split("\t")[2] for line in milestones}
    assert {"run.started", "phase.started", "phase.completed", "agent.requested", "call.priced"} <= types
    assert {"gate.checked", "human.requested", "feature.held", "feature.delivered", "run.idle"} <= types
    assert not types & {"reply.parsed", "commit.requested", "artifact.parsed", "changes.checked"}


@pytest.mark.slow
def test_milestones_have_date_time_and_zone(stored_run: StoredRun) -> None:
    lines = on_terminal(stored_run.home, "log", "login", columns=160, env={"TZ": "Europe/Berlin"}).splitlines()
    assert lines[0].startswith("2026-03-01 13:00:06 CET  login: feature started: branch feat/login for main")
    assert any("login: code attempt 2: $0.0123" in line for line in lines)
    lines = on_terminal(stored_run.home, "log", "--all", columns=160, env={"TZ": "Europe/Berlin"}).splitlines()
    assert all(line.startswith("2026-03-01 13:0") and line[20:23] == "CET" for line in lines)


def test_types_times_and_numbers(stored_run: StoredRun, mz: Mz) -> None:
    gates = mz("log", "--type", "gate.checked").out.splitlines()
    assert [line.split("\t")[2] for line in gates] == ["gate.checked"] * 2
    assert mz("log", "--type", "gate.checked", "-n", "1").out.splitlines() == gates[1:]
    assert len(mz("log", "--type", "gate.checked", "--json").out.splitlines()) == 3
    assert mz("log", "--all", "--since", "2026-03-01T12:01:00Z").out.count("\n") == 3
    assert "did you mean `gate.checked`?" in mz("log", "--type", "gate.check").err
    assert "is not a time" in mz("log", "--since", "soon").err
    assert mz("log", "-f", "-n", "1").exit == 2
