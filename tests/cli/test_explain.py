"""`mz help` and `mz schema`: what the codes say, and the schemas that editors and programs use."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mz_cli.common.run_text import REPOSITORY_CODES
from mz_cli.inspect.log import log_entry
from mz_cli.terminal.json import json_line, plain_value
from mz_engine.agents.process import PROBLEM_BY_REASON
from mz_engine.agents.registry import load_patterns
from mz_engine.config.schema import config_schema, events_schema, pipeline_schema
from mz_engine.decoding.yaml import load_yaml
from mz_engine.effects.call import CALL_LOST, WORKTREE_LOST
from mz_engine.errors.codes import CODES, MEANINGS, NEXT_STEPS, PROBLEMS
from mz_engine.errors.diagnostics import Exit
from mz_engine.ports import TEMPLATE_BROKEN
from mz_events.codec import CODEC
from mz_events.names import StreamId
from mz_events.store import Recorded

from tests.cli.drive import Mz, on_terminal
from tests.cli.stored_run import StoredRun
from tests.support.examples import first_of_each
from tests.support.tree import ROOT

PIPELINES = [ROOT / "engine/mz_engine/pipelines/monozukuri.yaml", ROOT / "pipelines/trial.yaml"]
PAYLOADS = sorted((ROOT / "tests/cases/events").glob("*.json"))


@pytest.mark.parametrize(
    ("short", "full"),
    [
        (["verify", "nope"], ["audit", "--verify", "nope"]),
        (["verify", "--imported"], ["audit", "--verify", "--imported"]),
    ],
)
def test_short_forms_of_commands(short: list[str], full: list[str], stored_run: StoredRun, mz: Mz) -> None:
    assert mz(*short) == mz(*full)
    assert f"\n  {short[0]} " not in mz("help", "all").out


@pytest.mark.parametrize(
    "args", [["clean", "--blobs", "r1"], ["clean", "--blobs", "--all"], ["audit", "--verify", "--full"],
              ["audit", "--verify", "r1", "--imported"], ["help", "status", "--json"]],
)  # fmt: skip
def test_words_that_do_not_fit_the_option(args: list[str], stored_run: StoredRun, mz: Mz) -> None:
    answer = mz(*args)
    assert (answer.exit, answer.out) == (2, "")


@pytest.mark.parametrize("word", ["MZ2005", "mz2005", "2005", "error[MZ2005]", "[mz2005]"])
def test_an_error_code_in_every_spelling(word: str, mz: Mz) -> None:
    answer = mz("help", "codes", word)
    assert answer.exit == 0
    assert answer.out == (
        f"MZ2005: unknown key\n\n{CODES['MZ2005'].explanation}\n\nExit code 10: {MEANINGS[Exit.INVALID]}\n"
    )


@pytest.mark.parametrize("word", ["21", "exit 21", "exit21"])
def test_an_exit_code(word: str, mz: Mz) -> None:
    assert mz("help", "codes", word).out == f"exit code 21: {MEANINGS[Exit.WAITING]}\n\n{NEXT_STEPS[Exit.WAITING]}\n"
    assert "Errors that lead to it: MZ1003" in mz("help", "15").out


@pytest.mark.parametrize("word", ["MZ2012", "MZ2016", "MZ3019"])
def test_a_warning_has_no_exit_code(word: str, mz: Mz) -> None:
    assert mz("help", "codes", word).out.endswith("continues.\n\nNo exit code.\n")
    assert json.loads(mz("help", "codes", word, "--json").out)["exit"] is None
    assert word not in mz("help", "10").out


@pytest.mark.parametrize(
    ("word", "output"),
    [
        ("MZ2033", "no error code 'MZ2033'; did you mean `MZ2013`?"),
        ("12", "no exit code 12; known: 0, 1, 2,"),
        ("\x1b[31mfoo", "no error code"),
    ],
)
def test_what_is_no_code(word: str, output: str, mz: Mz) -> None:
    answer = mz("help", "codes", word)
    assert (answer.exit, answer.out) == (2, "")
    assert answer.err.startswith(f"error[MZ1002] {output}")
    assert "\x1b" not in answer.err


def test_codes_for_programs(mz: Mz) -> None:
    summary = json.loads(mz("help", "MZ1005", "--json").out)
    assert summary == {
        "schema": "mz.help-code/1", "kind": "error", "code": "MZ1005", "title": "the agent has no login",
        "explanation": CODES["MZ1005"].explanation, "exit": 11, "codes": [],
    }  # fmt: skip
    listed = json.loads(mz("help", "codes", "--json").out)
    assert (listed["schema"], len(listed["errors"]), len(listed["exits"])) == ("mz.help-codes/1", len(CODES), len(Exit))
    table = mz("help", "codes").out.splitlines()
    assert table[0] == "code\texit\tmeaning"
    assert len(table) == 1 + len(CODES) + len(Exit) + len(PROBLEMS)
    assert [item["code"] for item in listed["problems"]] == list(PROBLEMS)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["no-terminal"], "no-terminal: The output of the agent ended without its final event, "),
        (["exit-3"], "exit-N: The agent's program ended with exit code N"),
        (["codes", "drift"], "drift: A replay asks for something else"),
        (["drift"], "Usage: mz drift"),
    ],
)
def test_a_problem_has_a_meaning_and_a_next_step(arguments: list[str], shown: str, mz: Mz) -> None:
    assert mz("help", *arguments).out.startswith(shown)


def test_every_problem_of_a_call_is_explained() -> None:
    codes = {problem.code for problem in load_patterns().problem} | {
        problem.code for problem in PROBLEM_BY_REASON.values() if problem
    }
    assert codes | {CALL_LOST.code, WORKTREE_LOST.code, TEMPLATE_BROKEN} | REPOSITORY_CODES <= PROBLEMS.keys()


@pytest.mark.parametrize(("code", "way"), [(1, "mz retry"), (16, "mz cancel"), (20, "mz resume"),
                                           (21, "mz review list"), (22, "`budget` in mz.yaml")])  # fmt: skip
def test_how_to_go_on(code: int, way: str, mz: Mz) -> None:
    assert way in mz("help", str(code)).out


def test_every_exit_code_has_a_meaning() -> None:
    assert list(MEANINGS) == sorted(Exit)
    assert list(NEXT_STEPS) == sorted(set(Exit) - {Exit.OK})


@pytest.mark.slow
def test_a_terminal_gets_whole_words(tmp_path: Path) -> None:
    assert max(len(line) for line in on_terminal(tmp_path, "help", "MZ2006", columns=60).splitlines()) <= 60


@pytest.mark.parametrize(("name", "made"), [("config", config_schema), ("pipeline", pipeline_schema),
                                            ("events", events_schema)])  # fmt: skip
def test_schemas_are_printed(name: str, made: Callable[[], dict[str, Any]], mz: Mz) -> None:
    printed = json.loads(mz("schema", name).out)
    assert printed == json.loads(json.dumps(made()))
    jsonschema.Draft7Validator.check_schema(printed)


def test_an_unknown_schema(mz: Mz) -> None:
    answer = mz("schema", "confg")
    assert (answer.exit, answer.out) == (2, "")
    assert "'config', 'pipeline', 'events'" in answer.err


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_real_pipelines_pass_their_schema(path: Path) -> None:
    validator = jsonschema.Draft7Validator(pipeline_schema())
    pipeline = load_yaml(path.read_text())
    validator.validate(pipeline)
    pipeline["phases"][0]["timout"] = {"total": "5m"}
    assert not validator.is_valid(pipeline)


@cache
def events_validator() -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(events_schema())


@pytest.mark.parametrize(
    "path", first_of_each(PAYLOADS, lambda path: path.stem.partition(".")[0]), ids=lambda path: path.stem
)
@pytest.mark.slow
def test_every_event_passes_the_schema_of_events(path: Path) -> None:
    name, _, schema = path.stem.rpartition(".")
    event = CODEC.decode(name, int(schema), path.read_bytes(), "s@1")
    entry = json.loads(json_line(plain_value(log_entry(Recorded(StreamId("run/r1"), 1, 1, 0, 0, event, "")))))
    validator = events_validator()
    assert validator.is_valid(entry)
    if name == "run.started":  # An entry of no type is compared with all types, which takes long.
        assert not validator.is_valid({**entry, "type": "no.such"})
        assert not validator.is_valid({**entry, "event": 5})


@pytest.mark.slow
def test_the_log_passes_the_schema_of_events(stored_run: StoredRun, mz: Mz) -> None:
    lines = mz("log", "--json").out.splitlines()
    validator = events_validator()
    assert len(lines) > 10
    assert [line for line in lines if not validator.is_valid(json.loads(line))] == []
