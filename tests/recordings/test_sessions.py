"""Sessions that go on, with a real agent process: run, record, replay, fork and record again."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_engine.run.process import RunProcess
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, ReplyParsed, SessionDropped, SessionDropReason
from mz_events.names import FeatureId, feature_stream
from mz_recordings.cassette.model import Cassette
from mz_recordings.rerecord.plan import CallSelection

from tests.support.again import Again
from tests.support.workshop import SCRIPT, Workshop, clone

pytestmark = pytest.mark.slow
SESSIONS = "sessions: continue\n"


class Ran:
    """A workshop whose backlog was delivered in sessions."""

    def __init__(self, location: Path, trace: dict[str, dict[str, object]]) -> None:
        self.workshop = Workshop(location, trace, settings=SESSIONS)
        self.workshop.ramble()
        self.run = self.workshop.run()
        self.home = self.workshop.root / ".mz"

    def events(self, feature: str, run: str = "") -> list[Event]:
        with SqliteStore(self.home / "mz.db") as log:
            return [recorded.event for recorded in log.read(feature_stream(run or self.run, FeatureId(feature)))]

    def requested(self, feature: str, run: str = "") -> list[AgentRequested]:
        return [event for event in self.events(feature, run) if isinstance(event, AgentRequested)]

    def ends(self, feature: str, run: str = "") -> list[SessionDropReason]:
        return [event.reason for event in self.events(feature, run) if isinstance(event, SessionDropped)]

    def text(self, request: AgentRequested) -> str:
        return FileBlobs(self.home / "blobs").get(request.prompt).decode()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("sessions"), SCRIPT)


@pytest.fixture(scope="module")
def cassette(ran: Ran) -> Cassette:
    made = ran.workshop.record(ran.run)
    ran.workshop.keep(made.cassette)
    return made.cassette


def how(requests: list[AgentRequested]) -> list[tuple[str, int, bool]]:
    return [
        (agent_requested.ref.phase, agent_requested.ref.attempt, agent_requested.resumes)
        for agent_requested in requests
    ]


def test_a_rework_and_the_next_phase_go_on_and_a_rollback_and_a_failure_begin_anew(ran: Ran) -> None:
    assert how(ran.requested("alpha")) == [
        ("write", 1, False), ("write", 2, True), ("sign", 1, True), ("write", 1, False), ("sign", 1, True),
    ]  # fmt: skip
    assert ran.ends("alpha") == [SessionDropReason.ROLLBACK]
    assert how(ran.requested("beta")) == [("write", 1, False), ("write", 2, False), ("sign", 1, True)]
    assert ran.ends("beta") == [SessionDropReason.FAILED]


def test_the_rework_is_alone_and_a_template_that_knows_of_no_session_is_whole(ran: Ran) -> None:
    first, rework, sign = ran.requested("alpha")[:3]
    assert "Keep it short." in ran.text(first)
    assert "Keep it short." not in ran.text(rework)
    assert "at least 10 are needed" in ran.text(rework)
    assert (rework.full_prompt, sign.full_prompt) == (False, True)
    assert "Sign the note" in ran.text(sign)


def test_each_prompt_is_in_the_conversation_once(ran: Ran) -> None:
    """The agent fails at a prompt that its conversation has already."""
    parsed = [event for event in ran.events("alpha") if isinstance(event, ReplyParsed)]
    assert [event.problem for event in parsed] == [None] * 5


def test_a_recording_of_sessions_replays_as_recorded_in_any_clone(ran: Ran, cassette: Cassette, tmp_path: Path) -> None:
    argv = {call.recording.identity.path: call.recording.argv for call in cassette.calls}
    assert [word for word in argv["alpha/write.a2"] if word.startswith("--resume") or word == "<SESSION>"] == [
        "--resume",
        "<SESSION>",
    ]
    copy = clone(ran.workshop.root, tmp_path / "copy")
    assert copy.settle().findings == ()


def test_without_the_setting_a_replay_still_plays_the_world_of_the_recording(
    ran: Ran, cassette: Cassette, tmp_path: Path
) -> None:
    copy = clone(ran.workshop.root, tmp_path / "copy")
    copy.edit("mz.yaml", SESSIONS, "")
    assert copy.settle().findings == ()
    copy.edit("pipelines/notes.yaml", "phase: sign\n  agent: {", "phase: sign\n  agent: {session: fresh, ")
    assert copy.settle().findings, "what a pipeline says is today's"


GONE: dict[str, dict[str, object]] = {
    **SCRIPT,
    "alpha.write.1.1": {"write": {"notes/alpha.md": "short"}, "run": 'rm -r "$HOME/.claude"'},
    "alpha.write.1.3": SCRIPT["alpha.write.1.2"],
    "alpha.write.1.2": {},
}


def test_a_session_that_is_gone_is_begun_anew(tmp_path: Path) -> None:
    ran = Ran(tmp_path, GONE)
    assert how(ran.requested("alpha"))[:3] == [("write", 1, False), ("write", 2, True), ("write", 3, False)]
    assert ran.ends("alpha")[0] is SessionDropReason.MISSING
    problems = [event.problem.code for event in ran.events("alpha") if isinstance(event, ReplyParsed) and event.problem]
    assert problems == ["session-missing"]
    again = ran.requested("alpha")[2]
    assert again.full_prompt
    assert "at least 10 are needed" in ran.text(again)
    assert "Keep it short." in ran.text(again)
    made = ran.workshop.record(ran.run)
    ran.workshop.keep(made.cassette)
    assert clone(ran.workshop.root, tmp_path / "copy").settle().findings == ()


def test_a_fork_has_a_session_of_its_own(ran: Ran) -> None:
    from mz_engine.run.fork import ForkChange

    events = ran.events("alpha")
    at = next(at for at, event in enumerate(events, 1) if isinstance(event, ReplyParsed))
    with RunProcess(ran.workshop.root, ran.workshop.environment, lambda recorded: None) as session:
        session.fork(ran.run, "alpha", at + 8, ForkChange())
        assert session.coordinator is not None
        run = session.coordinator.run
        session.drive()
    mine = [
        agent_requested
        for agent_requested in ran.requested("alpha", run)
        if agent_requested.ref.key.startswith(f"{run}/")
    ]
    assert ran.ends("alpha", run)[0] is SessionDropReason.FORK
    assert (mine[0].resumes, mine[0].full_prompt) == (False, True)


def test_a_call_that_is_recorded_again_begins_a_session_since_the_agent_never_had_the_old_one(
    ran: Ran, cassette: Cassette, tmp_path: Path
) -> None:
    """Alpha's first letter is asked for in other words. Before it recordings are served; what follows goes on in the
    session that the agent has, or begins one."""
    copy, folder = clone(ran.workshop.root, tmp_path / "copy"), tmp_path / "agent"
    folder.mkdir()
    again = Again(copy, folder)
    again.single()
    copy.edit("pipelines/templates/sign.md.j2", "Sign the", "Please sign the")
    _, outcome = again.record(CallSelection())
    assert outcome.live_calls == ("alpha/sign", "alpha/sign.i2")
    assert outcome.served_calls == ("alpha/write", "alpha/write.a2", "alpha/write.i2")
    made = {call.recording.identity.path: call.recording for call in again.keep(outcome.cassette).calls}
    assert "--resume" not in made["alpha/sign"].argv
    assert "--resume" not in made["alpha/sign.i2"].argv
    assert copy.settle().findings == ()
