"""Adapter: what pipelines are made of: templates and rule sets of mz, and those of the repository in their place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from mz_engine.artifacts.load import load_rules, shared_rules
from mz_engine.artifacts.rule import RuleSet
from mz_engine.errors import Diagnostic, MzError
from mz_engine.pipelines.load import FOLDER
from mz_engine.pipelines.material import check_template, read_rules
from mz_engine.prompts.load import SUFFIX, load_templates
from mz_engine.textfile import read_text
from mz_engine.yamlfile import load

TEMPLATES = f"{FOLDER}/templates"
RULES = f"{FOLDER}/rules"


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """By name. What the repository has takes the place of what comes with mz under the same name."""

    templates: dict[str, str]
    rules: dict[str, RuleSet]
    files: tuple[str, ...]
    """Of the repository, relative to it."""
    found: tuple[Diagnostic, ...] = ()
    """What is wrong with these files; one with errors is left out."""


def load_material(root: Path) -> Material:
    """Files `pipelines/templates/**.j2`, named by their path below that folder, and `pipelines/rules/NAME.yaml`."""
    own, texts, rules = list[Diagnostic](), dict[str, str](), dict[str, RuleSet]()
    files = list[str]()
    for name, file in _below(root, TEMPLATES, SUFFIX):
        files.append(file)
        try:
            texts[name] = read_text(root / file, file)
        except MzError as error:
            own += error.diagnostics
    templates = {**load_templates(), **texts}
    for name, text in texts.items():
        own += check_template(f"{TEMPLATES}/{name}", name, text, templates)
    for name, file in _below(root, RULES, ".yaml"):
        files.append(file)
        try:
            read = read_rules(load(read_text(root / file, file), file), name.removesuffix(".yaml"), shared_rules())
        except MzError as error:
            read = error.diagnostics
        if isinstance(read, RuleSet):
            rules[read.name] = read
        else:
            own += read
    return Material(templates=templates, rules={**load_rules(), **rules}, files=tuple(files), found=tuple(own))


def sound_material(root: Path) -> Material:
    """The same; raises MzError with everything that is wrong."""
    material = load_material(root)
    if material.found:
        raise MzError.of(material.found)
    return material


def _below(root: Path, folder: str, suffix: str) -> Iterator[tuple[str, str]]:
    """Names below the folder, and paths below the root, sorted."""
    for file in sorted((root / folder).rglob(f"*{suffix}")):
        if file.is_file():
            name = file.relative_to(root / folder).as_posix()
            yield name, f"{folder}/{name}"
