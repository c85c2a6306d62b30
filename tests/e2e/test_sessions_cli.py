"""Sessions that go on with the real CLI: a rework and the next phase in one conversation, and one that is gone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from mz_engine.run.process import RunProcess
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, ReplyParsed, SessionDropped, SessionDropReason
from mz_events.catalog.run import FeatureOutcome
from mz_events.names import FeatureId, feature_stream
from mz_events.store import Recorded

from tests.support import claude_cli, codex_cli
from tests.support.endpoint import Answer, Endpoint, Reply, Request, Unexpected
from tests.support.tree import CLAUDE_SESSIONS
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.cli, pytest.mark.slow]


SHORT = "short\n"
OUTSIDE = {"claude-code": claude_cli.environment, "codex": codex_cli.environment}
"""By agent: what a call needs to find the scripted endpoint, and a home of its own."""


class Model:
    """Writes a note that is too short, mends it, and signs it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bool]] = []
        """Of each call: its newest prompt, and whether the first prompt of the feature was there as well."""

    def __call__(self, request: Request) -> Answer:
        prompt, output = request.prompt, "\n".join(request.user_texts())
        done = len(request.results())
        if not done:
            self.requests.append((prompt, "Write a note" in output))
        if "Sign the note" in prompt:
            return self._hands_over(request, done, "letters/alpha.md", "# Letter\nabout alpha\n")
        if "at least 10 are needed" in prompt:
            return self._hands_over(request, done, "notes/alpha.md", "# Alpha\nThis is long enough.\n")
        if "Write a note" in prompt:
            return self._hands_over(request, done, "notes/alpha.md", SHORT)
        raise Unexpected(f"what is to be done? {prompt[:200]}")

    @staticmethod
    def _hands_over(request: Request, done: int, path: str, text: str) -> Answer:
        if done == 0 and path.startswith("notes") and text != SHORT:
            return Reply("I look first.", (request.read(path),))
        if done < 2 and not (done == 1 and (text == SHORT or path.startswith("letters"))):
            return Reply("", (request.write(path, text),))
        return Reply("Done.")


class Played(NamedTuple):
    events: list[Event]
    model: Model

    def resumed(self) -> list[bool]:
        return [event.resumes for event in self.events if isinstance(event, AgentRequested)]


def play(folder: Path, agent: str = "claude-code", forgets: bool = False) -> Played:
    """Alpha until a person is asked; with `forgets` the CLI's sessions are gone after its first call."""
    workshop, model = Workshop(folder, settings=f"sessions: continue\nagent: {agent}\n"), Model()
    workshop.ramble()
    home = folder / "home"
    reads: list[ReplyParsed] = []

    def see(recorded: Recorded[Event]) -> None:
        if isinstance(recorded.event, ReplyParsed):
            reads.append(recorded.event)
            if forgets and len(reads) == 1:
                (sessions,) = workshop.root.glob(CLAUDE_SESSIONS)
                for path in sessions.iterdir():
                    shutil.rmtree(path)

    with Endpoint(model) as endpoint, RunProcess(workshop.root, OUTSIDE[agent](home, endpoint.url), see) as session:
        session.start({}, ("alpha",))
        state = session.drive()
        assert endpoint.complaints == []
        assert state.started is not None
        assert state.started.provenance == "unknown", "a variable names the scripted endpoint"
        rested = state.tracks["alpha"].last_stop
        assert rested is not None
        assert rested.status is FeatureOutcome.WAITING
        return Played(
            [item.event for item in session.store.read(feature_stream(state.started.run, FeatureId("alpha")))], model
        )


def test_a_rework_and_the_next_phase_are_in_one_conversation(on_disk: Path) -> None:
    """Of the agent that names its session itself, and counts on from call to call."""
    played = play(on_disk, "codex")
    assert played.resumed() == [False, True, True]
    assert [first_prompt_known for _, first_prompt_known in played.model.requests] == [True, True, True]
    rework = played.model.requests[1][0]
    assert "Write a note" not in rework, "the newest prompt tells what is new"
    reads = [event for event in played.events if isinstance(event, ReplyParsed)]
    assert len({read.session for read in reads}) == 1
    assert all(read.problem is None for read in reads)
    numbers = [sum(usage.input for usage in read.usage) for read in reads]
    assert numbers[2] < numbers[1], "two requests, after three"


def test_a_conversation_that_is_gone_is_begun_anew_and_goes_on(on_disk: Path) -> None:
    """Of the agent that is told its session."""
    played = play(on_disk, forgets=True)
    assert played.resumed() == [False, True, False, True]
    assert [event.reason for event in played.events if isinstance(event, SessionDropped)] == [SessionDropReason.MISSING]
    problems = [event.problem.code for event in played.events if isinstance(event, ReplyParsed) and event.problem]
    assert problems == ["session-missing"]
    assert "Write a note" in played.model.requests[1][0], "the whole prompt"
    assert "Write a note" not in played.model.requests[2][0], "the newest prompt tells what is new"
    assert [first_prompt_known for _, first_prompt_known in played.model.requests] == [True, True, True]
    reads = [event for event in played.events if isinstance(event, ReplyParsed) and not event.problem]
    assert reads[1].session == reads[2].session
