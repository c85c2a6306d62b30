"""However an agent's output ends, the end has a name, and nothing passes that is no success."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from mz_engine.agents.catalog import AGENTS
from mz_engine.agents.claude_code import stream
from mz_engine.agents.registry import built_in_adapters
from mz_engine.decide import feature
from mz_engine.decide.recovery import next_call
from mz_engine.ports import CallResult
from mz_qa.conformance.endings import stored_endings
from mz_qa.variants import play
from mz_qa.variants.play import VariantOutcome, end_state, play_variants, succeeds, violations
from mz_recordings.cassette.files import load
from mz_recordings.cassette.model import Identity
from mz_recordings.faults.faults import Variant, derive_variants
from mz_recordings.replay.replay import bundled_library, without_git_variables

from tests.cli.drive import run
from tests.support.gitrepo import GitRepo

ASSISTANT_LINE = b'{"type":"assistant","text":"{\\"type\\":\\"result\\",\\"is_error\\":false}"}'
WELL = b'{"type":"result","subtype":"success","is_error":false}'
ILL = b'{"type":"result","subtype":"success","is_error":true}'
TURNS = b'{"type":"result","subtype":"error_max_turns","is_error":false}'


def variants_of(fault: str) -> tuple[VariantOutcome, ...]:
    path = bundled_library() / "faults"
    return play_variants(load(path / fault), path / "project", without_git_variables(os.environ))


def broken(outcomes: tuple[VariantOutcome, ...]) -> dict[str, tuple[str, ...]]:
    return {outcome.name: outcome.violations for outcome in outcomes if outcome.violations}


@pytest.mark.slow
def test_every_variant_of_a_small_cassette_ends_well() -> None:
    outcomes = variants_of("killed")
    assert broken(outcomes) == {}
    assert len({outcome.name for outcome in outcomes}) == len(outcomes) > 500
    ends = Counter(outcome.end for outcome in outcomes)
    assert set(ends) == {
        "delivered", "waiting (recording-missing)", "halted (auth-failure)", "halted (billing)", "halted (disk-full)",
    }  # fmt: skip
    by_name = {outcome.name: outcome.end for outcome in outcomes}
    assert by_name["note/write.a2: whole-exit--9 (memory)"] == "delivered"
    assert by_name["note/write.a2: empty (memory)"] == "waiting (recording-missing)"
    assert by_name["note/write.a2: ends-api-error-401 (memory)"] == "halted (auth-failure)"
    assert by_name["note/write.a2: whole-and-timeout (crash)"] == "delivered"


def play_every(nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play so many variants of each recording, others of the next one: each kind is played at several recordings."""
    turn = count()
    monkeypatch.setattr(play, "derive_variants", lambda call: tuple(derive_variants(call))[next(turn) % nth :: nth])


@pytest.mark.slow
def test_variants_of_the_bundled_cassette_end_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three features, one built on another, with a rework and a gate that failed."""
    play_every(10, monkeypatch)
    cassette = load(bundled_library() / "monozukuri-claude-code")
    outcomes = play_variants(cassette, bundled_library() / "sample", without_git_variables(os.environ))
    assert broken(outcomes) == {}
    assert {item.recording.identity.path for item in cassette.calls} <= {
        f"{outcome.feature}/{outcome.call}" for outcome in outcomes
    }
    assert len(outcomes) > 680


def _object(line: bytes) -> dict[str, Any]:
    """The last line of a stream; of one that was cut or is garbage, none of its fields."""
    try:
        result = json.loads(line)
    except ValueError:
        return {}
    return result if isinstance(result, dict) else {}


@pytest.mark.parametrize("agent", sorted(name for name, agent in AGENTS.items() if agent.stdout_endings))
@pytest.mark.slow
def test_both_opinions_agree_on_every_other_end(agent: str) -> None:
    """Of all that is stored of the agent, with every other last line that its program is known to write."""
    adapter, ends = built_in_adapters()[agent], 0
    for stored in stored_endings(agent):
        *head, last = stored.result.stdout.splitlines(keepends=True) or [b"{}"]
        endings = AGENTS[agent].stdout_endings
        assert endings is not None
        for name, other, code in endings(_object(last)):
            stdout = b"".join((*head, other))
            reading = adapter.parse_output(replace(stored.result, stdout=stdout, exit=code))
            assert (reading.ending == "success") is succeeds(agent, stdout), (stored.name, name)
            assert reading.ending == "success" or reading.problem is not None, (stored.name, name)
            ends += 1
    assert ends > 100


@pytest.mark.slow
def test_variants_of_a_generation_end_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items that merge in an order of their own, one of which is begun again, and a lost call."""
    play_every(20, monkeypatch)
    cassette = load(bundled_library() / "generation-claude-code")
    outcomes = play_variants(cassette, bundled_library() / "sample", without_git_variables(os.environ))
    assert broken(outcomes) == {}
    ends = {outcome.feature: outcome.end for outcome in outcomes if not outcome.call}
    assert {"delivered"} == {*ends.values()}
    assert "failed (merge_base)" in {outcome.end for outcome in outcomes}


