"""Replays with real processes, real git and today's pipeline: as recorded, wherever and however they are played."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from mz_recordings.cassette.files import digest, save
from mz_recordings.cassette.model import Cassette, Identity, RecordedCall
from mz_recordings.cassette.trace import encode_trace, feature_trace
from mz_recordings.findings.model import ReplayResult
from mz_recordings.replay.replay import replay_all, replay_cassette, shuffled

from tests.support.gitrepo import GitRepo
from tests.support.tapes import git
from tests.support.workshop import SCRIPT, TODAY, Copy, Workshop

pytestmark = pytest.mark.slow


def kinds(played: ReplayResult) -> list[str]:
    return [finding.kind for finding in played.findings]


def rewrite(copy: Copy, change: Callable[[Cassette], Cassette]) -> None:
    save(change(copy.cassette()), copy.folder, replace=True)


# as recorded ----------------------------------------------------------------------------------------------------------
def test_a_rework_a_failure_a_rollback_and_a_person_play_as_recorded(copy: Copy) -> None:
    """In another clone, without history, with the project that was recorded untouched and out of reach."""
    played = copy.settle()
    assert played.findings == ()
    assert (played.calls_replayed, played.recordings, played.traces_compared) == (8, 8, 2)
    assert played.trace_digests == copy.cassette().manifest.traces


def test_the_trace_digest_is_that_of_the_events_of_the_log(recorded: Path, copy: Copy) -> None:
    from mz_events.adapters.sqlite_log import SqliteStore
    from mz_events.names import feature_stream

    world = copy.cassette().manifest.fixture
    with SqliteStore(recorded / ".mz" / "mz.db", read_only=True) as store:
        events = [item.event for item in store.read(feature_stream(world.run, "alpha"))]
    assert digest(encode_trace(feature_trace(events))) == copy.cassette().manifest.traces["alpha"]


def test_one_by_one_in_parallel_and_shuffled_are_the_same(copy: Copy) -> None:
    paths = []
    for name in ("one", "two", "three"):
        save(copy.cassette(), copy.folder.parent / name)
        paths.append(copy.folder.parent / name)

    def stories(workers: int, parallel: int, seed: int | None) -> list[dict[str, str]]:
        texts: list[str] = []
        jobs = [
            copy.job(path=str(path), features_parallel=parallel, seed=seed) for path in shuffled(tuple(paths), seed)
        ]
        played = replay_all(tuple(jobs), workers, lambda replay_result: texts.append(replay_result.path))
        assert sorted(texts) == sorted(str(path) for path in paths)
        assert [element.path for element in played] == [job.path for job in jobs]
        assert [entry.findings for entry in played] == [()] * 3
        return [item.trace_digests for item in played]

    expected = [copy.cassette().manifest.traces] * 3
    assert stories(1, 1, None) == expected
    assert stories(3, 2, None) == expected
    assert stories(2, 2, 4) == expected


def test_a_shallow_clone_at_another_commit_and_the_original_gone(recorded: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(recorded, tmp_path / "project", symlinks=True))
    GitRepo(root).commit({"other.txt": "unrelated"})
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{root}", "clone")
    root.rename(tmp_path / "gone")
    assert Copy(tmp_path / "clone").settle(real=True).findings == ()


def test_what_the_memory_said_and_a_fatal_stop_that_a_person_mended(tmp_path: Path) -> None:
    broken = {"write": {"notes/alpha.md": "# Alpha\nit is broken here\n"}}
    document = {
        **SCRIPT,
        "alpha.write.1.1": broken,
        "beta.write.1.1": {"write": {"notes/beta.md": "# Alpha\nit is broken here\n"}},
        "beta.sign.1.1": {"fail": "API Error: 401 authentication_error"},
        "beta.sign.1.2": SCRIPT["beta.sign.1.1"],
    }
    workshop = Workshop(tmp_path, document)
    made = workshop.record(workshop.run()).cassette
    texts = [hint.text for hint in made.manifest.fixture.hints if hint.feature == "beta"]
    (text,) = texts
    assert text.startswith("This failure was seen before; it was mended by changing notes/alpha.md.\n\n--- a/notes/")
    workshop.keep(made)
    played = Copy(workshop.root).settle()
    assert (played.findings, played.calls_replayed) == ((), 9)


def test_a_learning_that_names_paths_of_the_recording_machine_is_replayed_elsewhere(tmp_path: Path) -> None:
    """The path is in the patch that fixed alpha, which beta's rework is shown."""
    lines = f"it is broken here\n\nsee {tmp_path.resolve() / 'project'}/x\n"
    acts = {f"{name}.write.1.1": {"write": {f"notes/{name}.md": f"# Alpha\n{lines}"}} for name in ("alpha", "beta")}
    workshop = Workshop(tmp_path, {**SCRIPT, **acts})
    made = workshop.record(workshop.run()).cassette
    (text,) = [hint.text for hint in made.manifest.fixture.hints if hint.feature == "beta"]
    assert "\n-see <REPOSITORY>/x" in text
    workshop.keep(made)
    assert [Copy(workshop.root).settle(real=real).findings for real in (False, True)] == [(), ()]


