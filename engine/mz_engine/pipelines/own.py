"""Templates and rule sets of pipelines: those of mz, overridden by those of the repository."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from mz_engine.artifacts.load import load_rules, shared_rules
from mz_engine.artifacts.rule import RuleSet
from mz_engine.errors import Diagnostic, MzError
from mz_engine.pipelines.load import PIPELINES_FOLDER
from mz_engine.pipelines.material import check_template, read_rules
from mz_engine.prompts.load import TEMPLATE_SUFFIX, load_templates
from mz_engine.textfile import read_text
from mz_engine.yamlfile import parse_yaml

TEMPLATES_FOLDER = f"{PIPELINES_FOLDER}/templates"
RULES_FOLDER = f"{PIPELINES_FOLDER}/rules"


class PipelineFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Templates and rule sets by name. Files of the repository override those of mz with the same name."""

    templates: dict[str, str]
    rules: dict[str, RuleSet]
    files: tuple[str, ...]
    """Files of the repository, relative to it."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Problems of these files; files with errors are left out."""


def load_pipeline_files(root: Path) -> PipelineFiles:
    """Load `pipelines/templates/**.j2`, named by their path below that folder, and `pipelines/rules/NAME.yaml`."""
    diagnostics, own_templates, rules = list[Diagnostic](), dict[str, str](), dict[str, RuleSet]()
    files = list[str]()
    for name, file in _files_below(root, TEMPLATES_FOLDER, TEMPLATE_SUFFIX):
        files.append(file)
        try:
            own_templates[name] = read_text(root / file, file)
        except MzError as error:
            diagnostics += error.diagnostics
    templates = {**load_templates(), **own_templates}
    for name, text in own_templates.items():
        diagnostics += check_template(f"{TEMPLATES_FOLDER}/{name}", name, text, templates)
    for name, file in _files_below(root, RULES_FOLDER, ".yaml"):
        files.append(file)
        try:
            result = read_rules(parse_yaml(read_text(root / file, file), file), name.removesuffix(".yaml"), shared_rules())
        except MzError as error:
            result = error.diagnostics
        if isinstance(result, RuleSet):
            rules[result.name] = result
        else:
            diagnostics += result
    rules = {**load_rules(), **rules}
    return PipelineFiles(templates=templates, rules=rules, files=tuple(files), diagnostics=tuple(diagnostics))


def load_valid_pipeline_files(root: Path) -> PipelineFiles:
    """Load the files; raises MzError with all problems."""
    pipeline_files = load_pipeline_files(root)
    if pipeline_files.diagnostics:
        raise MzError.from_diagnostics(pipeline_files.diagnostics)
    return pipeline_files


def _files_below(root: Path, folder: str, suffix: str) -> Iterator[tuple[str, str]]:
    """Yield names below the folder and paths below the root, sorted."""
    for file in sorted((root / folder).rglob(f"*{suffix}")):
        if file.is_file():
            name = file.relative_to(root / folder).as_posix()
            yield name, f"{folder}/{name}"
