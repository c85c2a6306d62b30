"""Selectors: one notation for runs, features, phases, attempts and events in every command."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from mz_cli.app.completion import suggestions
from mz_cli.app.context import open_log
from mz_cli.app.selectors import part_text, select
from mz_events.catalog.run import ItemSkipped, RunFinished, RunStarted
from mz_events.names import FeatureId

from tests.cli.drive import Mz
from tests.cli.stored_run import RUN, StoredRun
from tests.support.samples import sample


@pytest.mark.parametrize(
    ("text", "stream", "phase", "attempt", "version", "names_run"),
    [
        ("login", f"run/{RUN}/login", None, None, None, False),
        (RUN[:8], f"run/{RUN}", None, None, None, True),
        (f"run/{RUN}", f"run/{RUN}", None, None, None, True),
        (f"{RUN[:8]}/login", f"run/{RUN}/login", None, None, None, True),
        ("login/code", f"run/{RUN}/login", "code", None, None, False),
        ("login/code#2", f"run/{RUN}/login", "code", 2, None, False),
        (f"run/{RUN}/login/code#2", f"run/{RUN}/login", "code", 2, None, True),
        ("login@3", f"run/{RUN}/login", None, None, 3, False),
        (f"run/{RUN}@3", f"run/{RUN}", None, None, 3, True),
    ],
)
def test_forms(
    stored_run: StoredRun,
    text: str,
    stream: str,
    phase: str | None,
    attempt: int | None,
    version: int | None,
    names_run: bool,
) -> None:
    with open_log(stored_run.home) as log:
        selector = select(log, text)
    assert (selector.stream, selector.phase, selector.attempt) == (stream, phase, attempt)
    assert (selector.version, selector.names_run) == (version, names_run)


@pytest.mark.parametrize(
    ("args", "exit_code", "message"),
    [
        (("log", "lgin"), 10, "there is no run or feature 'lgin'; did you mean `login`?"),
        (("log", f"{RUN}/lgin"), 10, "did you mean `login`?"),
        (("log", "login/cod"), 2, "did you mean `code`?"),
        (("log", "login/code#9"), 2, "login has no attempt 9: it made 2 in code"),
        (("log", "login/code/u1"), 2, "login has no unit 'u1' in code; units: none"),
        (("log", "login/code/u1/x"), 2, "'login/code/u1/x' is not a selector"),
        (("show", "login@3"), 2, "'login@3' is an event\nhint: its state: mz log --at login@3"),
        (("status", "/"), 2, "'/' is not a selector"),
        (("resume", ""), 2, "'' is not a selector"),
        (("log", "login#2"), 2, "'login#2' is not a selector"),
        (("log", "login/code#x"), 2, "attempts count from 1"),
        (("log", "login/code@3"), 2, "is not a selector"),
        (("log", "login@99"), 2, f"the newest is run/{RUN}/login@43"),
        (("show", RUN), 2, f"{RUN} is a run\nhint: name a feature of it: login, audit, export, later"),
        (("cancel", RUN, "login"), 2, "name either a run, or only features"),
        (("cancel", "later/code"), 2, "a phase or an event cannot be cancelled"),
        (("retry", "login/code#1"), 2, "'login/code#1' is a part of a phase"),
        (("fork", "login/code/u1"), 2, "'login/code/u1' is a part of a phase"),
        (("retry", "lgin"), 10, "did you mean `login`?"),
        (("review", "show", f"{RUN}/lgin"), 10, "did you mean `login`?"),
        (("fork", "login"), 2, "name a phase or an event to start from"),
        (("diff", "login", f"{RUN}/audit"), 2, "two different features"),
    ],
)
def test_errors_name_what_exists(
    stored_run: StoredRun, mz: Mz, args: tuple[str, ...], exit_code: int, message: str
) -> None:
    answer = mz(*args)
    assert (answer.exit, answer.out) == (exit_code, "")
    assert message in answer.err


@pytest.mark.parametrize(
    "command", ["show", "retry", "review show", "fork", "status", "log", "cost", "audit", "cancel"]
)
@pytest.mark.parametrize("name", ["lgin", f"{RUN}/lgin"])
def test_an_unknown_feature_is_one_error_everywhere(stored_run: StoredRun, mz: Mz, command: str, name: str) -> None:
    answer = mz(*command.split(), name)
    assert (answer.exit, answer.out) == (10, "")
    assert answer.err.startswith("error[MZ4010]")
    assert "did you mean `login`?" in answer.err


@pytest.mark.slow
def test_every_printed_name_of_a_call_is_a_selector(stored_run: StoredRun, mz: Mz) -> None:
    calls = msgspec.json.decode(mz("cost", "--by", "attempt", "--json").out)["groups"]
    assert len(calls) > 3
    for group in calls:
        call = group["call"]
        part = part_text(call["phase"], call["unit"], call["iteration"], call["attempt"], call["role"])
        for selector in (group["name"], f"run/{group['name']}", f"{call['feature']}{part}"):
            answer = mz("cost", selector, "--by", "attempt", "--json")
            assert group["name"] in [entry["name"] for entry in msgspec.json.decode(answer.out)["groups"]]
            assert mz("show", selector).exit == mz("log", selector).exit == 0


def test_units_iterations_and_roles(stored_run: StoredRun) -> None:
    key = f"{RUN}/login/code/u1/2/1/agent.security"
    with open_log(stored_run.home) as log:
        selector = select(log, key)
        assert select(log, "login/code/u1#2.1:security").part == selector.part
    assert (selector.feature, selector.part) == (
        "login", {"phase": "code", "unit": "u1", "iteration": 2, "attempt": 1, "role": "security"},
    )  # fmt: skip
    assert str(selector) == f"{RUN}/login/code/u1#2.1:security"


def test_the_log_of_a_phase_of_an_attempt_and_of_an_event(stored_run: StoredRun, mz: Mz) -> None:
    def events(selector: str) -> list[dict[str, object]]:
        return [msgspec.json.decode(line) for line in mz("log", selector, "--json").out.splitlines()[1:]]

    phase, attempt, event = events("login/code"), events("login/code#2"), events("login@3")
    assert {line["stream"] for line in phase} == {f"run/{RUN}/login"}
    assert [line for line in phase if line in attempt] == attempt
    assert 0 < len(attempt) < len(phase)
    assert [line["event_ref"] for line in event] == [f"run/{RUN}/login@3"]


def test_a_text_by_its_digest(stored_run: StoredRun, mz: Mz) -> None:
    digest = stored_run.blob("Let people log in")
    assert mz("show", digest[:10]).out == mz("show", digest).out == "Let people log in"
    unknown = mz("show", "0123456789")
    assert (unknown.exit, unknown.out) == (2, "")
    assert "the log cites no digest '0123456789'" in unknown.err
    assert "hint: " in unknown.err
    assert mz("show", digest, "--json").exit == 2


def test_a_text_that_no_event_cites(stored_run: StoredRun, mz: Mz) -> None:
    assert "the log cites no digest" in mz("show", stored_run.blob("cited by nothing")).err


def test_suggestions_grow_with_the_selector(stored_run: StoredRun) -> None:
    assert suggestions("selectors", "l", {}) == ["login", "later"]
    assert suggestions("selectors", "2", {}) == [RUN]
    assert suggestions("selectors", "", {"selectors": ("login", RUN)}) == ["audit", "export", "later"]
    assert suggestions("selectors", "login/", {}) == ["login/prd", "login/code"]
    assert suggestions("features", f"{RUN}/a", {}) == [f"{RUN}/audit"]
    assert suggestions("features", f"{RUN}/login/c", {}) == [f"{RUN}/login/code"]


def test_a_feature_is_that_of_the_newest_run_that_did_not_skip_it(stored_run: StoredRun) -> None:
    later, earlier = "20260302-120000-abcd", stored_run.run
    stored_run.run = later
    skipped = [
        ItemSkipped(feature=FeatureId(name), delivered_by="run/r0/x@9", changed=False) for name in ("login", "x")
    ]
    stored_run.to_run(replace(sample(RunStarted), run=later), *skipped)
    stored_run.close()
    with open_log(stored_run.home) as log:
        runs = [select(log, name).run for name in ("login", f"{later}/login", "login/code", "x")]
    assert runs == [earlier, later, earlier, later]


def test_a_finished_run_is_not_resumed(stored_run: StoredRun, mz: Mz) -> None:
    stored_run.to_run(RunFinished())
    stored_run.close()
    answer = mz("resume", RUN)
    assert (answer.exit, answer.out) == (2, "")
    assert f"run {RUN} is finished" in answer.err
