"""What goes wrong with agents, as recordings: each comes to the state that its page says, and fits any cassette."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from mz_recordings.cassette.files import find_cassettes, load, save
from mz_recordings.cassette.model import Cassette, Identity
from mz_recordings.faults.faults import FAULTS, Fault, InvalidFaultError, fault_reaction, inject
from mz_recordings.replay.replay import ReplayJob, bundled_library, replay_cassette, without_git_variables

from tests.support.make_faults import page
from tests.support.tapes import cassette, recording

LIBRARY = bundled_library() / "faults"
WRITE = Identity(pipeline="errand", feature="note", phase="write")
AGAIN = "called again: attempt 2"
DONE = "the work was accepted"
BECOMES = {
    "rate-limit": ["parsed: rate-limit (transient, in 5 s)", "held (timer): rate-limit", "released", AGAIN, DONE],
    "overloaded": ["parsed: overloaded (transient, in 30 s)", "held (timer): overloaded", "released", AGAIN, DONE],
    "lost-connection": ["parsed: connection (transient, in 30 s)", "held (timer): connection", "released", AGAIN, DONE],
    "auth-failure": ["parsed: auth-failure (fatal)", "the run halts: auth-failure"],
    "timeout": ["ended by mz: timeout", "parsed: timeout (transient)", AGAIN, DONE],
    "idle": ["ended by mz: idle", "parsed: idle (transient)", AGAIN, DONE],
    "hang": ["ended by mz: idle", "parsed: idle (transient)", AGAIN, DONE],
    "killed": ["parsed: no-terminal (phase)", AGAIN, DONE],
    "turn-limit": ["parsed: turn-limit (phase)", AGAIN, DONE],
    "malformed-artifact": ["rejected: note.bytes", AGAIN, DONE],
    "human-blocker": ["parsed: agent-blocker (needs-person)", "a person is asked: agent-blocker",
                      "a person answers: approve", AGAIN, DONE],
    "crash": ["lost: mz was not running when it ended", "parsed: lost (transient)", AGAIN, DONE],
}  # fmt: skip


def test_every_fault_comes_with_mz_and_with_a_line_about_it() -> None:
    assert {path.name for path in find_cassettes((LIBRARY,))} == set(FAULTS) == set(BECOMES)
    assert (LIBRARY / "README.md").read_text("utf-8") == page()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.name)
def test_a_fault_is_recorded_as_its_page_says(fault: Fault) -> None:
    made = load(LIBRARY / fault.name)
    first = made.calls[0]
    assert (made.manifest.provenance, first.recording.identity) == ("documented", WRITE)
    assert first.content("stdout").strip() == fault.stdout.encode().strip()
    assert (first.recording.outcome == "lost") == fault.is_lost
    assert first.recording.failure == fault.failure
    assert list(fault_reaction(made.traces["note"], WRITE)) == BECOMES[fault.name]
    last = json.loads(made.traces["note"].splitlines()[-1])
    assert last["type"] == ("feature.held" if fault.name == "auth-failure" else "feature.delivered")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_happens_again_with_real_processes(name: str) -> None:
    job = ReplayJob(
        path=str(LIBRARY / name),
        project=str(LIBRARY / "project"),
        environment=without_git_variables(os.environ),
        today=datetime.now(UTC),
    )
    played, happened = replay_cassette(job)
    assert played.findings == ()
    assert happened is not None
    assert list(fault_reaction(happened.traces["note"], WRITE)) == BECOMES[name]


# into a cassette ------------------------------------------------------------------------------------------------------
def small() -> Cassette:
    return cassette(recording("0" * 40))


def test_the_recorded_answers_follow_the_fault() -> None:
    made, wanted = inject(small(), "f/prd", "rate-limit")
    first, second = made.calls
    assert [call.recording.identity.name for call in made.calls] == ["prd", "prd.a2"]
    assert wanted == first.recording.identity
    assert first.content("stdout") == FAULTS["rate-limit"].stdout.encode()
    assert first.content("prompt") == second.content("prompt")
    assert (first.content("patch"), second.content("patch")) == (b"", small().calls[0].content("patch"))
    assert first.recording.tree_after == first.recording.tree_before


@pytest.mark.parametrize("name", FAULTS)
def test_a_cassette_with_a_fault_is_one_like_any_other(name: str, tmp_path: Path) -> None:
    save(inject(small(), "f/prd", name)[0], tmp_path / "made")
    assert len(load(tmp_path / "made").calls) == 2


@pytest.mark.parametrize(
    ("call", "name", "text"),
    [
        ("f/prd", "flood", "there is no fault 'flood'; there are: rate-limit, "),
        ("f/code", "rate-limit", "the cassette has no call 'f/code'; it has: f/prd"),
        ("", "", "there is no fault ''"),
    ],
)
def test_a_fault_that_fits_nowhere_says_what_there_is(call: str, name: str, text: str) -> None:
    with pytest.raises(InvalidFaultError, match=text):
        inject(small(), call, name)


def test_an_agent_whose_words_are_not_known_has_what_needs_none() -> None:
    other = cassette(recording("0" * 40, agent="another"))
    text = "timeout, idle, hang, killed, malformed-artifact, crash"
    with pytest.raises(InvalidFaultError, match=rf"the form of rate-limit is not known for another; .*: {text}$"):
        inject(other, "f/prd", "rate-limit")
    assert len(inject(other, "f/prd", "idle")[0].calls) == 2


def test_a_call_that_nobody_made_has_no_aftermath() -> None:
    assert list(fault_reaction(b"", WRITE)) == ["the call was not made"]