def test_nobody_waits_for_a_timer(copy: Copy) -> None:
    """The agent asks for half an hour; the clock of the world leaps."""

    def patient(cassette: Cassette) -> Cassette:
        return cassette._replace(calls=tuple(_saying(item, b"retry-after: 1800") for item in cassette.calls))

    rewrite(copy, patient)
    begun = time.monotonic()
    (finding,) = copy.settle().findings
    assert (finding.kind, finding.feature, finding.call) == ("STREAM", "beta", "write")
    assert time.monotonic() - begun < 120


def _saying(call: RecordedCall, content: bytes) -> RecordedCall:
    file = call.recording.find("stderr")
    if file is None:
        return call
    data = call.contents[file.name].replace(b"retry-after: 1", content)
    files = tuple(
        msgspec.structs.replace(item, sha256=digest(data)) if item is file else item for item in call.recording.files
    )
    return RecordedCall(msgspec.structs.replace(call.recording, files=files), {**call.contents, file.name: data})


# what drifted ---------------------------------------------------------------------------------------------------------
def test_a_changed_prompt_is_drift_and_accepting_it_keeps_the_answers(copy: Copy) -> None:
    copy.edit("pipelines/templates/write.md.j2", "Keep it short.", "Be brief.")
    played = copy.settle(features_parallel=2)
    assert kinds(played) == ["PROMPT"] * 5
    assert {finding.cause for finding in played.findings} == {"write.md.j2"}
    assert [line for line in played.findings[0].detail if line[0] in "+-"] == ["-Keep it short.", "+Be brief."]
    assert played.findings[0].fix == "mz replay {cassette} --accept PROMPT -m TEXT"
    assert played.calls_replayed == 8

    renewed = copy.settle(accept=["PROMPT"], reason="shorter words")
    assert (renewed.findings, renewed.accepted_replies) == ((), 5)
    assert renewed.changes[0].startswith("accepted new inputs, kept the replies: alpha/write")
    renewals = [call.recording.accepted for call in copy.cassette().calls if call.recording.accepted is not None]
    assert len(renewals) == 5
    accepted = renewals[0]
    assert (accepted.kinds, accepted.reason) == (("PROMPT",), "shorter words")
    later = copy.settle(today=TODAY + timedelta(days=91))
    assert kinds(later) == ["EXPIRED"]


def test_what_is_accepted_may_bring_no_secret(copy: Copy) -> None:
    key = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
    copy.edit("pipelines/templates/sign.md.j2", "Sign the", f"Use {key} and sign the")
    before = copy.cassette()
    again = copy.settle(accept=("PROMPT",), reason="more words")
    assert kinds(again)[0] == "SECRET"
    assert again.changes == ()
    assert copy.cassette() == before


def test_another_model_is_a_drift_of_settings(copy: Copy) -> None:
    (copy.root / "mz.yaml").write_text((copy.root / "mz.yaml").read_text() + "models: {mid: claude-haiku-4-5}\n")
    played = copy.settle()
    assert set(kinds(played)) == {"CONFIG"}
    assert "+claude-haiku-4-5" in played.findings[0].detail
    renewed = copy.settle(accept=["CONFIG"], reason="cheaper")
    assert renewed.findings == ()
    assert copy.cassette().calls[0].recording.model == "claude-haiku-4-5"


def test_a_stricter_rule_asks_for_a_call_that_was_not_recorded(copy: Copy) -> None:
    copy.edit("pipelines/rules/note.yaml", "min: 10", "min: 26")
    played = copy.settle()
    missing = [finding for finding in played.findings if finding.kind == "MISSING"]
    assert (missing[0].feature, missing[0].call) == ("alpha", "sign.a2")
    assert missing[0].detail == ("  caused by: note.bytes letters/alpha.md", "  nearest: alpha/sign (attempt 1)")


def test_the_same_calls_and_another_verdict_are_a_drift_of_policy(copy: Copy) -> None:
    copy.edit("pipelines/notes.yaml", "cause: text", "cause: words")
    played = copy.settle()
    assert kinds(played) == ["DECISION", "DECISION"]
    assert played.findings[0].detail == (
        "  gate.checked", '-   cause: "text"', '+   cause: "words"'
    )  # fmt: skip
    assert kinds(copy.settle(accept=["TRACE"], reason="of another class")) == ["DECISION", "DECISION"]
    assert copy.settle(accept=["DECISION"], reason="a better word").findings == ()


