"""Agents that `mz.yaml` describes: what is wrong with one is said with its place; how the others are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from mz_engine.agents.contract import Invocation
from mz_engine.agents.described.adapter import DescribedAgent
from mz_engine.agents.registry import all_adapters, built_in_adapters, bundled_descriptions, load_patterns
from mz_engine.config.schema import config_schema, description_errors
from mz_engine.decoding.quantity import decode_quantity, encode_quantity
from mz_engine.decoding.yaml import load_yaml
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.agent_description import AgentDescription
from mz_engine.ports import CallResult, CallSpec
from mz_engine.run.plan import check_agent, find_agent
from mz_engine.run.settings import load_config
from mz_qa.conformance.contract import check_contract
from mz_recordings.findings.model import Finding

from tests.support.claude_cli import spec
from tests.support.tree import ROOT

LOCAL = (ROOT / "tests" / "cases" / "agents" / "local.yaml").read_text()


def local() -> AgentDescription:
    return msgspec.convert(load_yaml(LOCAL)["agents"]["local"], AgentDescription)


def adapter(summary: AgentDescription | None = None) -> DescribedAgent:
    return DescribedAgent("local", summary or local(), load_patterns())


def invocation(summary: AgentDescription | None = None, **more: Any) -> Invocation:
    made: list[Invocation] = []

    def spawn(_: CallSpec, invocation: Invocation) -> CallResult:
        made.append(invocation)
        return CallResult(stdout=b"", stderr=b"", exit=0, duration_ms=0)

    call = spec("Do it.", more.pop("session", None), agent="local", model="local-2", **more)
    adapter(summary).run_call(call, {"LOCAL_KEY": "k", "OTHER": "o"}, spawn)
    return made[0]


# how it is called -----------------------------------------------------------------------------------------------------
def test_the_prompt_goes_in_on_standard_input_and_only_named_variables_pass() -> None:
    made = invocation()
    assert made.argv == ("local-agent", "--model", "local-2", "--tools=read,edit,run")
    assert (made.stdin, made.env) == (b"Do it.", {"LOCAL_KEY": "k", "LOCAL_COLOUR": "never"})


def test_sessions_are_begun_and_continued_by_their_arguments() -> None:
    assert invocation(session="s1").argv[-2:] == ("--session", "s1")
    assert invocation(session="s1", resumes=True).argv[-2:] == ("--continue", "s1")


def test_tools_without_a_place_in_the_command_stand_at_the_end() -> None:
    agent_description = replace(
        local(),
        command=("local-agent",),
        denied=msgspec.convert({"write": ["--no-changes"], "shell": ["--no-run"]}, type(local().denied)),
    )
    assert invocation(agent_description, tools=("read",)).argv == ("local-agent", "read", "--no-changes", "--no-run")


def test_what_it_can_do_follows_from_its_description() -> None:
    output = adapter().capabilities()
    assert (output.sessions, output.streaming) == (True, True)
    assert output.token_counting == "exact"
    assert output.models == {"cheap": "local-2", "mid": "local-2", "premium": "local-2-large"}
    (tells,) = output.reported_fields
    assert (tells.model, tells.requests, tells.money) == (True, True, True)
    assert (tells.session, tells.cache_writes) == (True, "no")


@pytest.mark.parametrize("name", ["local", *bundled_descriptions()])
def test_described_agents_keep_the_contract_of_all_agents(name: str) -> None:
    remarks = check_contract(all_adapters({"local": local()})[name])
    assert [remark.message for remark in remarks if isinstance(remark, Finding)] == []


# whether it can be called ---------------------------------------------------------------------------------------------
def outside(folder: Path, says: str, **more: str) -> dict[str, str]:
    program = folder / "local-agent"
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder), **more}


def test_a_program_with_a_version_and_a_key_can_be_called(tmp_path: Path) -> None:
    check = adapter().check_auth(outside(tmp_path, "echo local-agent 3.1", LOCAL_KEY="k"))
    assert (check.code, check.version) == ("", "3.1")


@pytest.mark.parametrize(("says", "key", "code"), [("echo 3.1", "", "auth-missing"), ("exit 1", "k", "tool-missing")])
def test_without_a_key_or_a_version_a_person_is_told(tmp_path: Path, says: str, key: str, code: str) -> None:
    check = adapter().check_auth(outside(tmp_path, says, LOCAL_KEY=key))
    assert check.code == code
    assert check.fix


@pytest.mark.slow
def test_a_program_that_is_missing_is_installed_or_changed_where_it_stands(tmp_path: Path) -> None:
    nowhere = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    fixes = {name: item.check_auth(nowhere).fix for name, item in all_adapters({"local": local()}).items()}
    assert fixes["local"] == "install it or change the command of local, or name another agent in mz.yaml"
    assert fixes["aider"] == "install aider (pip install aider-chat), or name another agent in mz.yaml"
    assert "kiro.dev" in fixes["kiro"]
    for name in bundled_descriptions():
        program = tmp_path / bundled_descriptions()[name].command[0]
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
        fix = all_adapters({})[name].check_auth(nowhere).fix
        assert ("install" in fix, "mz.yaml" in fix, "description" in fix) == (True, False, False)


def test_a_login_may_be_a_file_and_a_version_may_be_missing(tmp_path: Path) -> None:
    login = msgspec.convert({"files": ["~/.local/login"]}, type(local().login))
    agent = replace(local(), version=(), login=login)
    environment = outside(tmp_path, "exit 1")
    assert adapter(agent).check_auth(environment).code == "auth-missing"
    (tmp_path / ".local").mkdir()
    (tmp_path / ".local" / "login").write_text("")
    assert adapter(agent).check_auth(environment).code == ""


def test_preflight_knows_what_mz_yaml_describes(tmp_path: Path) -> None:
    (tmp_path / "mz.yaml").write_text(LOCAL)
    config = load_config(tmp_path, {}, {}).config
    assert find_agent(config.agent, config.agents).name == "local"
    with pytest.raises(MzError) as caught:
        check_agent("local", config, {"PATH": ""})
    assert caught.value.code == "MZ1004"
    assert "local-agent" in str(caught.value)
    with pytest.raises(MzError, match="local"):
        find_agent("mouse", config.agents)


# what is wrong with a description -------------------------------------------------------------------------------------
def refused(folder: Path, text: str) -> str:
    (folder / "mz.yaml").write_text(text)
    with pytest.raises(MzError) as caught:
        load_config(folder, {}, {})
    return str(caught.value)


BROKEN = {
    "program": ("[local-agent, --model", "[./local-agent, --model", "5:15", "is not the name of a program on PATH"),
    "prompt": ("--model,", '"{prompt}",', "5:28", "everybody on the machine can read"),
    "prompt-file": ("--model,", '"--file={prompt_file}",', "5:28", "/dev/stdin"),
    "placeholder": ("--model,", '"{modle}",', "5:28", "is not a placeholder here; valid: {model}, {tools}"),
    "model": (
        "{mid: local-2, premium: local-2-large}",
        "{premium: local-2-large}",
        "6:13",
        "no model for the tier `mid`",
    ),
    "session": ('[--continue, "{session}"]', "[--continue]", "9:15", "does not name {session}"),
    "secret": ("{LOCAL_COLOUR: never}", "{LOCAL_TOKEN: abc}", "11:32", "name it under `passes`"),
    "our-own": ("{LOCAL_COLOUR: never}", "{MZ_KEY: abc}", "11:27", "is reserved for mz"),
    "login": ("passes: [LOCAL_KEY]", "passes: []", "13:25", "not under `passes`"),
    "path": ("path: text", "path: words..first", "16:41", "is not a path"),
    "where": ("where: {kind: request}", "where: {kind.: request}", "18:24", "is not a path"),
    "nothing": ("success: [{kind: done}]", "success: [{}]", "30:17", "would match every object"),
    "no-success": ("success: [{kind: done}]", "success: []", "30:7", "no call could succeed"),
    "expression": ('["no slot available"]', '["(no slot"]', "33:54", "is not a valid RE2 regular expression"),
    "look-ahead": ('["no slot available"]', '["slot(?= of)"]', "33:54", "(?=; look-around and back-references are not"),
    "back": ('["no slot available"]', "['(a)\\1']", "33:54", "\\1; look-around and back-references are not supported"),
    "huge": ('["no slot available"]', '["((a{1000}){1000}){1000}"]', "33:54", "invalid repetition size"),
    "empty": ('["no slot available"]', '["full|"]', "33:54", "also matches an empty line"),
    "group": ("form: jsonl", "form: jsonl\n      version_pattern: v1", "16:24", "has 0 groups"),
    "words": ("form: jsonl", "form: text", "16:13", "the output is plain text"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, name: str) -> None:
    old, new, text, value = BROKEN[name]
    assert old in LOCAL
    output = refused(tmp_path, LOCAL.replace(old, new))
    assert value in output, output
    assert f"mz.yaml:{text}" in output, output


def test_unknown_keys_and_kinds_are_refused(tmp_path: Path) -> None:
    output = refused(tmp_path, LOCAL.replace("passes:", "pases:").replace("kind: transient", "kind: passing"))
    assert "unknown key `pases`" in output
    assert "did you mean `passes`?" in output
    assert "33:32" in output
    assert "passing is not one of fatal, needs-person, phase, transient" in output.replace("'", "").replace("`", "")


@pytest.mark.parametrize(("old", "new"), [("form: jsonl", "form: xml"), ("passes: [LOCAL_KEY]", "passes: {}")])
def test_what_follows_from_a_wrong_value_is_not_told_besides(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "mz.yaml").write_text(LOCAL.replace(old, new) + "base: -x\n")
    with pytest.raises(MzError) as caught:
        load_config(tmp_path, {}, {})
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["MZ2006", "MZ2013"]
    assert "`base`" in caught.value.diagnostics[1].message


@pytest.mark.parametrize("name", ["claude-code", "kiro", "aider"])
def test_names_of_mzs_own_agents_are_taken(tmp_path: Path, name: str) -> None:
    assert name in built_in_adapters()
    output = refused(tmp_path, LOCAL.replace("  local:", f"  {name}:"))
    assert "mz.yaml:4:3" in output
    assert "mz has a built-in agent of that name" in output


def test_what_comes_with_mz_has_no_faults() -> None:
    actual = {name: list(description_errors(agent)) for name, agent in bundled_descriptions().items()}
    assert actual == {"aider": [], "kiro": []}


def test_a_description_is_pinned_whole_and_shown_by_the_schema(tmp_path: Path) -> None:
    (tmp_path / "mz.yaml").write_text(LOCAL)
    config = load_config(tmp_path, {}, {}).config
    assert config.agents == {"local": local()}
    settings = msgspec.to_builtins(config, enc_hook=encode_quantity)
    assert msgspec.convert(settings, type(config), dec_hook=decode_quantity) == config
    assert "AgentDescription" in config_schema()["definitions"]


def test_the_page_shows_the_description_that_is_tested() -> None:
    page = (ROOT / "docs" / "agents.md").read_text()
    assert LOCAL.partition("\n")[2].strip() in page
