"""The JSON Schema of an artifact says what its rules say, as far as one artifact alone shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_cli.project.schema import ARTIFACTS
from mz_engine.artifacts.json_schema import artifact_schema
from mz_engine.artifacts.load import load_rules
from mz_engine.artifacts.validate import validate
from mz_engine.decoding.yaml import load_yaml
from mz_engine.git.files import write_engine_files
from mz_engine.model.config import Limits
from mz_engine.model.rules import FieldRule
from mz_events.names import Path as RepositoryPath

from tests.support.agentswe import SAMPLES
from tests.support.artifact_strategies import drafts
from tests.support.examples import examples

DRAWN = tuple(name for name in ARTIFACTS if name not in (*SAMPLES, "proposals"))
FILES = {RepositoryPath(".mz/schemas/tasks.json"): b"{}\n"}


def schema(name: str) -> dict[str, Any]:
    return artifact_schema(load_rules()[name], Limits())


def test_every_json_artifact_has_one() -> None:
    assert {name for name, rules in load_rules().items() if rules.form != "markdown"} == set(ARTIFACTS)
    for name in ARTIFACTS:
        jsonschema.Draft7Validator.check_schema(schema(name))


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() & set(ARTIFACTS)))
def test_samples_keep_to_the_schema(name: str) -> None:
    jsonschema.Draft7Validator(schema(name)).validate(load_yaml(SAMPLES[name]))


@pytest.mark.parametrize("name", DRAWN)
@examples(100, quick=5)
@given(data=st.data())
@pytest.mark.slow
def test_what_keeps_the_rules_keeps_to_the_schema(name: str, data: st.DataObject) -> None:
    draft = data.draw(drafts(name))
    jsonschema.Draft7Validator(schema(name)).validate(json.loads(draft.text))


@pytest.mark.parametrize("name", DRAWN)
@examples(100, quick=5)
@given(data=st.data())
def test_what_lacks_a_field_breaks_both(name: str, data: st.DataObject) -> None:
    draft = data.draw(drafts(name))
    fields = [
        rule for rule in draft.rules.rules if isinstance(rule, FieldRule) and not rule.optional and not rule.within
    ]
    lost = data.draw(st.sampled_from(fields))
    for value in (lost.field, *lost.aliases):
        draft.items[0].pop(value, None)
    assert not jsonschema.Draft7Validator(schema(name)).is_valid(json.loads(draft.text))
    findings = validate(draft.rules, draft.text, "a.json", Limits(), draft.others)
    assert any(rule_finding.violation.rule == lost.id for rule_finding in findings)


def test_limits_are_the_settings_own() -> None:
    few = artifact_schema(load_rules()["tasks"], Limits(task_files_max=2))
    assert few["items"]["properties"]["files_touched"]["maxItems"] == 2
    assert "at most 2 paths" in few["items"]["properties"]["files_touched"]["description"]


# in the worktree ------------------------------------------------------------------------------------------------------
def test_schemas_lie_where_git_does_not_look(tmp_path: Path) -> None:
    write_engine_files(tmp_path, FILES)
    write_engine_files(tmp_path, FILES)
    assert (tmp_path / ".mz/schemas/tasks.json").read_bytes() == b"{}\n"
    assert (tmp_path / ".mz/.gitignore").read_text() == "*\n"


@pytest.mark.parametrize("trap", [".mz", ".mz/schemas", ".mz/schemas/tasks.json"])
def test_links_that_an_agent_left_there_are_not_followed(tmp_path: Path, trap: str) -> None:
    outside, top = tmp_path / "outside", tmp_path / "top"
    (outside / "schemas").mkdir(parents=True)
    kept = outside / "schemas" / "tasks.json"
    kept.write_text("theirs")
    link = top / trap
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / trap.removeprefix(".mz").removeprefix("/"))
    write_engine_files(top, FILES)
    assert kept.read_text() == "theirs"
    assert not link.is_symlink()
    assert (top / ".mz/schemas/tasks.json").read_bytes() == b"{}\n"


def test_a_folder_in_the_place_of_the_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".mz/schemas/tasks.json/deep").mkdir(parents=True)
    write_engine_files(tmp_path, FILES)
    assert (tmp_path / ".mz/schemas/tasks.json").is_file()
