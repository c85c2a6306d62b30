"""The rule sets as data: well formed, stated in full before they are enforced, and the same after a round trip."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from mz_engine.artifacts.load import assemble_rules, load_rules
from mz_engine.artifacts.validate import MESSAGE_SLOT, requirements, validate
from mz_engine.model.config import Config, Limits
from mz_engine.model.pins import Pins, decode_pins, encode_pins
from mz_engine.model.pipeline import Pipeline
from mz_engine.model.rules import (
    CoversIds,
    FieldRule,
    FileList,
    FilePaths,
    JsonForm,
    NoPlaceholders,
    ReferencesIds,
    RuleSet,
    SectionRule,
)
from syrupy.assertion import SnapshotAssertion

from tests.engine.test_artifacts_cases import Case, cases
from tests.support.agentswe import SAMPLES
from tests.support.artifact_strategies import PLACEHOLDERS

SETS = sorted(load_rules().values(), key=lambda rules: rules.name)
each_set = pytest.mark.parametrize("rules", SETS, ids=lambda rules: rules.name)


def test_there_is_a_rule_set_for_every_kind_of_artifact() -> None:
    artifacts = {"prd", "techspec", "tasks", "commit_summary", "code", "tests", "pr", "verdict", "block"}
    assert set(load_rules()) == {*artifacts, "change", "proposals", *SAMPLES}


def test_runs_pin_rules_without_loss() -> None:
    pins = Pins(
        pipeline=Pipeline(pipeline="p", version=1, phases=()), rules=load_rules(), templates={}, config=Config()
    )
    data = encode_pins(pins)
    assert decode_pins(data).rules == load_rules()
    assert encode_pins(decode_pins(data)) == data


@each_set
def test_ids_are_unique_and_begin_with_the_name_of_the_set(rules: RuleSet) -> None:
    ids = [rule.id for rule in rules.rules]
    assert len(set(ids)) == len(ids)
    assert all(text.partition(".")[0] == rules.name for text in ids)


@each_set
def test_every_rule_and_alias_and_number_is_stated(rules: RuleSet) -> None:
    stated = requirements(rules, Limits(techspec_files_max=7, task_files_max=4))
    assert len(stated) == len(rules.rules)
    for rule, text in zip(rules.rules, stated, strict=True):
        assert not MESSAGE_SLOT.search(text)
        for alias in getattr(rule, "aliases", ()) if not isinstance(rule, FieldRule) else ():
            assert f'"{alias}"' in text
        for value in getattr(rule, "values", ()):
            assert f'"{value}"' in text
        limits = [getattr(rule, "min", None) or None, getattr(rule, "max", None)]
        for limit in limits:
            if limit is not None and limit != 1:
                assert str(Limits(techspec_files_max=7, task_files_max=4).resolve(limit)) in text
        if isinstance(rule, SectionRule):
            assert all(f"`{key}:`" in text for key in rule.keys)
        if isinstance(rule, FileList):
            assert all(f'"{word}"' in text for word in rule.ignored)
        if isinstance(rule, FieldRule) and rule.within is None:
            assert f"`{rule.field}`" in text


@each_set
def test_rules_name_only_what_is_there(rules: RuleSet) -> None:
    sections = {rule.id for rule in rules.rules if isinstance(rule, SectionRule)}
    files = {rule.id for rule in rules.rules if isinstance(rule, FileList)}
    fields = {rule.field for rule in rules.rules if isinstance(rule, FieldRule) and rule.within is None}
    for rule in rules.rules:
        match rule:
            case FileList():
                assert rule.section in sections
            case FilePaths():
                assert rule.files in files
            case CoversIds(of="artifact") | ReferencesIds(artifact=str()):
                assert rule.artifact in load_rules()
            case ReferencesIds():
                assert {rule.field, rule.to} <= fields
            case _:
                pass
    wanted = rules.extract
    assert {wanted.files} - {None} <= files
    assert {wanted.criteria} - {None} <= sections
    assert set(wanted.fields) <= fields
    assert (rules.form != "markdown") == any(isinstance(rule, JsonForm) for rule in rules.rules)


def test_every_alias_of_a_placeholder_is_tried_by_a_mutation() -> None:
    [rule] = [rule for rule in load_rules()["prd"].rules if isinstance(rule, NoPlaceholders)]
    tried = " ".join(PLACEHOLDERS).casefold()
    assert all(alias.split("...")[0].strip().casefold() in tried for alias in rule.aliases)


def test_an_unknown_key_in_a_rule_set_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `colour`"):
        assemble_rules({"name": "x", "version": 1, "form": "markdown", "rules": [], "colour": "red"}, {})


def test_messages_say_where_what_and_how(snapshot: SnapshotAssertion) -> None:
    def messages(kind: str, case: Case) -> list[str]:
        limits = replace(Limits(), **case.limits)
        return [f.message for f in validate(load_rules()[kind], case.content, f"tasks/f/{kind}", limits, case.others)]

    output = {f"{kind}: {case.name}": messages(kind, case) for kind, case in cases() if case.breaks}
    assert output == snapshot


def test_every_message_begins_with_its_place_and_ends_with_its_rule() -> None:
    for kind, case in cases():
        for finding in validate(
            load_rules()[kind], case.content, "a/b.md", replace(Limits(), **case.limits), case.others
        ):
            line = f":{finding.violation.line}" if finding.violation.line else ""
            assert finding.message.startswith(f"a/b.md{line}: ")
            assert finding.message.endswith(f" [{finding.violation.rule}]")
            assert not MESSAGE_SLOT.search(finding.message)


def test_the_place_of_a_violation_holds_no_words_of_the_artifact() -> None:
    text = '[{"id": "../evil", "title": "x", "files_touched": []}]' + " " * 60
    places = {f.violation.path for f in validate(load_rules()["tasks"], text, "t.json", Limits(), {})}
    assert places == {
        "t.json[1].id",
        "t.json[1].description",
        "t.json[1].files_touched",
        "t.json[1].acceptance_criteria",
    }


def test_a_message_is_one_line_whatever_the_artifact_says() -> None:
    text = (
        '[{"id": "a\\nb", "files_touched": ["../x\\ny"], "depends_on": ["a\\nb", "c\\u2028d"]}, {"id": "a\\nb"}]'
        + " " * 60
    )
    findings = validate(load_rules()["tasks"], text, "t.json", Limits(), {})
    assert {"tasks.id", "tasks.files", "tasks.known", "tasks.unique", "tasks.order"} <= {
        finding.violation.rule for finding in findings
    }
    assert all(len(finding.message.splitlines()) == 1 for finding in findings)
