"""`mz show`: one feature in full."""

from __future__ import annotations

import msgspec
import pytest
from mz_cli.common.feature_query import report_messages
from mz_cli.main import main
from mz_events.catalog.call import AgentReplied, ContextComposed, ContextPart, Problem, ProblemClass, ReplyParsed
from mz_events.catalog.feature import PhaseStarted
from mz_events.catalog.validation import ArtifactParsed, CommandRan, GateChecked, Violation
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, on_terminal
from tests.cli.stored_run import TREE, StoredRun
from tests.support.gitrepo import GitRepo


@pytest.mark.parametrize("args", [("login",), ("audit",), ("later",), ("login/code#1", "--prompt", "--output")])
def test_as_text(stored_run: StoredRun, mz: Mz, snapshot: SnapshotAssertion, args: tuple[str, ...]) -> None:
    answer = mz("show", *args)
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out == snapshot


def test_as_json(stored_run: StoredRun, mz: Mz, snapshot: SnapshotAssertion) -> None:
    answer = mz("show", "login/code", "--prompt", "--json")
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out == snapshot


def test_prompts_only_on_request(stored_run: StoredRun, mz: Mz) -> None:
    shown = msgspec.json.decode(mz("show", "login", "--json").out)
    assert {call["prompt"] for call in shown["calls"]} == {None}
    assert len(shown["calls"]) == 4


@pytest.mark.parametrize(
    ("args", "exit_code", "message"),
    [
        (("lgin",), 10, "has no feature 'lgin'; did you mean `login`?"),
        (("nope/login",), 10, "there is no run or feature 'nope'"),
        (("login/cod",), 2, "login has no phase 'cod'; did you mean `code`?"),
        (("login/xyz",), 2, "login has no phase 'xyz'; it has: prd, code"),
        (("later/prd",), 2, "later has no phase 'prd'; it has started none"),
        (("login/code#3",), 2, "login has no attempt 3: it made 2 in code"),
        (("login", "--artifact", "cod"), 2, "login has no artifact 'cod'; did you mean `code`?"),
        (("login", "--artifact", "xyz"), 2, "login has no artifact 'xyz'; it has: prd, code"),
        (("later", "--artifact", "prd"), 2, "later has no artifact 'prd'; it has none"),
        (("login/code#0",), 2, "attempts count from 1"),
    ],
)
def test_what_is_not_there(stored_run: StoredRun, mz: Mz, args: tuple[str, ...], exit_code: int, message: str) -> None:
    answer = mz("show", *args)
    assert (answer.exit, answer.out) == (exit_code, "")
    assert message in answer.err


PARTS = (
    ContextPart(source="instructions", tokens=900), ContextPart(source="input", name="prd", tokens=1300),
    ContextPart(source="file", name="README.md", tokens=2500, left_out=True),
)  # fmt: skip
LAID_OUT = (ContextPart(source="file", name="src/app.py", tokens=258),)


def test_what_a_prompt_consisted_of(stored_run: StoredRun, mz: Mz) -> None:
    stored_run.admit("later")
    stored_run.to_feature("later", PhaseStarted(phase="code", iteration=1))
    ref = stored_run.ref("later", "code")
    stored_run.to_feature(
        "later",
        ContextComposed(key=ref.key, parts=PARTS, tokens_max=1000, over=300, laid_out=LAID_OUT, hidden_files=212),
    )
    stored_run.ask("later", ref)
    stored_run.close()
    assert mz("show", "later", "--context", "code").out.splitlines() == [
        "attempt 1  builder  claude-code claude-sonnet-4-5",
        "  1,300 of 1,000 tokens, 300 too many; instructions 900",
        "  input prd 1,300",
        "  left out: file README.md 2,500",
        "  laid out: src/app.py 258",
        "  not in scope: 212 files",
    ]
    (call,) = msgspec.json.decode(mz("show", "later", "--context", "code", "--json").out)["calls"]
    assert (call["tokens"], call["parts"][1]) == (
        2200, {"source": "input", "name": "prd", "tokens": 1300, "left_out": False}
    )  # fmt: skip


