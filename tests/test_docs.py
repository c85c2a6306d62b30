"""Documentation pages match the code: error codes, exit codes, settings, keys of pipelines, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import inspect
from mz_engine.artifacts.feature_rules import FEATURE_RULES
from mz_engine.artifacts.load import load_rules, shared_rules
from mz_engine.artifacts.validate import validate
from mz_engine.backlog.item import ItemStatus
from mz_engine.backlog.markdown import PRIORITY_NAMES, STATUSES, parse_backlog
from mz_engine.config.schema import list_settings
from mz_engine.decoding.yaml import decode_yaml, load_yaml, parse_yaml
from mz_engine.errors.codes import CODES
from mz_engine.errors.diagnostics import Exit
from mz_engine.model.config import Limits, Settings
from mz_engine.model.pipeline import Pipeline
from mz_engine.model.rules import Rule, RuleSet
from mz_engine.pipelines.load import PipelineSource
from mz_engine.pipelines.material import check_template, read_rules
from mz_engine.prompts.render import PromptData, load_templates
from mz_engine.setup.templates import starter_backlog

from tests.support.tree import ROOT, kept_files
from tools.docs import errors, settings


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text("utf-8")


def fenced(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page(name), flags=re.MULTILINE | re.DOTALL)


def test_the_page_of_errors_is_generated() -> None:
    assert page("errors") == errors.markdown_page(), "run: python -m tools.docs.errors docs/errors.md"
    assert [code for code in CODES if f"\n### {code}: " not in page("errors")] == []
    assert [exit_code for exit_code in Exit if f"\n| {exit_code.value} | " not in page("errors")] == []


def test_the_tables_of_settings_are_generated() -> None:
    text = page("configuration")
    assert text == settings.renew(text), "run: python -m tools.docs.settings docs/configuration.md"
    assert [setting.name for setting in list_settings() if f"\n| `{setting.name}` |" not in text] == []


def test_the_table_of_an_agents_description_is_generated() -> None:
    text = page("agents")
    assert text == settings.renew(text), "run: python -m tools.docs.settings docs/agents.md"
    for key in ("command", "login.files", "output.usage.thoughts", "ends.proof.stream", "problems[].retry_after"):
        assert f"\n| `{key}` |" in text


def keys(kind: inspect.Type) -> Iterator[str]:
    match kind:
        case inspect.StructType():
            for field in kind.fields:
                yield field.encode_name
                yield from keys(field.type)
        case inspect.VarTupleType():
            yield from keys(kind.item_type)
        case inspect.UnionType():
            for item in kind.types:
                yield from keys(item)
        case inspect.LiteralType():
            yield from (str(value) for value in kind.values)


def test_every_key_and_word_of_a_pipeline_is_explained() -> None:
    text = page("pipelines")
    texts = {*keys(msgspec.inspect.type_info(Pipeline))} - {"supervised", "checkpoint", "full_auto"}
    assert sorted(word for word in texts if f"`{word}`" not in text) == []


def test_every_kind_of_rule_and_its_keys_are_explained() -> None:
    text, kinds = page("pipelines"), msgspec.inspect.type_info(RuleSet)
    names = {*keys(kinds)} | {str(kind.__struct_config__.tag) for kind in get_args(Rule)}
    assert sorted(word for word in names - {"name", "version", "rules"} if f"`{word}`" not in text) == []


def test_every_rule_and_template_that_a_pipeline_may_name_is_listed() -> None:
    text = page("pipelines") + page("agentswe")
    names = {name for name in load_templates() if "/" not in name and name not in ("base.md.j2", "continuation.md.j2")}
    assert sorted(name for name in {*load_rules(), *FEATURE_RULES, *names} if f"`{name}`" not in text) == []


def pages_of_the_project() -> list[Path]:
    return [path for path in kept_files() if path.suffix == ".md" and path.parts[0] not in ("tests", "recordings")]


def anchors(text: str) -> set[str]:
    """As forges make them of headings."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def test_links_lead_somewhere() -> None:
    for path in pages_of_the_project():
        for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / path).read_text("utf-8")):
            name, _, anchor = target.partition("#")
            file = (ROOT / path.parent / name) if name else ROOT / path
            assert "://" in target or file.exists(), f"{path}: {target}"
            assert "://" in target or not anchor or anchor in anchors(file.read_text("utf-8")), f"{path}: {target}"


def test_every_page_of_docs_is_in_its_list() -> None:
    """Nobody finds a page that nothing leads to."""
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text("utf-8"))
    there = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted(there), "docs/README.md lists the pages"


def test_examples_of_pipelines_and_settings_are_of_good_form() -> None:
    first, merging, edits, block, rules, kinds = fenced("pipelines", "yaml")
    assert validate(load_rules()["block"], block, "BLOCKED.md", Limits(), {}) == ()
    for text in (first, merging, f"pipeline: kinds\nversion: 1\n{kinds}"):
        PipelineSource(name="docs/pipelines.md", text=text).parse()
    assert read_rules(parse_yaml(rules, "docs/pipelines.md"), "risks", shared_rules())
    (template,) = fenced("pipelines", "jinja")
    assert list(check_template("docs/pipelines.md", "risks.md.j2", template, load_templates())) == []
    assert [name for name in PromptData.__struct_fields__ if f"`{name}`" not in page("pipelines")] == []
    for text in (edits, *fenced("configuration", "yaml"), *fenced("generation", "yaml")):
        decode_yaml(text, "docs/configuration.md", Settings)
        assert load_yaml(text)


def test_the_example_of_a_backlog_parses() -> None:
    (text,) = fenced("backlog", "markdown")
    items = parse_backlog(text, "docs/backlog.md")
    assert [item.status for item in items] == [ItemStatus.BACKLOG, ItemStatus.BACKLOG, ItemStatus.DONE]
    for word in (*STATUSES, *PRIORITY_NAMES, "depends on", "labels"):
        assert word in page("backlog"), word
    assert all(status in starter_backlog() for status in STATUSES)