def test_a_repository_that_is_another_one_is_an_effect(copy: Copy) -> None:
    """The agent of the second call began from what the first had left."""

    def other(cassette: Cassette) -> Cassette:
        recorded = [
            _with_patch(item) if item.recording.identity.path == "beta/write.a2" else item for item in cassette.calls
        ]
        return cassette._replace(calls=tuple(recorded))

    rewrite(copy, other)
    (effect,) = [finding for finding in copy.settle().findings if finding.kind == "FILES"]
    assert (effect.feature, effect.call) == ("beta", "sign")


def test_a_patch_that_does_not_fit_is_an_effect(copy: Copy) -> None:
    def other(cassette: Cassette) -> Cassette:
        with_patches = [_with_patch(item, b"a/nowhere.md") for item in cassette.calls]
        return cassette._replace(calls=tuple(with_patches))

    rewrite(copy, other)
    result = copy.settle().findings
    assert [(finding.kind, finding.feature, finding.call) for finding in result] == [("FILES", "alpha", "write")]
    assert any("does not match" in line or "error:" in line for line in result[0].detail)


def _with_patch(call: RecordedCall, path: bytes = b"") -> RecordedCall:
    file = call.recording.find("patch")
    if file is None:
        return call
    data = call.contents[file.name].replace(b"long enough", b"LONG ENOUGH")
    if path:
        data = data.replace(b"--- /dev/null", b"--- " + path).replace(b"new file mode 100644\n", b"")
    new = msgspec.structs.replace(file, sha256=digest(data))
    files = tuple(new if item is file else item for item in call.recording.files)
    return RecordedCall(msgspec.structs.replace(call.recording, files=files), {**call.contents, file.name: data})


# what fails closed ----------------------------------------------------------------------------------------------------
def test_recordings_that_nobody_asks_for(copy: Copy) -> None:
    def more(cassette: Cassette) -> Cassette:
        item = next(call for call in cassette.calls if call.recording.identity.path == "beta/sign")
        identity = Identity(pipeline="notes", feature="beta", phase="sign", attempt=2)
        files = tuple(msgspec.structs.replace(file, name=f"a2.{file.name}") for file in item.recording.files)
        extra = msgspec.structs.replace(item.recording, identity=identity, files=files)
        contents = {f"a2.{name}": data for name, data in item.contents.items()}
        return cassette._replace(calls=(*cassette.calls, RecordedCall(extra, contents)))

    rewrite(copy, more)
    (unused,) = copy.settle().findings
    assert unused.kind == "UNUSED"
    assert unused.message == "1 of 4 recordings of beta are unused; its first 3 calls were replayed"
    assert unused.detail == ("  sign.a2",)
    mended = copy.settle(prune=True)
    assert mended.findings == ()
    assert mended.changes == ("removed 1 unused recordings: beta/sign.a2",)


def test_answers_that_are_worth_nothing_any_more(copy: Copy) -> None:
    rewrite(
        copy, lambda cassette: cassette._replace(manifest=msgspec.structs.replace(cassette.manifest, max_age_days=1))
    )
    assert kinds(copy.settle(today=TODAY + timedelta(days=2))) == ["EXPIRED"]


def test_the_bundled_recordings_play_as_recorded(tmp_path: Path) -> None:
    from tests.support.rerecord import BUNDLED

    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    played, _ = replay_cassette(Copy(tmp_path).job(path=str(BUNDLED), features_parallel=2))
    assert played.findings == ()
    assert (played.calls_replayed, played.traces_compared) == (20, 3)


def test_a_gate_with_a_command_that_the_cassette_does_not_know(copy: Copy) -> None:
    """The command is today's; what the world knows is the world's, and what differs is named."""
    copy.edit("mz.yaml", "commands:\n", 'commands:\n  lint: {run: "true", timeout: 1m}\n')
    copy.edit("mz.yaml", "grep -rh broken notes", "grep -rh other notes")
    copy.edit("pipelines/notes.yaml", "gates: [{run: check, cause: text}]", "gates: [{run: check}, {run: lint}]")
    played = copy.settle()
    assert "PIPELINE" not in kinds(played)
    assert set(kinds(played)) & {"DECISION", "TRACE"}
    assert played.overridden_settings == ("commands.check",)


def test_calls_made_within_a_second_keep_their_order(copy: Copy) -> None:
    """Names of files would put `sign` before `write`; the stories know."""
    cassette = copy.cassette()
    at_once = tuple(
        call._replace(recording=msgspec.structs.replace(call.recording, recorded_at="2026-11-21T10:28:00Z"))
        for call in cassette.calls
    )
    save(cassette._replace(calls=at_once), copy.folder, replace=True)
    order = [item.recording.identity.path for item in copy.cassette().calls]
    assert order[:5] == ["alpha/write", "alpha/write.a2", "alpha/sign", "alpha/write.i2", "alpha/sign.i2"]
