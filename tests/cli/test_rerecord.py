"""`mz rerecord`: what it asks before anything is paid, what it refuses, what waits, and that no paid answer is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_cli.recordings.rerecord import (
    BUILD_SERVERS,
    RerecordOptions,
    RerecordWork,
    ask_consent,
    check_ci,
    check_phases,
    check_prices,
    continue_command,
    on_build_server,
    rejected_kinds,
    rerecord_exit,
    select_calls,
)
from mz_cli.recordings.rerecord_text import (
    kind_lines,
    nothing_to_do_text,
    progress_text,
    reason_text,
    rerecorded_cassette,
    result_lines,
    summary_lines,
    table,
)
from mz_cli.terminal.text import plain_text
from mz_engine.errors.diagnostics import MzError
from mz_engine.git.workspace import GitWorkspace
from mz_engine.git.worktree import GitWorktree
from mz_engine.ports import Capture, RepositoryUnusable
from mz_engine.pricing.estimate import Estimate
from mz_engine.processes.supervise import can_run_offline
from mz_events.names import Commit
from mz_recordings.cassette.files import digest, load, save
from mz_recordings.cassette.model import Identity, Item
from mz_recordings.findings.model import Finding
from mz_recordings.record.obstacles import ExcludedFeature
from mz_recordings.rerecord.driver import CallProgress, RunEnd
from mz_recordings.rerecord.plan import CallSelection, CallSelector, RepeatedCall
from mz_recordings.rerecord.rerecord import RerecordPlan, RerecordResult
from mz_recordings.rerecord.workspace import RerecordWorkspace, pending_path, write_pending

from tests.cli.drive import MZ, Mz, on_terminal, spawn
from tests.support.again import Again
from tests.support.gitrepo import GitRepo
from tests.support.tapes import cassette as tape
from tests.support.tapes import recording
from tests.support.workshop import SCRIPT, clone

SIGN = "pipelines/templates/sign.md.j2"
NOBODY = RerecordOptions()


def call(name: str, *why: str, follows: str = "", nanousd: int | None = 5_000_000, paid: bool = False) -> RepeatedCall:
    identity = Identity(pipeline="p", feature="f", phase=name)
    estimate = Estimate(tokens=10, nanousd=nanousd)
    return RepeatedCall(identity=identity, reasons=why, follows=follows, is_paid=paid, estimate=estimate)


CALLS = (call("a", "PROMPT", "EXPIRED"), call("b", follows="f/a", nanousd=None), call("c", "REQUESTED", paid=True))
PREPARED = RerecordPlan(None, None, None, CALLS, (), None)  # type: ignore[arg-type]
FINDINGS = (
    Finding(
        kind="PROMPT", message="the prompt differs from the recording", feature="f", call="a", detail=("-old", "+new")
    ),
    Finding(kind="COST", message="it takes more", feature="f", call="a", detail=tuple(f"+ {n}" for n in range(60))),
)


# what is said ---------------------------------------------------------------------------------------------------------
def test_what_will_be_called_and_paid() -> None:
    shown = table([("recordings/x", PREPARED)])
    assert shown.rows == (
        ("recordings/x", "f/a", "PROMPT, EXPIRED", "10", "$0.0050"),
        ("recordings/x", "f/b", "follows f/a", "10", "unpriced"),
        ("recordings/x", "f/c", "already paid in an unfinished attempt", "10", "$0.0050"),
    )
    assert list(summary_lines([("x", PREPARED)], 2_000_000_000)) == [
        "3 calls, 30 tokens, $0.0100 estimated + 1 unpriced; budget $2.0000",
        "later calls are repeated only if their prompt, arguments or tree change",
    ]
    assert reason_text(call("a", "MISSING")) == "not recorded"


def test_a_line_on_each_call() -> None:
    assert progress_text(CallProgress("f/a", "asked")) == "f/a: calling ..."
    assert progress_text(CallProgress("f/a", "served", 0.1, 5)) == "f/a: from the recording"
    actual = progress_text(CallProgress("f/a", "answered", 1.25, 1200, None))
    assert actual == "f/a: answered, 1.2 s, 1,200 tokens, unpriced"
    actual = progress_text(CallProgress("f/a", "failed", 2.0, problem_code="rate-limit"))
    assert actual == "f/a: failed (rate-limit), 2.0 s"


def test_differences_are_shown_by_kind_and_bounded() -> None:
    assert [plain_text(line) for line in kind_lines("PROMPT", FINDINGS)] == [
        "PROMPT  the agent gets another prompt, 1 time, medium risk",
        "  f/a: the prompt differs from the recording", "  -old", "  +new",
    ]  # fmt: skip
    lines = [plain_text(line) for line in kind_lines("COST", FINDINGS)]
    assert (len(lines), lines[-1]) == (42, "  ... and 21 more lines")


def test_what_came_of_it_and_its_exit_code() -> None:
    outcome = RerecordResult(
        RunEnd("", 20_000_000),
        ("f/a",),
        ("f/b",),
        kept_features=("f",),
        dropped_features=(ExcludedFeature("g", "it failed"),),
    )
    done = rerecorded_cassette("recordings/x", PREPARED, outcome)
    assert list(result_lines(replace(done, written=True))) == [
        "recordings/x: g keeps its old recordings: it failed",
        "recordings/x: new recordings of f (1 agent call, $0.02; 1 from the recording)",
    ]
    assert int(rerecord_exit([done])) == 1
    waits = replace(done, dropped=(), rejected=("PROMPT",), pending="recordings/.rerecorded/x")
    actual = list(result_lines(waits))
    assert actual == ["recordings/x: unchanged; the new cassette is in recordings/.rerecorded/x; not accepted: PROMPT"]
    assert int(rerecord_exit([waits])) == 3
    for stopped, code in {"budget": 22, "interrupted": 20, "auth-failure": 11}.items():
        assert int(rerecord_exit([rerecorded_cassette("x", PREPARED, RerecordResult(RunEnd(stopped, 0)))])) == code
    assert int(rerecord_exit([])) == 0


SELECTORS = (CallSelector(run="r1", feature="a", phase="code", attempt=2),)


def test_the_command_that_goes_on() -> None:
    rerecord_options = replace(NOBODY, selection=CallSelection(selectors=SELECTORS, changed=True), prune=True)
    path = Path.cwd() / "recordings" / "x"
    assert continue_command(path, rerecord_options, "budget") == (
        "mz rerecord recordings/x 'r1/a/code#2' --changed --prune --budget MORE"
    )


def test_other_drifts_are_named_where_nothing_is_to_be_recorded() -> None:
    other = PREPARED._replace(findings=(Finding(kind="TRACE", message=""), Finding(kind="PROMPT", message="")))
    assert nothing_to_do_text("x", other) == "x: nothing to re-record; the replay differs (TRACE): mz replay x"


# what is refused ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("value", "is_ci"), [("true", True), ("1", True), ("false", False), ("", False)])
def test_a_build_server_needs_both(value: str, is_ci: bool) -> None:
    environment = {"CI": value}
    assert on_build_server(environment) is is_ci
    check_ci(environment, replace(NOBODY, in_ci=True, budget_nanousd=1))
    for rerecord_options in (
        NOBODY,
        replace(NOBODY, in_ci=True),
        replace(NOBODY, budget_nanousd=1),
        replace(NOBODY, yes=True),
    ):
        if is_ci:
            with pytest.raises(MzError, match="only with --in-ci and --budget"):
                check_ci(environment, rerecord_options)
        else:
            check_ci(environment, rerecord_options)


@pytest.mark.parametrize(
    ("environment", "is_ci"),
    [
        *(({name: "x"}, True) for name in BUILD_SERVERS),
        ({}, False),
        ({"GITHUB_ACTIONS": "true", "CI": "true"}, True),
        ({"TF_BUILD": "False"}, False),
        ({"GITHUB_ACTIONS": "true", "CI": "false"}, False),
        ({"JENKINS_URL": "http://ci", "CI": ""}, False),
    ],
)
def test_build_servers_are_known_by_their_own_variables(environment: dict[str, str], is_ci: bool) -> None:
    """What says CI itself is believed."""
    assert on_build_server(environment) is is_ci


def test_a_call_without_a_price_is_not_made_within_a_budget() -> None:
    unpriced, priced = Estimate(tokens=1, nanousd=None), Estimate(tokens=1, nanousd=9)
    for budget in (0, 1_000_000_000):
        with pytest.raises(MzError, match="a budget cannot limit it"):
            check_prices(unpriced, budget)
        check_prices(priced, budget)
    check_prices(unpriced, None)


def test_nobody_accepts_where_nobody_is_asked() -> None:
    assert rejected_kinds(FINDINGS, NOBODY) == ("PROMPT", "COST")
    assert rejected_kinds(FINDINGS, replace(NOBODY, accept=("COST",))) == ("PROMPT",)
    assert rejected_kinds(FINDINGS, replace(NOBODY, accept=("ALL",))) == ()
    gone = (Finding(kind="UNUSED", message=""),)
    assert (rejected_kinds(gone, NOBODY), rejected_kinds(gone, replace(NOBODY, prune=True))) == (("UNUSED",), ())


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ((), 4, "no cassette in recordings"),
        (("recordings/other",), 4, "no cassette in recordings"),
        (("--accept-pending", "--prune"), 2, "--accept-pending can be combined only with"),
        (("--accept-pending", "login"), 2, "--accept-pending can be combined only with"),
        (("--budget", "much"), 2, "invalid value for '--budget': 'much' is not an amount of dollars"),
        (("--accept", "EVERYTHING"), 2, "'EVERYTHING' is not one of"),
    ],
)
def test_wrong_use(mz: Mz, args: tuple[str, ...], code: int, message: str) -> None:
    result = mz("rerecord", *args)
    assert (result.exit, result.out) == (code, "")
    assert message in result.err


# what is selected -----------------------------------------------------------------------------------------------------
@pytest.fixture
def library(empty: Path) -> Path:
    """Two runs, with one feature each."""
    for name, run_id, feature in (("first", "r1aa", "login"), ("second", "r1bb", "docs")):
        made = tape(recording("1" * 40))
        items = (Item(feature=feature, title="", body="", priority=0, depends_on=()),)
        fixture = replace(made.manifest.fixture, run=run_id, items=items)
        save(made._replace(manifest=replace(made.manifest, fixture=fixture, traces={}), traces={}), empty / name)
    (empty / "docs").mkdir()
    return empty


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("login", CallSelector(feature="login")),
        ("login/code#2", CallSelector(feature="login", phase="code", attempt=2)),
        ("r1aa/login/code", CallSelector(run="r1aa", feature="login", phase="code")),
        ("r1b/docs", CallSelector(run="r1bb", feature="docs")),
        ("docs", CallSelector(feature="docs")),
        ("lgin", "no cassette has the feature 'lgin'; did you mean `login`?"),
        ("r1aa/docs", "run r1aa has no feature 'docs'"),
        ("r1aa", "r1aa is a run"),
        ("login@4", "'login@4' is an event"),
        ("login#2", "'login#2' is not a selector"),
        ("./docs", "no cassette in docs"),
        ("recordings/typo", "recordings/typo does not exist"),
        ("/tmp/none/such", "/tmp/none/such does not exist"),
        ("elsewhere/first", "there is no run or feature 'elsewhere'"),
    ],
)
def test_a_selector_names_calls_of_the_recorded_runs(library: Path, text: str, expected: CallSelector | str) -> None:
    """A folder without a cassette may have the name of a feature."""
    cassettes = [library / "first", library / "second"]
    if isinstance(expected, str):
        with pytest.raises(MzError) as rejected:
            select_calls(library, cassettes, [text])
        assert expected in str(rejected.value)
    else:
        assert select_calls(library, cassettes, [text]) == (expected,)
        assert str(expected) in (text, "r1bb/docs")


def test_which_calls_a_selector_matches() -> None:
    made = Identity(pipeline="p", feature="login", phase="code", attempt=2)
    for text in (CallSelector(feature="login"), CallSelector(run="r1", feature="login", phase="code", attempt=2)):
        assert text.matches("r1", made)
    for other in ({"run": "r2"}, {"feature": "docs"}, {"phase": "prd"}, {"attempt": 1}):
        assert not CallSelector(**{"feature": "login", **other}).matches("r1", made)  # type: ignore[arg-type]


# the real thing -------------------------------------------------------------------------------------------------------
@pytest.fixture
def again(recorded: Path, tmp_path: Path) -> Again:
    copy = clone(recorded, tmp_path / "clone")
    GitRepo(copy.root).commit()
    path = tmp_path / "agent"
    path.mkdir()
    return Again(copy, path)


@pytest.mark.slow
def test_nothing_is_paid_without_an_agent_a_login_or_a_word(again: Again, capsys: pytest.CaptureFixture[str]) -> None:
    again.copy.edit(SIGN, "Sign the", "Please sign the")
    order = again.order(CallSelection())
    work = RerecordWork(again.copy.folder, order, RerecordWorkspace(again.folder, "0"), again.prepared(CallSelection()))
    (signed,) = select_calls(again.copy.root, [again.copy.folder], ["alpha/sign"])
    check_phases([work], CallSelection(selectors=(signed,)))
    with pytest.raises(MzError, match="no cassette has the phase 'sing'; did you mean `sign`"):
        check_phases([work], CallSelection(selectors=(signed, replace(signed, phase="sing"))))
    without = {name: value for name, value in again.environment.items() if name != "ANTHROPIC_API_KEY"}
    for environment, code in (({**again.environment, "PATH": "/usr/bin:/bin"}, "MZ1004"), (without, "MZ1005")):
        with pytest.raises(MzError) as refused:
            ask_consent([work._replace(job=replace(order, environment=environment))], replace(NOBODY, yes=True))
        assert refused.value.code == code
    assert capsys.readouterr().err == ""
    with pytest.raises(MzError, match="needs your consent"):
        ask_consent([work], NOBODY)
    assert "alpha/sign\tPROMPT\t" in capsys.readouterr().err
    assert again.calls() == []


def until(process: subprocess.Popen[bytes], again: Again, name: str) -> None:
    deadline = time.monotonic() + 60
    while name not in again.calls():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_no_paid_answer_is_lost(again: Again) -> None:
    """Killed, stopped by Ctrl-C, a library that cannot be written, then a person who accepts; each call is made once
    but for the one that the kill met. The library is a link to somewhere else."""
    again.single()
    root = again.copy.root
    elsewhere = root.parent / "elsewhere"
    shutil.move(root / "recordings", elsewhere)
    (root / "recordings").symlink_to(elsewhere)
    again.copy.edit(SIGN, "Sign the", "Please sign the")
    before = load(again.copy.folder)
    everything = {**os.environ, **again.environment}

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen([*MZ, "rerecord", "--yes"], cwd=root, env=everything, stderr=subprocess.PIPE)

    again.says({**SCRIPT, "alpha.sign.2.1": {**SCRIPT["alpha.sign.2.1"], "run": "sleep 60"}})
    killed = begin()
    until(killed, again, "alpha.sign.2.1")
    killed.kill()
    killed.communicate()
    work = {**SCRIPT["alpha.sign.2.1"], "run": f"touch {root}/intruder 2>/dev/null; sleep 1.5"}
    again.says({**SCRIPT, "alpha.sign.2.1": work})
    stopped = begin()
    until_second(stopped, again)
    stopped.send_signal(signal.SIGINT)
    _, data = stopped.communicate(timeout=60)
    assert stopped.returncode == 20, data
    assert b"2 paid replies are kept" in data
    assert load(again.copy.folder) == before
    assert not (can_run_offline() and (root / "intruder").exists())

    (elsewhere / ".rerecorded").write_text("in the way")
    full = spawn(root, "rerecord", "--yes", **again.environment)
    assert full.exit == 11, full.err
    assert "without paying anything twice" in full.err
    assert load(again.copy.folder) == before
    (elsewhere / ".rerecorded").unlink()
    output = on_terminal(root, "rerecord", env=again.environment, answers="y\ny\n" + "n\n" * 9)
    assert "Call the real agent? [y/N]" in output
    assert "Accept PROMPT? [y/N]" in output
    assert "new recordings of alpha (0 agent calls, $0.00" in " ".join(output.split())
    assert again.calls() == ["alpha.sign.1.1", "alpha.sign.2.1", "alpha.sign.2.1"]
    assert load(again.copy.folder) != before
    assert [path.name for path in elsewhere.iterdir()] == ["notes"]
    assert (root / "recordings").is_symlink()


def until_second(process: subprocess.Popen[bytes], again: Again) -> None:
    while again.calls().count("alpha.sign.2.1") < 2:
        assert process.poll() is None
        time.sleep(0.05)


@pytest.mark.slow
def test_what_was_paid_for_a_feature_that_goes_with_another_is_kept(again: Again) -> None:
    """Beta fails, so that nothing is taken; the next attempt pays for beta alone."""
    again.copy.edit(SIGN, "Sign the", "Please sign the")
    again.says({**SCRIPT, **{f"beta.sign.1.{attempt}": {"fail": "Error: no"} for attempt in range(1, 9)}})
    failed = spawn(again.copy.root, "rerecord", "--yes", **again.environment)
    assert failed.exit == 1, failed.err
    assert "2 paid replies are kept" in failed.err
    assert again.calls()[:2] == ["alpha.sign.1.1", "alpha.sign.2.1"]
    count = len(again.calls())
    again.says(SCRIPT)
    done = spawn(again.copy.root, "rerecord", "--yes", "--accept", "ALL", **again.environment)
    assert done.exit == 0, done.err
    assert {name.partition(".")[0] for name in again.calls()[count:]} == {"beta"}
    assert not [path for path in (again.copy.root / ".mz" / "rerecord").iterdir() if path.is_dir()]


@pytest.mark.slow
def test_an_answer_that_mz_did_not_live_to_note_is_kept(again: Again, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the agent's last word; what the agent left in its tree is the answer's, even if nobody could read
    it at first."""
    again.single()
    again.copy.edit(SIGN, "Sign the", "Please sign the")
    again.program.write_text(again.program.read_text() + "import time\ntime.sleep(act.get('linger', 0))\n")
    again.says({**SCRIPT, "alpha.sign.2.1": {**SCRIPT["alpha.sign.2.1"], "linger": 60}})
    everything = {**os.environ, **again.environment}
    killed = subprocess.Popen(
        [*MZ, "rerecord", "--yes"], cwd=again.copy.root, env=everything, stderr=subprocess.DEVNULL
    )
    until(killed, again, "alpha.sign.2.1")
    deadline, spools = time.monotonic() + 30, "*/run-*/repository/.mz/spool/*sign+*2*/stdout"
    while not any(b'"type": "result"' in path.read_bytes() for path in (again.copy.root / ".mz/rerecord").glob(spools)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    again.says(SCRIPT)

    capture = GitWorkspace._capture

    def fail(workspace: GitWorkspace, worktree: GitWorktree, before: Commit) -> Capture:
        if "/run-" in str(worktree.path):  # Not in the replay that plans.
            raise RepositoryUnusable("git", "the disk is gone")
        return capture(workspace, worktree, before)

    with monkeypatch.context() as patch:
        patch.setattr(GitWorkspace, "_capture", fail)
        prepared = again.prepared(CallSelection())
    assert [call.identity.path for call in prepared.calls if call.is_paid] == ["alpha/sign"]
    (git,) = (again.copy.root / ".mz" / "rerecord").glob("*/run-*/repository/.git")
    refs = git / "packed-refs"
    before = refs.read_bytes() if refs.exists() else b""
    refs.write_bytes(b"no refs")
    prepared = again.prepared(CallSelection())
    assert [call.identity.path for call in prepared.calls if call.is_paid] == ["alpha/sign"]
    refs.write_bytes(before)
    prepared = again.prepared(CallSelection())
    assert [call.identity.path for call in prepared.calls if call.is_paid] == ["alpha/sign", "alpha/sign.i2"]
    paid = {item.recording.identity.path: item for item in prepared.paid.calls}["alpha/sign.i2"]
    assert b"about alpha, friendlier" in paid.contents["sign.i2.md"]
    _, outcome = again.record(CallSelection())
    assert (outcome.live_calls, outcome.kept_features) == ((), ("alpha",))
    assert again.calls() == ["alpha.sign.1.1", "alpha.sign.2.1"]


@pytest.mark.slow
def test_a_new_cassette_waits_until_every_kind_is_accepted(
    again: Again, mz: Mz, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later mz, with a newer format, accepts it, so that a copy of the old one is kept."""
    root, path = again.copy.root, again.copy.folder
    old = load(path)
    item = old.calls[-1]
    text = {name: data.replace(b"Sign the", b"Please sign the") for name, data in item.contents.items()}
    renewed = tuple(replace(file, sha256=digest(text[file.name])) for file in item.recording.files)
    other = item._replace(recording=replace(item.recording, files=renewed), contents=text)
    write_pending(old._replace(calls=(*old.calls[:-1], other)), path)
    assert (pending_path(path).parent / ".gitignore").read_text() == "*\n"
    refused = spawn(root, "rerecord", "--yes", **again.environment)
    assert (refused.exit, refused.out) == (4, "")
    assert "a new cassette is waiting for your decision" in refused.err

    monkeypatch.chdir(root)
    wrong = mz("rerecord", "--accept-pending", "--accept", "COST")
    assert wrong.exit == 3
    assert "mz rerecord recordings/notes --accept-pending --accept" in wrong.err
    result = mz("rerecord", "--accept-pending", "--accept", "ALL", "--json")
    assert result.exit == 0, result.err
    (shown,) = json.loads(result.out)["cassettes"]
    assert (shown["written"], shown["backup"]) == (True, None)
    assert not pending_path(path).parent.exists()
    assert load(path).calls[-1].contents == text
    nothing_waits = mz("rerecord", "--accept-pending")
    assert nothing_waits.exit == 4