def test_an_older_log_has_no_context(stored_run: StoredRun, mz: Mz) -> None:
    answer = mz("show", "login", "--context", "code")
    assert (answer.exit, answer.out) == (2, "")
    assert "login/code has no context" in answer.err


def test_the_newest_run_that_has_the_feature(stored_run: StoredRun, mz: Mz) -> None:
    stored_run.close()
    newer = StoredRun(stored_run.home, run="20260302-080000-ffff").begin("other")
    newer.close()
    assert msgspec.json.decode(mz("show", "login", "--json").out)["run"] == stored_run.run


def test_long_messages_are_complete(stored_run: StoredRun, mz: Mz) -> None:
    stored_run.admit("later")
    ref = stored_run.ref("later", "prd")
    stored_run.ask("later", ref)
    stored_run.wait("later", detail="y" * 5000)
    stored_run.close()
    assert "y" * 5000 in mz("show", "later").out


def test_the_output_of_a_failed_gate_is_printed_once(stored_run: StoredRun, mz: Mz) -> None:
    stored_run.admit("later")
    stored_run.to_feature("later", PhaseStarted(phase="code", iteration=1))
    ref = stored_run.ref("later", "code")
    stored_run.ask("later", ref)
    stored_run.reply("later", ref)
    stored_run.to_feature(
        "later",
        CommandRan(stage="gate", phase="code", unit="", name="test", exit=1, passed=1, failed=1,
                   output=stored_run.blob("E: boom"), excerpt=stored_run.blob("E: boom"), duration_ms=9),
        GateChecked(phase="code", unit="", gate="test", passed=False, cause="code",
                    violations=(Violation(rule="test"),), report=stored_run.blob('["the command failed: E: boom"]')),
    )  # fmt: skip
    output = mz("show", "later/code#1").out
    assert output.count("boom") == 1
    assert "    rejected by gate test\n    gate test: 1 passed, 1 failed, exit 1" in output


def test_a_call_without_an_end_says_how_it_ended_and_what_it_printed(stored_run: StoredRun, mz: Mz) -> None:
    stored_run.admit("later")
    stored_run.to_feature("later", PhaseStarted(phase="prd", iteration=1))
    ref = stored_run.ref("later", "prd")
    stored_run.ask("later", ref)
    out, empty = stored_run.blob('{"type": "resu\x1b[2J\n'), stored_run.blob("")
    replied = AgentReplied(ref=ref, stdout=out, stderr=empty, exit=3, duration_ms=4, tree=TREE)
    read = ReplyParsed(
        ref=ref, parser="p/1", ending="no-terminal", session=None, text=empty, bad_lines=1,
        problem=Problem(kind=ProblemClass.PHASE, code="no-terminal"),
    )  # fmt: skip
    stored_run.to_feature("later", replied, read)
    output = mz("show", "later").out
    assert "    exit 3; 1 line of output cannot be decoded; --output shows its output\n" in output
    assert "resu" not in output
    output = mz("show", "later", "--output").out
    assert '    exit 3; 1 line of output cannot be decoded\n    stdout:\n    | {"type": "resu' in output
    assert output.endswith("    stderr: (empty)\n")
    assert "\x1b" not in output
    (call,) = msgspec.json.decode(mz("show", "later", "--output", "--json").out)["calls"]
    assert (call["undecodable_lines"], call["stderr"]) == (1, "")


def test_erased_words_are_left_out(stored_run: StoredRun, mz: Mz) -> None:
    for path in stored_run.blobs.root.rglob("*"):
        if path.is_file():
            path.unlink()
    assert mz("show", "login").exit == 0
    assert mz("show", "login", "--json", "--prompt").exit == 0


@pytest.mark.parametrize(
    ("report", "summary"),
    [("", ()), ('["a", "b"]', ("a", "b")), ("no json", ("no json",)), ('{"a": 1}', ('{"a": 1}',))],
)
def test_reports(report: str, summary: tuple[str, ...]) -> None:
    assert report_messages(report) == summary


