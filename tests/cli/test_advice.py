"""What a person is told to do about a run, and where its work is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click
import msgspec
import pytest
from msgspec.structs import replace
from mz_cli.common.advice import (
    LISTED_MAX,
    RunContext,
    features_to_list,
    limit_lines,
    next_command,
    pending_actions,
    relative_path,
    review_hint,
    work_locations,
)
from mz_cli.common.feature_text import short_message
from mz_cli.common.run_text import print_run, run_exit, status_table
from mz_cli.terminal.console import FORMAT_KEY
from mz_engine.errors.diagnostics import Exit
from mz_engine.ports import TEMPLATE_BROKEN
from mz_events.catalog.feature import PhaseStarted, QuestionKind
from mz_events.catalog.inbox import AnswerPosted
from mz_events.catalog.run import Hold, Verdict
from mz_events.catalog.validation import ArtifactValidated, Violation
from mz_events.names import Commit, Digest, FeatureId, feature_stream, inbox_stream, parse_path
from mz_events.store import Append
from mz_projections.views.messages import InboxMessage
from mz_projections.views.model import AWAITS_WORK, CommitView, FeatureView, RunView, TemplateFault

from tests.cli.drive import Mz, decoded, on_terminal
from tests.cli.stored_run import RUN, START_US, StoredRun
from tests.support.views import CALL, question

GOING = f"mz resume {RUN}"
LOG_IN = "Log in again, as `mz doctor` says; then `mz resume`."
EVENT = f"{feature_stream(RUN, 'audit')}@6"
QUESTION = question(QuestionKind.BLOCKER, "agent-blocker", "prd", detail=Digest("0"), since_us=1, event_ref=EVENT)
AUDIT = FeatureView(feature="audit", status="waiting", question=QUESTION)
LOGIN = FeatureView(
    feature="login", status="delivered", branch="feat/login", target="main", started_us=1,
    changed_paths=(parse_path("a"),),
)  # fmt: skip
EXPORT = replace(LOGIN, feature="export", branch="feat/export", target="feat/login")


def a_run(*features: FeatureView, status: str = "idle") -> RunView:
    return replace(RunView(run=RUN, base="main", features=features), status=status)


def letter(
    feature: str | None = "audit", question: int | None = 6, fate: str = "pending", kind: str = "answer"
) -> InboxMessage:
    plain = InboxMessage(
        kind="answer", feature=feature, verdict=None, phase=None, note=None, actor=Digest(""),
        recorded_at_us=1, event_ref="", question=question, status="pending",
    )  # fmt: skip
    return replace(plain, status=fate, kind=kind)


def context(*messages: InboxMessage, held: bool = False, home: Path = Path("/nowhere")) -> RunContext:
    return RunContext(root=home, load_text=lambda _: "Which one?", messages=messages, process_running=held)


def summary(view: RunView, beside: RunContext | None = None) -> tuple[tuple[str, str], ...]:
    return pending_actions(view, beside or context())


# ends of cycles -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("cycle", "over", "why"), [
    (0, "", "nothing is open"), (1, "cycles", "1 cycle: no more were allowed"),
    (2, "planned-nothing", "2 cycles: nothing is missing any more, so nothing was planned"),
])  # fmt: skip
def test_a_run_that_a_person_ends_says_how(cycle: int, over: str, why: str) -> None:
    view = RunView(run="r1", status="idle", base="main", integration="next", cycle=cycle, over=over)
    assert summary(view) == ((why, "mz finish r1   (or mz resume r1 --cycles 1)"),)


def test_an_end_that_failed_says_what_to_mend_where() -> None:
    last = FeatureView(feature="finish-1", status="failed", code="finish.test", failure=Digest("0"), target="main")
    view = RunView(run="r1", status="idle", base="main", integration="next", closing="finish", features=(last,))
    for failed in (last, replace(last, failure=None)):
        ((why, command),) = summary(replace(view, features=(failed,)))
        assert why.startswith("finish-1: failed (finish.test)")
        assert ", so nothing was merged: commit what is missing to next (" in why
        assert "`git switch next`, after a conflict `git merge main`" in why
        assert command == "mz finish r1"
    assert ": Which one?, so" in summary(view)[0][0]
    later = FeatureView(feature="plan-2", status="done", target="next")
    view = replace(view, features=(last, later), cycle=1, over="cycles")
    assert summary(view) == (("1 cycle: no more were allowed", "mz finish r1   (or mz resume r1 --cycles 1)"),)


def test_a_run_that_a_person_ends_says_how_beside_what_failed() -> None:
    failed = FeatureView(feature="t1", status="failed", code="gate", failure=Digest("0"), target="next")
    view = RunView(run="r1", status="idle", base="main", integration="next", cycle=1, over="cycles", features=(failed,))
    retry = ("t1: failed (gate): Which one?", "mz retry t1")
    end = ("1 cycle: no more were allowed", "mz finish r1   (or mz resume r1 --cycles 1)")
    assert summary(view) == (retry, end)
    assert summary(view, context(letter("t1", None, kind="retry")))[0][1] == "mz resume r1"
    assert len(summary(view, context(letter("t1", None, kind="retry")))) == 1


# questions ------------------------------------------------------------------------------------------------------------
def test_a_question_is_looked_at_and_answered_with_review() -> None:
    ((why, helps),) = summary(a_run(AUDIT))
    assert why == "audit: waiting (blocker) in prd: Which one?"
    assert helps.splitlines() == [
        "mz review show audit",
        "  mz review answer audit TEXT   (or mz review approve audit, or mz review reject audit -m WHY)",
    ]


@pytest.mark.parametrize(
    ("left", "waiting"),
    [
        (letter(), True),
        (letter(question=None), True),
        (letter(feature=None, kind="cancel", question=None), True),
        (letter(question=5), False),
        (letter(feature="other"), False),
        (letter(fate="accepted"), False),
        (letter(fate="rejected"), False),
        (letter(kind="pause", feature=None, question=None), False),
    ],
)
def test_what_was_left_waits_for_the_run(left: InboxMessage, waiting: bool) -> None:
    """The same question is not asked again; a process that works on the run takes the answer by itself."""
    beside = context(left)
    assert (next_command(RUN, AUDIT, beside) == GOING) is waiting
    ((why, helps),) = summary(a_run(AUDIT), beside)
    assert (helps == GOING) is waiting
    assert ("pending until the run continues" in why) is waiting
    assert bool(summary(a_run(AUDIT), context(left, held=True))) is not waiting


def test_an_answer_that_was_left(stored_run: StoredRun, mz: Mz) -> None:
    (question,) = (entry["waiting"] for entry in requested(mz)["features"] if entry["waiting"])
    assert question["commands"] == [
        "mz review show audit", "mz review answer audit TEXT", "mz review approve audit",
        "mz review reject audit -m WHY",
    ]  # fmt: skip
    assert question["answered"] is False
    version = int(question["event_ref"].rpartition("@")[2])
    answer = AnswerPosted(
        feature=FeatureId("audit"), verdict=Verdict.APPROVE, actor=stored_run.blob("Ann"), question=version
    )
    stored_run.store.append([Append(inbox_stream(RUN), None, (answer,))], START_US)
    (after,) = (item for item in requested(mz)["features"] if item["waiting"])
    assert (after["waiting"]["answered"], after["next"]) == (True, GOING)
    assert f"next: {GOING}, which reads the posted answer" in mz("show", "audit").out


def requested(mz: Mz) -> dict[str, Any]:
    return cast("dict[str, Any]", decoded(mz("status", "--json")))


# going on -------------------------------------------------------------------------------------------------------------
def test_what_goes_on_by_itself_is_told_together() -> None:
    held = FeatureView(feature="held", status="held", hold=Hold.TIMER)
    stopped = FeatureView(feature="one", status="interrupted")
    ((_, review), (why, helps)) = summary(a_run(held, AUDIT, stopped))
    assert review.startswith("mz review show audit")
    assert (why, helps) == ("held: held (timer)\none: interrupted", GOING)


@pytest.mark.parametrize("hold", [Hold.TIMER, Hold.CHECKS])
def test_what_a_process_waits_for_needs_nobody(hold: Hold) -> None:
    held = FeatureView(feature="one", status="held", hold=hold)
    assert next_command(RUN, held, context(held=True)) is None
    assert summary(a_run(held, status="running"), context(held=True)) == ()
    assert next_command(RUN, held, context()) == GOING


def test_a_pause_is_named_by_its_cause() -> None:
    held = FeatureView(feature="one", status="held", hold=Hold.TIMER, code="overloaded")
    assert summary(a_run(held)) == (("one: held (overloaded)", GOING),)


def test_what_builds_on_a_merge_tells_what_to_merge() -> None:
    held = FeatureView(feature="two", status="held", blocked_by="login", code="merge")
    assert summary(a_run(LOGIN, held)) == (("two: held (merge login)", f"merge feat/login, then: {GOING}"),)
    opened = replace(LOGIN, pull_request="https://forge.invalid/7")
    assert summary(a_run(opened, held))[0][1] == f"merge https://forge.invalid/7, then: {GOING}"
    assert run_exit(a_run(opened, held)) is Exit.WAITING
    waits = replace(held, blocked_by="audit", code="dependency")
    (review,) = summary(a_run(AUDIT, waits))
    assert review[0].startswith("audit"), "the other one's question comes first"


def test_what_was_cancelled_is_not_delivered() -> None:
    given_up = FeatureView(feature="one", status="cancelled")
    assert run_exit(a_run(replace(LOGIN, status="delivered"), given_up)) is Exit.VERDICT
    assert run_exit(a_run(AUDIT, given_up)) is Exit.WAITING


def test_what_builds_on_a_failure_waits_for_that() -> None:
    failed = FeatureView(feature="first", status="failed", code="gate")
    second = FeatureView(feature="second", status="held", blocked_by="first")
    third = FeatureView(feature="third", status="held", blocked_by="second")
    told_once = summary(a_run(failed, second, third))
    assert told_once == (("second: held (first)\nthird: held (second)", "mz retry first"),)
    assert next_command(RUN, third, context()) is None


def test_what_waits_for_a_dependency_that_asks_has_no_command_of_its_own() -> None:
    held = FeatureView(feature="two", status="held", blocked_by="audit", code=AWAITS_WORK)
    assert held.awaits_dependency
    assert next_command(RUN, held, context()) is None


def test_what_has_no_money_left_needs_more() -> None:
    held = FeatureView(feature="dear", status="held", hold=Hold.BUDGET)
    assert summary(a_run(held)) == (("dear: held (budget)", f"raise budget in mz.yaml, then: {GOING}"),)


def test_a_broken_template_needs_a_new_run() -> None:
    """To go on would only halt again: the run has pinned it."""
    view = FeatureView(feature="a", status="held", hold=Hold.FATAL, code=TEMPLATE_BROKEN)
    ((why, helps),) = summary(a_run(view, status="halted"))
    assert why == "a: held (template-broken)"
    broken = TemplateFault(template=parse_path("write.md.j2"), line=3, detail=Digest("0"))
    ((why, _),) = summary(a_run(replace(view, template_error=broken), status="halted"))
    assert why == "a: held (template-broken) in write.md.j2:3: Which one?"
    assert helps.startswith("fix the template")
    room = f"mz cancel {RUN} && mz clean --yes {RUN}"
    assert helps.endswith(f"{room}, then: mz run")
    bare = replace(view, branch="feat/a")
    commit = CommitView(
        phase="write", unit="", purpose="work", commit=Commit("1" * 40), files=1, insertions=1, deletions=0
    )  # fmt: skip
    work = FeatureView(feature="b", status="interrupted", branch="feat/b", commits=(commit,))
    helps = summary(a_run(bare, work, status="halted"))[0][1]
    assert helps.endswith(
        f"{room} && git branch -D feat/a; keep what you need of feat/b, then: git branch -D feat/b, then: mz run"
    )


def test_what_the_agent_said_is_shown_of_what_is_held_for_it() -> None:
    call = replace(CALL, phase="write", feature="a", problem="auth-failure", detail=Digest(""))
    view = FeatureView(feature="a", status="held", hold=Hold.FATAL, code="auth-failure", calls=(call,))
    assert summary(a_run(view, status="halted")) == ((f"a: held (auth-failure): Which one? {LOG_IN}", GOING),)
    other = replace(view, code="worktree-lost")
    text = "a: held (worktree-lost). mz builds it again; `mz resume`."
    assert summary(a_run(other, status="halted"))[0][0] == text


def test_what_is_held_for_its_branch_says_what_to_do() -> None:
    view = FeatureView(feature="a", status="held", hold=Hold.FATAL, code="branch-checked-out")
    ((why, command),) = summary(a_run(view))
    assert why.startswith("a: held (branch-checked-out): A feature's branch is checked out")
    assert "Switch to another branch there" in why
    assert command == f"git switch --detach && {GOING}"


def test_many_lines_are_counted() -> None:
    assert limit_lines(["a"] * LISTED_MAX) == ("a",) * LISTED_MAX
    assert limit_lines(["a"] * (LISTED_MAX + 1200))[-1] == "and 1,200 more"
    many = tuple(FeatureView(feature=f"f{number}", status="interrupted") for number in range(5000))
    assert len(summary(a_run(*many))[0][0].splitlines()) == LISTED_MAX + 1


# where the work is ----------------------------------------------------------------------------------------------------
def text_of(home: Path, feature: str = "login") -> Path:
    """The text of a pull request to be opened by hand."""
    file = home / ".mz" / "pull-requests" / RUN / f"{feature}.md"
    file.parent.mkdir(parents=True)
    file.write_text("Let people log in")
    return file


def test_where_delivered_work_is(home: Path) -> None:
    text_of(home)
    view, beside = a_run(LOGIN, EXPORT), context(home=home)
    text = f".mz/pull-requests/{RUN}/login.md"
    assert work_locations(view, beside) == (
        f"login: feat/login; text for a pull request: {text}", "export: feat/export, which builds on feat/login",
    )  # fmt: skip
    assert review_hint(view, beside) == "next: review what was delivered, for example with `git diff main...feat/login`"
    look = f"next: review it with `git diff main...feat/login`; the text for a pull request is in {text}"
    assert review_hint(a_run(LOGIN), beside) == look
    assert review_hint(a_run(replace(LOGIN, pull_request="https://forge.invalid/7")), beside) == ""
    assert review_hint(a_run(AUDIT), beside) == ""


def test_a_delivery_without_a_change_says_so(home: Path) -> None:
    """There is no difference to look at, and nothing to open a pull request for."""
    text_of(home)
    same, beside = replace(LOGIN, changed_paths=()), context(home=home)
    assert work_locations(a_run(same), beside) == ("login: nothing changed on feat/login",)
    assert review_hint(a_run(same), beside) == ""
    assert review_hint(a_run(same, EXPORT), beside) == "next: review it with `git diff feat/login...feat/export`"


def test_paths_are_short_only_in_the_repository(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = text_of(home)
    assert context(home=home).pull_request_text(RUN, "audit") is None
    assert relative_path(str(file), context(home=home)) == f".mz/pull-requests/{RUN}/login.md"
    monkeypatch.chdir(home.parent)
    assert relative_path(str(file), context(home=home)) == str(file)


def test_a_worktree_is_named_as_one(home: Path) -> None:
    (home / ".mz" / "worktrees" / RUN / "audit").mkdir(parents=True)
    assert work_locations(a_run(AUDIT), context(home=home)) == (f"audit: worktree .mz/worktrees/{RUN}/audit",)


def test_status_and_show_name_the_text(stored_run: StoredRun, mz: Mz) -> None:
    """The story's feature has a pull request, and a text beside it; the other has neither."""
    file = text_of(stored_run.home, "audit")
    features = msgspec.json.decode(mz("status", "--json").out)["features"]
    actual = {feature["id"]: feature["pull_request_text"] for feature in features}
    assert actual == {"login": None, "audit": str(file), "export": None, "later": None}
    heads, _, audit, *_ = [row.split("\t") for row in mz("status").out.splitlines()]
    assert dict(zip(heads, audit, strict=True))["pull_request_text"] == str(file)
    assert f"text for a pull request: {file}" in mz("show", "audit").out