@pytest.mark.slow
def test_variants_of_a_cassette_with_people_in_it(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback by a person, a failed call, and a commit of the agent's own."""
    play_every(4, monkeypatch)
    root = recorded
    cassette, environment = load(root / "recordings" / "notes"), without_git_variables(os.environ)
    outcomes = play_variants(cassette, root, environment)
    assert broken(outcomes) == {}
    assert len(outcomes) > 500


@pytest.mark.slow
def test_a_user_asks_what_would_have_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(bundled_library() / "faults" / "project", tmp_path / "project")
    shutil.copytree(bundled_library() / "faults" / "killed", tmp_path / "project" / "recordings" / "killed")
    monkeypatch.chdir(GitRepo(tmp_path / "project").root)
    done = run(capsys, "replay", "--variants", "--json")
    assert done.exit == 0, done.err
    (item,) = json.loads(done.out)["cassettes"]
    assert (item["path"], item["failing"]) == ("recordings/killed", [])
    assert item["variants"] == sum(item["ends"].values()) > 500
    done = run(capsys, "replay", "recordings/killed", "--variants")
    assert done.exit == 0
    assert f"{item['variants']} variants: all ended in a named state, and no failure passed as a success" in done.out
    result = run(capsys, "replay", "recordings/killed", "--inject", "note/write.a2=rate-limit")
    assert result.exit == 0, result.err
    assert result.out.splitlines()[1:] == [
        "  parsed: rate-limit (transient, in 5 s)", "  held (timer): rate-limit", "  released",
        "  called again: attempt 3", "  the work was accepted", "note ended: delivered",
    ]  # fmt: skip
    result = run(capsys, "replay", "--inject", "note/write=auth-failure", "--json")
    assert json.loads(result.out)["reactions"][:2] == ["parsed: auth-failure (fatal)", "the run halts: auth-failure"]


@pytest.mark.parametrize(
    ("args", "output"),
    [
        (("--inject", "note/write=flood"), "there is no fault 'flood'; there are: rate-limit"),
        (("--inject", "write"), "there is no fault ''"),
        (("--inject", "note/code=idle"), "the cassette has no call 'note/code'; it has: note/write, note/write.a2"),
        (("--inject", "note/write=idle", "--variants"), "exclude each other"),
        (("--variants", "--prune"), "leave out the other options"),
        (("--variants", "--junit", "x.xml"), "leave out the other options"),
        (("--bundled",), "it accepts no PATH"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    args: tuple[str, ...], output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(GitRepo(tmp_path / "project").root)
    done = run(capsys, "replay", str(bundled_library() / "faults" / "killed"), *args)
    assert (done.exit, output in done.err) == (2, True), done.err


# it finds what it is there to find ------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_parser_that_believes_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "status_of", lambda result: "success")
    actual = broken(variants_of("killed"))
    (text,) = actual["note/write.a2: ends-error_max_turns-not-is_error (memory)"]
    assert text == "a failure passed as success: it led to changes.checked"
    assert "note/write.a2: success-then-api-error-500 (crash)" in actual


@pytest.mark.slow
def test_what_is_found_is_told_and_is_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stream, "status_of", lambda result: "success")
    shutil.copytree(bundled_library() / "faults" / "project", tmp_path / "project")
    monkeypatch.chdir(GitRepo(tmp_path / "project").root)
    done = run(capsys, "replay", str(bundled_library() / "faults" / "killed"), "--variants")
    assert done.exit == 1
    assert "BROKEN  note/write.a2: ends-error_max_turns (memory)\n  a failure passed as success" in done.out
    assert "FAILED" in done.out.splitlines()[-1]


@pytest.mark.slow
def test_a_core_that_never_rests_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature, "after_problem", lambda state, cell, *_: next_call(cell, cell.role))
    monkeypatch.setattr(
        play,
        "derive_variants",
        lambda recorded: [variant for variant in derive_variants(recorded) if variant.name == "empty"],
    )
    result = broken(variants_of("killed"))
    assert result["note/write.a2: empty (memory)"] == ("it does not stop",)


@pytest.mark.slow
def test_a_core_that_breaks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(feature, "after_problem")
    result = broken(variants_of("rate-limit"))
    assert result["note: as-recorded (memory)"][0].startswith("internal error: NameError")
    assert result["note/write: empty (memory)"][0].startswith("internal error: NameError")


# the properties by themselves -----------------------------------------------------------------------------------------
def requested(attempt: int = 1) -> dict[str, object]:
    ref = {"key": f"k{attempt}", "phase": "code", "unit": "", "iteration": 1, "attempt": attempt, "role": "builder"}
    return {"type": "agent.requested", "ref": ref}


def read(attempt: int = 1) -> dict[str, object]:
    return {"type": "reply.parsed", "ref": {"key": f"k{attempt}"}}


CALL = Variant(Identity(pipeline="p", feature="f", phase="code"), "cut", b"")
DONE: dict[str, object] = {"type": "feature.delivered"}
COMMIT: dict[str, object] = {"type": "commit.requested"}


@pytest.mark.parametrize(
    ("trace", "success", "args"),
    [
        ([requested(), read(), COMMIT, DONE], True, ()),
        ([requested(), read(), COMMIT, DONE], False, ("a failure passed as success: it led to commit.requested",)),
        ([requested(), read(), requested(2), read(2), COMMIT, DONE], False, ()),
        ([requested(), read(), {"type": "phase.skipped"}, DONE], False, ()),
        ([requested(), read()], False, ("it ended in a state without a name (after reply.parsed)",)),
        ([], False, ("it ended in a state without a name (after nothing)",)),
        ([requested(), requested(2), read(2), DONE], False, ("the output of call k1 was never parsed",)),
        (
            [requested(), read(), {"type": "feature.failed", "code": "x"}],
            True,
            ("a success ended in another state: failed (x) instead of delivered",),
        ),
    ],
)
def test_what_does_not_hold_is_said(trace: list[dict[str, object]], success: bool, args: tuple[str, ...]) -> None:
    assert violations(CALL, success, trace, "delivered") == args


@pytest.mark.parametrize(
    ("event", "end"),
    [
        (DONE, "delivered"),
        ({"type": "feature.cancelled"}, "cancelled"),
        ({"type": "feature.failed", "code": "rejected"}, "failed (rejected)"),
        ({"type": "feature.held", "hold": "fatal", "code": "billing"}, "halted (billing)"),
        ({"type": "feature.held", "hold": "fatal", "code": None}, ""),
        ({"type": "feature.held", "hold": "budget", "code": None}, "held (budget)"),
        ({"type": "human.requested", "code": ""}, ""),
        ({"type": "phase.started"}, ""),
    ],
)
def test_ends_have_names(event: dict[str, object], end: str) -> None:
    assert end_state([event]) == end


@pytest.mark.parametrize(
    ("lines", "well"),
    [
        ((WELL,), True),
        ((WELL, b"garbage"), True),
        ((WELL, ILL), False),
        ((ILL, WELL), True),
        ((TURNS,), False),
        ((ASSISTANT_LINE,), False),
        ((WELL[:-1],), False),
        ((b'{"type":"result","subtype":"success"}',), True),
        ((b'{"type":"result"}',), False),
        ((b'{"type":"result","is_error":0,"subtype":"success"}',), False),
        ((), False),
    ],
)
def test_the_second_opinion_and_the_parsers(lines: tuple[bytes, ...], well: bool) -> None:
    result = CallResult(stdout=b"\n".join(lines), stderr=b"", exit=0, duration_ms=1)
    assert succeeds("claude-code", result.stdout) is well
    assert (built_in_adapters()["claude-code"].parse_output(result).ending == "success") is well
    assert succeeds("another", b"\n".join(lines)) is None