# artifacts ------------------------------------------------------------------------------------------------------------
def unit_story(stored_run: StoredRun) -> None:
    """Two units, each handed over twice, in a feature of its own."""
    stored_run.admit("later")
    stored_run.to_feature("later", PhaseStarted(phase="code", iteration=1, units=("u1", "u2")))
    for unit in ("u1", "u2"):
        for attempt in (1, 2):
            ref = stored_run.ref("later", "code", attempt=attempt, unit=unit)
            stored_run.ask("later", ref)
            text = f"# {unit} {attempt}\n\x1b[31mred\x1b[0m\n"
            stored_run.to_feature(
                "later",
                ArtifactParsed(artifact="code", phase="code", unit=unit, digest=stored_run.blob(text), path=None),
            )


def test_an_artifact_is_printed_whole(stored_run: StoredRun, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    unit_story(stored_run)
    for args, text in (
        (("later", "code/u1"), b"# u1 2\n\x1b[31mred\x1b[0m\n"),
        (("later/code#1", "code/u2"), b"# u2 1\n\x1b[31mred\x1b[0m\n"),
    ):
        with pytest.raises(SystemExit):
            main(["show", "--artifact", args[1], args[0]])
        assert capsysbinary.readouterr().out == text


def test_the_result_of_a_command_is_no_reply(stored_run: StoredRun, mz: Mz) -> None:
    unit_story(stored_run)
    result = ArtifactParsed(
        artifact="after", phase="code", unit="u2", digest=stored_run.blob("{}"), path=None, is_result=True
    )
    stored_run.to_feature("later", result)
    shown = mz("show", "later").out
    assert "artifacts:\n  code/u1: the reply\n  code/u2: the reply\n  after/u2: the result of a command\n" in shown


def test_a_record_is_computed_from_the_log(stored_run: StoredRun, mz: Mz) -> None:
    assert mz("show", "login", "--artifact", "prd.history").out == "nothing\n", "no phase has started yet"
    document = msgspec.json.decode(mz("show", "login", "--artifact", "order", "--json").out)
    assert (document["artifact"], document["phase"], document["text"]) == ("order", "", "nothing")
    assert mz("show", "login", "--artifact", "none.history").exit == 2


@pytest.mark.parametrize("name", ["notes", "history", "reward"])
def test_an_artifact_goes_before_a_record_of_its_name(stored_run: StoredRun, mz: Mz, name: str) -> None:
    unit_story(stored_run)
    made = ArtifactParsed(artifact=name, phase="code", unit="", digest=stored_run.blob("ours\n"), path=None)
    stored_run.to_feature("later", made)
    assert mz("show", "later", "--artifact", name).out == "ours\n"


def test_an_artifact_of_several_units_is_asked_for_by_unit(stored_run: StoredRun, mz: Mz) -> None:
    unit_story(stored_run)
    answer = mz("show", "later", "--artifact", "code")
    assert answer.exit == 2
    assert "'code' exists per unit: name one of code/u1, code/u2" in answer.err
    shown = msgspec.json.decode(mz("show", "later", "--artifact", "code/u1", "--json").out)
    assert shown["schema"] == "mz.show-artifact/1"
    assert (shown["artifact"], shown["unit"], shown["text"][:6]) == ("code", "u1", "# u1 2")


@pytest.mark.slow
def test_an_artifact_on_a_terminal_has_no_escapes(stored_run: StoredRun) -> None:
    unit_story(stored_run)
    stored_run.close()
    assert on_terminal(stored_run.home, "show", "later", "--artifact", "code/u1") == "# u1 2\nred\n"


def test_an_erased_artifact_is_an_error(stored_run: StoredRun, mz: Mz) -> None:
    for path in stored_run.blobs.root.rglob("*"):
        if path.is_file():
            path.unlink()
    answer = mz("show", "login", "--artifact", "prd")
    assert (answer.exit, answer.out) == (11, "")
    assert "error[MZ1006]" in answer.err


# what belongs to an attempt -------------------------------------------------------------------------------------------
def test_only_what_belongs_to_the_attempt(stored_run: StoredRun, mz: Mz) -> None:
    full = msgspec.json.decode(mz("show", "login", "--json").out)
    first = msgspec.json.decode(mz("show", "login/code#1", "--json").out)
    assert [(c["name"], c["attempt"], c["exit"]) for c in full["commands"]] == [("test", 1, 1), ("test", 2, 0)]
    assert [(c["name"], c["attempt"]) for c in first["commands"]] == [("test", 1)]
    assert [artifact["artifact"] for artifact in first["artifacts"]] == ["code"]
    assert first["changed_paths"] == ["src/login.py"]
    prd = msgspec.json.decode(mz("show", "audit/prd", "--json").out)
    assert prd["changed_paths"] == []


def test_violations_say_rule_place_and_message(stored_run: StoredRun, mz: Mz) -> None:
    shown = msgspec.json.decode(mz("show", "login/prd#1", "--json").out)
    (rejection,) = shown["calls"][0]["rejections"]
    actual = rejection["violations"]
    assert actual == [{"rule": "sections", "path": "prd.md", "line": None, "message": "The section Risks is missing."}]


def test_what_commands_printed_only_on_request(stored_run: StoredRun, mz: Mz) -> None:
    args = "show", "login/code", "--json"
    quiet, loud = [msgspec.json.decode(mz(*args, *more).out) for more in ((), ("--output",))]
    assert {c["output"] for c in quiet["commands"]} == {None}
    assert {c["output"] for c in loud["commands"]} == {"E  assert"}
    assert {c["excerpt"] for c in quiet["commands"]} == {"E"}


# diffs ----------------------------------------------------------------------------------------------------------------
@pytest.fixture
def captured(stored_run: StoredRun) -> GitRepo:
    """The story goes on in a real repository: one phase, two attempts, three captures."""
    repository = GitRepo(stored_run.home)
    trees = []
    for text in ("one\n", "one\ntwo \x1b[31m\n", "one\n2\n"):
        trees.append(repository.commit({"notes.txt": text}))
    stored_run.admit("later")
    stored_run.to_feature("later", PhaseStarted(phase="code", iteration=1))
    for attempt in (1, 2):
        ref = stored_run.ref("later", "code", attempt=attempt)
        stored_run.ask("later", ref, tree=trees[attempt - 1])
        stored_run.to_feature(
            "later",
            AgentReplied(ref=ref, stdout=stored_run.blob("{}"), stderr=stored_run.blob(""), exit=0, duration_ms=1,
                         tree=trees[attempt]),
        )  # fmt: skip
    return repository


@pytest.mark.slow
def test_what_a_phase_and_an_attempt_changed(captured: GitRepo, stored_run: StoredRun, mz: Mz) -> None:
    phase = mz("show", "later", "--diff").out
    assert "\n  +2\n" in phase
    assert "two" not in phase
    attempt = mz("show", "later/code#2", "--diff").out
    assert "\n    -two \n    +2\n" in attempt
    shown = msgspec.json.decode(mz("show", "later/code#1", "--diff", "--json").out)
    assert shown["history"][0]["diff"] is None
    assert "+two" in shown["calls"][0]["diff"]
    assert msgspec.json.decode(mz("show", "later", "--json").out)["history"][0]["diff"] is None


@pytest.mark.slow
def test_diffs_have_colours_on_a_terminal_only(captured: GitRepo, stored_run: StoredRun) -> None:
    stored_run.close()
    shown = on_terminal(stored_run.home, "show", "later", "--diff")
    assert "\x1b[32m  +2\x1b[m" in shown
    assert "\x1b[36m  @@" in shown
    assert "\x1b" not in on_terminal(stored_run.home, "show", "later", "--diff", env={"NO_COLOR": "1"})


def test_captures_that_are_gone(stored_run: StoredRun, mz: Mz) -> None:
    answer = mz("show", "login", "--diff")
    assert answer.exit == 0
    assert "(the captures are no longer in the repository)" in answer.out