# the end of a run -----------------------------------------------------------------------------------------------------
def ending(capsys: pytest.CaptureFixture[str], view: RunView, chosen: str, home: Path = Path("/nowhere")) -> str:
    capsys.readouterr()
    with click.Context(click.Command("run")) as command:
        command.meta[FORMAT_KEY] = chosen
        print_run(view, context(home=home))
    captured = capsys.readouterr()
    assert not captured.err
    return captured.out


def test_the_end_of_a_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table, and below it what to do next; a command is said once."""
    text_of(home)
    stopped = FeatureView(feature="one", status="interrupted")
    view = a_run(LOGIN, AUDIT, stopped, status="stopped")
    assert [row.split("\t")[:2] for row in ending(capsys, view, "tsv", home).splitlines()] == [
        ["feature", "status"], ["login", "delivered"], ["audit", "waiting (blocker)"], ["one", "interrupted"],
    ]  # fmt: skip
    out = ending(capsys, view, "table", home)
    assert f"text for a pull request: .mz/pull-requests/{RUN}/login.md" in out
    assert "mz review show audit" in out
    assert out.count(GOING) == 1
    assert out.rstrip().splitlines()[-1].startswith("next: review it with `git diff main...feat/login`")


def test_nothing_is_to_be_done_after_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    merged = replace(LOGIN, status="merged", pull_request="https://forge.invalid/7")
    assert ending(capsys, a_run(merged, status="finished"), "table").endswith("\n\nlogin: https://forge.invalid/7\n")


@pytest.mark.slow
def test_a_terminal_gets_what_was_worked_on_of_thousands() -> None:
    """And a count of the rest; a pipe gets all of them, and of few a terminal does too."""
    queued = tuple(FeatureView(feature=f"f{number}") for number in range(4990))
    skipped = tuple(FeatureView(feature=f"s{number}", status="skipped") for number in range(8))
    features = (*queued, LOGIN, *skipped, EXPORT)
    assert features_to_list(features) == ((LOGIN, EXPORT), "and 4,998 other features: 4,990 queued, 8 skipped")
    assert len(status_table(a_run(*features), context()).rows) == 5000
    assert features_to_list(features[4980:]) == (features[4980:], "")


@pytest.mark.slow
def test_a_terminal_is_told_how_many_there_are_besides(home: Path) -> None:
    log = StoredRun(home).begin("login", *(f"f{number}" for number in range(LISTED_MAX))).admit("login")
    log.close()
    shown = on_terminal(home, "status", env={"NO_COLOR": "1"}, columns=200)
    assert f"and {LISTED_MAX} other features: {LISTED_MAX} queued\n" in shown
    assert "f1 " not in shown


# refusals -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("message", "bare"),
    [
        ("a.md:3: too long [x.size]", "too long"),
        ("a.md:33: too long [x.size]", "a.md:33: too long"),
        ("too long [x.size] [y]", "too long [x.size] [y]"),
        ("", ""),
    ],
)
def test_place_and_rule_are_said_once(message: str, bare: str) -> None:
    assert short_message(message, "a.md:3", "x.size") == bare


def test_a_refusal_says_place_and_rule_once(stored_run: StoredRun, mz: Mz) -> None:
    stored_run.admit("later")
    stored_run.to_feature("later", PhaseStarted(phase="prd", iteration=1))
    ref = stored_run.ref("later", "prd")
    stored_run.ask("later", ref)
    report = stored_run.blob('["tasks/later/prd.md:13: it is too long [prd.size]"]')
    broken = Violation(rule="prd.size", path="tasks/later/prd.md", line=13)
    stored_run.to_feature("later", ArtifactValidated(ref=ref, report=report, violations=(broken,)))
    shown = mz("show", "later").out
    assert "    rejected: tasks/later/prd.md:13: it is too long (rule prd.size)\n" in shown
