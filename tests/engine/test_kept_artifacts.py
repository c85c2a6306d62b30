"""Artifacts that are there already take the place of a call, if they are valid and newer than what they depend on."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_engine.run.process import RunProcess
from mz_engine.run.settings import load_config
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.validation import ArtifactsKept, GateChecked
from mz_events.names import FeatureId, feature_stream
from mz_events.names import Path as TreePath
from mz_projections.views.timeline import describe

from tests.support.desk import Desk
from tests.support.workshop import Copy, Workshop

NOTE = "notes/alpha.md"


def test_the_order_of_changes_is_that_of_the_commits(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    paths = TreePath("a"), TreePath("b"), TreePath("both")
    first = desk.repo.commit({"a": "1", "both": "1"})
    head = desk.repo.commit({"b": "1"})
    a, b, both = paths
    readme, untracked = TreePath("README.md"), TreePath("untracked")
    assert not desk.port.is_newest(first, b, readme, ())
    assert desk.port.is_newest(head, b, readme, (a, both))
    assert desk.port.is_newest(head, a, readme, (both,)), "an input of the same commit is no newer"
    assert not desk.port.is_newest(head, a, both, ()), "nor is the artifact newer than a request of the same commit"
    assert not desk.port.is_newest(head, a, readme, (b,))
    assert not desk.port.is_newest(head, b, readme, (untracked,))
    assert not desk.port.is_newest(head, b, untracked, ())


def test_what_the_first_commit_of_a_cut_history_has_is_not_newer(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.repo.commit({"a": "1"})
    head = desk.repo.commit({"b": "1"})
    readme, a, b = TreePath("README.md"), TreePath("a"), TreePath("b")
    assert desk.port.is_newest(head, a, readme, ())
    (desk.repo.root / ".git" / "shallow").write_text(f"{desk.repo.git('rev-parse', 'HEAD~1')}\n")
    assert not desk.another().is_newest(head, a, readme, ())
    assert desk.another().is_newest(head, b, readme, (a,)), "made after the cut"


def first_phase(workshop: Workshop) -> tuple[list[Event], str]:
    """Delivers alpha as far as a person is asked; returns its events and its run."""
    with RunProcess(workshop.root, workshop.environment, lambda recorded: None) as session:
        session.start({}, ("alpha",))
        state = session.drive()
        assert state.started is not None
        stream = feature_stream(state.started.run, FeatureId("alpha"))
        return [recorded.event for recorded in session.store.read(stream)], state.started.run


def called(events: list[Event]) -> list[str]:
    return [event.ref.phase for event in events if isinstance(event, AgentRequested)]


@pytest.mark.slow
def test_a_phase_with_valid_artifacts_calls_no_agent(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    workshop.repository.commit({NOTE: "# Alpha\nwritten by a person\n"})
    events, run = first_phase(workshop)
    assert called(events) == ["sign"]
    (kept,) = [event for event in events if isinstance(event, ArtifactsKept)]
    assert describe(kept) == "write: valid and newer than what they depend on, no agent is called"
    assert [(event.phase, event.passed) for event in events if isinstance(event, GateChecked)] == [("write", True)]
    workshop.keep(workshop.record(run).cassette)
    copy = Copy(workshop.root)
    assert copy.settle(keep=True).findings == (), "with processes"
    replayed = copy.settle()
    assert (replayed.findings, replayed.in_memory) == ((), True)


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["invalid", "older", "of one commit", "other request"])
def test_otherwise_the_agent_is_called(tmp_path: Path, reason: str) -> None:
    workshop = Workshop(tmp_path)
    backlog = (workshop.root / "features.md").read_text()
    workshop.repository.commit({NOTE: "short" if reason == "invalid" else "# Alpha\nwritten by a person\n"})
    if reason == "older":
        workshop.repository.commit({"features.md": backlog + "\nMore.\n"})
    if reason == "of one commit":
        workshop.repository.commit({NOTE: "# Alpha\nwritten again\n", "features.md": backlog + "\nMore.\n"})
    if reason == "other request":
        workshop.repository.write({"features.md": backlog.replace("Please.", "Please, at once.")})
    assert load_config(workshop.root, {}, {}).config.backlog == "features.md"
    assert called(first_phase(workshop)[0])[0] == "write"
