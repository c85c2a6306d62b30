"""`mz drift`: what it prints, what fails and what does not, and each kind planted into a recorded project."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from mz_cli.check.drift import drift_result, render_text, summary, with_failures
from mz_cli.reports.findings import results_exit
from mz_cli.terminal.text import plain_text
from mz_engine.errors.diagnostics import Exit
from mz_recordings.cassette.files import load, save
from mz_recordings.cassette.model import Cassette
from mz_recordings.drift.noise import NoiseEntry, NoiseRejection
from mz_recordings.drift.run import LibraryDrift
from mz_recordings.findings.model import Finding, ReplayResult, Risk
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, spawn
from tests.support.changed import with_event, with_fields, with_file, with_line
from tests.support.gitrepo import GitRepo
from tests.support.workshop import Copy, clone

WRITE = "beta/write.a2"
COST = Finding(
    kind="COST", message="it takes other tokens", feature="beta", call="write", cause="tokens", risk="low",
    detail=("- reported: $0.01", "+ reported: $0.02"), fix="mz rerecord {cassette} beta/write",
)  # fmt: skip
POLICY = Finding(
    kind="DECISION", message="the story of beta decides otherwise", feature="beta", call="write",
    detail=("- passed: true", "+ passed: false"), fix="mz replay {cassette} --accept DECISION -m TEXT",
)  # fmt: skip
NOISE = NoiseEntry(kind="COST", path="usage.output", within=20, reason="a live model", cassette="notes")
DRIFTED = LibraryDrift(
    results=(
        ReplayResult(path="recordings/a b", name="notes", recordings=8, calls_replayed=8, findings=(COST, POLICY)),
    ),
    matched_entries=((NOISE, 2),),
    hidden_count=2,
    proposed=(NOISE,),
    rejections=(NoiseRejection("HIDES_VERDICT", "DECISION beta write: it decides otherwise"),),
)


# pages ----------------------------------------------------------------------------------------------------------------
def test_the_page(snapshot: SnapshotAssertion) -> None:
    drifted = with_failures(DRIFTED, "medium")
    lines = [plain_text(line) for line in render_text(drifted)]
    assert "\n".join((*lines, summary(drifted, False, "today"))) == snapshot


def test_drift_fails_from_the_risk_on_that_was_asked_for() -> None:
    unused = Finding(kind="UNUSED", message="nobody asks for it")
    cases: tuple[tuple[tuple[Finding, ...], Risk, Exit], ...] = (
        ((COST,), "low", Exit.DRIFT),
        ((COST,), "medium", Exit.OK),
        ((COST, POLICY), "high", Exit.DRIFT),
        ((unused,), "high", Exit.RECORDING),  # it keeps the comparison from being one
    )
    for findings, fail_on, expected in cases:
        drifted = LibraryDrift(results=(replace(DRIFTED.results[0], findings=findings),))
        assert results_exit(with_failures(drifted, fail_on).results) is expected


def test_findings_say_whether_the_command_fails_for_them() -> None:
    assert [item.fails for item in with_failures(DRIFTED, "low").results[0].findings] == [True, True]
    assert [finding.fails for finding in with_failures(DRIFTED, "medium").results[0].findings] == [False, True]
    assert [document["exit"] for document in found_as_json(with_failures(DRIFTED, "medium"))] == [0, 3]
    prompt = replace(POLICY, kind="PROMPT")
    played = replace(DRIFTED.results[0], findings=(prompt,))
    (played,) = with_failures(replace(DRIFTED, results=(played,)), "high").results
    assert not played.findings[0].fails


def found_as_json(drifted: LibraryDrift) -> list[dict[str, object]]:
    reported = msgspec.to_builtins(drift_result(drifted, 3, "medium", "today"))
    return [entry for item in reported["cassettes"] for entry in item["findings"]]


# wrong use ------------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize(
    "phrase", [("--propose-noise",), ("--update-baseline",), ("-m", "x"), ("--propose-noise", "-m", " "),
              ("--propose-noise", "--update-baseline", "-m", "x"), ("--fail-on", "never")],
)  # fmt: skip
def test_who_writes_says_why(mz: Mz, phrase: tuple[str, ...]) -> None:
    assert mz("drift", *phrase).exit == 2


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize(
    "phrase", [("--static",), ("-j", "2"), ("--junit", "x"), ("--sarif", "x"),
              ("--html", "x"), ("--github",)],
)  # fmt: skip
def test_what_means_nothing_to_who_writes_baselines_is_refused(mz: Mz, phrase: tuple[str, ...]) -> None:
    result = mz("drift", "--update-baseline", "-m", "x", *phrase)
    assert result.exit == 2
    assert "--static, -j and reports: no effect with --update-baseline" in result.err


@pytest.mark.slow
def test_nothing_to_check_is_no_success(empty: Path, mz: Mz) -> None:
    result = mz("drift")
    assert (result.exit, "MZ6001" in result.err) == (4, True)
    (empty / "recordings").mkdir()
    (empty / "recordings" / "noise.yaml").write_text("noise: [{kind: DECISION, path: x, reason: r}]\n")
    result = mz("drift")
    assert (result.exit, result.err.splitlines()[0]) == (
        4,
        "error[MZ6020] recordings/noise.yaml: entry 1 (DECISION x) is rejected: HIDES_VERDICT: decisions of a rule, a "
        "gate or a permission are never noise",
    )
    (empty / "recordings" / "noise.yaml").write_text("[")
    assert "MZ6020" in mz("drift").err
    (empty / "recordings" / "noise.yaml").unlink()
    (empty / "recordings" / "wire").mkdir()
    (empty / "recordings" / "wire" / "x-1.yaml").write_text("[")
    result = mz("drift")
    assert (result.exit, "MZ6021" in result.err) == (125, True)


# the real thing -------------------------------------------------------------------------------------------------------
@pytest.fixture
def copy(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    made = clone(recorded, tmp_path / "clone")
    GitRepo(made.root).commit()
    monkeypatch.chdir(made.root)
    return made


def change(copy: Copy, changed: Callable[[Cassette], Cassette]) -> None:
    save(changed(copy.cassette()), copy.folder, replace=True)


def found_in(mz: Mz, *args: str) -> tuple[int, list[tuple[str, str, str | None]]]:
    """Exit code, and kind, risk and call of each finding that is not about the invented prices of the workshop."""
    answer = mz("drift", *args, "--json")
    reported = json.loads(answer.out)
    assert (reported["schema"], reported["exit"]) == ("mz.drift/1", answer.exit)
    findings = [
        finding for entry in reported["cassettes"] for finding in entry["findings"] if finding["cause"] != "prices"
    ]
    assert all(finding["fix"] and "{" not in finding["fix"] for finding in findings)
    return answer.exit, [(item["kind"], item["risk"], item["call"] or item["feature"]) for item in findings]


@pytest.mark.slow
def test_each_kind_that_is_seen_without_playing(copy: Copy, mz: Mz) -> None:
    clean = copy.cassette()
    assert found_in(mz, "--static") == (0, [])

    def planted(*changes: Callable[[Cassette], Cassette]) -> tuple[int, list[tuple[str, str, str | None]]]:
        save(clean, copy.folder, replace=True)
        for item in changes:
            change(copy, item)
        return found_in(mz, "--static")

    def about(**fields: object) -> Callable[[Cassette], Cassette]:
        return lambda item: item._replace(manifest=replace(item.manifest, **fields))

    assert planted(about(provenance="copied")) == (4, [("COPIED", "high", None)])
    assert planted(
        about(max_age_days=1), lambda item: with_fields(item, WRITE, recorded_at="2026-01-01T00:00:00Z")
    ) == (4, [("EXPIRED", "medium", None)])  # fmt: skip
    assert planted(lambda entry: with_line(entry, WRITE, "result", lambda line: {**line, "mood": "good"})) == (
        0, [("STREAM", "low", None)],
    )  # fmt: skip
    reason = planted(lambda element: with_line(element, WRITE, "result", lambda line: {**line, "terminal_reason": 3}))
    assert reason == (3, [("STREAM", "high", None)])
    for field, ended, result in (
        ({"reported_nanousd": 7}, 0, ("COST", "low", "write.a2")),
        ({"ending": "error"}, 3, ("STREAM", "medium", "write.a2")),
    ):
        assert planted(_told_otherwise(field)) == (ended, [result])
    assert planted(
        lambda single: with_event(single, "alpha", "artifact.parsed", lambda line: {**line, "files": ["x.py"]})
    ) == (3, [("ARTIFACT", "medium", "write")])  # fmt: skip
    save(clean, copy.folder, replace=True)
    copy.edit("pipelines/rules/note.yaml", "min: 10", "min: 1")
    assert found_in(mz, "--static") == (3, [("DECISION", "high", "write")])


def _told_otherwise(fields: Mapping[str, object]) -> Callable[[Cassette], Cassette]:
    """The story says something else of the second reply of `beta`."""
    return lambda cassette: with_event(cassette, "beta", "reply.parsed", lambda line: {**line, **fields}, 1)


@pytest.mark.slow
def test_two_recordings_and_what_is_learned_of_them(copy: Copy, mz: Mz) -> None:
    again = copy.root / "again"
    save(copy.cassette(), again)
    pair = ("recordings/notes", "again")
    assert found_in(mz, *pair) == (0, [])

    def answered(item: Cassette) -> Cassette:
        item = with_line(item, WRITE, "result", lambda line: {**line, "total_cost_usd": 0.011})
        item = with_file(item, WRITE, "artifact", lambda text: text.replace("long", "very long"))
        return with_file(item, WRITE, "patch", lambda text: text.replace("long", "very long"))

    save(answered(copy.cassette()), again, replace=True)
    reported = [("ARTIFACT", "low", "write.a2"), ("COST", "low", "write.a2")]
    assert found_in(mz, *pair) == (0, reported)
    assert found_in(mz, *pair, "--fail-on", "low") == (3, reported)
    assert found_in(mz, *pair, "--propose-noise", "-m", "a live model") == (0, [])
    assert "reason: a live model" in (copy.root / "recordings" / "noise.yaml").read_text()
    answer = mz("drift", *pair)
    assert answer.out.endswith("1 cassette, 8 recordings, against again: no drift, 2 hidden as noise\n")

    save(with_fields(answered(copy.cassette()), WRITE, exit=1), again, replace=True)
    assert found_in(mz, *pair) == (3, [("TRACE", "high", "write.a2")])
    assert "not noise: STRUCTURAL_CHANGE" in mz("drift", *pair, "--propose-noise", "-m", "x").out

    noise = copy.root / "recordings" / "noise.yaml"
    noise.write_text(noise.read_text().replace("cassette: notes", "cassette: gone\n  until: 2026-01-01", 1))
    noise.write_text(
        noise.read_text().replace("path: reported", "path: poem.text").replace("kind: COST", "kind: ARTIFACT")
    )
    assert found_in(mz, "--static") == (4, [("EXPIRED", "medium", None), ("UNUSED", "low", None)])


@pytest.mark.slow
def test_copied_or_damaged_answers_are_not_compared(copy: Copy, mz: Mz) -> None:
    again = copy.root / "again"
    manifest = copy.cassette().manifest
    save(copy.cassette()._replace(manifest=replace(manifest, provenance="copied")), again)
    assert found_in(mz, "recordings/notes", "again") == (4, [("COPIED", "high", None)])
    (again / "alpha" / "write.prompt.md").write_text("by hand")
    assert found_in(mz, "recordings/notes", "again") == (125, [("UNREADABLE", "high", None)])
    assert found_in(mz, "again", "--static") == (125, [("UNREADABLE", "high", None)])


@pytest.mark.slow
def test_a_baseline_of_the_project_is_written_and_used(copy: Copy, mz: Mz) -> None:
    other = {"terminal_reason": 3, "mood": "good"}
    change(copy, lambda item: with_line(item, WRITE, "result", lambda line: {**line, **other}))
    assert found_in(mz, "--static") == (3, [("STREAM", "high", None), ("STREAM", "low", None)])
    answer = mz("drift", "--update-baseline", "-m", "a patched command line")
    assert answer.out.startswith("recordings/wire/claude-code-2.1.197.yaml: of claude-code 2.1.197 ")
    assert "reason: a patched command line" in (copy.root / "recordings/wire/claude-code-2.1.197.yaml").read_text()
    assert found_in(mz, "--static")[1] == []
    assert load(copy.folder) == copy.cassette()


@pytest.mark.slow
def test_what_only_a_replay_sees(copy: Copy) -> None:
    copy.edit("pipelines/templates/write.md.j2", "Keep it short.", "Be brief.")
    copy.edit("pipelines/notes.yaml", "cause: text", "cause: words")
    drifted = spawn(copy.root, "drift", "--json", "--junit", "drift.xml")
    reported = json.loads(drifted.out)
    assert (drifted.exit, reported["exit"], reported["against"]) == (3, 3, "today")
    assert {(item["kind"], item["risk"], item["exit"]) for item in reported["kinds"]} == {
        ("PROMPT", "medium", 3), ("DECISION", "high", 3), ("COST", "low", 0),
    }  # fmt: skip
    assert (copy.root / "drift.xml").read_text().startswith("<?xml")
    accepted = spawn(copy.root, "replay", "--accept", "PROMPT", "--accept", "DECISION", "-m", "better words")
    assert accepted.exit == 0, accepted.out
