"""Calls for which nothing is started in a replay are compared all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_engine.agents.process import AgentProcesses
from mz_engine.ports import Interrupted
from mz_events.redaction.redactor import Secrets
from mz_recordings.cassette.model import Failure, Identity
from mz_recordings.findings.model import CallMismatch
from mz_recordings.replay.agents import ReplayAgents

from tests.support.claude_cli import spec
from tests.support.tapes import OTHER_SESSION, PROMPT, cassette, git, recording, repository

IDENTITY = Identity(pipeline="monozukuri", feature="f", phase="prd")
TOOLS = ("read", "write")


def noted(folder: Path, outcome: str, **document: object) -> CallMismatch:
    """What a crew notes of one call that is answered from a recording with this outcome."""
    worktree = repository(folder / "repository")
    failure = Failure(kind="phase", code="timeout") if outcome == "failed" else None
    item = recording(git(worktree, "rev-parse", "HEAD^{tree}"), outcome=outcome, exit=None, failure=failure)
    root = folder / "repository"
    processes = AgentProcesses(root, {}, Secrets({}))
    outside = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    crew = ReplayAgents(cassette(item), root, processes, folder / "journal", outside)
    call = spec(str(document.pop("prompt", PROMPT)), OTHER_SESSION, **{"tools": TOOLS, **document})
    if outcome == "lost":
        with pytest.raises(Interrupted):
            crew.call(call)
    else:
        assert crew.call(call).problem is not None
    return crew.mismatches[IDENTITY]


@pytest.mark.parametrize("outcome", ["failed", "lost"])
def test_a_call_that_is_as_it_was(tmp_path: Path, outcome: str) -> None:
    assert noted(tmp_path, outcome) == CallMismatch()


@pytest.mark.parametrize("outcome", ["failed", "lost"])
def test_another_model_other_tools_and_another_prompt(tmp_path: Path, outcome: str) -> None:
    model = noted(tmp_path / "a", outcome, model="claude-opus-4-6")
    assert model.argv is not None
    assert "claude-opus-4-6" in model.argv
    assert OTHER_SESSION not in model.argv
    assert noted(tmp_path / "b", outcome, tools=("read",)).argv is not None
    assert noted(tmp_path / "c", outcome, prompt="Something else").prompt == "Something else"


def test_changes_that_do_not_fit_hide_nothing_else(tmp_path: Path) -> None:
    worktree = repository(tmp_path / "repository")
    (worktree / "note.md").write_text("It is there already.\n")
    item = recording("1" * 40, outcome="failed", exit=None, failure=Failure(kind="phase", code="timeout"))
    root = tmp_path / "repository"
    processes = AgentProcesses(root, {}, Secrets({}))
    outside = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    crew = ReplayAgents(cassette(item), root, processes, tmp_path / "journal", outside)
    crew.call(spec(PROMPT, OTHER_SESSION, tools=TOOLS, model="claude-opus-4-6"))
    call_mismatch = crew.mismatches[IDENTITY]
    assert call_mismatch.rejection is not None
    assert call_mismatch.argv is not None
