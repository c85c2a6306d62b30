"""Templates and rule sets of a repository's own: found, put in place of built-in ones, and refused with their place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mz_engine.artifacts.load import load_rules
from mz_engine.artifacts.validate import validate
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Limits
from mz_engine.pipelines.load import load_pipeline_files, load_valid_pipeline_files
from mz_engine.prompts.render import load_templates
from mz_engine.run.plan import make_plan
from mz_events.names import Digest

from tests.support.gitrepo import GitRepo

TEMPLATE = """\
{% extends "base.md.j2" %}
{% block title %}Look for risks{% endblock %}
{% block goal %}What can go wrong with {{ title | line }}?{% endblock %}
{% block instructions %}{% include "parts/how.md.j2" %}{% endblock %}
"""
RULES = """\
name: risks
version: 1
form: markdown
rules:
- shared: file
- kind: section
  id: risks.list
  aliases: [Risks]
  requirement: 'A heading begins with {aliases}.'
  message: 'no heading begins with {aliases}: {found}'
"""
PIPELINE = """\
pipeline: careful
version: 1
phases:
- phase: risks
  agent: {}
  prompt: risks.md.j2
  outputs: [{artifact: risks, path: "tasks/{feature}/risks.md", rules: risks}]
  deliver: [push, open_pr]
"""


def give(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / "pipelines" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "pipelines" / name).write_text(text)


def test_without_any_there_are_the_built_in_ones(tmp_path: Path) -> None:
    material = load_valid_pipeline_files(tmp_path)
    assert (material.templates, material.rules, material.files) == (load_templates(), load_rules(), ())


def test_a_run_pins_them_with_its_pipeline(tmp_path: Path) -> None:
    repo = GitRepo(tmp_path)
    give(tmp_path, {
        "careful.yaml": PIPELINE, "rules/risks.yaml": RULES, "templates/risks.md.j2": TEMPLATE,
        "templates/parts/how.md.j2": "Think.",
    })  # fmt: skip
    repo.commit({"mz.yaml": "pipeline: careful\n", "features.md": "## [FEAT] login: Log in\n\nPlease.\n"})
    plan = make_plan(tmp_path, os.environ, {}, (), None, lambda text: Digest("0" * 64))
    assert plan.warnings == ()
    assert plan.pins.templates["risks.md.j2"] == TEMPLATE
    rules = plan.pins.rules["risks"]
    assert validate(rules, "# T\n\n## Risks\n\nMany.\n", "r.md", Limits(), {}) == ()
    (rule_finding,) = validate(rules, "# T\n\n## Hopes\n\nMany.\n", "r.md", Limits(), {})
    assert rule_finding.message.startswith('r.md: no heading begins with "Risks"')


def test_one_that_is_called_like_a_built_in_takes_its_place(tmp_path: Path) -> None:
    give(tmp_path, {"templates/prd.md.j2": "Own words about {{ feature | code }}."})
    assert load_valid_pipeline_files(tmp_path).templates["prd.md.j2"].startswith("Own words")


@pytest.mark.parametrize(
    ("text", "folder", "output"),
    [
        ("line\n{% if %}", "2", "expected"),
        ("{{ title | upperr }}", "1", "no filter named 'upperr'"),
        ("a\n\n{{ titel }}", "3", "prompts have no variable `titel`"),
        ('{% extends "bas.md.j2" %}', "1", "there is no template `bas.md.j2`"),
        ("{% for each in notes %}{{ each }}{{ loop.index }}{% endfor %}{{ range(3) | list }}", "", ""),
    ],
)
def test_a_template_is_checked_before_it_is_needed(tmp_path: Path, text: str, folder: str, output: str) -> None:
    give(tmp_path, {"templates/own.md.j2": text})
    result = load_pipeline_files(tmp_path).diagnostics
    assert [str(item.location) for item in result] == ([f"pipelines/templates/own.md.j2:{folder}"] if folder else [])
    assert all(output in diagnostic.message and diagnostic.code == "MZ3017" for diagnostic in result), result
    if result:
        with pytest.raises(MzError, match="MZ3017"):
            load_valid_pipeline_files(tmp_path)


@pytest.mark.slow
def test_blocks_that_a_phase_lacks_are_told_before_a_run(tmp_path: Path) -> None:
    """All of them, at the phase, and by the template that really requires them; one in between need not be whole."""
    repo = GitRepo(tmp_path)
    give(tmp_path, {
        "careful.yaml": PIPELINE, "rules/risks.yaml": RULES,
        "templates/house.md.j2": '{% extends "base.md.j2" %}\n{% block goal %}G{% block more required %}{% endblock %}'
        "{% endblock %}",
        "templates/risks.md.j2": '{% extends "house.md.j2" %}\n{% block title %}T{% endblock %}',
    })  # fmt: skip
    repo.commit({"mz.yaml": "pipeline: careful\n", "features.md": "## [FEAT] login: Log in\n\nPlease.\n"})
    with pytest.raises(MzError) as refused:
        make_plan(tmp_path, os.environ, {}, (), None, lambda text: Digest("0" * 64))
    assert [(diagnostic.code, str(diagnostic.location)) for diagnostic in refused.value.diagnostics] == [
        ("MZ3017", "pipelines/careful.yaml:6:11")
    ] * 2
    more, actual = (item.message for item in refused.value.diagnostics)
    assert more == "the template `risks.md.j2` does not define the block `more`, which house.md.j2:2 requires"
    assert actual == "the template `risks.md.j2` does not define the block `instructions`, which base.md.j2:16 requires"
    full = "{% block more %}M{% endblock %}{% block instructions %}I{% endblock %}"
    text = (tmp_path / "pipelines/templates/risks.md.j2").read_text() + full
    give(tmp_path, {"templates/risks.md.j2": text})
    assert make_plan(tmp_path, os.environ, {}, (), None, lambda text: Digest("0" * 64)).warnings == ()


@pytest.mark.parametrize(
    ("old", "new", "folder", "output"),
    [
        ("name: risks", "name: risk", "1:7", "`name` must be the file's name"),
        ("shared: file", "shared: fiel", "5:11", "there is no shared rule `fiel`"),
        ("kind: section", "kind: secton", "6:9", "invalid value 'secton'"),
        ("aliases:", "alias:", "6:3", "object contains unknown field `alias`"),
        ("id: risks.list", "id: other.list", "7:7", "have the form `risks.SOMETHING`"),
        ("kind: section", "kind: unique\n  pattern: '('", "6:3", "this rule cannot be evaluated"),
        ("- shared: file", "- shared: file\n- shared: size\n  max: no_such_limit", "6:3", "no_such_limit"),
        ("form: markdown", "form: prose", "3:7", "invalid enum value 'prose'"),
        ("rules:\n", "rules: {}\nmore:\n", "4:8", "`rules` must be a list"),
        ("name: risks", "name: [", "", ""),
    ],
)
def test_a_rule_set_is_checked_before_it_is_needed(
    tmp_path: Path, old: str, new: str, folder: str, output: str
) -> None:
    assert old in RULES
    text = RULES.replace(old, new, 1)
    if "unique" in new:
        text = text.replace("  aliases: [Risks]\n", "")
    give(tmp_path, {"rules/risks.yaml": text})
    material = load_pipeline_files(tmp_path)
    assert material.rules["risks"] == load_rules()["risks"], "the built-in one"
    first = material.diagnostics[0]
    assert output in first.message
    assert not folder or (first.code, str(first.location)) == ("MZ3018", f"pipelines/rules/risks.yaml:{folder}")
