"""A run whose agents see only some files: recorded, replayed by stand-ins and in memory, and checked from its log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mz_engine.run.process import RunProcess
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied, AgentRequested, ContextComposed
from mz_events.names import feature_stream
from mz_recordings.rerecord.plan import CallSelection

from tests.support.again import Again, requests
from tests.support.workshop import COMMIT, PIPELINE, SCRIPT, Copy, Workshop, clone

pytestmark = pytest.mark.slow

LIST = "find . -type f -not -path './.git*' | sort >> notes/alpha.md"
SCOPED_SCRIPT: dict[str, dict[str, object]] = {
    **SCRIPT,
    "alpha.write.1.2": {"write": {"notes/alpha.md": "# Alpha\nThis is long enough.\n", "mz.yaml": "mine"}},
    "alpha.write.1.3": {"write": {"notes/alpha.md": "# Alpha\nThis is long enough.\n"}, "run": f"{LIST}; {COMMIT}"},
}


@pytest.fixture(scope="module")
def scoped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workshop, str]:
    made = Workshop(tmp_path_factory.mktemp("scoped"), SCOPED_SCRIPT)
    pipeline = made.root / "pipelines" / "notes.yaml"
    text = PIPELINE.replace("  prompt: write", "  context: {files: [features.md]}\n  prompt: write")
    pipeline.write_text(text.replace("  prompt: sign", "  context: {files: []}\n  prompt: sign"))
    made.repository.commit()
    run = made.run()
    recorded = made.record(run)
    assert recorded.unrecordable == ()
    made.keep(recorded.cassette)
    assert Copy(made.root).settle(keep=True).findings == ()
    return made, run


def events_of(made: Workshop, run: str) -> Iterator[Event]:
    with RunProcess(made.root, made.environment, lambda recorded: None) as session:
        yield from (recorded.event for recorded in session.store.read(feature_stream(run, "alpha")))


def test_an_agent_sees_its_files_and_is_told_of_others(scoped: tuple[Workshop, str]) -> None:
    made, run = scoped
    note = made.repository.git("show", "feat/alpha~3:notes/alpha.md")
    assert [line for line in note.splitlines() if line.startswith("./")] == ["./features.md", "./notes/alpha.md"]
    events = list(events_of(made, run))
    hidden = [
        (event.ref.attempt, change.path)
        for event in events
        if isinstance(event, AgentReplied)
        for change in event.forbidden_changes
        if change.kind == "hidden"
    ]
    assert hidden == [(2, "mz.yaml")]
    composed = [event for event in events if isinstance(event, ContextComposed)]
    assert [part.name for part in composed[0].laid_out] == ["features.md"]
    assert [part.name for part in composed[1].laid_out] == ["features.md", "notes/alpha.md"], "with its own work"
    assert [part.name for part in composed[3].laid_out] == ["notes/alpha.md"], "an input"
    assert composed[0].hidden_files > 0
    assert all(event.laid_out for event in events if isinstance(event, AgentRequested))


def test_its_recording_is_replayed_in_memory(scoped: tuple[Workshop, str], tmp_path: Path) -> None:
    played = clone(scoped[0].root, tmp_path / "clone").settle()
    assert played.findings == ()
    assert played.calls_replayed == played.recordings == 9


def test_another_scope_is_another_tree(scoped: tuple[Workshop, str], tmp_path: Path) -> None:
    copy = clone(scoped[0].root, tmp_path / "clone")
    copy.edit("pipelines/notes.yaml", "files: [features.md]", "files: [pipelines/]")
    assert {finding.kind for finding in copy.settle().findings} == {"FILES"}


def test_a_call_that_is_recorded_again_sees_its_files_only(scoped: tuple[Workshop, str], tmp_path: Path) -> None:
    again = Again(clone(scoped[0].root, tmp_path / "clone"), tmp_path / "agent")
    again.single()
    again.copy.edit("pipelines/templates/sign.md.j2", "Sign the", "Please sign the")
    sign = SCRIPT["alpha.sign.1.1"] | {"run": LIST.replace("notes", "letters")}
    again.says(SCOPED_SCRIPT | {"alpha.sign.1.1": sign})
    prepared, rerecorded = again.record(CallSelection())
    assert requests(prepared) == {"alpha/sign": "PROMPT", "alpha/write.i2": "(alpha/sign)", "alpha/sign.i2": "PROMPT"}
    assert rerecorded.live_calls == ("alpha/sign", "alpha/sign.i2")
    made = {call.recording.identity.path: call for call in again.keep(rerecorded.cassette).calls}
    patch = made["alpha/sign"].contents["sign.patch"].decode()
    listed = [line.removeprefix("+./") for line in patch.splitlines() if line.startswith("+./")]
    assert listed == ["letters/alpha.md", "notes/alpha.md"], "an input, and its own work"
    assert again.copy.settle().findings == ()
